"""The files of a sandbox as the last look found them, so that the next one need only find what is another (native/look).

Nearly all looks find nearly all files as they were, and what is not told anew is not read, compared with the image, or
hashed anew either.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import secrets
import threading
from collections.abc import Collection
from pathlib import Path

from tvsnap.host import native
from tvsnap.model.observations import Service
from tvsnap.sandboxes import looks, observing, paths
from tvsnap.sandboxes.processes import observe

_DONE, _NOT_ALL, _TOO_LONG, _TOO_MUCH = range(4)
_LONGEST_REASON = 512


class _Told(ctypes.Structure):
    _fields_ = (
        ("changed", ctypes.c_void_p),
        ("changed_length", ctypes.c_size_t),
        ("gone", ctypes.c_void_p),
        ("gone_length", ctypes.c_size_t),
        ("why", ctypes.c_char * _LONGEST_REASON),
    )


class SeenFiles:
    """What was seen last of one sandbox's files. Thread-safe."""

    def __init__(self, upper: Path, image: observing.ImageTree) -> None:
        """
        Args:
            upper: the directory of what differs from the image.
            image: what lies below it.
        """
        self._upper = upper
        self._image = image
        self._lock = threading.Lock()
        self._handle = 0
        self._forget(())

    def fingerprints(self, service: Service) -> tuple[str, str]:
        """Returns what `observe.files_fingerprints` does, times of access included.

        Raises:
            NotSeen: there is more than anybody looks at, or it takes too long.
        """
        with self._lock:
            if service.directories != self._apart:
                self._forget(service.directories)
            try:
                result = self._look()
            except BaseException:
                self._forget(())
                raise
            if result == _DONE:
                return self._fingerprints
            self._forget(())
        if result == _TOO_LONG:
            raise looks.too_long()
        if result == _NOT_ALL:
            return secrets.token_hex(), secrets.token_hex()  # unseen, they may have changed
        return observe.files_fingerprints(self._upper, self._image, service, accessed=True)

    def _forget(self, apart: Collection[str]) -> None:
        self._free()
        self._apart = apart  # directories whose files have a fingerprint of their own
        self._prints: dict[str, bytes | None] = {}
        self._prints_apart: dict[str, bytes | None] = {}
        self._fingerprints = ("", "")

    def _look(self) -> int:
        library = _library()
        if not self._handle:
            self._handle = library.look_files_new()
            if not self._handle:
                raise MemoryError
        told = _Told()
        with paths.directory(self._upper) as directory:
            result = library.look_files(self._handle, directory, looks.left(), ctypes.byref(told))
        try:
            if result == _DONE and (told.changed_length or told.gone_length):
                looks.go_on()
                self._take(
                    ctypes.string_at(told.changed, told.changed_length), ctypes.string_at(told.gone, told.gone_length)
                )
        finally:
            library.look_told_free(ctypes.byref(told))
        return int(result)

    def _take(self, changed: bytes, gone: bytes) -> None:
        for path in map(os.fsdecode, gone.split(b"\0")[:-1]):
            self._prints.pop(path, None)
            self._prints_apart.pop(path, None)
        for entry in observing.parse_entries(changed):
            apart = observing.lies_within(entry.path, self._apart)
            prints = self._prints_apart if apart else self._prints
            prints[entry.path] = observing.print_of(entry, self._image, accessed=True, dated=not apart)
        self._fingerprints = (
            observing.together(self._prints.values()),
            observing.together(self._prints_apart.values()) if self._prints_apart else "",
        )

    def _free(self) -> None:
        handle, self._handle = self._handle, 0
        if handle:
            _library().look_files_free(handle)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, TypeError):  # at the end of the interpreter
            self._free()


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(native.LOOK))
    library.look_files_new.restype = ctypes.c_void_p
    library.look_files.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_double, ctypes.c_void_p]
    library.look_told_free.argtypes = [ctypes.c_void_p]
    library.look_files_free.argtypes = [ctypes.c_void_p]
    return library
