"""The few system calls that Python does not offer: detached mounts, `openat2`, and btrfs subvolumes.

All go through ctypes, which lets other threads run meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_OPENAT2, _FSOPEN, _FSCONFIG, _FSMOUNT = 437, 430, 431, 432
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10
_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CREATE = 0, 1, 6
_MOUNT_ATTR_NOATIME = 0x10
_SUBVOL_CREATE, _SNAP_CREATE_V2, _SNAP_DESTROY = 0x5000940E, 0x50009417, 0x5000940F
_AT_FDCWD = -100


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def open_in_root(root: int, path: str) -> int:
    """Opens `path` (O_PATH) as a process would whose root directory is `root`: no link leads out of it.

    Args:
        root: descriptor of a directory.
        path: a path below it.

    Returns:
        A descriptor, close-on-exec.

    Raises:
        OSError: as open does.
    """
    how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    return _check(_libc.syscall(_OPENAT2, root, path.encode(), how, len(how)), path)


def mount_detached(device: str, kind: str) -> int:
    """Mounts a block device without attaching it anywhere: it shows in no mount table and ends with its descriptor.

    Args:
        device: path of the block device.
        kind: the file system's type.

    Returns:
        A descriptor of the root directory, close-on-exec.
    """
    context = _check(_libc.syscall(_FSOPEN, kind.encode(), 1), f"fsopen {kind}")
    try:
        for command, key, value in (
            (_FSCONFIG_SET_STRING, b"source", device.encode()),
            (_FSCONFIG_SET_FLAG, b"user_subvol_rm_allowed", None),
            (_FSCONFIG_CREATE, None, None),
        ):
            _check(_libc.syscall(_FSCONFIG, context, command, key, value, 0), f"mount {device}")
        return _check(_libc.syscall(_FSMOUNT, context, 1, _MOUNT_ATTR_NOATIME), f"mount {device}")
    finally:
        os.close(context)


def _ioctl(directory: Path, request: int, argument: bytes) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        buffer = ctypes.create_string_buffer(argument, 4096)
        _check(_libc.ioctl(descriptor, ctypes.c_ulong(request), buffer), str(directory))
    finally:
        os.close(descriptor)


def create_subvolume(path: Path) -> None:
    """Makes an empty btrfs subvolume."""
    _ioctl(path.parent, _SUBVOL_CREATE, struct.pack("q", 0) + os.fsencode(path.name))


def snapshot_subvolume(source: Path, target: Path) -> None:
    """Makes `target` a writable snapshot of the subvolume `source`; what was written to it before is in it."""
    descriptor = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _ioctl(target.parent, _SNAP_CREATE_V2, struct.pack("qQQQQQQ", descriptor, *[0] * 6) + os.fsencode(target.name))
    finally:
        os.close(descriptor)


def delete_subvolume(path: Path) -> None:
    """Deletes a subvolume; its space comes back in the background."""
    _ioctl(path.parent, _SNAP_DESTROY, struct.pack("q", 0) + os.fsencode(path.name))
