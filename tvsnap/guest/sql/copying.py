"""Large files of an image are copied into a sandbox's own layer once, before its first snapshot, not in each fork."""

from __future__ import annotations

import contextlib
import os

LARGE = 256 * 1024
"""Bytes. Smaller ones are copied quickly enough when a server first opens them, and each that is there costs a little
whenever the sandbox is observed: a server with many databases has tens of thousands."""


def copy_up(directory: str) -> None:
    """Opens the large files below a directory for writing, upon which an overlay copies what lies in the image."""
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                path = os.path.join(folder, name)
                if os.lstat(path).st_size >= LARGE:
                    os.close(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK))
