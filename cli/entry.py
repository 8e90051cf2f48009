"""Entry point of the `tvsnap` command, which ends quietly on Ctrl-C also while it is being imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line and ends the process."""
    try:
        from .main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()
