"""Where the programs are that `make native` compiles from `native/`."""

from __future__ import annotations

from pathlib import Path

BIN = Path(__file__).with_name("bin")
"""Where they are; in a wheel, CRIU is there, too."""
INIT = BIN / "tvsnap-init"
"""PID 1 of a sandbox."""
FIXED = BIN / "tvsnap-fixed.so"
"""Gives programs a fixed clock and fixed chance, in images that ask for it."""
LAUNCH = BIN / "tvsnap-launch"
"""Makes the namespaces and mounts of a sandbox of the local backend, and of an image's build."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
"""Device nodes that these have."""
DEVICE_OPTIONS = tuple(option for name in DEVICES for option in ("--device", name))
"""The same, for the command line of `LAUNCH`."""
REWIND = BIN / "tvsnap-rewind.so"
"""Takes evidence of processes from outside."""
LOOK = BIN / "tvsnap-look.so"
"""Looks at the files and processes of a sandbox from outside."""
CRIU_PLUGIN = BIN / "criu_plugin" / "interrupted.so"
"""Has system calls that a dump interrupts go on; CRIU loads all plugins of a directory."""
SYSTEM_CALLS = BIN / "allowed.h"  # the list of those that pass the filter of a sandbox
