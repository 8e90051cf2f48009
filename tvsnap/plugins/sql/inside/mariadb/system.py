"""MariaDB: a server in the sandbox, one connection that is the rollout's session, and one of ours that observes it."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, Dict, List, Optional

from ..reach import Definitions
from ..system import Answer, DatabaseSystem, Facts, Result, StatementFailed, SystemFailed, Table, configured_database
from . import schema, server, tables
from .definitions import definitions
from .facts import Witness
from .protocol import Connection, Lost, Patience, Refused, Reply
from .scripts import requests
from .values import quoted, text, unparsed, value

_MOST_BYTES = 16 * 1024 * 1024
"""The most bytes that are kept of the rows of one request."""

_MOST_WARNINGS = 20
_MOST_NAMES = 100
_WARMED_TABLES = 100
_WARM_WITHIN = 10.0
_WARMING = (
    "SELECT a.x, COUNT(*) FROM (SELECT 1 AS x UNION SELECT 2) AS a JOIN (SELECT 2 AS y) AS b ON a.x <= b.y "
    "GROUP BY a.x ORDER BY 2, 1",
    "SHOW TABLES",
    "SELECT nothing",
)
_LOCKS_WITHIN = 3
"""Seconds that our own connection waits for locks of a session."""

_FORGETTING = "SELECT 1 FROM (SELECT 1) AS t LIMIT 1"
"""One row found, none changed, no warnings: a statement that reads no table would keep the warnings."""

_OWN_CONNECTIONS = 2
_NO_DATABASE, _UNKNOWN_DATABASE = 1046, 1049
_INTERRUPTED = "ERROR 1317 (70100): Query execution was interrupted; it had not ended after {:g} seconds"
_LOST = (
    "ERROR 2013 (HY000): Lost connection to server during query. What the lost connection held is gone: its "
    "transaction, temporary tables, variables and locks; a new one has taken its place"
)
_NO_OTHER = "ERROR 2013 (HY000): Lost connection to server during query. There is no new one in place of the lost one: "
_TROUBLE = (Refused, Lost, SystemFailed)
_SEEDS = re.compile("rand_seed", re.IGNORECASE)
_STATUS = re.compile("status", re.IGNORECASE)


class MariaDB(DatabaseSystem):
    """MariaDB, 10.11."""

    name = "mariadb"
    directories = (server.DATA, server.SCRATCH)

    def __init__(self) -> None:
        self._session: Optional[Connection] = None
        self._monitor: Optional[Connection] = None
        self._witness: Optional[Witness] = None
        self._database = ""
        self._seeded = False
        """The session has seeded its random numbers itself."""
        self._defined: Optional[Definitions] = None

    def initialise(self) -> None:
        server.initialise()

    def start(self, *, loading: bool = False) -> None:
        server.start()
        self._connect()
        self._warm()

    def stop(self) -> None:
        monitor = self._watching()
        listed = monitor.rows(
            "SELECT CONCAT_WS('.', CONCAT('`', REPLACE(table_schema, '`', '``'), '`'), "
            "CONCAT('`', REPLACE(table_name, '`', '``'), '`')) FROM information_schema.TABLES "
            f"WHERE table_type = 'BASE TABLE' AND table_schema NOT IN {schema.OWN}"
        )
        for (table,) in listed:  # without statistics, plans would depend on what the server happened to sample
            monitor.rows(f"ANALYZE TABLE {text(table)}", tables.PATIENCE)
        if self._session:
            self._session.close()
        server.stop(monitor)
        monitor.close()
        self._session = self._monitor = self._witness = None

    def abandon(self) -> None:
        if self._session is not None:
            server.connect().rows(f"KILL CONNECTION {self._session.id}")  # ours may be in the middle of an answer

    @property
    def processes(self) -> List[int]:
        return server.running()

    def databases(self) -> List[str]:
        return schema.databases(self._watching())

    def run(self, query: str, database: str, timeout: float, max_rows: int) -> Answer:
        deadline = Patience(timeout, lambda: self._kill("QUERY", self._connected().id))
        try:
            if self._session is None:
                server.start()
                self._connect()
            return self._run(query, database, deadline, max_rows)
        except Lost:
            return self._replace(deadline)
        except SystemFailed as error:
            return Answer(error=_NO_OTHER + str(error), lost=True, timed_out=True)

    def _run(self, query: str, database: str, deadline: Patience, max_rows: int) -> Answer:
        session = self._connected()
        elsewhere = bool(database) and database.lower() != self._database.lower()
        try:
            if elsewhere:
                session.use(database)
        except Refused as error:
            return Answer(error=self._worded(error), code=error.state)
        self._forget()
        self._seeded = self._seeded or bool(_SEEDS.search(query))
        answer = Answer(counted=self._witness is not None and self._witness.counting)
        replies: List[Reply] = []
        try:
            parts = requests(query)
            for reply in (one for part in parts for one in session.run(part, deadline, max_rows, _MOST_BYTES)):
                if reply.fields is None and self._witness:
                    self._witness.saw(reply.affected)
                if not deadline.passed:
                    replies.append(reply)
                    answer.results.append(_result(reply))
                if reply.database or (reply.database is not None and not elsewhere):
                    self._database, elsewhere = reply.database, False
        except Refused as error:
            answer.error, answer.code = self._worded(error), error.state
            answer.unparsed = not replies and unparsed(error, query)
        if deadline.passed:
            self._forget()
            answer.error = _INTERRUPTED.format(deadline.timeout)
            answer.code, answer.timed_out, answer.unparsed = "70100", True, False
        else:
            answer.messages = self._messages(answer, replies)
        if answer.error and replies:
            answer.error = f"statement {len(replies) + 1}: {answer.error}"
        if elsewhere:
            self._return()
        return answer

    def _return(self) -> None:
        """Selects the database in use again, after a request in another."""
        try:
            self._connected().use(self._database)
        except Refused:  # there is none, or it was dropped; a session cannot return to that
            self._database = text(self._connected().rows("SELECT DATABASE() LIMIT 1")[0][0])

    def _forget(self) -> None:
        """Resets the session's information on its last statement (FOUND_ROWS() and the like) to a constant state."""
        for _ in range(2):  # the first may be hit by a cancellation that came too late for its statement
            with contextlib.suppress(Refused):
                self._connected().rows(_FORGETTING)
                return

    def _messages(self, answer: Answer, replies: List[Reply]) -> List[str]:
        """Returns the warnings of the last statement, and the number of warnings of those before."""
        messages = [
            f"Statement {number}: {reply.warnings} warning(s); run it alone to see them"
            for number, reply in enumerate(replies, 1)
            if reply.warnings and (answer.error or reply is not replies[-1])
        ]
        if answer.error or (replies and replies[-1].warnings):
            with contextlib.suppress(Refused):
                rows = self._connected().rows(f"SHOW WARNINGS LIMIT {_MOST_WARNINGS}")
                messages += ["{} {}: {}".format(*map(text, row)) for row in rows if row[0] != b"Error"]
        return messages[:_MOST_WARNINGS]

    def _worded(self, error: Refused) -> str:
        """Returns an error in the client's words; one about databases also says which there are."""
        if error.number not in (_NO_DATABASE, _UNKNOWN_DATABASE):
            return str(error)
        with contextlib.suppress(*_TROUBLE):
            there = self.databases()
            names = ", ".join(there[:_MOST_NAMES]) + (", ..." if len(there) > _MOST_NAMES else "")
            return f"{error}; there are: {names or 'none'}"
        return str(error)

    def _replace(self, deadline: Patience) -> Answer:
        """Opens a new connection, and starts the server again if it is dead."""
        answer = Answer(error=_LOST, code="HY000", lost=True, timed_out=deadline.passed)
        lost, self._session = self._session, None
        if lost:
            lost.close()
            if deadline.passed:
                self._kill("CONNECTION", lost.id)
        try:
            server.start()
            self._connect()
        except SystemFailed as error:
            answer.error, answer.timed_out = _NO_OTHER + str(error), True
        return answer

    def _kill(self, what: str, identity: int) -> None:
        with contextlib.suppress(*_TROUBLE):  # it has ended already, or the server has
            self._watching().rows(f"KILL {what} {identity}")

    def reseed(self, database: str) -> None:
        if self._session is None or self._seeded:
            return
        first, second = (int.from_bytes(os.urandom(4), "little") & 0x3FFFFFFF for _ in range(2))
        with contextlib.suppress(Refused, Lost):  # the next statement will fail, too
            self._session.rows(f"SET rand_seed1 = {first}, rand_seed2 = {second}")

    def facts(self) -> Optional[Facts]:
        with contextlib.suppress(*_TROUBLE):
            if self._witness is not None and self._session is not None:
                return self._witness.facts(self._watching())
        return None

    def definitions(self, *, rows: bool = False) -> Optional[Definitions]:
        version = self._witness.definitions if self._witness is not None else None
        if version is None:
            return None
        with contextlib.suppress(*_TROUBLE):
            if self._defined is None or self._defined.version != version:
                self._defined = definitions(self._watching(), version)
            return self._defined
        return None

    def expect(self, kind: str, query: str, database: str) -> None:
        if self._witness is not None and _STATUS.search(query):  # so that the counters show only this request
            with contextlib.suppress(Refused, Lost):  # the statement itself will fail, too
                self._witness.begin_anew()

    def seeded(self, database: str) -> bool:
        return self._seeded

    def timers(self) -> str:
        return self._witness.timers if self._witness is not None else ""

    def alone(self) -> bool:
        return self._witness is not None and self._witness.clients == _OWN_CONNECTIONS

    def schema(self, database: str, table: str) -> Dict[str, Any]:
        try:
            return schema.describe(self._watching(), database or self._database, table)
        except _TROUBLE as error:
            raise StatementFailed(str(error)) from error

    def create_database(self, name: str) -> None:
        self._set_up(f"CREATE DATABASE IF NOT EXISTS {quoted(name)} CHARACTER SET utf8mb4")

    def load_script(self, path: str, database: str) -> List[str]:
        self._make_room()
        tables.load_script(path, database)
        return []

    def load_table(self, database: str, table: Table) -> None:
        self._make_room()
        tables.load_table(self._watching(), database, table)

    def _make_room(self) -> None:
        """Gives the server more memory, until it is stopped."""
        self._set_up(f"SET GLOBAL innodb_buffer_pool_size = {server.POOL_FOR_LOADING}")

    def _set_up(self, statement: str) -> None:
        try:
            self._watching().rows(statement)
        except (Refused, Lost) as error:
            raise SystemFailed(str(error)) from error

    def _connect(self) -> None:
        """Opens the session, with the database that is in use from the start."""
        session = server.connect()
        try:
            there = self.databases()
            wanted = configured_database().lower()
            self._database = wanted if wanted in there else next(iter(there), "mysql")
            session.use(self._database)
        except (Refused, Lost) as error:
            raise SystemFailed(str(error)) from error
        self._session, self._witness, self._seeded = session, Witness(session), False

    def _connected(self) -> Connection:
        if self._session is None:
            raise Lost("there is no connection")
        return self._session

    def _watching(self) -> Connection:
        """Returns our own connection; a new one if that has ended."""
        if self._monitor:
            with contextlib.suppress(Refused, Lost):
                self._monitor.rows("DO 0")
                return self._monitor
        self._monitor = monitor = server.connect()
        monitor.rows(f"SET lock_wait_timeout = {_LOCKS_WITHIN}, innodb_lock_wait_timeout = {_LOCKS_WITHIN}")
        return monitor

    def _warm(self) -> None:
        """Warms the server and this process up with what the first statements will need."""
        if self._database not in schema.OWN:
            tables = self.schema("", "")["tables"]
            for table in [one for one in tables if one["kind"] == "table"][:_WARMED_TABLES]:
                self.run(f"SELECT * FROM {quoted(table['name'])} LIMIT 1", "", _WARM_WITHIN, 1)
        for query in _WARMING:
            self.run(query, "", _WARM_WITHIN, 1)
        self.facts()


def _result(reply: Reply) -> Result:
    if reply.fields is None:
        return Result(affected=reply.affected)
    rows = [list(map(value, reply.fields, row)) for row in reply.rows]
    return Result([field.name for field in reply.fields], rows, reply.more)
