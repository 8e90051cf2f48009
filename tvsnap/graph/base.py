"""Common base of the parts of a `Graph`; each part is a module in this package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tvsnap.graph.pending import Pending
from tvsnap.graph.rows import encodable
from tvsnap.host.database import Database
from tvsnap.model.errors import TvsnapError


class GraphPart:
    """Access to the database, and to records that are not written yet."""

    _database: Database
    _pending: Pending

    def _rows(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Returns the rows of a query."""
        self._write_calls()
        with self._database.read() as reader:
            return reader.execute(query, parameters).fetchall()

    def _row(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Returns the first row of a query; None if there is none."""
        self._write_calls()
        with self._database.read() as reader:
            return reader.execute(query, parameters).fetchone()

    def _change(self, statement: str, parameters: Sequence[Any]) -> int:
        """Executes a statement as a transaction; returns the number of rows that it changed."""
        self._write_calls()
        with self._database.write() as cursor:
            return cursor.execute(statement, [encodable(value) for value in parameters]).rowcount

    def _write_calls(self) -> None:
        """Writes the calls that are kept in memory before something is read; they are lost if that fails."""
        if self._pending.has_calls:
            with contextlib.suppress(TvsnapError):
                self.flush()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """A block in which all that its thread records is written at once, at its end.

        A call that cannot be recorded raises its error, and the others are recorded.

        Raises:
            TvsnapError: writing failed: nothing of it is recorded.
        """
        self._write_calls()
        with self._database.together():
            yield
        if self._pending.schedule():
            self.flush()

    def flush(self) -> None:
        """Writes records in memory: calls that answer nobody, hits, visits, forks, counters and ends of rollouts.

        Raises:
            TvsnapError: writing failed; the counts are kept for the next time, the calls are not.
        """
        if self._database.is_joined:  # another thread may be writing them, and waits for the end of this transaction
            return
        with self._pending.taken() as pending:
            if pending:
                with self._database.write() as cursor:
                    pending.write(cursor)
