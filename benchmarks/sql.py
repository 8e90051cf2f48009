"""Databases: forks of a live server beside what people do without: starting, loading, templates, dump and restore."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmarks.figures import Figure, figure
from benchmarks.workspace import Workspace
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.environments import environment
from tvsnap.environments.base import Environment
from tvsnap.images import Image
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.limits import Limits
from tvsnap.model.observations import SnapshotInfo
from tvsnap.sandboxes.protocol import Sandbox

MB = 1_000_000
ROW = 1000  # bytes, about
SIZES = (1, 100, 1000)  # MB of data
RESTORED = (1, 100)  # MB: to restore a gigabyte from a dump takes minutes
FORKED = 32
TIMEOUT = 1800.0
FORK_TARGET = 150.0  # ms, PostgreSQL

T = TypeVar("T")


@dataclass(frozen=True)
class Database:
    """How one database system does what is measured.

    Attributes:
        system: its name, and that of its image and environment.
        fill: the statement that makes the table `big` of a number of rows, from row 1.
        dump: the shell command that dumps the database in use to `/dump.sql`.
        restore: the shell commands that make a database `copy` of it.
    """

    system: str
    fill: str
    dump: str
    restore: str


DATABASES = (
    Database(
        "sqlite",
        "CREATE TABLE big (id integer primary key, body text); "
        "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < {rows}) "
        "INSERT INTO big SELECT id, hex(zeroblob(480)) || id FROM n",
        "sqlite3 /srv/sqlite/bench.db .dump > /dump.sql",
        "rm -f /copy.db; sqlite3 /copy.db < /dump.sql; sqlite3 /copy.db 'SELECT id FROM big WHERE id = 7'",
    ),
    Database(
        "postgres",
        "CREATE TABLE big (id integer primary key, body text); ALTER TABLE big ALTER body SET STORAGE PLAIN; "
        "INSERT INTO big SELECT n, repeat(md5(n::text), 30) FROM generate_series(1, {rows}) n",
        "pg_dump -U postgres bench > /dump.sql",
        "dropdb -U postgres --if-exists copy; createdb -U postgres copy; psql -U postgres -qX copy < /dump.sql; "
        "psql -U postgres -Atc 'SELECT id FROM big WHERE id = 7' copy",
    ),
    Database(
        "mariadb",
        "CREATE TABLE big (id integer primary key, body text); "
        "INSERT INTO big SELECT seq, repeat(md5(seq), 30) FROM seq_1_to_{rows}",
        "mariadb-dump bench > /dump.sql",
        "mariadb -e 'DROP DATABASE IF EXISTS copy; CREATE DATABASE copy'; mariadb copy < /dump.sql; "
        "mariadb -Ne 'SELECT id FROM big WHERE id = 7' copy",
    ),
)
CREATE = {"sqlite": "sqlite3 /srv/sqlite/bench.db 'VACUUM'", "postgres": "createdb -U postgres bench"}
CREATE["mariadb"] = "mariadb -e 'CREATE DATABASE bench'"


class Server:
    """One database system's sandboxes."""

    def __init__(self, space: Workspace, database: Database) -> None:
        self.space = space
        self.database = database
        self.image: Image = space.other_image(database.system)
        self.environment: Environment = environment(database.system)

    def start(self) -> Sandbox:
        """Returns a fresh sandbox with its server running."""
        return Recipe(self.image, self.environment, Limits()).make(self.space.backend)

    def fork(self, snapshot: SnapshotInfo) -> Sandbox:
        """Returns a fork of a snapshot."""
        return self.space.backend.fork(snapshot.id, self.image, Limits())

    def query(self, sandbox: Sandbox, query: str, database: str = "bench") -> Any:
        """Runs a statement; returns its rows, if it has any."""
        call = ToolCall("sql", {"query": query, "database": database})
        result = self.environment.execute(sandbox, call, TIMEOUT, Limits())
        if result.exit_code != 0:
            raise InfrastructureError(f"{self.database.system}: {query[:60]}: {result.output}")
        return json.loads(result.output).get("rows")

    def first_row(self, sandbox: Sandbox) -> None:
        """Reads a row, and checks that it is right."""
        if self.query(sandbox, "SELECT id FROM big WHERE id = 7") != [[7]]:
            raise InfrastructureError(f"{self.database.system}: the row is not there")

    def grown(self, megabytes: int) -> Sandbox:
        """Returns a sandbox whose database `bench` holds so much data, written out to disk."""
        sandbox = self.start()
        run(sandbox, CREATE[self.database.system])
        self.query(sandbox, self.database.fill.format(rows=megabytes * MB // ROW))
        run(sandbox, "sync")
        self.first_row(sandbox)
        return sandbox


def run(sandbox: Sandbox, command: str) -> str:
    """Runs a shell command in a sandbox; returns what it printed."""
    outcome = sandbox.exec(f"set -e; {command}", timeout=TIMEOUT, user="root")
    if outcome.exit_code != 0:
        raise InfrastructureError(f"{shlex.quote(command)}: {outcome.output.decode(errors='replace')}")
    return outcome.output.decode()


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Returns how long an action took, in seconds, and what it returned."""
    began = time.perf_counter()
    value = action()
    return time.perf_counter() - began, value


def measure(space: Workspace) -> Iterator[Figure]:
    """Measures all database systems."""
    for database in DATABASES:
        server = Server(space, database)
        for megabytes in SIZES[:2] if space.quick else SIZES:
            yield from _by_size(server, megabytes)
        yield _hits(space, server)
    yield from _side_by_side(Server(space, DATABASES[1]))


def _by_size(server: Server, megabytes: int) -> Iterator[Figure]:
    space, system = server.space, server.database.system
    size = f"{megabytes} MB" if megabytes < 1000 else f"{megabytes // 1000} GB"

    def row(name: str, what: str, samples: Sequence[float], unit: str, at_most: float | None = None) -> Figure:
        figure_name = f"{system}_{name}_{megabytes}mb"
        return figure(figure_name, f"{size}: {what}", samples, unit, subject=system, at_most=at_most)

    space.tell(f"{system}, {size} of data")
    with contextlib.ExitStack() as ends:
        sandbox = server.grown(megabytes)
        ends.callback(sandbox.close)
        checkpoints, snapshot = [], None
        for number in range(space.samples(8)):
            server.query(sandbox, f"UPDATE big SET body = 'x{number}' WHERE id = 3")
            space.settle()
            seconds, info = timed(sandbox.checkpoint)
            checkpoints.append(seconds)
            if snapshot is not None:
                space.backend.delete_snapshot(snapshot.id)
            snapshot = info
        assert snapshot is not None
        ends.callback(space.backend.delete_snapshot, snapshot.id)
        yield row("checkpoint", "checkpoint", checkpoints, "ms")
        yield row("snapshot", "memory images in a snapshot", [_images_size(space, snapshot)], "MB")
        target = FORK_TARGET if system == "postgres" else None
        yield row("fork", "fork to first row", list(_forks(server, snapshot, space.samples(24))), "ms", target)
        if system == "postgres":
            yield row("template", "CREATE DATABASE ... TEMPLATE", list(_templates(server, sandbox)), "ms")
        if megabytes in RESTORED:
            run(sandbox, server.database.dump)
            restores = [timed(lambda: run(sandbox, server.database.restore))[0] for _ in range(space.samples(3))]
            yield row("restore", "restore of a dump to first row", restores, "ms")
            dump = sandbox.read_file("/dump.sql", limit=2 * 1000 * MB) if megabytes == RESTORED[0] else b""
            if dump:
                yield row("fresh", "server start and load to first row", list(_fresh(server, dump)), "ms")


def _forks(server: Server, snapshot: SnapshotInfo, count: int) -> Iterator[float]:
    for _ in range(count):
        server.space.settle()
        began = time.perf_counter()
        fork = server.fork(snapshot)
        try:
            server.first_row(fork)
            yield time.perf_counter() - began
        finally:
            fork.close()


def _templates(server: Server, sandbox: Sandbox) -> Iterator[float]:
    """A copy of the database by its own database system, to the first row through the tool."""
    run(sandbox, "createdb -U postgres source -T bench")  # nobody may be connected to what is copied
    for number in range(3):
        began = time.perf_counter()
        server.query(sandbox, f"CREATE DATABASE copy{number} TEMPLATE source", database="postgres")
        server.query(sandbox, "SELECT id FROM big WHERE id = 7", database=f"copy{number}")
        yield time.perf_counter() - began


def _fresh(server: Server, dump: bytes) -> Iterator[float]:
    """A server that is started in a fresh sandbox and loaded from a dump, as without snapshots."""
    for _ in range(3):
        began = time.perf_counter()
        sandbox = server.start()
        try:
            sandbox.write_file("/dump.sql", dump, user="root")
            run(sandbox, server.database.restore)
            yield time.perf_counter() - began
        finally:
            sandbox.close()


def _images_size(space: Workspace, snapshot: SnapshotInfo) -> float:
    """Bytes of what a snapshot holds but for the database's own files, which it shares with others."""
    directory = space.snapshot_directory(snapshot.id)
    files = [path for path in directory.rglob("*") if path.is_file() and "upper" not in path.parts]
    return float(sum(path.stat().st_size for path in files))


def _hits(space: Workspace, server: Server) -> Figure:
    """Reads that were made before, through a rollout."""
    system = server.database.system
    arguments = {"query": "SELECT 1 + 1 AS two"}
    with space.cache() as cache:
        with cache.rollout(server.image) as rollout:
            rollout.call("sql", arguments)
        samples = []
        with cache.rollout(server.image) as rollout:
            rollout.call("sql", arguments)
            for _ in range(space.samples(2000)):
                seconds, result = timed(lambda: rollout.call("sql", arguments))
                if result.source != "hit":
                    raise InfrastructureError(f"{system}: a read that was made before was executed")
                samples.append(seconds)
    return figure(f"{system}_hit", "a read made before", samples, "µs", subject=system, at_most=100)


def _side_by_side(server: Server) -> Iterator[Figure]:
    """Many forks of one state alive at once: each writes, and none sees another's rows."""
    space = server.space
    space.tell(f"{FORKED} forks of one PostgreSQL state")
    sandbox = server.grown(1)
    snapshot = sandbox.checkpoint()
    sandbox.close()
    forks: list[Sandbox] = []

    def write(number: int) -> None:
        fork = server.fork(snapshot)
        forks.append(fork)
        server.query(fork, f"INSERT INTO big VALUES ({-1 - number}, 'mine')")

    try:
        with ThreadPoolExecutor(FORKED) as pool:
            seconds, _ = timed(lambda: list(pool.map(write, range(FORKED))))
            own = list(pool.map(lambda fork: server.query(fork, "SELECT id FROM big WHERE id < 0"), forks))
        if sorted(rows[0][0] for rows in own if len(rows) == 1) != sorted(-1 - number for number in range(FORKED)):
            raise InfrastructureError("a fork saw another's rows")
        memory = sum(fork.memory() for fork in forks) / len(forks)
    finally:
        for fork in forks:
            fork.close()
        space.backend.delete_snapshot(snapshot.id)
    what = f"{FORKED} forks at once, each having written a row that no other sees"
    yield figure("postgres_forks_at_once", what, [seconds], "s", subject="postgres")
    yield figure("postgres_fork_memory", "proportional memory of each", [memory], "MB", subject="postgres")
