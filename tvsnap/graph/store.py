"""The tool-call graph: states, and the calls between them with their results."""

from __future__ import annotations

import contextlib
import weakref
from pathlib import Path
from typing import TypeVar

from tvsnap.graph.answers import Answers, Remembered
from tvsnap.graph.database import FORMAT
from tvsnap.graph.forget import Forgetting
from tvsnap.graph.insertion import insert_root
from tvsnap.graph.model import RootInfo
from tvsnap.graph.pending import Pending
from tvsnap.graph.portable import Portable
from tvsnap.graph.rollouts import Rollouts
from tvsnap.graph.snapshots import Snapshots
from tvsnap.graph.tree import Tree
from tvsnap.host.database import Database
from tvsnap.model.errors import TvsnapError

G = TypeVar("G", bound="Graph")


class Graph(Answers, Portable, Snapshots, Rollouts, Tree, Forgetting):
    """A durable tool-call graph in one SQLite file. Thread-safe; several processes may have it open at once.

    Attributes:
        path: the file.
        owner: the process that uses it; written into rollouts.
        gives_timeouts: whether shared records of calls that timed out on a busy machine are answers.
    """

    def __init__(self, path: Path, owner: str = "", *, gives_timeouts: bool = False) -> None:
        """Opens a graph, and creates it if it is missing.

        Args:
            path: the file; its directory is created if missing. It must be on a local file system.
            owner: the id of the process's `Owner`.
            gives_timeouts: see the attribute.

        Raises:
            TvsnapError: in one line, if it cannot be written, is damaged, locked, or of a newer version.
        """
        self.path = path
        self.owner = owner
        self.gives_timeouts = gives_timeouts
        self._database = Database(path, FORMAT)
        graph = weakref.ref(self)
        self._pending = Pending(lambda: _flush(graph()))
        self._remembered = Remembered(self._database)

    def close(self) -> None:
        """Writes pending records and closes the file; safe to repeat."""
        try:
            self.flush()
        finally:
            self._database.close()

    def __enter__(self: G) -> G:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ensure_root(self, info: RootInfo) -> None:
        """Adds a root state unless it is there."""
        hash = bytes.fromhex(info.hash)
        if self._row("SELECT 1 FROM roots WHERE state = ?", (hash,)):
            return
        with self._database.write() as cursor:
            insert_root(cursor, info)


def _flush(graph: Graph | None) -> None:
    """Writes pending records of a graph that is still in use; after a failure, the next record causes a new attempt."""
    if graph is not None:
        with contextlib.suppress(TvsnapError):
            graph.flush()
