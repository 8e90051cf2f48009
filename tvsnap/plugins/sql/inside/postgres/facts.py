"""The facts of a PostgreSQL server that show whether anything changed, queried without changing anything.

Transaction ids show changes of data, schema, databases and roles; the write-ahead position shows any writing at all.
Neither shows the state of a session, or sequences, which count outside of transactions:

- Outside of a transaction the session itself is queried. In a transaction it is not queried: a statement could fail and
  abort the transaction, and after the first one SET TRANSACTION is no longer possible. There, its locks are read, which
  a second connection sees, and `Ledger.turns`, the number of requests that were more than mere reads.
- A sequence is read by the session if that is idle and has the rights, else by a temporary connection: a permanent one
  would block `CREATE DATABASE ... TEMPLATE`. Those of other databases are read if somebody has been connected there.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from ..system import Facts, StatementFailed
from .connection import Connection
from .server import HOME

FACTS_SECONDS = 5.0
SESSION = "tvsnap"
"""The name of the agent's own connection in the server's list."""

# The functions of the views are called directly: planning a view takes longer than answering it.

_SEQUENCES = """(
    SELECT string_agg(seqrelid || ' ' || coalesce(pg_sequence_last_value(seqrelid)::text, '-'), ',' ORDER BY seqrelid)
    FROM pg_sequence JOIN pg_class c ON c.oid = seqrelid WHERE {which})"""
_LASTING = _SEQUENCES.format(which="c.relpersistence <> 't'")
_TEMPORARY = _SEQUENCES.format(which="c.relnamespace = pg_my_temp_schema()")
_UNLOCKED = _SEQUENCES.format(
    which="""c.relpersistence <> 't' AND NOT EXISTS (SELECT FROM pg_lock_status() l WHERE l.relation = c.oid AND l.mode
    IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'))"""
)

TIMERS = re.compile("(idle_in_transaction_session|idle_session|transaction)_timeout", re.IGNORECASE)
"""Settings that make the server end an idle session."""
_TIMED = """(SELECT string_agg(name, ', ' ORDER BY name) FROM pg_show_all_settings() WHERE setting <> '0' AND
    name IN ('idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout'))"""

_SESSION = f"""SELECT ROW(current_user, session_user, pg_my_temp_schema(),
    (SELECT string_agg(name || '=' || setting, ',' ORDER BY name) FROM pg_show_all_settings()
     WHERE source = 'session' AND name <> 'track_counts'),
    (SELECT md5(string_agg(name || '=' || statement, ',' ORDER BY name)) FROM pg_prepared_statement()),
    (SELECT md5(string_agg(name || '=' || statement || creation_time, ',' ORDER BY name)) FROM pg_cursor()
     WHERE name <> ''),
    (SELECT md5(string_agg(channel, ',' ORDER BY channel)) FROM pg_listening_channels() channel),
    (SELECT md5(string_agg(lock::text, ',' ORDER BY lock::text)) FROM (
        SELECT classid, objid, objsubid, mode FROM pg_lock_status()
        WHERE pid = pg_backend_pid() AND locktype = 'advisory') lock),
    CASE WHEN current_setting('is_superuser') = 'on' THEN {_TEMPORARY} END)::text,
    CASE WHEN current_setting('is_superuser') = 'on' THEN {_LASTING} END,
    (SELECT bool_or(seqcache > 1) FROM pg_sequence),
    {_TIMED}"""

_SERVER = """SELECT ROW(pg_postmaster_start_time(), pg_conf_load_time(), pg_current_snapshot(),
    (SELECT string_agg(transactionid::text, ',' ORDER BY transactionid::text) FROM pg_lock_status()
     WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock'))::text, pg_current_wal_insert_lsn(),
    (SELECT count(*) FROM pg_stat_get_activity(NULL) WHERE usesysid IS NOT NULL), current_setting('autovacuum')"""

_VISITS = "SELECT datname, pg_stat_get_db_sessions(oid), pg_postmaster_start_time() FROM pg_database"

_LOCKS = """SELECT md5(string_agg(lock::text, ',' ORDER BY lock::text)),
    bool_or(mode <> 'AccessShareLock' AND locktype = 'relation')
    FROM (SELECT locktype, database, relation, page, tuple, transactionid, classid, objid, objsubid, mode, granted
          FROM pg_lock_status() WHERE pid = {pid} AND locktype <> 'virtualxid') lock"""


class Watch:
    """Collects facts, over a connection of its own, on which no statement of the agent ever runs.

    Attributes:
        written: the position of the write-ahead log at the last look: it moves with any change of the catalog.
        clients: the number of clients that were connected to the server at the last look, including this one.
        visited: another client was connected between the last two looks.
        named: databases in whose connections a statement has named one of `TIMERS` since they were last idle.
    """

    def __init__(self) -> None:
        self._monitor: Optional[Connection] = None
        self._opened: Counter[str] = Counter()
        self._visits: Dict[str, int] = {}
        self._started: Optional[str] = None
        self._sequences: Dict[str, str] = {}
        self._moves = 0
        self._nothing = ""
        self.written: Optional[str] = None
        self.clients = 0
        self.visited = True
        self.named: Set[str] = set()
        self._timers: Dict[str, str] = {}
        self._cleans = False

    @property
    def alive(self) -> bool:
        if self._monitor is not None:
            self._monitor.listen()
        return self._monitor is not None and self._monitor.alive

    def open(self) -> None:
        self.close()
        self._monitor = self.connect(HOME, "tvsnap monitor")

    def close(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
        self._monitor = None

    def ask(self, query: str, seconds: float = FACTS_SECONDS) -> List[List[Optional[str]]]:
        if self._monitor is None:
            raise StatementFailed("there is no connection to PostgreSQL")
        return self._monitor.ask(query, seconds)

    def connect(self, database: str, name: str) -> Connection:
        """Returns a new connection, which does not count as another client's visit."""
        connection = Connection(database, name, hidden=name != SESSION)
        self._opened[database] += 1
        return connection

    def connect_session(self, database: str) -> Connection:
        """Returns a new connection for the agent's statements, after recording its initial state."""
        connection = self.connect(database, SESSION)
        if database not in self._sequences or not self._nothing:
            try:
                self._nothing, sequences = self._held(connection)
            except StatementFailed:
                connection.close()
                raise
            self._sequences.setdefault(database, sequences or "")
        return connection

    def holds_something(self, connection: Connection) -> bool:
        """Returns whether an idle connection, or a sequence of its database, differs from before the agent."""
        holds, sequences = self._held(connection)
        if sequences != self._sequences.get(connection.database):
            connection.ledger.kept = True  # because of currval() and lastval()
        return connection.ledger.kept or holds != self._nothing

    def facts(self, connections: Iterable[Connection], files: Tuple[Any, ...]) -> Facts:
        """Returns the present facts of the session's connections, and of files outside the database."""
        visited = self._visited()
        self.visited = bool(visited)
        facts: List[Any] = []
        for connection in sorted(connections, key=lambda one: one.database):
            connection.listen()
            of_connection, sequences = self._of(connection)
            connection.listen()  # the server may have sent something meanwhile
            facts.append((connection.database, connection.arrived, connection.waiting, *of_connection))
            if sequences is not None:
                self._note_sequences(connection.database, sequences)
                visited.discard(connection.database)
            elif self._sequences.get(connection.database) and (connection.idle or of_connection[-1]):
                visited.add(connection.database)
        for database in sorted(visited):
            self._note_sequences(database, self._look_at_sequences(database))
        server, self.written, clients, cleans = self.ask(_SERVER)[0]
        self._cleans = cleans == "on"
        self.clients = int(clients or 0)
        # Reads that do not clean up write nothing; a read that wrote has changed the place of later rows.
        return server, tuple(facts), self._moves, files, self.written

    def timers(self, databases: Set[str]) -> str:
        """See `DatabaseSystem.timers`; in a transaction, a setting that a statement has named counts as set."""
        timers = {self._timers.get(database, "") for database in databases}
        timers |= {"a timeout of idle sessions"} if self.named & databases else set()
        timers |= {"autovacuum"} if self._cleans else set()
        return ", ".join(sorted(filter(None, timers)))

    def _note_sequences(self, database: str, sequences: str) -> None:
        """Notes the state of a database's sequences; if there was none before, any of them may have moved."""
        if self._sequences.get(database, "") != sequences:
            self._moves += 1
        self._sequences[database] = sequences

    def _of(self, connection: Connection) -> Tuple[Tuple[Any, ...], Optional[str]]:
        """Returns the state of a connection, and of its database's sequences if it could read them."""
        if not connection.idle:
            state = "failed" if connection.failed else "open"
            locks, written = self.ask(_LOCKS.format(pid=connection.pid))[0]
            return (state, connection.ledger.turns, locks, written == "t"), None
        holds, sequences = self._held(connection)
        return ("idle", holds), sequences

    def _held(self, connection: Connection) -> Tuple[str, Optional[str]]:
        """Returns the state of an idle connection, and of its database's sequences; None without the rights."""
        holds, sequences, cached, timers = connection.ask(_SESSION, FACTS_SECONDS)[0]
        self._timers[connection.database] = timers or ""
        self.named.discard(connection.database)
        if cached == "t":
            holds = f"{holds}{self._last_of_cached(connection)}"
        return holds or "", (sequences or "") if connection.superuser else None

    def _last_of_cached(self, connection: Connection) -> str:
        """Returns lastval(): drawing from a sequence with a cache does not change the sequence itself."""
        try:
            return " " + str(connection.ask("SELECT lastval()", FACTS_SECONDS)[0])
        except StatementFailed:
            return ""  # not yet defined in this session

    def _visited(self) -> Set[str]:
        """Returns the databases to which another client has been connected since the last call."""
        rows = self.ask(_VISITS)
        visits = {name or "": int(sessions or 0) - self._opened[name or ""] for name, sessions, _ in rows}
        visits_before, self._visits = self._visits, visits
        for gone in self._sequences.keys() - visits.keys():
            del self._sequences[gone]
        started = rows[0][2]
        if self._started != started:  # it counts from zero again; the restart itself is a fact
            self._started = started
            return set()
        return {name for name, count in visits.items() if count != visits_before.get(name, 0)}

    def _look_at_sequences(self, database: str) -> str:
        connection = self.connect(database, "tvsnap look")
        try:
            return connection.ask(f"SELECT {_UNLOCKED}", FACTS_SECONDS)[0][0] or ""
        finally:
            connection.close()
