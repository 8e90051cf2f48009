"""The session of `sql/inside` as one file that an image's Python runs: `python3 sql.pyz start|load ...`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tvsnap.guest.packing import packed


@cache
def sql_program() -> bytes:
    """Returns the program: a zip archive of Python sources, the same bytes wherever the sources are the same."""
    return packed(Path(__file__).with_name("inside"), "tvsnap_sql")
