"""Inserts calls, and the states that they led to, in a transaction."""

from __future__ import annotations

import sqlite3

from tvsnap.graph.rows import EdgeRow, Row
from tvsnap.model.errors import NotFound, UsageError

INSERT_STATE = """
INSERT INTO states (hash, root, parent, edge, depth, private, created) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_INSERT_EDGE = f"""
INSERT INTO edges ({", ".join(EdgeRow._fields)}, hits) VALUES ({", ".join("?" * len(EdgeRow._fields))}, 0)
"""


def unknown_state(state: str) -> NotFound:
    """Returns the error for a state that is not in the graph."""
    return NotFound(f"state {state[:12]} is not in the graph (any more); `tvsnap tree` lists those that are")


def insert_call(cursor: sqlite3.Cursor, row: EdgeRow, private: str | None) -> int:
    """Adds an edge and the state that it leads to; returns the edge's id.

    `private` says why the branch from its next state on is not shared; None if it is.

    Raises:
        NotFound: the state that the call was made in is not in the graph.
        UsageError: another call made its next state.
    """
    above = state_above(cursor, row.state)
    id = cursor.execute(_INSERT_EDGE, row).lastrowid
    assert id is not None
    insert_state(cursor, id, row, above, private)
    return id


def state_above(cursor: sqlite3.Cursor, state: bytes) -> Row:
    """Returns root, depth and privacy of the state that a call was made in; raises `NotFound` if it was deleted."""
    above: Row | None = cursor.execute("SELECT root, depth, private FROM states WHERE hash = ?", (state,)).fetchone()
    if above is None:
        raise unknown_state(state.hex())
    return above


def insert_state(cursor: sqlite3.Cursor, edge: int, row: EdgeRow, above: Row, private: str | None) -> None:
    """Adds the state that an edge leads to, if it is another one; raises `UsageError` if another call made it."""
    if row.next_state is None:
        return
    root, depth, private_above = above
    values = (row.next_state, root, row.state, edge, depth + 1, private_above or private or "", row.created)
    cursor.execute(INSERT_STATE, values)
    if cursor.rowcount == 0:
        raise UsageError(f"state {row.next_state.hex()[:12]} has another origin than this call")


def task_number(cursor: sqlite3.Cursor, task: str) -> int:
    """Returns the number that stands for a task in `visits`; adds the task if necessary."""
    row = cursor.execute("SELECT id FROM tasks WHERE name = ?", (task,)).fetchone()
    if row is None:
        cursor.execute("INSERT INTO tasks (name) VALUES (?)", (task,))
        assert cursor.lastrowid is not None
        return cursor.lastrowid
    number: int = row[0]
    return number
