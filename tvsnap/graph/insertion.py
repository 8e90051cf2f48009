"""Inserts calls, and the states that they led to, in a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import fields

from tvsnap.graph.model import STEP_SOURCES, RootInfo, StepRow
from tvsnap.graph.rows import ROOT_COLUMNS, EdgeRow, Row, encodable, pack
from tvsnap.model.errors import NotFound, UsageError

INSERT_STATE = """
INSERT INTO states (hash, root, parent, edge, depth, private, created) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_INSERT_EDGE = f"""
INSERT INTO edges ({", ".join(EdgeRow._fields)}, hits) VALUES ({", ".join("?" * len(EdgeRow._fields))}, 0)
"""

# Of a record that is still there.
_INSERT_STEP = """
INSERT OR REPLACE INTO steps (rollout, place, edge, source, ended, seconds, duration, processor_s, exit_code, timed_out,
    note, call)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12
WHERE ?3 IS NULL OR EXISTS (SELECT 1 FROM edges WHERE id = ?3)
"""
_SOURCES = {source: number for number, source in enumerate(STEP_SOURCES)}


def unknown_state(state: str) -> NotFound:
    """Returns the error for a state that is not in the graph."""
    return NotFound(f"state {state[:12]} is not in the graph (any more); `tvsnap tree` lists those that are")


def insert_root(cursor: sqlite3.Cursor, info: RootInfo) -> None:
    """Adds a root state unless it is there."""
    hash = bytes.fromhex(info.hash)
    cursor.execute(
        f"INSERT INTO roots ({ROOT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (hash, *(getattr(info, field.name) for field in fields(info)[1:])),
    )
    cursor.execute(INSERT_STATE, (hash, hash, None, None, 0, "", info.created))


def insert_call(cursor: sqlite3.Cursor, row: EdgeRow, above: Row, private: str | None) -> int:
    """Adds an edge and the state that it leads to; returns the edge's id.

    Args:
        cursor: of the transaction.
        row: the edge.
        above: what `state_above` returns for the state in which the call was made.
        private: why the branch from its next state on is not shared; None if it is.

    Raises:
        UsageError: another call made its next state.
    """
    id = cursor.execute(_INSERT_EDGE, row).lastrowid
    assert id is not None
    insert_state(cursor, id, row, above, private)
    return id


def insert_calls(
    cursor: sqlite3.Cursor, calls: Iterable[tuple[EdgeRow, str | None, str, StepRow | None]]
) -> list[StepRow]:
    """Adds many calls, and the states that they lead to, with few statements; returns their steps with their edges.

    A call whose state was deleted is left out.

    Args:
        cursor: of the transaction.
        calls: each with the reason why the branch from its next state on is private, its task, and its step.

    Raises:
        UsageError: another call made one of the next states.
    """
    new_states: dict[bytes, Row] = {}  # states that are not inserted yet
    tasks: dict[str, int] = {}
    states: list[Row] = []
    visits: list[Row] = []
    steps: list[StepRow] = []
    for row, private, task, step in calls:
        try:
            above = new_states.get(row.state) or state_above(cursor, row.state)
        except NotFound:
            continue
        edge = cursor.execute(_INSERT_EDGE, row).lastrowid
        assert edge is not None
        if row.next_state is not None:
            states.append(_state_values(edge, row, above, private))
            new_states[row.next_state] = _as_above(states[-1])
        if task not in tasks:
            tasks[task] = task_number(cursor, task)
        visits.append((edge, tasks[task]))
        if step is not None:
            steps.append(step._replace(edge=edge))
    if states:
        cursor.executemany(INSERT_STATE, states)
        if cursor.rowcount < len(states):
            raise UsageError("a state has another origin than the call that is to lead to it")
    cursor.executemany("INSERT INTO visits (edge, task) VALUES (?, ?)", visits)
    return steps


def state_above(cursor: sqlite3.Cursor, state: bytes) -> Row:
    """Returns root, depth and privacy of the state in which a call was made; raises `NotFound` if it was deleted."""
    above: Row | None = cursor.execute("SELECT root, depth, private FROM states WHERE hash = ?", (state,)).fetchone()
    if above is None:
        raise unknown_state(state.hex())
    return above


def insert_state(cursor: sqlite3.Cursor, edge: int, row: EdgeRow, above: Row, private: str | None) -> None:
    """Adds the state that an edge leads to, if it is another one; raises `UsageError` if another call made it."""
    if row.next_state is None:
        return
    cursor.execute(INSERT_STATE, _state_values(edge, row, above, private))
    if cursor.rowcount == 0:
        raise UsageError(f"state {row.next_state.hex()[:12]} has another origin than this call")


def _state_values(edge: int, row: EdgeRow, above: Row, private: str | None) -> Row:
    """Returns the values of `INSERT_STATE` for the state that an edge leads to."""
    root, depth, private_above = above
    return (row.next_state, root, row.state, edge, depth + 1, private_above or private or "", row.created)


def _as_above(values: Row) -> Row:
    """Returns the later result of `state_above` for a state, from the values of `INSERT_STATE`."""
    _, root, _, _, depth, private, _ = values
    return (root, depth, private)


def task_number(cursor: sqlite3.Cursor, task: str) -> int:
    """Returns the number that stands for a task in `visits`; adds the task if necessary."""
    row = cursor.execute("SELECT id FROM tasks WHERE name = ?", (task,)).fetchone()
    if row is None:
        cursor.execute("INSERT INTO tasks (name) VALUES (?)", (task,))
        assert cursor.lastrowid is not None
        return cursor.lastrowid
    number: int = row[0]
    return number


def insert_steps(cursor: sqlite3.Cursor, steps: Sequence[StepRow]) -> None:
    """Adds calls of rollouts that are in the graph; earlier ones at the same places of a rollout are replaced."""
    numbers: dict[str, int] = {}
    for rollout in {step.rollout for step in steps}:
        row = cursor.execute("SELECT number FROM rollouts WHERE id = ?", (rollout,)).fetchone()
        if row is not None:
            numbers[rollout] = row[0]
    cursor.executemany(
        _INSERT_STEP, [_step_values(step, numbers[step.rollout]) for step in steps if step.rollout in numbers]
    )


def _step_values(step: StepRow, number: int) -> Row:
    _, place, edge, source, *rest, note, call = step
    packed = None if edge is not None or call is None else pack(call)
    return (number, place, edge, _SOURCES[source], *rest, None if note is None else encodable(note), packed)
