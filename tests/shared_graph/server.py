"""A PostgreSQL server of the tests' own, which listens at a Unix socket only."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

_OPTIONS = "-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c shared_buffers=16MB"


class Server:
    """A server with its data in a folder.

    Attributes:
        folder: where its data and its socket are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs = Path(shutil.which("initdb") or max(Path("/usr/lib/postgresql").glob("*/bin/initdb"))).parent
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:  # which the server refuses to be run by
            found = pwd.getpwnam("postgres")
            os.chown(folder, found.pw_uid, found.pw_gid)
            self._user = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
        self._run("initdb", "-D", "data", "-U", "tester", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        options = _OPTIONS.format(folder=self.folder)
        self._run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start")

    def stop(self) -> None:
        """Stops it as a crash of its machine would."""
        self._run("pg_ctl", "-D", "data", "-w", "-m", "immediate", "stop")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """A block in which its processes are stopped: the kernel takes what they are sent, and nothing is answered."""
        first = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(first)], capture_output=True, text=True, check=True)
        processes = [first, *map(int, listed.stdout.split())]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def url(self, database: str) -> str:
        """Returns the address of a database, which is made if it is not there."""
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,)).fetchone() is None:
                connection.execute(f'CREATE DATABASE "{database}"')
        return self._address(database)

    def _address(self, database: str) -> str:
        return f"postgresql://tester@/{database}?host={self.folder}"

    def _run(self, program: str, *arguments: str) -> None:
        with (self.folder / f"{program}.log").open("wb") as log:
            done = subprocess.run(
                [self._programs / program, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=120,
                check=False,
                **self._user,
            )
        if done.returncode:
            raise AssertionError(f"{program}: {(self.folder / f'{program}.log').read_text()}")


@contextmanager
def running() -> Iterator[Server]:
    """A block with a server that runs."""
    # Not among pytest's own folders, which the server's user cannot enter; a socket's name must be short.
    with tempfile.TemporaryDirectory(prefix="tvsnap-pg-") as folder:
        os.chmod(folder, 0o755)
        server = Server(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
