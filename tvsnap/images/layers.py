"""Trees that several images share: an image holds only how it differs from what it starts from.

A sandbox sees an image's own tree on top of the shared ones, joined by overlayfs. A file that the own tree lacks is
hidden in it by a device node 0:0, as overlayfs has it; there are no other marks.
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
    """What an image is to stand on.

    Attributes:
        ids: of the trees, topmost first.
        trees: their directories.
        digest: of all that they hold together.
    """

    ids: tuple[str, ...] = ()
    trees: tuple[Path, ...] = ()
    digest: str = ""


class SharedTrees:
    """The trees that the images of a data directory share; nothing changes them.

    Those of container images that Dockerfiles start from lie in `layers`, each in a directory of its own. The others
    are those of images. An image that is removed while others stand on it stays where it is, marked as removed.
    """

    def __init__(self, images: Path) -> None:
        """
        Args:
            images: the directory of the images.
        """
        self._images = images
        self._place = images / LAYERS

    def find(self, id: str) -> Below | None:
        """Returns a tree in `layers`; None if it is not there."""
        try:
            digest = (self._place / id / _DIGEST).read_text(encoding="ascii")
        except FileNotFoundError:
            return None
        return Below((id,), (shared_tree(self._images, id),), digest)

    def keep(self, id: str, directory: Path, digest: str) -> None:
        """Takes over a directory with a tree; one that is there already stays.

        Args:
            id: of the tree.
            directory: which has it as `rootfs`.
            digest: of the tree.
        """
        (directory / _DIGEST).write_text(digest, encoding="ascii")
        with contextlib.suppress(OSError):
            directory.rename(self._place / id)

    def under(self, image: Image, ids: Sequence[str]) -> Below:
        """Returns what an image stands on that starts from another.

        Args:
            image: the other.
            ids: of the trees that this one stands on itself.
        """
        return Below((image.digest, *ids), image.layers, image.digest) if len(ids) < DEEPEST else Below()

    @contextlib.contextmanager
    def lock(self, *, alone: bool) -> Iterator[bool]:
        """A block in which no tree goes away; or, if `alone`, in which nobody is about to need one.

        Yields:
            Whether that is so; always, unless `alone`.
        """
        self._place.mkdir(parents=True, exist_ok=True)
        with open(self._place / _LOCK, "a", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
            except BlockingIOError:
                yield False
                return
            yield True

    def is_removed(self, digest: str) -> bool:
        """Whether an image was removed and is there only for others."""
        return (self._images / digest / _REMOVED).exists()

    def mark(self, digest: str, *, removed: bool) -> None:
        """Marks an image as removed, or takes the mark off."""
        if removed:
            (self._images / digest / _REMOVED).touch()
        else:
            (self._images / digest / _REMOVED).unlink(missing_ok=True)

    def free(self, needed: Collection[str]) -> None:
        """Removes the trees in `layers` that no image needs.

        Args:
            needed: the ids of those that images stand on.
        """
        for entry in tuple(os.scandir(self._place)):
            if entry.is_dir(follow_symlinks=False) and entry.name not in needed:
                remove_tree(Path(entry.path))


def subtract(root: Path, below: Sequence[Path]) -> None:
    """Takes from a tree what others have just the same, and hides in it what they have beyond it.

    Args:
        root: the tree.
        below: the others, topmost first.
    """
    _subtract(str(root), [str(tree) for tree in below], MOUNT_POINTS)


def _subtract(here: str, below: Sequence[str], stay: Collection[str] = ()) -> bool:
    """Does that in one directory, which the others have, too; returns whether anything is left in it."""
    about = os.stat(here)
    own = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(here)}
    theirs = _merged(below)
    left = False
    for name, mine in own.items():
        path = f"{here}/{name}"
        if not stat.S_ISDIR(mine.st_mode):
            if name in theirs and _is_same(path, mine, theirs[name]):
                os.unlink(path)
            else:
                left = True
        elif directories := _directories(below, name):
            same = _is_same(path, mine, directories[0]) and name not in stay
            if _subtract(path, directories) or not same:
                left = True
            else:
                os.rmdir(path)
        else:
            left = True
    for name in theirs.keys() - own.keys():
        os.mknod(f"{here}/{name}", stat.S_IFCHR, os.makedev(0, 0))
        left = True
    os.utime(here, ns=(about.st_atime_ns, about.st_mtime_ns))
    return left


def _merged(directories: Sequence[str]) -> dict[str, str]:
    """Returns where each entry is that directories have which lie on top of each other."""
    found: dict[str, str] = {}
    for directory in directories:
        for entry in os.scandir(directory):
            found.setdefault(entry.name, entry.path)
    return {name: path for name, path in found.items() if not _is_hidden(os.lstat(path))}


def _is_hidden(about: os.stat_result) -> bool:
    return stat.S_ISCHR(about.st_mode) and about.st_rdev == 0


def _directories(below: Sequence[str], name: str) -> list[str]:
    """Returns the directories of a name that lie on top of each other in others."""
    found = []
    for directory in below:
        path = f"{directory}/{name}"
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                break
            found.append(path)
    return found


def _is_same(path: str, mine: os.stat_result, other: str) -> bool:
    """Whether a sandbox sees no difference between two entries; of directories, without what is in them."""
    theirs = os.lstat(other)
    if _seen(mine) != _seen(theirs) or _attributes(path) != _attributes(other):
        return False
    if stat.S_ISLNK(mine.st_mode):
        return os.readlink(path) == os.readlink(other)
    if stat.S_ISREG(mine.st_mode):
        # Names of one file stay together.
        return mine.st_nlink == theirs.st_nlink == 1 and filecmp.cmp(path, other, shallow=False)
    return stat.S_ISDIR(mine.st_mode)


def _seen(about: os.stat_result) -> tuple[int, ...]:
    size = 0 if stat.S_ISDIR(about.st_mode) else about.st_size
    return (about.st_mode, about.st_uid, about.st_gid, size, about.st_mtime_ns)


def _attributes(path: str) -> Mapping[str, bytes]:
    names = os.listxattr(path, follow_symlinks=False)
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in names}


def in_merged(trees: Sequence[Path], place: Path, command: Sequence[str]) -> list[str]:
    """Returns the command line that runs a program where trees are joined, as a sandbox sees them.

    Args:
        trees: topmost first.
        place: an empty directory at which they are joined, for this program only.
        command: the program.
    """
    lower = ":".join(re.sub(r"([\\\\:,])", r"\\\1", str(tree)) for tree in trees)
    return ["unshare", "--mount", "sh", "-c", _MERGE, "sh", lower, str(place), *command]
