"""The shell scripts that set a machine up, and the sources that they build from."""

from __future__ import annotations

import re
from pathlib import Path

_CARRIED = Path(__file__).with_name("setup")
ROOT = _CARRIED if _CARRIED.is_dir() else Path(__file__).resolve().parents[2]
"""The directory of scripts and sources, with the paths of a checkout: a checkout, or part of the installed package."""


def criu_additions() -> str:
    """Returns the version of the additions to a CRIU that is built here; raises OSError if the scripts are missing."""
    match = re.search(r"^CRIU_ADDITIONS=(\w+)$", (ROOT / "scripts" / "common.sh").read_text(), re.MULTILINE)
    assert match is not None, "scripts/common.sh names the additions"
    return match[1]
