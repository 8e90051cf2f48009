"""Connections to PostgreSQL of which nobody waits for an answer without limit, and what psycopg logs of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")
ANSWER_S = 10.0
"""Seconds for which nothing may come of an answer. The database ends a statement a second earlier, if it can."""
POOL = "tvsnap"
"""The name of a pool of these connections."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed if the database does not answer in time, as when its processes are stopped.

    The kernel of such a host still acknowledges what it is sent, so that nothing else ends the wait.
    """

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **options: Any) -> T:
        """See `psycopg.Connection.wait`."""
        result: T = super().wait(self._limited(gen), *arguments, **options)
        return result

    def _limited(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Does what a generator does, which is resumed several times a second while it waits."""
        until = time.monotonic() + ANSWER_S
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready & psycopg.waiting.Ready.R:
                    until = time.monotonic() + ANSWER_S
                elif time.monotonic() > until:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the database has not answered for {ANSWER_S:.0f} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result


def _is_of_others(record: logging.LogRecord) -> bool:
    """Returns whether what psycopg logs is of other connections than these, whose failures are told by the graph."""
    about = record.args if isinstance(record.args, tuple) else ()
    return not any(one == POOL or isinstance(getattr(one, "_conn", one), Connection) for one in about)


for _name in ("psycopg", "psycopg.pool"):
    logging.getLogger(_name).addFilter(_is_of_others)
