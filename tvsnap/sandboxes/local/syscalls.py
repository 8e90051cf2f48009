"""The few system calls that Python does not offer: detached mounts and btrfs subvolumes.

All go through ctypes, which lets other threads run meanwhile.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from collections.abc import Mapping
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CREATE = 0, 1, 6
_OPEN_TREE, _MOUNT_SETATTR = 428, 442
_MOUNT_ATTR_NOATIME, _MOUNT_ATTR_IDMAP = 0x10, 0x100000
_NS_GET_PARENT = 0xB702
_SUBVOL_CREATE, _SNAP_CREATE_V2, _SNAP_DESTROY = 0x5000940E, 0x50009417, 0x5000940F
_SUBVOL_RDONLY, _SUBVOL_QGROUP_INHERIT, _SET_LIMITS, _MAX_REFERENCED = 2, 4, 1, 1
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_KEEP_SIZE = 1


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def mount_detached(device: str, kind: str, options: Mapping[str, str | None] = {}) -> int:
    """Mounts a block device without attaching it anywhere: it shows in no mount table and ends with its descriptor.

    Args:
        device: path of the block device.
        kind: the file system's type.
        options: of the file system, with their values; None for one that has none.

    Returns:
        A descriptor of the root directory, close-on-exec.
    """
    context = _check(_libc.syscall(_FSOPEN, kind.encode(), 1), f"fsopen {kind}")
    try:
        for command, key, value in (
            (_FSCONFIG_SET_STRING, b"source", device.encode()),
            (_FSCONFIG_SET_FLAG, b"user_subvol_rm_allowed", None),
            *((_FSCONFIG_SET_FLAG, name.encode(), None) for name, value in options.items() if value is None),
            *((_FSCONFIG_SET_STRING, name.encode(), value.encode()) for name, value in options.items() if value),
            (_FSCONFIG_CREATE, None, None),
        ):
            _check(_libc.syscall(_FSCONFIG, context, command, key, value, 0), f"mount {device}")
        return _check(_libc.syscall(_FSMOUNT, context, 1, _MOUNT_ATTR_NOATIME), f"mount {device}")
    finally:
        os.close(context)


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
    try:
        mount = _check(_libc.syscall(_OPEN_TREE, directory, b"", 1 | os.O_CLOEXEC | _AT_EMPTY_PATH), "open_tree")
        try:
            attributes = struct.pack("4Q", _MOUNT_ATTR_IDMAP, 0, 0, users)
            arguments = (mount, b"", _AT_EMPTY_PATH, attributes, ctypes.c_size_t(len(attributes)))
            _check(_libc.syscall(_MOUNT_SETATTR, *arguments), "mount_setattr")
        except BaseException:
            os.close(mount)
            raise
        return mount
    finally:
        os.close(users)


def allocate(descriptor: int, start: int, length: int) -> None:
    """Takes a part of a file from its disk, whatever is in it; the file's size stays.

    Raises:
        OSError: the disk is full, or its file system cannot do so.
    """
    _check(_libc.fallocate(descriptor, _KEEP_SIZE, ctypes.c_long(start), ctypes.c_long(length)), "fallocate")


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


def snapshot_subvolume(source: Path, target: Path, *, read_only: bool = False, limit: int | None = None) -> None:
    """Makes `target` a snapshot of the subvolume `source`; what was written to it before is in it.

    Args:
        source, target: paths on one btrfs.
        read_only: nobody can change it.
        limit: bytes that its quota allows it to write; by default there is no limit.
    """
    flags = _SUBVOL_RDONLY if read_only else 0
    # struct btrfs_qgroup_inherit
    inherit = struct.pack("9Q", _SET_LIMITS, 0, 0, 0, _MAX_REFERENCED, limit or 0, 0, 0, 0)
    buffer = ctypes.create_string_buffer(inherit, len(inherit))
    quota = (0, 0)
    if limit is not None:
        flags |= _SUBVOL_QGROUP_INHERIT
        quota = (len(inherit), ctypes.addressof(buffer))
    descriptor = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        arguments = struct.pack("qQQQQ2Q", descriptor, 0, flags, *quota, 0, 0)
        _ioctl(target.parent, _SNAP_CREATE_V2, arguments + os.fsencode(target.name))
    finally:
        os.close(descriptor)


def delete_subvolume(path: Path) -> None:
    """Deletes a subvolume; its space comes back in the background."""
    _ioctl(path.parent, _SNAP_DESTROY, struct.pack("q", 0) + os.fsencode(path.name))
