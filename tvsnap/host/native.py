"""The paths of the programs that `make native` compiles from `native/`."""

from __future__ import annotations

from pathlib import Path

BIN = Path(__file__).with_name("bin")
"""Their directory; in a wheel, CRIU is there, too."""
INIT = BIN / "tvsnap-init"
"""PID 1 of a sandbox."""
FIXED = BIN / "tvsnap-fixed.so"
"""Gives programs a fixed clock and fixed random numbers, in images that ask for it."""
LAUNCH = BIN / "tvsnap-launch"
"""Makes the namespaces and mounts of a sandbox of the local backend, and of an image's build."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
"""Device nodes in these."""
DEVICE_OPTIONS = tuple(option for name in DEVICES for option in ("--device", name))
"""The same, for the command line of `LAUNCH`."""
REWIND = BIN / "tvsnap-rewind.so"
"""Collects evidence about processes from outside."""
LOOK = BIN / "tvsnap-look.so"
"""Observes the files and processes of a sandbox from outside."""
CRIU_PLUGIN = BIN / "criu_plugin" / "interrupted.so"
"""Makes system calls that a dump interrupted continue; CRIU loads all plugins of a directory."""
SYSTEM_CALLS = BIN / "allowed.h"  # the list of those that the filter of a sandbox allows
