"""Finds the paths of a sandbox's files that the kernel identifies only by inode.

It first tries the last known paths, then paths that the processes using the files may have: from their directories,
arguments and open files. Otherwise it searches all names in the sandbox, layer by layer. Each candidate is verified in
the sandbox itself, which detects wrong guesses and names that another layer hides.

The sandbox's own directories are not read for that, because processes that watch them would be notified.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.libc import closing
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.kernel.procfs import read

_MOST_NAMES = 1_000_000
_MOST_CHANGED = 100_000
"""Names that are searched in all layers, and names of the upper layer that are each verified: about 2 s."""
_LONGEST = 5.0
"""Seconds of a search, at most."""
_MOST_WORDS = 200
_MOST_FILES = 200
"""Arguments and open files of a process that are tried."""
_OF_A_LAYER = (1 << 56) - 1
"""The bits of an inode number from the layer; the kernel puts the layer's number above them (xino)."""


class Places:
    """The known paths of files in one sandbox."""

    def __init__(self, init: int, layers: Sequence[Path], known: Mapping[int, str] = {}) -> None:
        """
        Args:
            init: PID 1 of the sandbox, as the host sees it.
            layers: the directories of its overlay, topmost first.
            known: known paths, by inode.
        """
        self._init = init
        self._layers = layers
        self._known_names = dict(known)

    def find(self, inodes: Collection[int], pids: Collection[int]) -> Mapping[int, str]:
        """Returns the paths, without symbolic links, of those inodes of the sandbox's root that are found.

        `pids` are processes that use them, as the host sees them. Raises NotCheckpointable if there are too many names,
        AttemptFailed if the search takes too long, and OSError if the sandbox has ended.
        """
        with paths.directory(f"/proc/{self._init}/root") as root:
            search = _Search(root, inodes)
            for inode in inodes:
                if inode in self._known_names:
                    search.take(self._known_names[inode])
            for pid in pids:
                if search.wanted:
                    search.take_all(_guesses(pid), follow=True)
            if search.wanted:
                search.take_all(self._names(self._layers, _MOST_NAMES, search.has_number))
            if search.wanted:  # a file that was copied up and then moved has another number in the upper layer
                search.take_all(self._names(self._layers[:1], _MOST_CHANGED, lambda _: True))
        self._known_names = dict(search.found)
        return search.found

    @staticmethod
    def _names(layers: Iterable[Path], most: int, has_number: Callable[[int], bool]) -> Iterator[str]:
        """Yields the names in these layers with inode numbers for which `has_number` is true."""
        began, names_left = time.monotonic(), most
        for layer in layers:
            for path, inode in _walk(layer):
                names_left -= 1
                if names_left < 0:
                    raise NotCheckpointable(
                        f"a process watches a file with inotify that is not among the first {most:,} looked at"
                    )
                if time.monotonic() - began > _LONGEST:
                    raise AttemptFailed("to look for what is watched with inotify takes too long", machine=True)
                if has_number(inode):
                    yield path


class _Search:
    """A search for inodes in one root."""

    def __init__(self, root: int, inodes: Collection[int]) -> None:
        self._root = root
        self._device = os.fstat(root).st_dev
        self.wanted = set(inodes)
        self._numbers = {inode & _OF_A_LAYER for inode in inodes}
        self.found: dict[int, str] = {}

    def has_number(self, number: int) -> bool:
        """Whether one of the inodes may have this number in its layer."""
        return number in self._numbers

    def take_all(self, candidates: Iterator[str], *, follow: bool = False) -> None:
        """Checks paths until all inodes are found; see `take`."""
        for path in candidates:
            self.take(path, follow=follow)
            if not self.wanted:
                return

    def take(self, path: str, *, follow: bool = False) -> None:
        """Checks whether one of the inodes is at a path, in which symbolic links are allowed if `follow`."""
        with contextlib.suppress(OSError, ValueError):
            if follow:
                with closing(paths.open_in_root(self._root, path)) as file:
                    if not self._is_wanted(file):
                        return
                    path = os.readlink(f"/proc/self/fd/{file}")
            with closing(paths.open_beneath(self._root, path)) as file:
                if self._is_wanted(file):
                    inode = os.fstat(file).st_ino
                    self.found[inode] = path
                    self.wanted.discard(inode)

    def _is_wanted(self, file: int) -> bool:
        about = os.fstat(file)
        return about.st_dev == self._device and about.st_ino in self.wanted


def _guesses(pid: int) -> Iterator[str]:
    """Yields paths from a process' arguments and files, relative to the sandbox's root, and their directories."""
    with contextlib.suppress(OSError):  # it has ended
        root, here = os.readlink(f"/proc/{pid}/root"), os.readlink(f"/proc/{pid}/cwd")
        yield here
        yield root
        for word in read(f"/proc/{pid}/cmdline").split(b"\0")[:_MOST_WORDS]:
            for part in {word, word.rpartition(b"=")[2]}:
                argument = os.fsdecode(part)
                path = f"{root}/{argument}" if argument.startswith("/") else f"{here}/{argument}"
                yield path
                yield os.path.dirname(path)
        for name in os.listdir(f"/proc/{pid}/fd")[:_MOST_FILES]:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("/"):
                yield target
                yield os.path.dirname(target)


def _walk(layer: Path) -> Iterator[tuple[str, int]]:
    """Yields a layer's directory, as `/`, and all that is below it, with inode numbers; follows no links."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME
    with paths.directory(layer) as root:
        yield "/", os.fstat(root).st_ino
        waiting = [""]
        while waiting:
            here = waiting.pop()
            try:
                descriptor = paths.open_beneath(root, here or "/", flags)
            except OSError:  # it was removed, or replaced
                continue
            with closing(descriptor), os.scandir(descriptor) as entries:
                for entry in entries:
                    yield f"{here}/{entry.name}", entry.inode()
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{here}/{entry.name}")
