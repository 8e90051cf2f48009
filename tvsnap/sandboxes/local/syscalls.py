"""System calls that Python lacks: detached mounts, and allocating a part of a file."""

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


def mount_detached(device: str, kind: str, options: Mapping[str, str | None]) -> int:
    """Mounts a block device without attaching it: it is in no mount table and is unmounted with its last descriptor.

    Returns a close-on-exec descriptor of the root directory. `options` has the file system's options, with None for one
    without a value.
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
    """Mounts an image's directory, detached, with the owners that the mounts of a sandbox's process show.

    Returns a close-on-exec descriptor of the directory in that mount. Raises OSError if the file system does not
    support mapped owners; then the sandbox's mounts have none either.
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
    """Allocates disk space for a part of a file without changing its size; raises OSError if that is impossible."""
    checked(libc.fallocate(descriptor, _KEEP_SIZE, ctypes.c_long(start), ctypes.c_long(length)), "fallocate")
