"""Which states have a snapshot. A row is a claim that a backend can fork the state; the files are the backend's."""

from __future__ import annotations

import json

from tvsnap.graph.base import GraphPart
from tvsnap.graph.model import Snapshot
from tvsnap.graph.rows import SNAPSHOT_COLUMNS, to_snapshot

_ONE = f"SELECT {SNAPSHOT_COLUMNS.format('n')} FROM snapshots n WHERE n.state = ? AND n.backend = ?"
_ALL = f"SELECT {SNAPSHOT_COLUMNS.format('n')} FROM snapshots n WHERE ? IN ('', n.backend) ORDER BY n.created"
_INSERT = """
INSERT INTO snapshots (state, backend, id, size, files, processes, shell, checkpoint_s, fork_s, commands, created,
                       last_used, forks)
SELECT hash, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM states WHERE hash = ?
ON CONFLICT DO NOTHING
"""


class Snapshots(GraphPart):
    """The part of `Graph` that keeps the rows of snapshots."""

    def add_snapshot(self, snapshot: Snapshot) -> bool:
        """Adds a snapshot whose files are complete and in place.

        Returns:
            Whether it was added; False if the state has one of this backend already, or has been forgotten: the
            caller's own is then of no use, and its files are to be deleted.
        """
        captures = snapshot.captures
        with self._database.write() as cursor:
            cursor.execute(
                _INSERT,
                (
                    snapshot.backend,
                    snapshot.id,
                    snapshot.size,
                    captures.files,
                    captures.processes,
                    captures.shell,
                    snapshot.checkpoint_s,
                    snapshot.fork_s,
                    json.dumps(snapshot.processes),
                    snapshot.created,
                    snapshot.last_used,
                    snapshot.forks,
                    bytes.fromhex(snapshot.state),
                ),
            )
            return cursor.rowcount == 1

    def snapshot(self, state: str, backend: str) -> Snapshot | None:
        """Returns a state's snapshot, None if it has none of this backend."""
        with self._database.read() as reader:
            row = reader.execute(_ONE, (bytes.fromhex(state), backend)).fetchone()
        return None if row is None else to_snapshot(row)

    def snapshots(self, backend: str | None = None) -> list[Snapshot]:
        """Returns all snapshots, or those of one backend, oldest first."""
        with self._database.read() as reader:
            return [to_snapshot(row) for row in reader.execute(_ALL, (backend or "",))]

    def drop_snapshot(self, state: str, backend: str, id: str | None = None) -> bool:
        """Deletes the row of a snapshot; the state is rebuilt by replay from then on.

        Do this before deleting its files: a crash in between leaves files without a row, which are swept.

        Args:
            state, backend: whose snapshot.
            id: drop it only if it is this one, and not one that another process has taken meanwhile.

        Returns:
            Whether there was one.
        """
        with self._database.write() as cursor:
            cursor.execute(
                "DELETE FROM snapshots WHERE state = ? AND backend = ? AND id = coalesce(?, id)",
                (bytes.fromhex(state), backend, id),
            )
            return cursor.rowcount == 1

    def touch_snapshot(self, state: str, backend: str, fork_s: float | None = None) -> None:
        """Counts a fork of a snapshot; in memory, until `flush`.

        Args:
            state, backend: whose snapshot.
            fork_s: seconds that the fork took, if measured.
        """
        self._pending.fork(bytes.fromhex(state), backend, fork_s)
