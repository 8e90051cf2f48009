"""The MariaDB server's process: its settings, its data directory, how it is started, found and stopped."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from typing import List

from ..servers import copy_up, end_of_log, make_directory
from ..system import SystemFailed
from .protocol import Connection, Lost, Refused

DATA = "/var/lib/tvsnap/mariadb"
IDLE_FOREVER = 365 * 24 * 3600
"""Seconds after which the server ends an idle session."""
SCRATCH = "/var/lib/tvsnap/mariadb-scratch"
"""The directory for data of statements that exceeds memory, and for temporary tables."""

SETTINGS = "/etc/mysql/mariadb.conf.d/99-tvsnap.cnf"
"""Read after Debian's own, by the server and by the command-line clients alike."""

_RUN = "/run/mysqld"
_SOCKET = _RUN + "/mysqld.sock"
_PID = _RUN + "/mysqld.pid"
_LOG = DATA + "/server.log"
_ANSWERS_WITHIN = 60.0
_STARTS_WITHIN = 300.0  # recovery after a kill takes long if the log is long
_STOPS_WITHIN = 600.0
_POLL = 0.01

POOL_FOR_LOADING = 256 << 20
_POOL = 8 << 20

_SETTINGS = f"""\
# Written by tvsnap. The server is checkpointed while it runs, with every page that it holds, and forked.
[client]
socket = {_SOCKET}

[mariadbd]
user = mysql
datadir = {DATA}
tmpdir = {SCRATCH}
socket = {_SOCKET}
pid-file = {_PID}
log-error = {_LOG}
skip-networking
skip-log-bin
skip-name-resolve
local_infile = 0
loose_wsrep_node_address = localhost

character-set-server = utf8mb4
collation-server = utf8mb4_general_ci
lower_case_table_names = 1
max_allowed_packet = 64M
# A session lives for as long as its snapshots do.
wait_timeout = {IDLE_FOREVER}
interactive_timeout = {IDLE_FOREVER}

# Little memory: what does not fit comes from the page cache, which forks share.
performance_schema = 0
query_cache_type = 0
query_cache_size = 0
innodb_buffer_pool_size = {_POOL}
loose_innodb_buffer_pool_size_max = {POOL_FOR_LOADING}
innodb_log_buffer_size = 2M
innodb_ft_cache_size = 1600000
innodb_read_io_threads = 1
innodb_write_io_threads = 2
innodb_purge_threads = 1
aria_pagecache_buffer_size = 1M
key_buffer_size = 64K
table_open_cache = 400
table_open_cache_instances = 1
thread_cache_size = 0

# Small files: what is written to them is in each snapshot.
innodb_log_file_size = 8M
innodb_temp_data_file_path = ibtmp1:1M:autoextend
innodb_autoextend_increment = 1

# A commit is handed to the kernel, so that a killed server loses none. It need not reach the disk: a sandbox does not
# outlive the machine, and a snapshot is written out whole.
innodb_flush_log_at_trx_commit = 2
innodb_flush_method = nosync
debug_no_sync = 1
innodb_use_native_aio = 0

# Nothing moves by itself, and the same statistics give the same plans.
innodb_stats_persistent = 1
innodb_stats_auto_recalc = 0
innodb_buffer_pool_dump_at_shutdown = 0
innodb_buffer_pool_load_at_startup = 0
aria_checkpoint_interval = 0
event_scheduler = OFF

# Tells which locks a session holds.
plugin_load_add = metadata_lock_info
"""

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    # Memory that a big statement needed is returned to the kernel, and is not in the next snapshot.
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "MALLOC_MMAP_THRESHOLD_": "131072",
}


def initialise() -> None:
    """Writes the settings and creates an empty data directory if there is none."""
    if os.path.isdir(os.path.join(DATA, "mysql")):
        return
    os.makedirs(os.path.dirname(SETTINGS), exist_ok=True)
    with open(SETTINGS, "w") as stream:
        stream.write(_SETTINGS)
    _make_directories()
    installer = ["mariadb-install-db", f"--defaults-file={SETTINGS}", "--user=mysql", f"--datadir={DATA}"]
    # Root needs no password and no Unix user of that name: the sandbox keeps others out.
    options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
    try:
        process = subprocess.run(installer + options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        raise SystemFailed(f"mariadb-install-db: {error.strerror}; is mariadb-server installed?") from error
    if process.returncode:
        output = process.stdout.decode(errors="replace")[-2000:]
        raise SystemFailed(f"mariadb-install-db failed: {output}{end_of_log(_LOG)}")


def running() -> List[int]:
    try:
        with open(_PID) as stream:
            process = int(stream.read())
    except (OSError, ValueError):
        return []
    return [process] if _lives(process) else []


def start() -> None:
    """Starts the server if it does not run, as a child of the sandbox's init, and waits until it answers."""
    own = 0
    deadline = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < deadline:
        if not running() and not (own and _lives(own)):
            if own:
                raise _failed("ended while it was starting")
            own = _spawn()
        try:
            connect().close()
        except SystemFailed:
            time.sleep(_POLL)
        else:
            return
    raise _failed(f"did not answer within {_STARTS_WITHIN:g} s")


def connect() -> Connection:
    """Returns a new connection, as `root`."""
    try:
        return Connection(_SOCKET, _ANSWERS_WITHIN)
    except (OSError, Lost, Refused) as error:
        raise SystemFailed(f"cannot connect to MariaDB at {_SOCKET}: {error}") from error


def stop(connection: Connection) -> None:
    """Shuts the server down so that its next start has nothing to recover."""
    processes = running()
    connection.rows("SET GLOBAL innodb_fast_shutdown = 0; SHUTDOWN")
    deadline = time.monotonic() + _STOPS_WITHIN
    while any(map(_lives, processes)):
        if time.monotonic() > deadline:
            raise _failed(f"did not end within {_STOPS_WITHIN:g} s")
        time.sleep(_POLL)


def _failed(how: str) -> SystemFailed:
    return SystemFailed(f"mariadbd {how}; its log ends with:\n{end_of_log(_LOG)}")


def _make_directories() -> None:
    for path in (DATA, SCRATCH, _RUN):
        make_directory(path, "mysql", 0o755 if path == _RUN else 0o750)


def _spawn() -> int:
    """Starts the server detached from this process, and returns its id."""
    _make_directories()
    copy_up(DATA)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_PID)
    nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    reading, writing = os.pipe()
    parent = os.fork()
    if not parent:  # init becomes the server's parent, and will reap it
        try:
            os.setsid()
            os.chdir("/")
            command = ["mariadbd", f"--defaults-file={SETTINGS}"]
            process = os.posix_spawnp(command[0], command, _ENVIRONMENT, file_actions=nothing)
            os.write(writing, str(process).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        number_of_process = stream.read()
    os.waitpid(parent, 0)
    if not number_of_process:
        raise SystemFailed("mariadbd cannot be executed; is mariadb-server installed?")
    return int(number_of_process)


def _lives(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as stream:
            name, _, rest = stream.read().partition("(")[2].rpartition(")")
    except OSError:
        return False
    return name == "mariadbd" and rest.split()[0] != "Z"
