"""Wraps ioctls of a mounted btrfs: subvolumes, items of trees, sizes."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tvsnap.host.libc import checked, closing, libc

_RESIZE, _DEVICE_INFO, _TREE_SEARCH_V2 = 0x50009403, 0xD000941E, 0xC0709411
_SPACE_INFO, _KINDS, _RESERVED = 0xC0109414, 16, 1 << 49
_DEVICE_STATS, _COUNTERS = 0xC4089434, 5
_START_SYNC, _WAIT_SYNC, _TRIM, _BALANCE = 0x80089418, 0x40089416, 0xC0185879, 0xC4009420
_SUBVOL_CREATE, _SNAP_CREATE_V2, _SNAP_DESTROY = 0x5000940E, 0x50009417, 0x5000940F
_SUBVOL_RDONLY, _SUBVOL_QGROUP_INHERIT, _SET_LIMITS, _MAX_REFERENCED = 2, 4, 1, 1
_ROOT_TREE, _ORPHAN, _ORPHANS = 1, 48, 2**64 - 5
_CHUNK_TREE, _CHUNK, _DEVICE = 3, 228, 1
_LENGTH_AND_KIND, _ON_DEVICE = struct.Struct("=Q16xQ"), 56  # of struct btrfs_chunk; the address in its first stripe
_KIND_DATA, _KIND_TREES, _BALANCE_TREES = 1, 4, 4
_KEY = struct.Struct("=7Q4I4QQ")  # struct btrfs_ioctl_search_key, and the size of the buffer behind it
_COUNT_AT = 64
_FOUND = struct.Struct("=QQQII")  # struct btrfs_ioctl_search_header: generation, object, offset, type, length
_BUFFER = 1 << 18
_ANY = 2**64 - 1


def items(directory: Path, tree: int = 0, of: int | None = None) -> Iterator[tuple[int, int, memoryview]]:
    """Yields type, offset and contents of the items of a tree, in order; the contents are valid until the next one.

    `directory` is any on the file system; `tree` is 0 for the tree of the directory's subvolume; `of` is the number of
    the object (inode, root, ...) that the items belong to, None for all.
    """
    start, last = (of or 0, 0, 0), _ANY if of is None else of
    buffer = bytearray(_KEY.size + _BUFFER)
    view = memoryview(buffer)
    while True:
        object, type, offset = start
        _KEY.pack_into(buffer, 0, tree, object, last, offset, _ANY, 0, _ANY, type, 255, 2**32 - 1, 0, *[0] * 4, _BUFFER)
        ioctl(directory, _TREE_SEARCH_V2, buffer)
        count = struct.unpack_from("=I", buffer, _COUNT_AT)[0]
        if not count:
            return
        at = _KEY.size
        for _ in range(count):
            _, object, offset, type, length = _FOUND.unpack_from(buffer, at)
            at += _FOUND.size
            yield type, offset, view[at : at + length]
            at += length
        start = (object, type, offset + 1) if offset < _ANY else (object, type + 1, 0)


def commit(directory: Path) -> None:
    """Ends the current transaction, after which quota counts are exact; dirty data of files is not written out."""
    transaction = bytearray(8)
    ioctl(directory, _START_SYNC, transaction)
    ioctl(directory, _WAIT_SYNC, transaction)


def size(directory: Path) -> int:
    """Returns how many bytes of its device a single-device file system may use."""
    about = bytearray(4096)
    struct.pack_into("Q", about, 0, _DEVICE)
    ioctl(directory, _DEVICE_INFO, about)
    return int(struct.unpack_from("Q", about, 32)[0])


def used(directory: Path) -> int:
    """Returns the bytes that files and trees use on the device; reserved space does not count."""
    about = bytearray(16 + _KINDS * 24)  # struct btrfs_ioctl_space_args, with room for structs btrfs_ioctl_space_info
    struct.pack_into("Q", about, 0, _KINDS)
    ioctl(directory, _SPACE_INFO, about)
    rows = [struct.unpack_from("3Q", about, 16 + 24 * number) for number in range(struct.unpack_from("Q", about, 8)[0])]
    return sum(used for kind, _, used in rows if not kind & _RESERVED)


def errors(directory: Path) -> int:
    """Returns how often the device has failed, or returned other data than was written, since it was made."""
    about = bytearray(1032)  # struct btrfs_ioctl_get_dev_stats: device, number of counters, flags, counters
    struct.pack_into("QQ", about, 0, _DEVICE, _COUNTERS)
    ioctl(directory, _DEVICE_STATS, about)
    return sum(struct.unpack_from(f"{_COUNTERS}Q", about, 24))


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the device that is reserved for files or trees (a btrfs chunk).

    Attributes:
        holds_files: only the contents of files.
        holds_trees: only metadata.
        address: its beginning in the file system's logical address space, bytes.
        on_device: its beginning on the device, bytes.
        length: bytes.
    """

    holds_files: bool
    holds_trees: bool
    address: int
    on_device: int
    length: int


def regions(directory: Path) -> list[Region]:
    """Returns all regions of a single-device file system, by address."""
    chunks = []
    for type, address, data in items(directory, _CHUNK_TREE):
        if type == _CHUNK:
            length, kind = _LENGTH_AND_KIND.unpack_from(data)
            on_device = int(struct.unpack_from("=Q", data, _ON_DEVICE)[0])
            chunks.append(Region(kind == _KIND_DATA, kind == _KIND_TREES, address, on_device, length))
    return chunks


def renew_tree_regions(directory: Path) -> None:
    """Moves all trees into new regions, sized for the file system: mkfs makes one of 8 MiB.

    Raises OSError if there is no room for one, or if another process is changing regions.
    """
    ioctl(directory, _BALANCE, bytearray(struct.pack("Q", _BALANCE_TREES).ljust(1024, b"\0")))


def deleted_subvolumes(directory: Path) -> set[int]:
    """Returns the numbers of deleted subvolumes that still take space."""
    return {number for type, number, _ in items(directory, _ROOT_TREE, _ORPHANS) if type == _ORPHAN}


def resize(directory: Path, size: int) -> None:
    """Sets how many bytes of its device a file system may use.

    Raises OSError if its contents do not fit, or if it is being resized already.
    """
    ioctl(directory, _RESIZE, bytearray(struct.pack("q", 0) + str(size).encode().ljust(4088, b"\0")))


def trim(directory: Path, start: int, length: int, least: int) -> None:
    """Discards free space of at least `least` bytes in a logical range, and all that is in no region.

    Raises OSError if the device cannot discard.
    """
    ioctl(directory, _TRIM, bytearray(struct.pack("QQQ", start, length, least)))


def compress(path: Path, *, wanted: bool) -> None:
    """Sets whether the kernel compresses a file, or the files created in a directory, when it writes to the disk.

    Subvolumes that are created in the directory are not affected. Raises OSError if it cannot be set.
    """
    os.setxattr(path, "btrfs.compression", b"zstd" if wanted else b"none")


def create_subvolume(path: Path) -> None:
    """Makes an empty subvolume."""
    _by_name(path, _SUBVOL_CREATE, struct.pack("q", 0))


def snapshot_subvolume(source: Path, target: Path, *, read_only: bool, limit: int | None) -> None:
    """Makes `target` a snapshot of the subvolume `source`, including everything written to it before.

    `limit` is how many bytes its quota allows it to write; None for no limit.
    """
    # struct btrfs_qgroup_inherit
    inherit = struct.pack("9Q", _SET_LIMITS, 0, 0, 0, _MAX_REFERENCED, limit or 0, 0, 0, 0)
    buffer = ctypes.create_string_buffer(inherit, len(inherit))
    quota = (0, 0) if limit is None else (len(inherit), ctypes.addressof(buffer))
    flags = _SUBVOL_RDONLY * read_only | _SUBVOL_QGROUP_INHERIT * (limit is not None)
    with closing(os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        _by_name(target, _SNAP_CREATE_V2, struct.pack("qQQQQ2Q", descriptor, 0, flags, *quota, 0, 0))


def delete_subvolume(path: Path) -> None:
    """Deletes a subvolume; its space is freed in the background."""
    _by_name(path, _SNAP_DESTROY, struct.pack("q", 0))


def _by_name(path: Path, request: int, argument: bytes) -> None:
    ioctl(path.parent, request, bytearray((argument + os.fsencode(path.name)).ljust(4096, b"\0")))


def ioctl(directory: Path, request: int, argument: bytearray) -> None:
    """Makes an ioctl on a directory; the kernel's answer replaces `argument`.

    Other threads run meanwhile, which `fcntl.ioctl` does not allow if the argument is longer than 1,024 bytes.
    """
    shared = (ctypes.c_char * len(argument)).from_buffer(argument)
    with closing(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        checked(libc.ioctl(descriptor, ctypes.c_ulong(request), shared), str(directory))
