"""The shell scripts that set a machine up, and the sources that they build from."""

from __future__ import annotations

import re
from pathlib import Path

_CARRIED = Path(__file__).with_name("setup")
ROOT = _CARRIED if _CARRIED.is_dir() else Path(__file__).resolve().parents[2]
"""Below it they have the paths that they have in a checkout; it is one, or lies in the package that was installed."""


def criu_additions() -> str:
    """Returns the name of what is added to a CRIU that is built here; it changes when that does.

    Raises:
        OSError: the scripts are not there.
    """
    found = re.search(r"^CRIU_ADDITIONS=(\w+)$", (ROOT / "scripts" / "common.sh").read_text(), re.MULTILINE)
    assert found is not None, "scripts/common.sh names the additions"
    return found[1]
