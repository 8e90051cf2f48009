"""Directories of sandboxes as data: what is in them, and copies of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from tvsnap.host.trees import TreeItem
from tvsnap.model.observations import FileChange, FolderEntry, FolderListing

NOT_COMPARED = ("dev", "run", "usr")


def files_of(root: Path) -> dict[str, FileChange]:
    """Returns all files below a directory but those of the machine, by absolute path as seen inside.

    A directory has no time: that a file was made and removed leaves no trace. Nor has a link.
    """
    found = {}
    for path in _walk(root, NOT_COMPARED):
        seen = path.lstat()
        kind, identity, size = "file", "", 0
        if stat.S_ISREG(seen.st_mode):
            content, size = path.read_bytes(), seen.st_size
            identity = hashlib.sha256(content).hexdigest()
        elif stat.S_ISLNK(seen.st_mode):
            kind, identity = "symlink", os.readlink(path)
        else:
            kind = "directory" if stat.S_ISDIR(seen.st_mode) else "fifo"
        time_of = 0 if kind in ("directory", "symlink") else seen.st_mtime_ns
        links = f"{seen.st_nlink if kind == 'file' else 0} {identity}"
        found["/" + str(path.relative_to(root))] = FileChange(
            kind,  # type: ignore[arg-type]
            size,
            stat.S_IMODE(seen.st_mode),
            mtime_ns=time_of,
            identity=links,
        )
    return found


def _walk(root: Path, without: tuple[str, ...] = ()) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        if path.name in without:
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def copy_tree(source: Path, target: Path) -> None:
    """Copies a directory: hard links stay links, and times stay; the contents of /run are left out."""
    linked: dict[int, str] = {}

    def copy(here: str, there: str) -> None:
        os.mkdir(there)
        for entry in os.scandir(here) if here != f"{source}/run" else ():
            seen, new = entry.stat(follow_symlinks=False), f"{there}/{entry.name}"
            if seen.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                if seen.st_ino in linked:
                    os.link(linked[seen.st_ino], new, follow_symlinks=False)
                    continue
                linked[seen.st_ino] = new
            if entry.is_symlink():
                os.symlink(os.readlink(entry), new)
                continue
            if entry.is_dir():
                copy(entry.path, new)
            elif entry.is_file():
                shutil.copyfile(entry, new)
            else:
                os.mkfifo(new)
            os.chmod(new, stat.S_IMODE(seen.st_mode))
            os.utime(new, ns=(seen.st_atime_ns, seen.st_mtime_ns))

    copy(str(source), str(target))


def size_of(path: Path) -> int:
    return sum(each.lstat().st_size for each in _walk(path) if each.is_file())


def listing_of(items: Iterable[TreeItem], limit: int) -> FolderListing:
    """Returns the first level of a folder's items, which have no time."""
    entries = [
        FolderEntry(item.name, item.kind, item.mode, item.uid, item.gid, item.size, 0, item.target or None)  # type: ignore[arg-type]
        for item in items
        if item.name and "/" not in item.name
    ]
    return FolderListing(tuple(entries[:limit]), len(entries) > limit)
