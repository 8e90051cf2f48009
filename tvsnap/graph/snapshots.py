"""The rows of snapshots: each says that a backend can fork a state; the backend has the files."""

from __future__ import annotations

from collections.abc import Iterable

from tvsnap.graph.base import GraphPart
from tvsnap.graph.model import Snapshot, SnapshotWay
from tvsnap.graph.rows import SNAPSHOT_COLUMNS, SNAPSHOT_WIDTH, from_snapshot, to_snapshot
from tvsnap.model.arguments import check_state

_ONE = f"SELECT {SNAPSHOT_COLUMNS.format('n')} FROM snapshots n WHERE n.state = ? AND n.backend = ?"
_ALL = f"SELECT {SNAPSHOT_COLUMNS.format('n')} FROM snapshots n WHERE ? IN ('', n.backend) ORDER BY n.created"
_USAGE = "SELECT count(*), coalesce(sum(size), 0) FROM snapshots WHERE backend = ?"
_DROP = "DELETE FROM snapshots WHERE state = ? AND backend = ? AND id = coalesce(?, id)"
# Walks up from each snapshot's state to another snapshot, or to the root; the longest walk is the whole way.
_WAYS = f"""
WITH RECURSIVE up (start, hash, calls, seconds, answered, proven) AS (
    SELECT state, state, 0, 0.0, 1, 1 FROM snapshots WHERE backend = :backend
    UNION ALL
    SELECT up.start, s.parent, up.calls + 1, up.seconds + e.duration,
           up.answered AND e.deterministic AND e.slot IS NOT NULL, up.proven AND e.proven
    FROM up CROSS JOIN states s ON s.hash = up.hash CROSS JOIN edges e ON e.id = s.edge
    WHERE up.calls = 0 OR NOT EXISTS (SELECT 1 FROM snapshots n WHERE n.state = up.hash AND n.backend = :backend)
), way AS (
    SELECT start, hash, max(calls) AS calls, seconds, answered, proven FROM up GROUP BY start
)
SELECT {SNAPSHOT_COLUMNS.format("n")}, way.hash, way.calls, way.seconds, way.answered, way.proven, s.private,
       EXISTS (SELECT 1 FROM snapshots a WHERE a.state = way.hash AND a.backend = :backend AND a.state <> n.state),
       coalesce((SELECT r.salt FROM roots r WHERE r.state = s.root), '')
FROM way CROSS JOIN snapshots n ON n.state = way.start AND n.backend = :backend
CROSS JOIN states s ON s.hash = n.state
"""
_INSERT = f"""
INSERT INTO snapshots ({SNAPSHOT_COLUMNS.replace("{0}.", "")})
SELECT {", ".join("?" * SNAPSHOT_WIDTH)} WHERE EXISTS (SELECT 1 FROM states WHERE hash = ?)
ON CONFLICT DO NOTHING
"""


class Snapshots(GraphPart):
    """The part of `Graph` that keeps the rows of snapshots."""

    def add_snapshot(self, snapshot: Snapshot, *, size: int | None = None, count: int | None = None) -> bool:
        """Adds a snapshot whose files are complete and in place.

        Args:
            snapshot: the snapshot.
            size: bytes that its backend's snapshots may take including it, in all processes; None for no limit.
            count: the greatest number of snapshots including it; None for no limit.

        Returns:
            Whether it was added; False if the state already has one of this backend, or has been forgotten, or if there
            is no room: the caller should then delete its files.
        """
        self._write_calls()
        with self._database.write() as cursor:
            if size is not None or count is not None:  # the transaction keeps other writers out
                number, size_sum = cursor.execute(_USAGE, (snapshot.backend,)).fetchone()
                if (size is not None and size_sum + snapshot.size > size) or (count is not None and number >= count):
                    return False
            cursor.execute(_INSERT, (*from_snapshot(snapshot), bytes.fromhex(snapshot.state)))
            return cursor.rowcount == 1

    def snapshot(self, state: str, backend: str) -> Snapshot | None:
        """Returns a state's snapshot; None if it has none of this backend."""
        row = self._row(_ONE, (check_state(state), backend))
        return None if row is None else to_snapshot(row)

    def snapshots(self, backend: str | None = None) -> list[Snapshot]:
        """Returns all snapshots, or those of one backend, oldest first."""
        return [to_snapshot(row) for row in self._rows(_ALL, (backend or "",))]

    def snapshots_of(self, state: str) -> list[Snapshot]:
        """Returns the snapshots of a state, oldest first."""
        return [snapshot for snapshot in self.snapshots() if snapshot.state == state]

    def snapshot_usage(self, backend: str) -> tuple[int, int]:
        """Returns the number of a backend's snapshots, and the bytes that they take."""
        count, size = self._row(_USAGE, (backend,))
        return count, size

    def snapshot_ways(self, backend: str) -> list[SnapshotWay]:
        """Returns all snapshots of a backend, each with the way to it from the nearest one above.

        Forks that a process has not flushed yet are not counted.
        """
        ways = []
        for row in self._rows(_WAYS, {"backend": backend}):
            top, calls, seconds, answered, proven, private, is_snapshot, salt = row[SNAPSHOT_WIDTH:]
            above = top.hex() if is_snapshot else None
            snapshot = to_snapshot(row[:SNAPSHOT_WIDTH])
            ways.append(SnapshotWay(snapshot, above, calls, seconds, bool(answered), bool(proven), private, salt))
        return ways

    def pin_snapshot(self, state: str, backend: str) -> bool:
        """Keeps a state's snapshot until the state is forgotten; returns whether there is one."""
        statement = "UPDATE snapshots SET pinned = 1 WHERE state = ? AND backend = ?"
        return self._change(statement, (check_state(state), backend)) == 1

    def drop_snapshot(self, state: str, backend: str, id: str | None = None) -> bool:
        """Deletes the row of a snapshot; the state is rebuilt by replay from then on.

        Do this before deleting its files: a crash in between leaves files without a row, which are deleted later.

        Args:
            state, backend: those of the snapshot.
            id: delete it only if it is this one, and not one that another process has taken meanwhile.

        Returns:
            Whether there was one.
        """
        return self._change(_DROP, (check_state(state), backend, id)) == 1

    def drop_snapshots(self, snapshots: Iterable[Snapshot]) -> list[Snapshot]:
        """Deletes the rows of snapshots in one transaction; see `drop_snapshot`.

        Returns:
            Those whose rows still existed: the caller must delete their files.
        """
        dropped = []
        with self._database.write() as cursor:
            for snapshot in snapshots:
                cursor.execute(_DROP, (bytes.fromhex(snapshot.state), snapshot.backend, snapshot.id))
                if cursor.rowcount == 1:
                    dropped.append(snapshot)
        return dropped

    def touch_snapshot(self, state: str, backend: str, fork_s: float | None = None) -> None:
        """Counts a fork of a snapshot; in memory, until `flush`.

        Args:
            state, backend: those of the snapshot.
            fork_s: seconds that the fork took, if measured.
        """
        self._pending.fork(check_state(state), backend, fork_s)
