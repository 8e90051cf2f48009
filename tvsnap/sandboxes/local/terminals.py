"""Waits for free pseudoterminals: each sandbox needs one for its shell, and programs in sandboxes may take the rest."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from tvsnap.host.attempts import LONGEST, AttemptFailed

COUNTS = Path("/proc/sys/kernel/pty")
PATIENCE = LONGEST
"""Seconds: sandboxes end all the time, which frees theirs."""
_PAUSE = 0.05


def await_one() -> None:
    """Waits until the machine has a pseudoterminal for one more sandbox; raises AttemptFailed after some seconds."""
    deadline = time.monotonic() + PATIENCE
    while used := _all_in_use():
        if time.monotonic() > deadline:
            raise AttemptFailed(
                f"this machine has no pseudoterminal left for a sandbox: {used}; end sandboxes that hold many, or "
                f"raise {COUNTS / 'max'}",
                machine=True,
            )
        time.sleep(_PAUSE)


def _all_in_use() -> str:
    """Returns, in words, how many are in use if no container can have another; empty if one can, or if unknown."""
    with contextlib.suppress(OSError, ValueError):
        used, most, reserve = (int((COUNTS / name).read_text()) for name in ("nr", "max", "reserve"))
        if used >= most - reserve:
            return f"{used:,} are in use, of {most:,}, {reserve:,} of which are not for containers"
    return ""
