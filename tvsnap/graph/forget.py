"""Deletes from the graph: a subtree, or the calls that only one task ever visited.

States that running rollouts depend on stay, since nothing else leads there; but they answer no calls any more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from tvsnap.graph.base import GraphPart
from tvsnap.graph.insertion import unknown_state
from tvsnap.graph.model import Forgotten
from tvsnap.graph.rows import SNAPSHOT_COLUMNS, to_snapshot
from tvsnap.model.arguments import check_state, check_text
from tvsnap.model.errors import NotFound

# Rows to delete are first collected in two temporary tables, then counted, then deleted.
_TABLES = """
CREATE TEMP TABLE IF NOT EXISTS doomed_states (hash BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS doomed_edges (id INTEGER PRIMARY KEY);
CREATE TEMP TABLE IF NOT EXISTS spared_states (hash BLOB PRIMARY KEY) WITHOUT ROWID;
DELETE FROM spared_states;
DELETE FROM doomed_states;
DELETE FROM doomed_edges;
"""
_SUBTREE = """
INSERT INTO doomed_states
WITH RECURSIVE down (hash) AS (
    SELECT hash FROM states WHERE hash = ?
    UNION ALL
    SELECT e.next_state FROM down CROSS JOIN edges e ON e.state = down.hash WHERE e.next_state IS NOT NULL
)
SELECT hash FROM down
"""
_EDGES_OF_SUBTREE = """
INSERT OR IGNORE INTO doomed_edges
SELECT e.id FROM doomed_states d CROSS JOIN edges e ON e.state = d.hash
UNION ALL
SELECT s.edge FROM doomed_states d CROSS JOIN states s ON s.hash = d.hash WHERE s.edge IS NOT NULL
"""
_EDGES_OF_TASK_ALONE = """
INSERT INTO doomed_edges
SELECT v.edge FROM visits v WHERE v.task = :task
AND NOT EXISTS (SELECT 1 FROM visits o WHERE o.edge = v.edge AND o.task != :task)
"""
# For the calls made in states that doomed calls lead to: the doomed call, the call made there. Latest first.
_CALLS_BELOW_DOOMED = """
SELECT d.id, below.id FROM doomed_edges d
CROSS JOIN edges e ON e.id = d.id
CROSS JOIN edges below ON below.state = e.next_state
ORDER BY below.id DESC
"""
_STATES_OF_DOOMED_EDGES = """
INSERT INTO doomed_states
SELECT e.next_state FROM doomed_edges d CROSS JOIN edges e ON e.id = d.id WHERE e.next_state IS NOT NULL
"""
_ROOTS_OF_TASK_ALONE = """
INSERT INTO doomed_states
SELECT r.state FROM roots r
WHERE EXISTS (SELECT 1 FROM rollouts o WHERE o.root = r.state AND o.task = :task)
AND NOT EXISTS (SELECT 1 FROM rollouts o WHERE o.root = r.state AND o.task != :task)
AND NOT EXISTS (SELECT 1 FROM edges e WHERE e.state = r.state AND e.id NOT IN (SELECT id FROM doomed_edges))
"""
# The doomed states that rollouts stand at, and those above them.
_SPARED = """
INSERT OR IGNORE INTO spared_states
WITH RECURSIVE up (hash) AS (
    SELECT hash FROM doomed_states WHERE hash = ?
    UNION ALL
    SELECT s.parent FROM up CROSS JOIN states s ON s.hash = up.hash
    WHERE s.parent IN (SELECT hash FROM doomed_states)
)
SELECT hash FROM up
"""
_SPARED_EDGE = "IN (SELECT s.edge FROM spared_states p CROSS JOIN states s ON s.hash = p.hash WHERE s.edge IS NOT NULL)"
_DOOMED_STATE = "IN (SELECT hash FROM doomed_states)"
_DOOMED_EDGE = "IN (SELECT id FROM doomed_edges)"
SPARED = "forgotten, and kept only because a rollout stood on it"
_DELETIONS = (
    f"DELETE FROM visits WHERE edge {_DOOMED_EDGE}",
    f"DELETE FROM steps WHERE edge {_DOOMED_EDGE}",
    f"DELETE FROM edges WHERE id {_DOOMED_EDGE}",
    f"DELETE FROM leases WHERE state {_DOOMED_STATE}",
    f"DELETE FROM snapshots WHERE state {_DOOMED_STATE}",
    f"DELETE FROM roots WHERE state {_DOOMED_STATE}",
    f"DELETE FROM states WHERE hash {_DOOMED_STATE}",
)


class Forgetting(GraphPart):
    """The part of `Graph` that deletes. A rollout that stands in a deleted part goes on."""

    def forget(self, state: str, *, in_use: Collection[str] = (), dry_run: bool = False) -> Forgotten:
        """Deletes a state, the call that led to it, and everything below it.

        With a root, its rollouts are deleted, too.

        Args:
            state: the topmost state to delete.
            in_use: the states of rollouts: the way there stays, but answers nothing.
            dry_run: delete nothing, only count.

        Raises:
            NotFound: there is no such state.
        """
        self.flush()
        self._write_calls()
        with self._database.write() as cursor:
            _prepare(cursor)
            if cursor.execute(_SUBTREE, (check_state(state),)).rowcount == 0:
                raise unknown_state(state)
            cursor.execute(_EDGES_OF_SUBTREE)
            _spare(cursor, in_use, dry_run=dry_run)
            return _finish(cursor, f"root {_DOOMED_STATE}", (), dry_run=dry_run)

    def forget_task(self, task: str, *, in_use: Collection[str] = (), dry_run: bool = False) -> Forgotten:
        """Deletes the calls that only this task's rollouts visited, and the records of those rollouts.

        States that another task visited stay, and so does the way to them.

        Args:
            task: the task's name.
            in_use: see `forget`.
            dry_run: delete nothing, only count.

        Raises:
            NotFound: there is no such task.
        """
        check_text(task, "task")
        self.flush()
        self._write_calls()
        with self._database.write() as cursor:
            _prepare(cursor)
            row = cursor.execute("SELECT id FROM tasks WHERE name = ?", (task,)).fetchone()
            ran = cursor.execute("SELECT 1 FROM rollouts WHERE task = ?", (task,)).fetchone()
            if row is None and ran is None:
                raise NotFound(f"no rollouts of task {task!r} are known (tvsnap tree)")
            if row is not None:
                cursor.execute(_EDGES_OF_TASK_ALONE, {"task": row[0]})
                _spare_what_leads_to_others(cursor, row[0])
                cursor.execute(_STATES_OF_DOOMED_EDGES)
            cursor.execute(_ROOTS_OF_TASK_ALONE, {"task": task})
            _spare(cursor, in_use, dry_run=dry_run)
            forgotten = _finish(cursor, "task = ?", (task,), dry_run=dry_run)
            if row is not None and not dry_run:
                cursor.execute(f"DELETE FROM visits WHERE task = ? AND edge NOT {_SPARED_EDGE}", row)
            return forgotten


def _prepare(cursor: sqlite3.Cursor) -> None:
    for statement in _TABLES.strip().split("\n"):
        cursor.execute(statement)


def _spare(cursor: sqlite3.Cursor, in_use: Collection[str], *, dry_run: bool) -> None:
    """Removes states and calls that rollouts depend on from the lists, and makes them answer no calls any more."""
    for state in in_use:
        cursor.execute(_SPARED, (bytes.fromhex(state),))
    cursor.execute("DELETE FROM doomed_states WHERE hash IN (SELECT hash FROM spared_states)")
    cursor.execute(f"DELETE FROM doomed_edges WHERE id {_SPARED_EDGE}")
    if not dry_run:
        cursor.execute(f"UPDATE edges SET slot = NULL, checksum = NULL, reason = ? WHERE id {_SPARED_EDGE}", (SPARED,))


def _spare_what_leads_to_others(cursor: sqlite3.Cursor, task: int) -> None:
    """Removes those calls from the list that lead to a call which stays, and adds the missing visits.

    They exist only if a process was killed before it wrote its visits.
    """
    pairs = cursor.execute(_CALLS_BELOW_DOOMED).fetchall()
    doomed = {id for (id,) in cursor.execute("SELECT id FROM doomed_edges")}
    spared: dict[int, int] = {}
    # A call is recorded after those that lead to it: in order from the latest, calls below are already decided.
    for above, below in pairs:
        if below not in doomed or below in spared:
            spared.setdefault(above, below)
    for above, below in spared.items():
        cursor.execute("DELETE FROM doomed_edges WHERE id = ?", (above,))
        cursor.execute(
            "INSERT OR IGNORE INTO visits (edge, task) SELECT ?, task FROM visits WHERE edge = ? AND task != ?",
            (above, below, task),
        )


def _finish(cursor: sqlite3.Cursor, rollouts: str, parameters: tuple[str, ...], *, dry_run: bool) -> Forgotten:
    """Counts the collected rows, and rollouts that meet a condition; deletes them unless it is a dry run."""

    def count(query: str, parameters: tuple[str, ...] = ()) -> int:
        number: int = cursor.execute(f"SELECT count(*) FROM {query}", parameters).fetchone()[0]
        return number

    snapshots = cursor.execute(
        f"SELECT {SNAPSHOT_COLUMNS.format('n')} FROM snapshots n WHERE n.state {_DOOMED_STATE} ORDER BY n.created"
    ).fetchall()
    forgotten = Forgotten(
        states=count("doomed_states"),
        edges=count("doomed_edges"),
        leases=count(f"leases WHERE state {_DOOMED_STATE}"),
        rollouts=count(f"rollouts WHERE {rollouts}", parameters),
        snapshots=tuple(to_snapshot(row) for row in snapshots),
        spared=count("spared_states"),
    )
    if not dry_run:
        of_these = f"rollout IN (SELECT number FROM rollouts WHERE {rollouts})"
        cursor.execute(f"DELETE FROM steps WHERE {of_these}", parameters)
        cursor.execute(f"DELETE FROM rollouts WHERE {rollouts}", parameters)
        for statement in _DELETIONS:
            cursor.execute(statement)
    return forgotten
