"""Trees that several images share: an image has only the differences from its base.

A sandbox sees an image's own tree on top of the shared ones, joined by overlayfs. A deleted file is represented in the
own tree by a device node 0:0, which is overlayfs' format; there are no other marks.
"""

from __future__ import annotations

import contextlib
import fcntl
import filecmp
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvsnap.host.locks import locked
from tvsnap.images.rootfs import MOUNT_POINTS, remove_tree
from tvsnap.model.images import LAYERS, Image, shared_tree

DEEPEST = 3
"""Trees below an image's own, at most: each one more makes the start of a sandbox slower."""
_LOCK = ".lock"
_DIGEST = "digest"
_REMOVED = "removed"
_MERGE = 'mount -t overlay overlay -o "ro,lowerdir=$1" "$2" && shift 2 && exec "$@"'


@dataclass(frozen=True, slots=True)
class Below:
    """The shared trees below an image's own.

    Attributes:
        ids: of the trees, topmost first.
        trees: their directories.
        digest: of their combined contents.
    """

    ids: tuple[str, ...] = ()
    trees: tuple[Path, ...] = ()
    digest: str = ""


class SharedTrees:
    """The immutable trees that the images of a data directory share.

    Those of container images that Dockerfiles start from are in `layers`, each in its own directory. The others are
    images. An image that is removed while others depend on it stays, marked as removed.
    """

    def __init__(self, images: Path) -> None:
        """`images` is the directory of the images."""
        self._images = images
        self._place = images / LAYERS

    def find(self, id: str) -> Below | None:
        """Returns a tree in `layers`; None if it does not exist."""
        try:
            digest = (self._place / id / _DIGEST).read_text(encoding="ascii")
        except FileNotFoundError:
            return None
        return Below((id,), (shared_tree(self._images, id),), digest)

    def keep(self, id: str, directory: Path, digest: str) -> None:
        """Moves a directory with a tree in `rootfs` into `layers`, unless the tree exists already."""
        (directory / _DIGEST).write_text(digest, encoding="ascii")
        with contextlib.suppress(OSError):
            directory.rename(self._place / id)

    def under(self, image: Image, ids: Sequence[str]) -> Below:
        """Returns the trees below an image that starts from `image`, which has the trees `ids` below itself."""
        return Below((image.digest, *ids), image.layers, image.digest) if len(ids) < DEEPEST else Below()

    @contextlib.contextmanager
    def lock(self, *, alone: bool) -> Iterator[bool]:
        """A context manager in which no tree is removed; or, with `alone`, in which no build is about to need one.

        Yields whether that is so, which is always the case without `alone`.
        """
        self._place.mkdir(parents=True, exist_ok=True)
        with open(self._place / _LOCK, "a", encoding="utf-8") as file, contextlib.ExitStack() as block:
            try:
                block.enter_context(locked(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH))
            except BlockingIOError:
                yield False
                return
            yield True

    def is_removed(self, digest: str) -> bool:
        """Whether an image was removed, and exists only for others."""
        return (self._images / digest / _REMOVED).exists()

    def mark(self, digest: str, *, removed: bool) -> None:
        """Marks an image as removed, or removes the mark."""
        if removed:
            (self._images / digest / _REMOVED).touch()
        else:
            (self._images / digest / _REMOVED).unlink(missing_ok=True)

    def free(self, needed: Collection[str]) -> None:
        """Removes the trees in `layers` that are not in `needed`, by id."""
        for entry in tuple(os.scandir(self._place)):
            if entry.is_dir(follow_symlinks=False) and entry.name not in needed:
                remove_tree(Path(entry.path))


def subtract(root: Path, below: Sequence[Path]) -> None:
    """Removes the files of a tree that the trees below have identically, and hides the files that only those have.

    `below` has the other trees, topmost first.
    """
    _subtract(str(root), [str(tree) for tree in below], MOUNT_POINTS)


def _subtract(here: str, below: Sequence[str], stay: Collection[str] = ()) -> bool:
    """Does this in one directory that the others have, too; returns whether anything is left in it."""
    about = os.stat(here)
    own = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(here)}
    theirs = _merged(below)
    has_entries = False
    for name, mine in own.items():
        path = f"{here}/{name}"
        if not stat.S_ISDIR(mine.st_mode):
            if name in theirs and _is_same(path, mine, theirs[name]):
                os.unlink(path)
            else:
                has_entries = True
        elif directories := _directories(below, name):
            same = _is_same(path, mine, directories[0]) and name not in stay
            if _subtract(path, directories) or not same:
                has_entries = True
            else:
                os.rmdir(path)
        else:
            has_entries = True
    for name in theirs.keys() - own.keys():
        os.mknod(f"{here}/{name}", stat.S_IFCHR, os.makedev(0, 0))
        has_entries = True
    os.utime(here, ns=(about.st_atime_ns, about.st_mtime_ns))
    return has_entries


def _merged(directories: Sequence[str]) -> dict[str, str]:
    """Returns the path of each entry in directories that lie on top of each other."""
    merged: dict[str, str] = {}
    for directory in directories:
        for entry in os.scandir(directory):
            merged.setdefault(entry.name, entry.path)
    return {name: path for name, path in merged.items() if not _is_hidden(os.lstat(path))}


def _is_hidden(about: os.stat_result) -> bool:
    return stat.S_ISCHR(about.st_mode) and about.st_rdev == 0


def _directories(below: Sequence[str], name: str) -> list[str]:
    """Returns the directories of a name in trees that lie on top of each other."""
    directories = []
    for directory in below:
        path = f"{directory}/{name}"
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                break
            directories.append(path)
    return directories


def _is_same(path: str, mine: os.stat_result, other: str) -> bool:
    """Whether two entries look the same to a sandbox, without the contents of directories."""
    theirs = os.lstat(other)
    if _seen(mine) != _seen(theirs) or _attributes(path) != _attributes(other):
        return False
    if stat.S_ISLNK(mine.st_mode):
        return os.readlink(path) == os.readlink(other)
    if stat.S_ISREG(mine.st_mode):
        # Hard links of one file stay together.
        return mine.st_nlink == theirs.st_nlink == 1 and filecmp.cmp(path, other, shallow=False)
    return stat.S_ISDIR(mine.st_mode)


def _seen(about: os.stat_result) -> tuple[int, ...]:
    size = 0 if stat.S_ISDIR(about.st_mode) else about.st_size
    return (about.st_mode, about.st_uid, about.st_gid, size, about.st_mtime_ns)


def _attributes(path: str) -> Mapping[str, bytes]:
    names = os.listxattr(path, follow_symlinks=False)
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in names}


def in_merged(trees: Sequence[Path], place: Path, command: Sequence[str]) -> list[str]:
    """Returns the command line that runs `command` with trees joined at `place`, like in a sandbox.

    `trees` are given topmost first; `place` is an empty directory, and the mount is visible to the command only.
    """
    lower = ":".join(re.sub(r"([\\\\:,])", r"\\\1", str(tree)) for tree in trees)
    return ["unshare", "--mount", "sh", "-c", _MERGE, "sh", lower, str(place), *command]
