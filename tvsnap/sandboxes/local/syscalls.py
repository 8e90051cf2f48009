"""System calls that Python does not offer: detached mounts, and room for a part of a file."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import struct
from collections.abc import Mapping

from tvsnap.host.libc import checked, closing, libc

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CREATE = 0, 1, 6
_OPEN_TREE, _MOUNT_SETATTR = 428, 442
_MOUNT_ATTR_NOATIME, _MOUNT_ATTR_IDMAP = 0x10, 0x100000
_NS_GET_PARENT = 0xB702
_AT_EMPTY_PATH = 0x1000
_KEEP_SIZE = 1


def mount_detached(device: str, kind: str, options: Mapping[str, str | None] = {}) -> int:
    """Mounts a block device without attaching it anywhere: it shows in no mount table and ends with its descriptor.

    Args:
        device: path of the block device.
        kind: the file system's type.
        options: of the file system, with their values; None for one that has none.

    Returns:
        A descriptor of the root directory, close-on-exec.
    """
    with closing(checked(libc.syscall(_FSOPEN, kind.encode(), 1), f"fsopen {kind}")) as context:
        for command, key, value in (
            (_FSCONFIG_SET_STRING, b"source", device.encode()),
            (_FSCONFIG_SET_FLAG, b"user_subvol_rm_allowed", None),
            *((_FSCONFIG_SET_FLAG, name.encode(), None) for name, value in options.items() if value is None),
            *((_FSCONFIG_SET_STRING, name.encode(), value.encode()) for name, value in options.items() if value),
            (_FSCONFIG_CREATE, None, None),
        ):
            checked(libc.syscall(_FSCONFIG, context, command, key, value, 0), f"mount {device}")
        return checked(libc.syscall(_FSMOUNT, context, 1, _MOUNT_ATTR_NOATIME), f"mount {device}")


def show_owners(directory: int, process: int) -> int:
    """Mounts a directory of an image, attached nowhere, with owners as a sandbox's own mounts show them.

    Args:
        directory: its descriptor.
        process: of the sandbox, as the host sees it.

    Returns:
        A descriptor of it in that mount, close-on-exec.

    Raises:
        OSError: its file system cannot show others as owners; the sandbox's does not, then, either.
    """
    with open(f"/proc/{process}/ns/user", "rb") as own:
        users = fcntl.ioctl(own, _NS_GET_PARENT)
    with closing(users), contextlib.ExitStack() as stack:
        mount = checked(libc.syscall(_OPEN_TREE, directory, b"", 1 | os.O_CLOEXEC | _AT_EMPTY_PATH), "open_tree")
        stack.callback(os.close, mount)
        attributes = struct.pack("4Q", _MOUNT_ATTR_IDMAP, 0, 0, users)
        arguments = (mount, b"", _AT_EMPTY_PATH, attributes, ctypes.c_size_t(len(attributes)))
        checked(libc.syscall(_MOUNT_SETATTR, *arguments), "mount_setattr")
        stack.pop_all()
        return mount


def allocate(descriptor: int, start: int, length: int) -> None:
    """Takes a part of a file from its disk, whatever is in it; the file's size stays.

    Raises:
        OSError: the disk is full, or its file system cannot do so.
    """
    checked(libc.fallocate(descriptor, _KEEP_SIZE, ctypes.c_long(start), ctypes.c_long(length)), "fallocate")
