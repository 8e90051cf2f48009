"""The tree of an image: safe paths inside it, shifting its owners, its digest, and finishing it.

While a build works on a tree, the tree is untrusted: a symbolic link in it may lead out of it. So no path inside is
opened here without resolving it within the tree first. No process runs in the tree meanwhile, so the result stays
valid.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.small_files import read_small_text
from tvsnap.model.images import CAPABILITY_XATTR, UID_BASE, UID_COUNT

MOUNT_POINTS = ("proc", "sys", "dev", "run", "tmp")

_CAPABILITY_REVISION_MASK = 0xFF000000
_CAPABILITY_REVISION_2 = 0x02000000
_CAPABILITY_REVISION_3 = 0x03000000
_CAPABILITY_V2 = struct.Struct("<5I")
_CAPABILITY_V3 = struct.Struct("<6I")

_LONGEST_LINK_CHAIN = 40
_CHUNK = 1 << 20

HOSTS = "127.0.0.1\tlocalhost\n127.0.1.1\t{hostname}\n::1\tlocalhost ip6-localhost ip6-loopback\n"


class UnsafePath(BuildStepFailed):
    """A path leads out of the tree."""


def resolve_inside(root: Path, path: str, *, follow: bool = False) -> Path:
    """Resolves a path (absolute, or relative to the tree's top) as a process with the root directory `root` would.

    Returns its path on this machine, in which only the last part may be a symbolic link; with `follow`, none is. Parts
    that do not exist are kept. Raises UnsafePath for a part `..`, and for circular links.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UnsafePath(f'failed: "{path}" leads out of the image: it has a part ".."')
    if follow:
        return _follow(root, parts, path)
    return _follow(root, parts[:-1], path) / parts[-1] if parts else root


def _follow(root: Path, parts: list[str], path: str) -> Path:
    pending = list(reversed(parts))
    here: list[str] = []
    links = 0
    while pending:
        part = pending.pop()
        if part in ("", "."):
            continue
        if part == "..":
            # As in a file system, where the root's parent is the root itself.
            del here[-1:]
            continue
        here.append(part)
        try:
            target = os.readlink("/".join((str(root), *here)))
        except OSError:
            continue
        links += 1
        if links > _LONGEST_LINK_CHAIN:
            raise UnsafePath(f'failed: the symbolic links of "{path}" go round in a circle')
        here = [] if target.startswith("/") else here[:-1]
        pending.extend(reversed(target.split("/")))
    return root.joinpath(*here)


def make_directories(root: Path, path: str, owner: int = 0) -> Path:
    """Creates a directory inside, and its parents; returns its path on this machine, free of symbolic links.

    Links are followed within the tree. Raises UnsafePath as `resolve_inside` does, and BuildStepFailed if something
    else than a directory is in the way.

    Args:
        root: the tree.
        path: of the directory inside.
        owner: user and group, on the host, of created directories.
    """
    target = resolve_inside(root, path, follow=True)
    missing = []
    for directory in (target, *target.parents):
        if directory.is_dir() or directory == root:
            break
        missing.append(directory)
    for directory in reversed(missing):
        try:
            directory.mkdir(mode=0o755)
        except OSError as error:
            reason = "something else is in its place" if error.errno == errno.EEXIST else error.strerror
            raise BuildStepFailed(f"failed: could not make the directory {path}: {reason}") from None
        directory.chmod(0o755)
        os.chown(directory, owner, owner)
    return target


def remove_entry(path: Path) -> None:
    """Removes a file or directory, if it exists."""
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            remove_tree(path)
        else:
            path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        pass


def remove_tree(path: Path) -> None:
    """Removes a directory and everything below it, including directories without permissions for their owner."""
    for entry in list(os.scandir(path)):
        if entry.is_dir(follow_symlinks=False):
            remove_tree(Path(entry.path))
        else:
            os.unlink(entry.path)
    path.rmdir()


def ensure_mount_points(root: Path) -> None:
    """Creates the directories on which a sandbox mounts, in place of anything else there."""
    owner = root.stat().st_uid
    for name in MOUNT_POINTS:
        path = root / name
        if path.is_symlink() or not path.is_dir():
            remove_entry(path)
            path.mkdir()
            os.chown(path, owner, owner)
        path.chmod(0o1777 if name == "tmp" else 0o755)


def write_file(
    root: Path, path: str, content: bytes | BinaryIO, *, mode: int = 0o644, uid: int = 0, gid: int = 0
) -> None:
    """Writes a file inside, replacing whatever is there; raises the same errors as `make_directories`.

    Args:
        root: the tree, with shifted owners.
        path: of the file inside.
        content: its bytes, or a stream of them.
        mode: permission bits.
        uid, gid: owner as seen inside.
    """
    make_directories(root, str(PurePosixPath(path).parent), UID_BASE)
    target = resolve_inside(root, path)
    remove_entry(target)
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as stream:
        if isinstance(content, bytes):
            stream.write(content)
        else:
            shutil.copyfileobj(content, stream, _CHUNK)
    os.chown(target, UID_BASE + uid, UID_BASE + gid)
    target.chmod(mode)


def read_text(root: Path, path: str) -> str:
    """Reads a text file inside, following links within the tree; "" if there is none."""
    target = resolve_inside(root, path, follow=True)
    try:
        return read_small_text(target, "replace") if target.is_file() else ""
    except OSError:
        return ""


def account_ids(root: Path, account: str) -> tuple[int, int]:
    """Looks up "user" or "user:group" (names or numbers) in the tree's own /etc/passwd and /etc/group.

    Returns user and group as seen inside; without a group it is the user's in /etc/passwd, else 0. Raises
    BuildStepFailed if there is no such name, or if the number is beyond `UID_COUNT`.
    """
    user, _, group = account.partition(":")
    # Root exists even in a tree without these files. The first entry that has the text as a name or a number counts.
    users = [*_database(root, "etc/passwd", 4), ["root", "x", "0", "0"]]
    groups = [*_database(root, "etc/group", 3), ["root", "x", "0"]]
    entry = next((fields for fields in users if user in (fields[0], fields[2])), None)
    uid = _account_id(entry[2] if entry else user, "user", users)
    if group:
        group_id = next((fields[2] for fields in groups if group in (fields[0], fields[2])), group)
        gid = _account_id(group_id, "group", groups)
    else:
        gid = _account_id(entry[3], "group", groups) if entry else 0
    return uid, gid


def _database(root: Path, path: str, columns: int) -> Iterator[list[str]]:
    for line in read_text(root, path).splitlines():
        fields = line.split(":")
        if len(fields) >= columns and fields[0]:
            yield fields


def _account_id(text: str, kind: str, entries: list[list[str]]) -> int:
    if not text.isascii() or not text.isdigit():
        names = dict.fromkeys(fields[0] for fields in entries)
        raise BuildStepFailed(f'failed: the image has no {kind} "{text}"; it has: {", ".join(names)}')
    if int(text) >= UID_COUNT:
        raise BuildStepFailed(f"failed: {kind} {text} is beyond {UID_COUNT - 1}, the last one there is inside")
    return int(text)


def shift_owners(root: Path) -> None:
    """Shifts the owner of every file by `UID_BASE`, once per hard-linked file; keeps setuid bits and capabilities.

    Raises BuildStepFailed if a file's owner is beyond `UID_COUNT`.
    """
    # Owners do not show whether a file was shifted already, so files with several links are remembered.
    inodes: set[tuple[int, int]] = set()
    for path, info in walk(root):
        if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
            if (info.st_dev, info.st_ino) in inodes:
                continue
            inodes.add((info.st_dev, info.st_ino))
        for kind, number in (("user", info.st_uid), ("group", info.st_gid)):
            if number >= UID_COUNT:
                raise BuildStepFailed(
                    f"failed: /{os.path.relpath(path, root)} belongs to {kind} {number}; "
                    f"{UID_COUNT - 1} is the last one there is inside"
                )
        regular = stat.S_ISREG(info.st_mode)
        _drop_xattrs(path)
        # The kernel removes capabilities and setuid bits when a file's owner changes.
        capability = _xattr(path, CAPABILITY_XATTR) if regular else None
        os.chown(path, UID_BASE + info.st_uid, UID_BASE + info.st_gid, follow_symlinks=False)
        if regular and info.st_mode & (stat.S_ISUID | stat.S_ISGID):
            os.chmod(path, stat.S_IMODE(info.st_mode))
        if capability is not None:
            os.setxattr(path, CAPABILITY_XATTR, _shifted_capability(capability))


def _drop_xattrs(path: str) -> None:
    # Access control lists have unshifted user ids, and overlayfs would interpret its own attributes.
    for name in os.listxattr(path, follow_symlinks=False):
        if not keeps_xattr(name):
            with contextlib.suppress(OSError):  # security.selinux cannot be removed
                os.removexattr(path, name, follow_symlinks=False)


def _shifted_capability(value: bytes) -> bytes:
    """Returns a file capability that is valid in the user namespace with the root `UID_BASE` (capabilities(7))."""
    revision = int.from_bytes(value[:4], "little") & _CAPABILITY_REVISION_MASK
    if revision == _CAPABILITY_REVISION_2 and len(value) == _CAPABILITY_V2.size:
        magic, *sets = _CAPABILITY_V2.unpack(value)
    elif revision == _CAPABILITY_REVISION_3 and len(value) == _CAPABILITY_V3.size:
        magic, *sets, _ = _CAPABILITY_V3.unpack(value)
    else:
        raise BuildStepFailed(f"failed: a file capability of an unknown form: {value.hex()}")
    flags = magic & ~_CAPABILITY_REVISION_MASK
    return _CAPABILITY_V3.pack(_CAPABILITY_REVISION_3 | flags, *sets, UID_BASE)


def unshifted_capability(value: bytes) -> bytes:
    """Returns a file capability that is valid without a user namespace; reverts `shift_owners`."""
    magic, *sets, _ = _CAPABILITY_V3.unpack(value)
    return _CAPABILITY_V2.pack(_CAPABILITY_REVISION_2 | magic & ~_CAPABILITY_REVISION_MASK, *sets)


def _xattr(path: str, name: str) -> bytes | None:
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError:
        return None


def walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yields every path of a tree (or the one file) with its lstat: directories before their contents, by name."""
    top = root.lstat()
    yield str(root), top
    pending = [iter(_sorted_entries(str(root)))] if stat.S_ISDIR(top.st_mode) else []
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
            continue
        info = entry.stat(follow_symlinks=False)
        yield entry.path, info
        if stat.S_ISDIR(info.st_mode):
            pending.append(iter(_sorted_entries(entry.path)))


def _sorted_entries(directory: str) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: os.fsencode(entry.name))


@dataclass(frozen=True, slots=True)
class TreeSummary:
    """The hash of a finished tree, and its bytes on disk."""

    digest: str
    size: int


def finish_tree(root: Path, hostname: str, fraction: Callable[[float | None], None], *, hosts: str = "") -> TreeSummary:
    """Finishes a tree with shifted owners, and hashes it; raises BuildStepFailed if a file has no owner inside.

    Device nodes and sockets are removed, because the sandbox has its own devices. The contents of /run stay, as in a
    container, except tvsnap's own: servers expect the directories that their packages, or a step of the build, created
    there. The files with the names of the host and the network are replaced by those of a sandbox. The digest ignores
    modification times, which would differ between builds of the same packages.

    Args:
        root: the tree.
        hostname: of its sandboxes.
        fraction: gets the progress.
        hosts: additional lines of /etc/hosts.
    """
    for place, name in (("dev", None), ("run", "tvsnap")):
        if (root / place).is_dir() and not (root / place).is_symlink():
            for entry in list(os.scandir(root / place)):
                if name in (None, entry.name):
                    remove_entry(Path(entry.path))
    ensure_mount_points(root)
    write_file(root, "/etc/hostname", f"{hostname}\n".encode())
    write_file(root, "/etc/hosts", (HOSTS.format(hostname=hostname) + hosts).encode())
    write_file(root, "/etc/resolv.conf", b"")

    return summarise(root, fraction)


def summarise(root: Path, fraction: Callable[[float | None], None]) -> TreeSummary:
    """Hashes a tree with shifted owners, and removes device nodes and sockets from it; see `finish_tree`."""
    total = sum(1 for _ in walk(root))
    tree = hashlib.sha256()
    size = 0
    linked: dict[tuple[int, int], str] = {}
    for count, (path, info) in enumerate(walk(root)):
        if count % 512 == 0:
            fraction(count / total)
        inside = os.path.relpath(path, root)
        if stat.S_IFMT(info.st_mode) in (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK):
            os.unlink(path)
            continue
        owner = (info.st_uid - UID_BASE, info.st_gid - UID_BASE)
        if not all(0 <= number < UID_COUNT for number in owner):
            raise BuildStepFailed(f"failed: /{inside} belongs to nobody inside ({info.st_uid}:{info.st_gid})")
        fields: list[object] = [inside, oct(info.st_mode), *owner]
        identity = (info.st_dev, info.st_ino)
        if stat.S_ISDIR(info.st_mode) or identity not in linked:
            linked[identity] = inside
            size += info.st_blocks * 512
            fields.append(_content(path, info))
            names = sorted(filter(keeps_xattr, os.listxattr(path, follow_symlinks=False)))
            fields.extend((name, _xattr(path, name)) for name in names)
        else:
            fields.append(("link", linked[identity]))
        tree.update(os.fsencode(repr(fields)) + b"\n")
    return TreeSummary(tree.hexdigest(), size)


def _content(path: str, info: os.stat_result) -> object:
    if stat.S_ISLNK(info.st_mode):
        return os.readlink(path)
    if stat.S_ISREG(info.st_mode):
        return info.st_size, file_digest(path)
    return None


def keeps_xattr(name: str) -> bool:
    """Whether an extended attribute of this name belongs to an image: file capabilities and user attributes."""
    return name == CAPABILITY_XATTR or (name.startswith("user.") and not name.startswith("user.overlay."))


def file_digest(path: str | Path, algorithm: str = "sha256") -> str:
    """Returns a hash of a regular file's bytes in hexadecimal; refuses to follow a symbolic link."""
    digest = hashlib.new(algorithm)
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
