"""PostgreSQL: the server of a sandbox, and the agent's session in it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Dict, List, Optional

from ..reach import NONE, Definitions, together
from ..servers import copy_up
from ..system import Answer, DatabaseSystem, Facts, StatementFailed, SystemFailed, Table, configured_database, quoted
from . import scripts
from .connection import Connection, Refused
from .definitions import Definers
from .facts import TIMERS, Watch
from .schema import describe
from .server import DIRECTORY, HOME, START_SECONDS, Server
from .values import copy_text, literal

OWN = (HOME, "template0", "template1")
DRAWS = 1000
"""Forks begin at one of so many places of the sequence of secure random numbers, which cannot be seeded."""

TYPES = {
    "integer": "bigint",
    "real": "double precision",
    "decimal": "numeric",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "binary": "bytea",
    "text": "text",
}

_WARM = (
    "SELECT relname, count(*) FROM pg_class c JOIN pg_attribute ON attrelid = c.oid GROUP BY 1 ORDER BY 2 LIMIT 1",
    "SELECT table_name FROM information_schema.tables LIMIT 1",
    "SELECT 1.5::numeric + 1, lower('A') LIKE 'a%', now()::date::text, to_char(now(), 'YYYY'), '{}'::jsonb",
)
_TROUBLE = (Refused, SystemFailed, StatementFailed)


class Postgres(DatabaseSystem):
    """PostgreSQL 15 or newer.

    The session has one connection to the database in use. A request that names another database opens a connection to
    it, which is kept only while its state differs from a new one's.
    """

    name = "postgres"
    directories = (DIRECTORY,)

    def __init__(self) -> None:
        self._server = Server()
        self._default = HOME
        self._watch = Watch()
        self._connections: Dict[str, Connection] = {}
        self._definers: Dict[str, Definers] = {}

    def initialise(self) -> None:
        self._server.initialise()

    def start(self, *, loading: bool = False) -> None:
        self._default = configured_database() or HOME
        self._server.steady = not loading
        if self._server.pid is None:
            copy_up(DIRECTORY)
        self._ready()
        try:
            session = self._session("")
        except Refused as refused:
            raise SystemFailed(self._refusal(self._default, refused).error) from None
        for query in _WARM:
            session.ask(query)
        self.schema("", "")
        self.facts()

    def stop(self) -> None:
        """Also freezes and analyses all databases first: nothing is left to clean up, and plans have statistics."""
        if self._server.pid is None:
            return
        self._ready()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._watch.close()
        cleaned = self._server.run(
            [self._server.program("vacuumdb"), "--all", "--freeze", "--analyze", "--quiet", "--maintenance-db", HOME]
        )
        if cleaned.returncode:
            raise SystemFailed(f"vacuumdb failed: {cleaned.stdout.decode('utf-8', 'backslashreplace').strip()}")
        self._server.stop()

    def abandon(self) -> None:
        for connection in self._connections.values():
            if connection.alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(connection.pid, signal.SIGTERM)

    @property
    def processes(self) -> List[int]:
        pid = self._server.pid
        return [] if pid is None else [pid]

    def databases(self) -> List[str]:
        self._ready()
        rows = self._watch.ask("SELECT datname FROM pg_database WHERE NOT datistemplate")
        return sorted(name for (name,) in rows if name and name not in OWN)

    def run(self, query: str, database: str, timeout: float, max_rows: int) -> Answer:
        try:
            connection = self._session(database)
        except Refused as refused:
            return self._refusal(database or self._default, refused)
        except (SystemFailed, StatementFailed) as failed:
            return Answer(error=str(failed), lost=True, timed_out=True)
        if TIMERS.search(query):
            self._watch.named.add(connection.database)
        answer = connection.run(query, timeout, max_rows)
        if connection.database != self._default:
            self._look(connection, None)  # it may be closed now
        self._after(connection)
        if answer.lost:
            with contextlib.suppress(SystemFailed):  # the next request reports it
                self._ready()
        return answer

    def reseed(self, database: str) -> None:
        with contextlib.suppress(*_TROUBLE):
            connection = self._session(database)
            if connection.settled and not connection.ledger.seeded:
                number = int.from_bytes(os.urandom(6), "big") / (1 << 47) - 1
                draws = int.from_bytes(os.urandom(2), "big") % DRAWS
                connection.ask(
                    f"SELECT pg_catalog.setseed({number!r}), pg_catalog.count(pg_catalog.gen_random_uuid()) "
                    f"FROM pg_catalog.generate_series(1, {draws})"
                )

    def facts(self) -> Optional[Facts]:
        if self._server.pid is None:
            return None
        with contextlib.suppress(*_TROUBLE):
            self._ready()
            self._session("")
            return self._watch.facts(self._connections.values(), self._server.configuration())
        return None

    def definitions(self, *, rows: bool = False) -> Optional[Definitions]:
        """See `DatabaseSystem.definitions`; of all databases in which statements were run."""
        undisturbed = rows and self.alone() and not self._watch.visited
        for connection in list(self._connections.values()):
            definers = self._definers.get(connection.database)
            if undisturbed and connection.idle and definers is not None and definers.at is not None:
                definers.at = (connection, self._watch.written)
            elif not self._look(connection, self._watch.written):
                return None
        definitions = [one.known for one in self._definers.values() if one.known is not None]
        pure = definitions[0].pure.intersection(*(one.pure for one in definitions)) if definitions else NONE
        idle = all(connection.idle for connection in self._connections.values())
        return Definitions(**{**together(definitions), "pure": pure, "complete": idle})

    def _look(self, connection: Connection, written: Optional[str]) -> bool:
        """Reads the definitions of a connection's database, if they may have changed; returns whether they are known.

        In a transaction the connection is not queried: its definitions are read once it ends. `written` is the position
        of the write-ahead log; None to read them in any case.
        """
        definers = self._definers.setdefault(connection.database, Definers())
        if connection.alive and connection.idle:
            try:
                at = (connection, written)
                if written is None or definers.at != at:
                    definers.look(connection.ask)
                    definers.at = at
            except StatementFailed:
                definers.at = None
                return False
        else:
            definers.at = None  # to be read in any case once that is possible
        return definers.known is not None

    def expect(self, kind: str, query: str, database: str) -> None:
        """See `DatabaseSystem.expect`: the server does not count reads, and so does not show which were made."""
        connection = self._connections.get(database or self._default)
        if connection is None or not connection.alive or not connection.idle:
            return
        connection.counts = connection.counts or "track_counts" in query.lower()
        counted = kind != "read"
        if connection.counted != counted and not connection.counts:
            connection.counted = counted
            with contextlib.suppress(StatementFailed):  # the session has taken a lesser role, or is lost
                connection.ask(f"SET track_counts = {'on' if counted else 'off'}")

    def seeded(self, database: str) -> bool:
        connection = self._connections.get(database or self._default)
        return connection is not None and connection.ledger.seeded

    def timers(self) -> str:
        return self._watch.timers({connection.database for connection in self._connections.values()})

    def alone(self) -> bool:
        return 0 < self._watch.clients <= 1 + len(self._connections)

    def schema(self, database: str, table: str) -> Dict[str, Any]:
        try:
            connection = self._session(database)
        except Refused as refused:
            raise LookupError(self._refusal(database or self._default, refused).error) from None
        except SystemFailed as failed:
            raise StatementFailed(str(failed)) from None
        try:
            connection.look()
            return describe(connection, table)
        finally:
            self._after(connection)

    def create_database(self, name: str) -> None:
        self._ready()
        if not self._watch.ask(f"SELECT FROM pg_database WHERE datname = {literal(name)}"):
            self._watch.ask(f"CREATE DATABASE {quoted(name)}", START_SECONDS)

    def load_script(self, path: str, database: str) -> List[str]:
        return scripts.load_script(self._server, path, database or HOME)

    def load_table(self, database: str, table: Table) -> None:
        name = quoted(table.name)
        try:
            connection = self._watch.connect(database or HOME, "tvsnap load")
        except Refused as refused:
            raise SystemFailed(str(refused)) from None
        try:
            connection.ask("BEGIN")
            connection.ask(f"CREATE TABLE IF NOT EXISTS {name} {table.definition(quoted, TYPES)}")
            connection.copy(f"COPY {name} ({table.names(quoted)}) FROM STDIN", copy_text(table.rows))
            connection.ask("COMMIT")
        except StatementFailed as failed:
            raise SystemFailed(f'table "{table.name}": {failed}') from None
        finally:
            connection.close()

    def _session(self, database: str) -> Connection:
        """Returns the session's connection to a database; empty for the one in use.

        Raises:
            Refused: by the server, for example as there is no such database.
            StatementFailed: it does not answer.
            SystemFailed: there is no server, and none can be started.
        """
        name = database or self._default
        until = time.monotonic() + START_SECONDS
        while name not in self._connections:
            self._ready()
            if not self._connect(name, time.monotonic() < until):
                time.sleep(0.02)
        return self._connections[name]

    def _connect(self, name: str, patient: bool) -> bool:
        """Connects the session to a database; returns False if a `patient` caller should try again."""
        try:
            self._connections[name] = self._watch.connect_session(name)
        except Refused as refused:
            gone = self._server.pid is None
            if gone:  # our own connection may outlive a killed server for a moment
                self._watch.close()
            if not (patient and (gone or refused.for_now)):
                raise
            return False
        return True

    def _after(self, connection: Connection) -> None:
        """Closes a connection that is lost, or that is to a database that is not in use and has no state."""
        name = connection.database
        if connection.alive and (name == self._default or not connection.idle):
            return
        with contextlib.suppress(StatementFailed):
            if not connection.alive or not self._watch.holds_something(connection):
                connection.close()
                del self._connections[name]

    def _ready(self) -> None:
        if self._watch.alive:
            return
        self._server.start()
        until = time.monotonic() + START_SECONDS
        while not (self._server.ready and self._opens()):
            if not self._server.alive or time.monotonic() > until:
                raise SystemFailed(f"PostgreSQL does not start: {self._server.complaint()}")
            time.sleep(0.02)  # it is still starting, or recovering

    def _opens(self) -> bool:
        with contextlib.suppress(Refused):
            self._watch.open()
            return True
        return False

    def _refusal(self, name: str, refused: Refused) -> Answer:
        with contextlib.suppress(SystemFailed, StatementFailed):
            names = self.databases()
            if name not in names and name not in OWN:
                return Answer(error=f"{refused}\nThere are: {', '.join(names) or HOME}", code="3D000")
        return Answer(error=str(refused), timed_out=refused.for_now)
