"""Remembers a sandbox's files as last seen, so that the next look has to process only the differences.

Nearly all looks find nearly all files unchanged. Unchanged files are neither read, compared with the image, nor hashed
again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tvsnap.guest.protocol import HOME
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.observations import Service
from tvsnap.sandboxes.kernel import allowance, paths
from tvsnap.sandboxes.looks import observe, observing
from tvsnap.sandboxes.looks.digest import MOST_FILES, Contents
from tvsnap.sandboxes.looks.native_look import FilesMemory, TooMuch

_SNAPSHOTS = 256


class SeenFiles:
    """The files of one sandbox as last seen. Thread-safe."""

    def __init__(self, upper: Path, image: observing.ImageTree, last: Look | None = None) -> None:
        """
        Args:
            upper: the directory with the differences from the image.
            image: the layers below it.
            last: the last look at a directory of which `upper` is a copy; it has no other owner.
        """
        self._upper = upper
        self._image = image
        self._lock = threading.Lock()
        self._last = last

    def last(self) -> Look | None:
        """Returns a copy of the last look, if there was one."""
        with self._lock:
            return self._last and self._last.copy()

    def fingerprints(self, service: Service) -> tuple[str, str]:
        """Returns the same as `observe.files_fingerprints`, with access times; raises NotSeen beyond the limits."""
        with self._lock:
            last, self._last = self._last, None  # nothing is known after an error
            if last is None or last.apart != service.directories:
                last = Look(self._image, service.directories)
            try:
                with paths.directory(self._upper) as directory:
                    last.look(directory)
            except allowance.NotSeen:
                raise
            except TooMuch:
                return observe.files_fingerprints(self._upper, self._image, service, accessed=True)
            except InfrastructureError:
                return secrets.token_hex(), secrets.token_hex()  # they were not seen, so they may have changed
            self._last = last
            return last.fingerprints

    @property
    def seen(self) -> list[observing.Entry] | None:
        """The entries of the last look; None if it did not see all."""
        last = self._last
        return None if last is None else last.entries

    def entries(self) -> list[observing.Entry]:
        """Returns the same as `observing.walk` yields.

        Raises InfrastructureError if part of it is unreadable, NotSeen beyond the limits.
        """
        with self._lock:
            last, self._last = self._last, None
            if last is not None:
                with contextlib.suppress(TooMuch), paths.directory(self._upper) as directory:
                    last.look(directory)
                    self._last = last
                    return last.entries
        return list(observing.walk(self._upper))


class Look:
    """The result of a look, which the next look updates.

    Attributes:
        apart: directories of the files with a separate fingerprint.
        fingerprints: of all other files, and of those.
        entries: all except PID 1's own directory and its contents; the same list object while nothing changes.
    """

    def __init__(self, image: observing.ImageTree, apart: tuple[str, ...], memory: FilesMemory | None = None) -> None:
        self.apart = apart
        self.fingerprints = ("", "")
        self.entries: list[observing.Entry] = []
        self._image = image
        self._memory = memory or FilesMemory()
        self._entries: dict[str, observing.Entry] = {}  # without PID 1's own directory and its contents
        self._prints: dict[str, bytes | None] = {}
        self._prints_apart: dict[str, bytes | None] = {}

    @property
    def size(self) -> int:
        """The number of files that it knows."""
        return len(self._entries)

    @property
    def by_path(self) -> Mapping[str, observing.Entry]:
        """The entries by path."""
        return self._entries

    def copy(self) -> Look:
        """Returns the same, with the same entries, for a copy of the directory with the same inodes and times."""
        other = Look(self._image, self.apart, self._memory.copy())
        other.fingerprints, other.entries = self.fingerprints, self.entries
        other._entries, other._prints = self._entries.copy(), self._prints.copy()
        other._prints_apart = self._prints_apart.copy()
        return other

    def look(self, directory: int) -> None:
        changed, gone = self._memory.look(directory)
        if not changed and not gone:
            return
        allowance.go_on()
        others = False
        for path in map(os.fsdecode, gone.split(b"\0")[:-1]):
            others = self._entries.pop(path, None) is not None or others
            self._prints.pop(path, None)
            self._prints_apart.pop(path, None)
        for entry in observing.parse_entries(changed):
            apart = observing.lies_within(entry.path, self.apart)
            prints = self._prints_apart if apart else self._prints
            if not observing.lies_within(entry.path, (HOME,)):
                self._entries[entry.path] = entry
                others = True
            prints[entry.path] = observing.print_of(entry, self._image, accessed=True, dated=not apart)
        if others:
            self.entries = list(self._entries.values())
        rest, data = observing.together(self._prints.values()), observing.together(self._prints_apart.values())
        self.fingerprints = rest, data if self._prints_apart else ""


class SnapshotFiles:
    """Digests and looks of the files of the snapshots used last, for their forks to continue with. Thread-safe."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, _Files] = OrderedDict()
        self._size = 0  # of all entries
        self._lock = threading.Lock()

    def note(self, snapshot: str, contents: Contents, look: Look | None) -> None:
        """Stores the digests and look of a sandbox's files when its snapshot is taken; `look` has no other owner."""
        with self._lock:
            self._put(snapshot, contents.copy(), look)

    def learn(self, snapshot: str, look: Look | None) -> bool:
        """Stores the first look at the files of a fork, in which nothing has run yet; returns whether it is needed."""
        with self._lock:
            is_new = look is not None and self._entries.get(snapshot, _NOTHING).look is None
            if is_new:
                self._put(snapshot, Contents(), look)
            return is_new

    def learn_contents(self, snapshot: str, contents: Contents) -> None:
        """Stores the digests of the files that a fork has not changed.

        Their entries are the same objects as in the snapshot's look. Equal stamps do not suffice: the kernel may give
        two forks that write to a file the same time.

        Args:
            snapshot: the snapshot.
            contents: the fork's digests.
        """
        with self._lock:
            files = self._entries.get(snapshot, _NOTHING)
            if files.look is None or files.contents.parts:
                return
            own = files.look.by_path
            parts = {path: part for path, part in contents.parts.items() if own.get(path) is part.entry}
            keys = {part.key for part in parts.values()}
            digests = {key: digest for key, digest in contents.digests.items() if key in keys}
            self._put(snapshot, Contents(digests, parts), files.look)

    def of(self, snapshot: str) -> tuple[Contents, Look | None]:
        """Returns the digests of a snapshot's files, and the last look at them."""
        with self._lock:
            if snapshot in self._entries:
                self._entries.move_to_end(snapshot)
            files = self._entries.get(snapshot, _NOTHING)
            return files.contents.copy(), files.look and files.look.copy()

    def drop(self, snapshot: str) -> None:
        """Forgets a snapshot."""
        with self._lock:
            self._size -= self._entries.pop(snapshot, _NOTHING).size

    def _put(self, snapshot: str, contents: Contents, look: Look | None) -> None:
        files = _Files(contents, look, len(contents.digests) + (look.size if look else 0))
        self._size += files.size - self._entries.pop(snapshot, _NOTHING).size
        self._entries[snapshot] = files
        while len(self._entries) > _SNAPSHOTS or self._size > MOST_FILES:
            self._size -= self._entries.popitem(last=False)[1].size


class _Files(NamedTuple):
    """The digests of a snapshot's files, the last look at them, and the number of files that both know."""

    contents: Contents
    look: Look | None
    size: int


_NOTHING = _Files(Contents(), None, 0)
