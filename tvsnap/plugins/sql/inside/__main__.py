"""`python3 sql.pyz start ENGINE SOCKET` serves a session in the background; `load ENGINE FILE` fills a new image."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import struct
import sys
import time

from .system import DatabaseSystem, SystemFailed

END_SECONDS = 5.0
"""Seconds that a session has to end by itself."""
SYSTEMS = {"postgres": "Postgres", "mariadb": "MariaDB", "sqlite": "SQLite"}


def system(name: str) -> DatabaseSystem:
    """Returns a database system by name; its driver is imported only now."""
    module = importlib.import_module(f"{__package__}.{name}.system")
    database_system: DatabaseSystem = getattr(module, SYSTEMS[name])()
    return database_system


def start(name: str, path: str) -> None:
    """Starts the database system and a process that serves its session; returns once that answers.

    An earlier process that listens there, and has been given up, is ended.
    """
    from .session import Session

    end_listener(path)
    database_system = system(name)
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        with os.fdopen(reading) as stream:
            trouble = stream.read()
        if trouble != "ready":
            raise SystemFailed(trouble or "it ended while it was starting")
        return
    os.close(reading)
    os.setsid()
    shorten_command_line()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    with os.fdopen(writing, "w") as stream:
        try:
            database_system.start()
            session = Session(database_system)
            end_with_statement(database_system)
            listener = session.listen(path)
        except BaseException as error:
            stream.write(str(error) or type(error).__name__)
            raise
        stream.write("ready")
    session.serve(listener)


def shorten_command_line() -> None:
    """Makes `ps` and `pgrep -f` show only the first word of this process's command line, and not our files' paths.

    If the last byte of the arguments is not NUL, the kernel assumes that they were overwritten, and shows only their
    first string.
    """
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/stat", "rb") as stat:
        end = int(stat.read().rpartition(b")")[2].split()[46])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(end - 1)
            memory.write(b".")


def end_listener(path: str) -> None:
    """Ends the process that listens at a Unix socket, if there is one, and the statement that it waits for."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
        probe.connect(path)
        process, _, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        os.kill(process, signal.SIGTERM)
        until = time.monotonic() + END_SECONDS
        while time.monotonic() < until:
            os.kill(process, 0)
            time.sleep(0.01)
        os.kill(process, signal.SIGKILL)


def end_with_statement(system: DatabaseSystem) -> None:
    """Makes this process, when it is terminated, first end its statement in the database system."""

    def end(*_: object) -> None:
        try:
            system.abandon()
        finally:
            os._exit(1)

    signal.signal(signal.SIGTERM, end)


def main() -> int:
    try:
        if sys.argv[1] == "start":
            start(*sys.argv[2:])
        else:
            from .loading import load

            load(system(sys.argv[2]), sys.argv[3])
    except SystemFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
