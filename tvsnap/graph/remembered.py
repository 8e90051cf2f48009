"""Answers that were read from a graph's file, given again for as long as nobody has altered it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from tvsnap.graph.model import Edge
from tvsnap.host.database import Database

MOST = 32 * 1024 * 1024
"""Bytes that all of them may take, about."""
_SIZE = 2048  # of a record without its texts


class Remembered:
    """Records of calls that were read from a graph lately. Thread-safe.

    One is given again only if nobody has altered anything in the file since it was read, in this process or in another:
    what was changed or deleted is read anew. Only the count of its hits may be an earlier one.
    """

    def __init__(self, database: Database) -> None:
        """
        Args:
            database: the file from which they are read.
        """
        self._database = database
        self._lock = threading.Lock()
        self._size = 0
        self._kept: dict[Hashable, tuple[int, Edge, int]] = {}

    def get(self, key: Hashable, read: Callable[[], Edge | None]) -> Edge | None:
        """Returns the record of a key; None if there is none, which is not remembered.

        Args:
            key: the key.
            read: reads it from the file.

        Raises:
            TvsnapError: the file cannot be read.
        """
        version = self._database.version  # before the record is read, which may be newer, but not older
        kept = self._kept.get(key)
        if kept is not None and kept[0] == version:
            return kept[1]
        edge = read()
        if edge is not None and version is not None:
            self._keep(key, version, edge)
        return edge

    def _keep(self, key: Hashable, version: int, edge: Edge) -> None:
        size = _SIZE + len(edge.call.canonical) + sum(len(part.data) for part in edge.result.parts)
        with self._lock:
            before = self._kept.pop(key, None)
            self._size += size - (0 if before is None else before[2])
            self._kept[key] = (version, edge, size)
            while self._size > MOST:
                self._size -= self._kept.pop(next(iter(self._kept)))[2]
