"""The PostgreSQL database through which hosts exchange calls: what is asked of it, and what it answers."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from tvsnap.graph.portable import edge_row, to_json
from tvsnap.graph.rows import EdgeRow
from tvsnap.model.errors import InfrastructureError, TvsnapError, UsageError

if TYPE_CHECKING:
    from psycopg import Connection

    Connected = Connection[tuple[Any, ...]]

VERSION = 3
OLDEST = 13
"""The first PostgreSQL that numbers transactions without ever beginning anew."""
CONNECTIONS = 8
ALIVE_S = 10.0
"""Seconds without a sign of life after which what a session executes may be executed by others."""
RETRY_S = 2.0
"""Seconds for which nothing is asked after the database could not be reached."""
CONNECT_S = 5
STATEMENT_S = 9
_NEWS = "tvsnap_calls"
_MAKING = 0x74767370  # "tvsp": the lock under which the tables are made

_BY_KEY = "state = %s AND call_key = %s"
_LEASE = f"""
INSERT INTO tvsnap.leases AS held (state, call_key, session, taken) VALUES (%s, %s, %s, clock_timestamp())
ON CONFLICT (state, call_key) DO UPDATE SET session = excluded.session, taken = excluded.taken
WHERE held.session = excluded.session OR NOT EXISTS (
    SELECT 1 FROM tvsnap.sessions s
    WHERE s.id = held.session AND s.seen > clock_timestamp() - interval '{ALIVE_S} s')
RETURNING session
"""
_FIND = f"SELECT deterministic, proven, reason, record FROM tvsnap.calls WHERE {_BY_KEY} ORDER BY created"
_HOLDER = f"""
SELECT held.session, extract(epoch FROM clock_timestamp() - held.taken)::float8
FROM tvsnap.leases held JOIN tvsnap.sessions s ON s.id = held.session
WHERE {_BY_KEY} AND s.seen > clock_timestamp() - interval '{ALIVE_S} s'
"""
_RELEASE = f"DELETE FROM tvsnap.leases WHERE {_BY_KEY} AND session = %s"
_SEEN = """
INSERT INTO tvsnap.sessions (id, host, seen) VALUES (%s, %s, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET seen = excluded.seen
"""
_SWEEP = """
WITH dead AS (DELETE FROM tvsnap.sessions WHERE seen < clock_timestamp() - interval '1 h' RETURNING id)
DELETE FROM tvsnap.leases WHERE session IN (SELECT id FROM dead)
"""
# A call whose result depends on what is outside is replaced by what a later execution of it returned.
_REPLACE = f"DELETE FROM tvsnap.calls WHERE {_BY_KEY} AND slot = %s AND waited = %s AND ages AND created < %s"
_COLUMNS = "state, call_key, slot, waited, next_state, digest, created, deterministic, proven, reason, ages, record"
# A record that answers nobody is news from the beginning: the database may have had another of the call before.
# The first of several records of one call stays; later ones only add to it: that it differs from time to time,
# that the same was left behind once more, or something else.
_SAME = "old.next_state IS NOT DISTINCT FROM excluded.next_state"
_REFUTES = f"(NOT ({_SAME}) AND old.digest IS NOT NULL AND excluded.digest IS NOT NULL AND NOT excluded.ages)"
_PUBLISH = f"""
INSERT INTO tvsnap.calls AS old ({_COLUMNS}, changed)
VALUES ({", ".join(["%s"] * (_COLUMNS.count(",") + 1))}, CASE WHEN %s THEN NULL ELSE pg_current_xact_id() END)
ON CONFLICT (state, call_key, slot, waited) DO UPDATE SET
    deterministic = old.deterministic AND excluded.deterministic,
    reason = CASE WHEN old.deterministic AND NOT excluded.deterministic THEN excluded.reason ELSE old.reason END,
    refuted = old.refuted OR {_REFUTES},
    proven = (old.proven OR (excluded.proven AND {_SAME})) AND NOT old.refuted AND NOT {_REFUTES},
    changed = pg_current_xact_id()
WHERE (old.deterministic AND NOT excluded.deterministic) OR (NOT old.refuted AND {_REFUTES})
OR (excluded.proven AND {_SAME} AND NOT old.proven AND NOT old.refuted)
RETURNING old.changed IS NOT NULL
"""
_MARK = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_RENUMBER = "UPDATE tvsnap.calls SET changed = pg_current_xact_id() WHERE changed > pg_current_xact_id()"
_CHANGES = """
SELECT state, call_key, slot, waited, next_state, deterministic, proven, refuted, reason
FROM tvsnap.calls WHERE changed >= (%s::text)::xid8
"""


class Unreachable(Exception):
    """The database does not answer at present."""


class Refused(Unreachable):
    """The database answers that it will not do what it was asked, and would not do so later either."""


class Change(NamedTuple):
    """News of a call after it was recorded; the fields are those of `schema.sql`."""

    state: bytes
    call_key: bytes
    slot: float
    waited: float
    next_state: bytes | None
    deterministic: bool
    proven: bool
    refuted: bool
    reason: str


class Held(NamedTuple):
    """A call that another host executes.

    Attributes:
        session: whose.
        since: seconds for which it has done so.
    """

    session: str
    since: float


class Answer(NamedTuple):
    """A call in the database.

    Attributes:
        records: its records, oldest first.
        holder: the other session that executes it; None if none does, or if that was not asked.
    """

    records: list[EdgeRow]
    holder: Held | None = None


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Counts of calls that one process has exchanged with other hosts since it began.

    Attributes:
        asked: calls that were looked for in the database.
        taken: calls of others that are in this host's graph now.
        given: calls that were written into the database, or what became known of them.
        waiting: the number of calls that are yet to be written.
        dropped: the number that was not written, because the database was away for too long.
        lost: why the database cannot be reached; None if it could, the last time.
    """

    asked: int
    taken: int
    given: int
    waiting: int
    dropped: int
    lost: str | None


class Postgres:
    """One process's session with the database. Thread-safe.

    Attributes:
        session: its name there, unique.
        place: the database's address, without a password, for people.
        id: tells this database from others.
        lost: why it could not be reached the last time; None if it could.
    """

    def __init__(self, url: str, owner: str) -> None:
        """Connects, and makes the tables if they are missing.

        Args:
            url: `postgresql://user@host:port/database`, as libpq takes it; a password may come from PGPASSWORD, a
                password file or a service file.
            owner: this process's name on its host.

        Raises:
            UsageError: the address is none of PostgreSQL's, or a package is missing.
            InfrastructureError: it cannot be reached, is too old, or was made by a newer tvsnap.
        """
        self.place = _place(url)
        try:
            import psycopg
            import psycopg_pool

            from tvsnap.plugins.shared_graph.connections import POOL, Connection
        except ImportError as error:
            raise UsageError(f"the package {error.name} is missing: pip install 'tvsnap[postgres]'") from None
        token = secrets.token_hex(4)
        self.session = f"{socket.gethostname()}/{owner}/{token}"
        self._own_news = f"tvsnap_{token}"
        self.lost: str | None = None
        self._silent_until = 0.0
        options = {
            "application_name": "tvsnap",
            "autocommit": True,
            "connect_timeout": CONNECT_S,
            "keepalives_idle": CONNECT_S,
            "tcp_user_timeout": STATEMENT_S * 1000,
            "options": f"-c statement_timeout={STATEMENT_S}s",
        }
        try:
            with Connection.connect(url, **options) as connection:  # type: ignore[arg-type]
                self.id = _prepared(connection, self.place)
        except psycopg.Error as error:
            raise InfrastructureError(
                f"{self.place}: {_words(error)}; see that it runs and lets this host in"
            ) from None
        self._pool = psycopg_pool.ConnectionPool(
            url,
            connection_class=Connection,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=CONNECT_S,
            kwargs=options,
            name=POOL,
            open=False,
        )
        self._away = (
            *(psycopg.OperationalError, psycopg.InterfaceError, psycopg_pool.PoolTimeout, OSError),
            *(psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName),  # someone has removed the tables
        )
        self._failure = psycopg.Error
        self._pool.open()

    def claim(self, state: bytes, call_key: bytes) -> Answer:
        """Takes the right to execute a call for this session, unless another one that is alive has it.

        Raises:
            Unreachable: the database does not answer.
        """
        with self._connected() as connection:
            while True:
                with connection.pipeline():
                    lease = connection.execute(_LEASE, (state, call_key, self.session), binary=True)
                    records = connection.execute(_FIND, (state, call_key), binary=True)  # after it: who had it has told
                if lease.fetchone() is not None:
                    return Answer(_rows(records.fetchall()))
                holder = self._holder(connection, state, call_key)
                if holder is not None:  # else it was given back since
                    return Answer(_rows(records.fetchall()), holder)

    def records(self, state: bytes, call_key: bytes) -> Answer:
        """Returns the records of a call; raises `Unreachable`."""
        with self._connected() as connection:
            return Answer(_rows(connection.execute(_FIND, (state, call_key), binary=True).fetchall()))

    def holder(self, state: bytes, call_key: bytes) -> Held | None:
        """Returns which other session executes a call; None if none does. Raises `Unreachable`."""
        with self._connected() as connection:
            return self._holder(connection, state, call_key)

    def publish(self, rows: Iterable[EdgeRow], released: Iterable[tuple[bytes, bytes]]) -> None:
        """Writes records, or what became known of them, and then gives back the right to execute calls.

        All or nothing. Raises `Unreachable`.
        """
        with self._connected() as connection, connection.transaction(), connection.pipeline():
            merged = []
            for row in sorted(rows, key=lambda row: row[:4]):  # in one order, so that writers never wait in a circle
                values = _to_columns(row)
                if row.asked or row.on_host:
                    connection.execute(_REPLACE, (*values[:4], row.created))
                merged.append(connection.execute(_PUBLISH, (*values, bool(row.deterministic))))
            for key in sorted(released):
                connection.execute(_RELEASE, (*key, self.session))
            if any(cursor.fetchone() == (True,) for cursor in merged):
                connection.execute(f"NOTIFY {_NEWS}")

    def mark(self) -> int:
        """Returns a number with which `changes` tells what was changed from now on. Raises `Unreachable`."""
        with self._connected() as connection:
            return _mark(connection)

    def changes(self, since: int) -> tuple[list[Change], int]:
        """Returns what became known of calls since a mark, some of it perhaps again, and the next mark.

        Marks come from the numbers of transactions. If these have become less, the database was restored from a copy
        elsewhere: all that is known counts as new then. Raises `Unreachable`.
        """
        with self._connected() as connection:
            mark = _mark(connection)
            if mark < since:
                connection.execute(_RENUMBER)
                since = 0
            return [Change(*row) for row in connection.execute(_CHANGES, (str(since),), binary=True)], mark

    @contextmanager
    def news(self) -> Iterator[Iterator[None]]:
        """A block in which the session is alive for others: its iterator yields when something may have changed.

        It yields at least every few seconds. If the tables have been removed, they are made anew. Raises
        `Unreachable`.
        """
        with self._connected() as connection:
            self.id = _prepared(connection, self.place)
            for channel in (_NEWS, self._own_news):
                connection.execute(f"LISTEN {channel}")
            connection.execute(_SWEEP)
            try:
                yield self._news(connection)
            finally:
                with contextlib.suppress(self._failure):
                    connection.execute("UNLISTEN *")

    def _news(self, connection: Connected) -> Iterator[None]:
        while True:
            connection.execute(_SEEN, (self.session, socket.gethostname()))
            yield
            for _ in connection.notifies(timeout=ALIVE_S / 5, stop_after=1):
                pass

    def wake(self) -> None:
        """Has `news` yield at once, in this process alone; does nothing if the database does not answer."""
        with contextlib.suppress(Unreachable), self._connected() as connection:
            connection.execute(f"NOTIFY {self._own_news}")

    def show_alive(self) -> None:
        """Shows others that this session is alive; raises `Unreachable`."""
        with self._connected() as connection:
            connection.execute(_SEEN, (self.session, socket.gethostname()))

    def close(self) -> None:
        """Ends the session, and gives back what it executes."""
        with contextlib.suppress(Unreachable), self._connected() as connection:
            connection.execute("DELETE FROM tvsnap.leases WHERE session = %s", (self.session,))
            connection.execute("DELETE FROM tvsnap.sessions WHERE id = %s", (self.session,))
        self._pool.close()

    def _holder(self, connection: Connected, state: bytes, call_key: bytes) -> Held | None:
        row = connection.execute(_HOLDER, (state, call_key)).fetchone()
        return None if row is None or row[0] == self.session else Held(*row)

    @contextmanager
    def _connected(self) -> Iterator[Connected]:
        """A block with a connection; for a while after a failure, it fails at once, so that nobody waits for it."""
        if time.monotonic() < self._silent_until:
            raise Unreachable
        try:
            with self._pool.connection() as connection:
                yield connection
        except (*self._away, self._failure) as error:
            self.lost = _words(error)
            self._silent_until = time.monotonic() + RETRY_S
            raise (Unreachable if isinstance(error, self._away) else Refused)(self.lost) from error
        self.lost = None


def _place(url: str) -> str:
    """Returns an address without what is secret; raises `UsageError` if it is none of PostgreSQL's."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("postgresql", "postgres"):
            raise ValueError
        where = parts.hostname or ""
        if parts.port is not None:
            where += f":{parts.port}"
    except ValueError:
        raise UsageError(
            f"the graph's address must be PostgreSQL's, postgresql://user@host:5432/database, not {_hidden(url)!r}"
        ) from None
    return f"postgresql://{where}{parts.path}"


def _hidden(url: str) -> str:
    """Returns what was given as an address, without what might be a password."""
    before, at, after = url.rpartition("@")
    return f"{before.split(':')[0]}:...@{after}" if at else url


def _words(error: Exception) -> str:
    """Returns a database's error as one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _prepared(connection: Connected, place: str) -> str:
    """Makes the tables if they are missing; returns the database's id."""
    if connection.info.server_version < OLDEST * 10_000:
        raise InfrastructureError(f"{place}: PostgreSQL {OLDEST} or newer is needed; upgrade it, or name another")
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
        if connection.execute("SELECT to_regclass('tvsnap.about') IS NULL").fetchone() == (True,):
            connection.execute(Path(__file__).with_name("schema.sql").read_text())
            connection.execute("INSERT INTO tvsnap.about VALUES (%s, %s)", (secrets.token_hex(8), VERSION))
        row = connection.execute("SELECT id, version FROM tvsnap.about").fetchone()
    if row is None or row[1] != VERSION:
        format_there = "no format at all" if row is None else f"format {row[1]}"
        raise InfrastructureError(
            f"{place}: has {format_there}, and this tvsnap knows {VERSION}; use that version of tvsnap, or another "
            "database"
        )
    id: str = row[0]
    return id


def _mark(connection: Connected) -> int:
    row = connection.execute(_MARK).fetchone()
    assert row is not None
    mark: int = row[0]
    return mark


def _to_columns(row: EdgeRow) -> tuple[Any, ...]:
    record = zlib.compress(json.dumps([to_json(value) for value in row]).encode(), 1)
    facts = (bool(row.deterministic), bool(row.proven), _storable(row.reason), bool(row.asked or row.on_host))
    return (*row[:4], row.next_state, row.digest, row.created, *facts, record)


def _storable(text: str) -> str:
    """Returns a text without what PostgreSQL cannot store."""
    return text.replace("\0", "\\0")


def _rows(records: Sequence[Sequence[Any]]) -> list[EdgeRow]:
    """Returns the records that `_FIND` found, with what became known of them since; damaged ones are left out."""
    rows = []
    for deterministic, proven, reason, record in records:
        with contextlib.suppress(ValueError, TypeError, zlib.error, TvsnapError):
            row = edge_row(json.loads(zlib.decompress(record)))
            if not deterministic:
                row = row._replace(deterministic=False, reason=reason, checksum=None)
            rows.append(row._replace(proven=proven))
    return rows
