"""Remembers a sandbox's files as last seen, so that the next look has to process only the differences.

Nearly all looks find nearly all files unchanged. Unchanged files are neither read, compared with the image, nor hashed
again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from pathlib import Path

from tvsnap.guest.protocol import HOME
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.observations import Service
from tvsnap.sandboxes import looks, observing, paths
from tvsnap.sandboxes.native_look import FilesMemory, TooMuch
from tvsnap.sandboxes.processes import observe


class SeenFiles:
    """The files of one sandbox as last seen. Thread-safe."""

    def __init__(self, upper: Path, image: observing.ImageTree) -> None:
        """
        Args:
            upper: the directory with the differences from the image.
            image: the layers below it.
        """
        self._upper = upper
        self._image = image
        self._lock = threading.Lock()
        self._last: _Last | None = None

    def fingerprints(self, service: Service) -> tuple[str, str]:
        """Returns the same as `observe.files_fingerprints`, with access times; raises NotSeen beyond the limits."""
        with self._lock:
            last, self._last = self._last, None  # nothing is known after an error
            if last is None or last.apart != service.directories:
                last = _Last(self._image, service.directories)
            try:
                with paths.directory(self._upper) as directory:
                    last.look(directory)
            except looks.NotSeen:
                raise
            except TooMuch:
                return observe.files_fingerprints(self._upper, self._image, service, accessed=True)
            except InfrastructureError:
                return secrets.token_hex(), secrets.token_hex()  # they were not seen, so they may have changed
            self._last = last
            return last.fingerprints

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


class _Last:
    """The result of a look, which the next look updates.

    Attributes:
        apart: directories whose files have a separate fingerprint.
        fingerprints: of all other files, and of those.
        entries: all except PID 1's own directory and its contents; the same list object while nothing changes.
    """

    def __init__(self, image: observing.ImageTree, apart: tuple[str, ...]) -> None:
        self.apart = apart
        self.fingerprints = ("", "")
        self.entries: list[observing.Entry] = []
        self._image = image
        self._memory = FilesMemory()
        self._entries: dict[str, observing.Entry] = {}  # without PID 1's own directory and its contents
        self._prints: dict[str, bytes | None] = {}
        self._prints_apart: dict[str, bytes | None] = {}

    def look(self, directory: int) -> None:
        changed, gone = self._memory.look(directory)
        if not changed and not gone:
            return
        looks.go_on()
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
