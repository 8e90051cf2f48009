"""What the parts of a `Graph` have in common; each part is a file beside this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvsnap.graph.database import Database
from tvsnap.graph.pending import Pending
from tvsnap.graph.rows import encodable
from tvsnap.model.errors import NotFound


class GraphPart:
    """Access to the database and to the counts not yet written."""

    _database: Database
    _pending: Pending

    def _rows(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Returns what a query finds."""
        with self._database.read() as reader:
            return reader.execute(query, parameters).fetchall()

    def _row(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Returns the first row that a query finds, None if there is none."""
        with self._database.read() as reader:
            return reader.execute(query, parameters).fetchone()

    def _change(self, statement: str, parameters: Sequence[Any]) -> int:
        """Executes a statement, as a transaction; returns how many rows it changed."""
        with self._database.write() as cursor:
            return cursor.execute(statement, [encodable(value) for value in parameters]).rowcount

    def flush(self) -> None:
        """Writes hits, visits, forks and counters that were counted in memory.

        Raises:
            TvsnapError: if it cannot; the counts are kept for the next time.
        """
        taken = self._pending.take()
        if not taken:
            return
        try:
            with self._database.write() as cursor:
                taken.write(cursor)
        except BaseException:
            self._pending.put_back(taken)
            raise


def unknown_state(state: str) -> NotFound:
    """Returns the error for a state that is not in the graph."""
    return NotFound(f"state {state[:12]} is not in the graph (any more); `tvsnap tree` lists those that are")
