"""Packs the session of `sql/inside` into one file that an image's Python runs: `python3 sql.pyz start|load ...`."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from pathlib import Path

_SOURCES = Path(__file__).with_name("inside")
_PACKAGE = "tvsnap_sql"
_MAIN = f"import sys\nfrom {_PACKAGE}.__main__ import main\nsys.exit(main())\n"
_TIME = (1980, 1, 1, 0, 0, 0)


@cache
def sql_program() -> bytes:
    """Returns the program: a zip archive of Python sources, the same bytes wherever the sources are the same."""
    files = {f"{_PACKAGE}/{path.relative_to(_SOURCES)}": path.read_bytes() for path in sorted(_SOURCES.rglob("*.py"))}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in {**files, "__main__.py": _MAIN.encode()}.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return packed.getvalue()
