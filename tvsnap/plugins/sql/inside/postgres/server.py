"""The PostgreSQL server of a sandbox as a process: its settings, its data directory, starting and stopping it."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import time
from typing import Iterator, List, Optional, Tuple

from ..servers import end_of_log, last_lines, make_directory
from ..system import SystemFailed

USER = "postgres"
"""The server's system user, and the superuser inside it."""
HOME = "postgres"
"""The database that always exists."""
DIRECTORY = "/var/lib/tvsnap/postgres"
SOCKETS = "/run/postgresql"
PORT = 5432
_LOG = os.path.join(DIRECTORY, "server.log")

START_SECONDS = 120.0
"""For a start, including recovery after a crash."""
STOP_SECONDS = 120.0
_STATUS_LINE = 7
"""The line of postmaster.pid, from 0, with `starting`, `ready`, `stopping`."""

SETTINGS = """
# Needs of a server that is checkpointed and forked while it runs: little memory, nothing that moves by itself, plans
# that stay the same, nobody to talk to but those in the sandbox. A killed server recovers (its log is written at each
# commit); a power failure is not survived, and need not be.
listen_addresses = ''
unix_socket_directories = '/run/postgresql'
max_connections = 20
shared_buffers = 16MB
huge_pages = off
dynamic_shared_memory_type = mmap
min_dynamic_shared_memory = 4MB
jit = off
max_worker_processes = 0
max_parallel_workers = 0
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
effective_io_concurrency = 0
maintenance_io_concurrency = 0
fsync = off
wal_level = minimal
max_wal_senders = 0
max_logical_replication_workers = 0
wal_compression = on
wal_init_zero = off
wal_recycle = off
min_wal_size = 2MB
max_wal_size = 1GB
wal_writer_delay = 10s
checkpoint_timeout = 1d
bgwriter_delay = 10s
bgwriter_lru_maxpages = 0
autovacuum = off
update_process_title = off
log_checkpoints = off
log_min_messages = log
timezone = 'UTC'
log_timezone = 'UTC'
"""


_STEADY = ["-c", "synchronize_seqscans=off"]
"""The beginning of a scan of a large table must not depend on where an earlier one stopped."""
_UNTIL_15 = ["-c", "vacuum_defer_cleanup_age=1000000"]
"""Reads do not clean up: whether a read made room on a page would decide where later rows are put. Later versions lack
this setting; there, such a read counts as a change."""


ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PGHOST": SOCKETS,
    "PGPORT": str(PORT),
    "PGUSER": USER,
}
"""The environment of the server's programs and clients."""


class Server:
    """One installation of PostgreSQL and its data directory.

    Attributes:
        steady: it is started for a session, in which a read must leave no trace.
    """

    def __init__(self) -> None:
        self.steady = False
        self._child: Optional[subprocess.Popen[bytes]] = None

    @property
    def pid(self) -> Optional[int]:
        """The server's first process, regardless of what started it; None if no server runs."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        pid, _ = _said_by_server()
        return pid if pid and _serves(pid) else None

    @property
    def ready(self) -> bool:
        """Whether it has started, so that connections need not be attempted: each earlier attempt starts a process.

        The ids of later processes, which a session can query, would then depend on how long the start took.
        """
        pid, status = _said_by_server()
        return status == "ready" and _serves(pid)

    @property
    def alive(self) -> bool:
        """Whether it runs, or is about to."""
        return self.pid is not None or self._child is not None

    def initialise(self) -> None:
        if os.path.exists(os.path.join(DIRECTORY, "PG_VERSION")):
            return
        initdb = self.program("initdb")
        make_directory(DIRECTORY, USER, 0o700)
        arguments = ["-D", DIRECTORY, "-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C.UTF-8", "--wal-segsize=1"]
        process = self.run([initdb, *arguments, "--no-sync", "--no-instructions"], USER)
        if process.returncode:
            raise SystemFailed(f"initdb made no data directory in {DIRECTORY}: {last_lines(process.stdout)}")
        with open(os.path.join(DIRECTORY, "postgresql.conf"), "a") as stream:
            stream.write(SETTINGS)

    def start(self) -> None:
        """Starts the server unless it runs; it may not accept connections yet."""
        if self.pid is not None:
            return
        if not os.path.exists(os.path.join(DIRECTORY, "PG_VERSION")):
            raise SystemFailed(f"there is no PostgreSQL data directory in {DIRECTORY}: the image was not loaded")
        program = self.program("postgres")
        make_directory(SOCKETS, USER, 0o2775)
        _end_remains()
        log = os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            shutil.chown(_LOG, USER, USER)
            self._child = subprocess.Popen(
                [program, "-D", DIRECTORY, *(_steady() if self.steady else [])],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=DIRECTORY,
                env=ENVIRONMENT,
                start_new_session=True,
                user=USER,
                group=USER,
                extra_groups=[],
            )
        finally:
            os.close(log)

    def stop(self) -> None:
        """Shuts the server down, cleanly, without waiting for its clients."""
        pid = self.pid
        if pid is None:
            return
        os.kill(pid, signal.SIGINT)
        until = time.monotonic() + STOP_SECONDS
        while self.pid is not None:
            if time.monotonic() > until:
                raise SystemFailed(f"PostgreSQL has not shut down within {STOP_SECONDS:.0f} s: {self.complaint()}")
            time.sleep(0.02)

    def complaint(self) -> str:
        return end_of_log(_LOG)

    def configuration(self) -> Tuple[Tuple[int, int], ...]:
        """Returns a value that changes whenever one of the server's configuration files does."""
        names = ("postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf")
        return tuple(_version(os.path.join(DIRECTORY, name)) for name in names)

    @staticmethod
    def program(name: str) -> str:
        """Returns the path of one of PostgreSQL's programs, of the newest version that is installed."""
        paths = glob.glob(f"/usr/lib/postgresql/*/bin/{name}")
        if not paths:
            raise SystemFailed(f"there is no /usr/lib/postgresql/*/bin/{name}: install PostgreSQL in the image")
        return max(paths, key=lambda path: [int(number) for number in re.findall(r"\d+", path)])

    @staticmethod
    def run(command: List[str], user: Optional[str] = None) -> subprocess.CompletedProcess[bytes]:
        """Runs one of PostgreSQL's programs as a user (None: this one), with both of its outputs in one."""
        return subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=ENVIRONMENT,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )


def _said_by_server() -> Tuple[int, str]:
    """Returns the process and the status that the server has recorded; 0 and empty if it has not."""
    try:
        with open(os.path.join(DIRECTORY, "postmaster.pid")) as stream:
            lines = stream.read().splitlines()
        return int(lines[0]), "".join(lines[_STATUS_LINE : _STATUS_LINE + 1]).strip()
    except (OSError, ValueError, IndexError):
        return 0, ""


def _steady() -> List[str]:
    with open(os.path.join(DIRECTORY, "PG_VERSION")) as stream:
        return _STEADY + (_UNTIL_15 if int(stream.read().split(".")[0]) <= 15 else [])


def _version(path: str) -> Tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def _serves(pid: int) -> bool:
    """Returns whether a process is alive and is PostgreSQL's; its working directory is not visible to us."""
    try:
        with open(f"/proc/{pid}/comm") as stream, open(f"/proc/{pid}/cmdline", "rb") as arguments:
            return stream.read() == "postgres\n" and bool(arguments.read())
    except OSError:
        return False


def _remains() -> Iterator[int]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as arguments:
            if arguments.read(10) == b"postgres: " and not _serves(_parent(int(name))):
                yield int(name)


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as stream:
        return int(stream.read().rpartition(b")")[2].split()[1])


def _end_remains() -> None:
    """Ends the remaining processes of a killed server: while they use the shared memory, no other server starts."""
    until = time.monotonic() + 5
    while True:
        remains = list(_remains())
        if not remains:
            return
        if time.monotonic() > until - 4:  # idle ones end by themselves
            for pid in remains:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise SystemFailed(f"processes of the old server do not end: {', '.join(map(str, remains))}")
        time.sleep(0.01)
