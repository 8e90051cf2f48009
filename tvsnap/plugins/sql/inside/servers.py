"""Common functions for the servers of database systems: large files, directories of their users, logs."""

from __future__ import annotations

import contextlib
import os
import shutil

LARGE = 256 * 1024
"""Bytes. Smaller files are copied fast enough when a server first opens them, and each copied file costs a little
whenever the sandbox is observed: a server with many databases has tens of thousands."""
LOG_LINES = 15


def copy_up(directory: str) -> None:
    """Opens the large files below a directory for writing, which makes an overlay copy those of the image.

    So they are in a sandbox's own layer before its first snapshot, and not copied in each fork.
    """
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                path = os.path.join(folder, name)
                if os.lstat(path).st_size >= LARGE:
                    os.close(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK))


def make_directory(path: str, user: str, mode: int) -> None:
    """Creates a directory that belongs to a server's user, and to the group of that name."""
    os.makedirs(path, exist_ok=True)
    shutil.chown(path, user, user)
    os.chmod(path, mode)


def last_lines(text: bytes) -> str:
    return "\n".join(text.decode("utf-8", "backslashreplace").strip().splitlines()[-LOG_LINES:])


def end_of_log(path: str) -> str:
    """Returns the end of a server's log, or why there is none."""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.stat(path).st_size - 8192))
            return last_lines(stream.read())
    except OSError as error:
        return f"(its log cannot be read: {error})"
