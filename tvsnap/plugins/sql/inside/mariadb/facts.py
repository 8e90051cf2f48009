"""The facts of MariaDB that show whether anything changed."""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ..system import Facts
from . import schema, server
from .protocol import Connection, Row
from .values import text

_ALL = 1 << 62

# They change by themselves, or with reads.
_RESTLESS = ("TIMESTAMP", "RAND_SEED1", "RAND_SEED2", "WARNING_COUNT", "ERROR_COUNT", "LAST_GTID")

# Counts of the session's acts that leave no other trace.
_TRACELESS = (
    *("COM_PREPARE_SQL", "COM_DEALLOC_SQL", "COM_HA_OPEN", "COM_HA_READ", "COM_HA_CLOSE"),
    *("COM_SAVEPOINT", "COM_RELEASE_SAVEPOINT", "COM_ROLLBACK_TO_SAVEPOINT"),
)
_OWN = ("COM_SELECT", "OPENED_VIEWS")

_ROWS = ("HANDLER_WRITE", "HANDLER_DELETE")
"""Rows written by statements, in tables of all kinds except those that the database system creates for itself."""

_UPDATED = "HANDLER_UPDATE"
"""Rows updated; window functions are counted here, too, because of the database system's own tables."""

_UPDATES = (
    *("COM_INSERT", "COM_INSERT_SELECT", "COM_REPLACE", "COM_REPLACE_SELECT"),
    *("COM_UPDATE", "COM_UPDATE_MULTI", "COM_LOAD"),
)
"""Statements that update rows without changing anything else."""

_DELETES = "COM_DELETE"
_SELECTS = "COM_SELECT"

_HARMLESS = (
    "^COM_(SELECT|SHOW_.*|SET_OPTION|CHANGE_DB|DO|HELP|KILL|CHECK|CHECKSUM|ADMIN_COMMANDS|EMPTY_QUERY"
    "|INSERT|INSERT_SELECT|UPDATE|UPDATE_MULTI|DELETE|DELETE_MULTI|REPLACE|REPLACE_SELECT|LOAD"
    "|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE_SAVEPOINT|ROLLBACK_TO_SAVEPOINT|LOCK_TABLES|UNLOCK_TABLES|HA_.*"
    "|CALL_PROCEDURE|COMPOUND_SQL|SIGNAL|RESIGNAL|GET_DIAGNOSTICS"
    "|PREPARE_SQL|EXECUTE_SQL|EXECUTE_IMMEDIATE|DEALLOC_SQL|STMT_.*)$"
)
"""Statements that change only rows, or only the state of their own session, or nothing at all.

All others are counted, even if they failed.
"""

_SESSION = f"""
SELECT DATABASE(), CURRENT_USER(), CURRENT_ROLE(), @@in_transaction, @@profiling OR @@userstat LIMIT 1;
SELECT variable_name, variable_value FROM information_schema.SESSION_STATUS
WHERE variable_name IN {_TRACELESS + _OWN} LIMIT {_ALL};
SELECT * FROM information_schema.USER_VARIABLES LIMIT {_ALL};
SELECT variable_name, session_value, global_value FROM information_schema.SYSTEM_VARIABLES
WHERE variable_name NOT IN {_RESTLESS} AND NOT (
    COALESCE(session_value, global_value) <=> default_value AND COALESCE(global_value, session_value) <=> default_value
) LIMIT {_ALL}
"""  # the limit is for a session that has set sql_select_limit

_SERVER = f"""
SELECT variable_name, variable_value FROM information_schema.GLOBAL_STATUS
WHERE variable_name LIKE 'COM\\_%' AND variable_name NOT REGEXP '{_HARMLESS}';
SELECT variable_name, variable_value FROM information_schema.GLOBAL_STATUS
WHERE variable_name IN {(*_ROWS, _UPDATED, *_UPDATES, _DELETES, _SELECTS)};
SELECT variable_value FROM information_schema.SESSION_STATUS WHERE variable_name = '{_SELECTS}';
SELECT variable_value FROM information_schema.GLOBAL_STATUS WHERE variable_name = 'THREADS_CONNECTED';
SELECT thread_id, lock_mode, lock_type, table_schema, table_name FROM information_schema.METADATA_LOCK_INFO
WHERE thread_id <> 0
"""
"""Locks of thread 0 are the server's own, which cleans up after earlier statements."""

_TIMERS = {
    "EVENT_SCHEDULER": b"OFF",
    "WAIT_TIMEOUT": b"%d" % server.IDLE_FOREVER,
    "IDLE_TRANSACTION_TIMEOUT": b"0",
    "IDLE_READONLY_TRANSACTION_TIMEOUT": b"0",
    "IDLE_WRITE_TRANSACTION_TIMEOUT": b"0",
}
"""Settings that make the server do something by itself, and the values with which it does not."""

_SEQUENCES = f"""
SELECT EXISTS (SELECT 1 FROM information_schema.TABLES WHERE table_type = 'SEQUENCE'
AND table_schema NOT IN {schema.OWN})
"""


class Witness:
    """Collects facts about a session and its server.

    Changes of rows are detected by the server's count of rows written, all others by its count of statements: effects
    of functions, triggers and other clients are counted in the same place. A session's state is in its variables and
    its locks, and in InnoDB's report on its transaction.
    """

    def __init__(self, session: Connection) -> None:
        self._session = session
        self._sequences: Tuple[Any, bool] = (None, False)
        self._updates: Tuple[int, int] = (0, 0)
        self._own_updates = 0
        self._deletes = 0
        self._emptied = 0
        self._idle = 0
        self._before: Counter[str] = Counter()
        self._flushes = 0
        self.clients = 0
        """The number of clients that were connected at the last look, including our own."""
        self.counting = False
        """The server counts each statement, including reads, in a place that other statements can read."""
        self.timers = ""
        """See `DatabaseSystem.timers`."""
        self.definitions: Optional[str] = None
        """Changes whenever something may have been defined; None before the first look."""

    def begin_anew(self) -> None:
        """Resets the session's counters, so that they count only what comes next; not in a transaction.

        The counts so far may include fewer statements than the agent's rollout made, and some of our own.
        """
        (place,), counts, *_ = _rows_of(self._session, _SESSION)
        if _plain(place[3]) != b"1":
            self._session.rows("FLUSH LOCAL STATUS")
            self._before.update(_numbers(counts))
            self._flushes += 1

    def saw(self, affected: int) -> None:
        self._idle += not affected

    def facts(self, monitor: Connection) -> Facts:
        """Returns the present facts, and changes nothing except the session's diagnostics."""
        (place,), counts, variables, settings = _rows_of(self._session, _SESSION)
        self.counting = _plain(place[4]) == b"1"
        self.timers = ", ".join(sorted(_timers(settings)))
        own = Counter(_numbers(counts))
        own.update(self._before)
        definitions, counts, selects, clients, locks = _rows_of(monitor, _SERVER)
        self.clients = int(clients[0][0] or 0)
        everyone = _numbers(counts)
        self.definitions = repr(  # without flushes of our own
            [(name, int(_plain(n)) - self._flushes * (_plain(name).upper() == b"COM_FLUSH")) for name, n in definitions]
        )
        rows = (*(everyone[name] for name in _ROWS), self._updated(everyone), self._emptyings(everyone))
        hidden: Tuple[int, ...] = ()
        if self._sequences[0] != definitions:
            self._sequences = (definitions, monitor.rows(_SEQUENCES) == [[b"1"]])
        if self._sequences[1]:
            # A value drawn from a sequence leaves no trace until the next batch of them is reserved. In the session,
            # the statement shows it, unless a view hides it; statements of other clients are not known.
            others = everyone[_SELECTS] - own[_SELECTS] - int(selects[0][0] or 0)
            hidden = (others, own["OPENED_VIEWS"])
            # Which rows InnoDB shows to the session's transaction, and what the transaction has written and locked.
        report = monitor.rows("SHOW ENGINE INNODB STATUS")[0][2] if _plain(place[3]) == b"1" else b""
        return (
            tuple(place),
            tuple(own[name] for name in _TRACELESS),
            tuple(sorted(map(repr, variables))),
            b"\0".join(b"\1" if value is None else value for row in settings for value in row),
            self.definitions,
            rows,
            tuple(sorted(map(repr, locks))),
            hidden,
            transaction(text(report), self._session.id),
        )

    def _updated(self, counts: Dict[str, int]) -> int:
        """Returns how many rows have been updated by statements that update rows."""
        statements = sum(counts[name] for name in _UPDATES)
        statements_before, updated = self._updates
        if statements == statements_before:
            self._own_updates += counts[_UPDATED] - updated
        self._updates = (statements, counts[_UPDATED])
        return counts[_UPDATED] - self._own_updates

    def _emptyings(self, counts: Dict[str, int]) -> int:
        """Returns how often rows may have been deleted without being counted.

        Some kinds of tables are emptied at once by a DELETE without a condition. It reports how many rows there were,
        so that only the session's own statements are known to have deleted none.
        """
        if counts[_DELETES] - self._deletes > self._idle:
            self._emptied += 1
        self._deletes, self._idle = counts[_DELETES], 0
        return self._emptied


def transaction(report: str, session: int) -> Tuple[str, ...]:
    """Returns the part of InnoDB's report about a session's transaction, without what changes by itself."""
    for block in report.split("\n---TRANSACTION ")[1:]:
        if f"\nMariaDB thread id {session}," in block:
            lines = block.split("\n")
            facts = [line for line in lines if " lock struct(s), " in line or line.startswith("Trx read view")]
            return (lines[0].split(",")[0], *facts)
    return ()


def _timers(settings: List[Row]) -> Iterator[str]:
    """Yields the names of non-default settings that make the server do something by itself."""
    for name, value, everywhere in settings:
        at_rest = _TIMERS.get(_plain(name).upper().decode("latin-1"))
        if at_rest is not None and _plain(value if value is not None else everywhere) not in (at_rest, b""):
            yield _plain(name).lower().decode("latin-1")


def _rows_of(connection: Connection, query: str) -> List[List[Row]]:
    return [reply.rows for reply in connection.run(query)]


def _numbers(rows: List[Row]) -> Dict[str, int]:
    return {_plain(name).decode(): int(_plain(count)) for name, count in rows}


def _plain(value: Optional[bytes]) -> bytes:
    """Returns a number or a name, even for a session that wants its results in UTF-16."""
    return (value or b"").replace(b"\0", b"")
