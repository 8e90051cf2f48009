"""Calls that leave a graph for another one, and those that come from another one."""

from __future__ import annotations

import base64
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tvsnap.graph.edges import Edges
from tvsnap.graph.insertion import insert_call, insert_root, state_above, task_number
from tvsnap.graph.model import RootInfo
from tvsnap.graph.rows import CHECKED, EdgeRow, checksum
from tvsnap.model.arguments import check_state, check_text
from tvsnap.model.errors import InfrastructureError, TvsnapError

# The calls of a task, and those that lead to them; or those that lead to a state, and all behind it.
_OF_TASK = """
WITH RECURSIVE listed (edge) AS (
    SELECT v.edge FROM visits v JOIN tasks t ON t.id = v.task WHERE t.name = :of
    UNION
    SELECT above.edge FROM listed CROSS JOIN edges e ON e.id = listed.edge
    CROSS JOIN states above ON above.hash = e.state WHERE above.edge IS NOT NULL
)
"""
_OF_STATE = """
WITH RECURSIVE up (hash, edge) AS (
    SELECT hash, edge FROM states WHERE hash = :of
    UNION
    SELECT s.hash, s.edge FROM up CROSS JOIN edges e ON e.id = up.edge CROSS JOIN states s ON s.hash = e.state
), down (hash) AS (
    SELECT :of
    UNION
    SELECT e.next_state FROM down CROSS JOIN edges e ON e.state = down.hash WHERE e.next_state IS NOT NULL
), listed (edge) AS (
    SELECT edge FROM up WHERE edge IS NOT NULL
    UNION
    SELECT e.id FROM down CROSS JOIN edges e ON e.state = down.hash
)
"""
# Records that may answer somebody, or prevent an answer, in branches that are shared.
_ROWS = f"""
SELECT above.root, {", ".join(f"e.{name}" for name in EdgeRow._fields)}
FROM listed CROSS JOIN edges e ON e.id = listed.edge CROSS JOIN states above ON above.hash = e.state
LEFT JOIN states s ON s.hash = e.next_state
WHERE e.slot IS NOT NULL AND above.private = '' AND coalesce(s.private, '') = ''
ORDER BY above.depth, e.id
"""
_SAME = """
SELECT id, next_state, proven, deterministic FROM edges
WHERE state = ? AND call_key = ? AND slot IS ? AND waited = ?
"""
DISTRUST = "UPDATE edges SET deterministic = 0, checksum = NULL, reason = ? WHERE id = ?"
_VISIT = "INSERT OR IGNORE INTO visits (edge, task) VALUES (?, ?)"
_STATE, _WAITED, _NEXT_STATE = map(EdgeRow._fields.index, ("state", "waited", "next_state"))


@dataclass(frozen=True, slots=True)
class Adopted:
    """The numbers of calls from another graph, by their outcome.

    Attributes:
        added: calls that are new here.
        known: calls that were here already.
        conflicting: calls that led elsewhere here, or lie below such calls: they are left out.
    """

    added: int = 0
    known: int = 0
    conflicting: int = 0


class Portable(Edges):
    """The part of `Graph` that exchanges calls with other graphs."""

    def portable(self, *, task: str | None = None, state: str | None = None) -> dict[str, list[list[Any]]]:
        """Returns the calls of a task, or those that lead to a state and lie below it, as plain JSON.

        Only shared calls are included: no private branches, and no records that answer nobody any more. Calls come
        after those that lead to them.

        Args:
            task: the task; or
            state: the state's full hash.

        Returns:
            The calls by the root below which they were made.
        """
        self.flush()
        query, of = (_OF_TASK, check_text(task, "task")) if task is not None else (_OF_STATE, check_state(state or ""))
        calls: dict[str, list[list[Any]]] = defaultdict(list)
        for root, *row in self._rows(query + _ROWS, {"of": of}):
            calls[root.hex()].append([to_json(value) for value in row])
        return dict(calls)

    def adopt(self, root: RootInfo, rows: Iterable[Sequence[Any]], *, task: str = "") -> Adopted:
        """Adds calls that `portable` returned in another graph, all or nothing.

        Records of this graph stay as they are. If a call led elsewhere in the other graph, the calls below it are left
        out: this graph's records count for as long as they can answer. A call that returned different results there
        answers nobody here either.

        Args:
            root: the root below which they were made.
            rows: the calls.
            task: the task to which they are counted, as if it had made them here.

        Raises:
            InfrastructureError: `rows` make no sense.
        """
        counts = {"added": 0, "known": 0, "conflicting": 0}
        try:
            with self._database.write() as cursor:
                insert_root(cursor, root)
                number = task_number(cursor, task)
                for row in rows:
                    counts[adopt_call(cursor, edge_row(row), number)] += 1
        except (ValueError, TypeError, OverflowError) as error:
            raise InfrastructureError(f"calls from elsewhere make no sense: {error}") from None
        return Adopted(**counts)


def adopt_call(cursor: sqlite3.Cursor, row: EdgeRow, task: int) -> str:
    """Adds one call from another graph in a transaction; see `Portable.adopt`.

    Args:
        cursor: of the transaction.
        row: the call.
        task: the number of the task to which it is counted.

    Returns:
        The field of `Adopted` that counts it.

    Raises:
        ValueError: the call makes no sense.
    """
    above = cursor.execute("SELECT private FROM states WHERE hash = ?", (row.state,)).fetchone()
    if above is None or above[0]:
        return "conflicting"
    there = cursor.execute(_SAME, row[: _WAITED + 1]).fetchone()
    if there is not None:
        id, after, proven, deterministic = there
        if not row.deterministic and deterministic:
            cursor.execute(DISTRUST, (row.reason, id))
        if after != row.next_state:
            return "conflicting"
        if row.proven and not proven:
            cursor.execute("UPDATE edges SET proven = 1 WHERE id = ?", (id,))
        cursor.execute(_VISIT, (id, task))
        return "known"
    occupied = (
        row.next_state is not None
        and cursor.execute("SELECT 1 FROM states WHERE hash = ?", (row.next_state,)).fetchone()
    )
    if occupied:  # by a record of the same call that answers nobody any more, or another time
        return "conflicting"
    try:
        id = insert_call(cursor, row, state_above(cursor, row.state), None)
    except TvsnapError as error:
        raise ValueError(str(error)) from None
    cursor.execute(_VISIT, (id, task))
    return "added"


def root_to_json(root: RootInfo) -> dict[str, Any]:
    """Returns a root as plain JSON; see `root_from_json`."""
    return {field.name: getattr(root, field.name) for field in fields(root)}


def root_from_json(values: dict[str, Any]) -> RootInfo:
    """Returns the root from a result of `root_to_json`; raises InfrastructureError if it is something else."""
    try:
        root = RootInfo(**values)
        check_state(root.hash)
    except (TypeError, TvsnapError) as error:
        raise InfrastructureError(f"a root from elsewhere makes no sense: {error}") from None
    return root


def states_of(rows: Iterable[Sequence[Any]]) -> set[str]:
    """Returns the states in which calls were made, and those that they led to; the calls are those of `portable`."""
    ends = (row[place] for row in rows for place in (_STATE, _NEXT_STATE))
    return {base64.b64decode(end["b"]).hex() for end in ends if end is not None}


def to_json(value: Any) -> Any:
    """Converts a value of an `EdgeRow` into plain JSON; see `edge_row`."""
    return {"b": base64.b64encode(value).decode("ascii")} if isinstance(value, bytes) else value


def edge_row(row: Sequence[Any]) -> EdgeRow:
    """Returns the row whose values `to_json` converted; raises ValueError if its checksum is another."""
    values: list[Any] = [base64.b64decode(value["b"]) if isinstance(value, dict) else value for value in row]
    edge = EdgeRow(*values)
    if edge.deterministic and edge.checksum != checksum(*edge[:CHECKED]):
        raise ValueError("the checksum of a record is another")
    return edge
