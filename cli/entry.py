"""Where the `tvsnap` command begins: Ctrl-C ends it quietly also while it is still being imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line and ends the process."""
    try:
        from .main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()
