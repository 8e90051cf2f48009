"""A real server process on a data directory of its own, and both ways to use one: here, and by the server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import pytest

import tvsnap
import tvsnap.aio
from tests.homes import with_images_of
from tests.server.awaited import blocking
from tvsnap.images import Image
from tvsnap.plugins.fleet import AsyncFleet, Fleet
from tvsnap.protocols import AnyAsyncCache, AnyCache


@dataclass
class Server:
    """A server process.

    Attributes:
        process: the process.
        url: where it listens for TCP.
        socket: its Unix socket.
    """

    process: subprocess.Popen[str]
    url: str
    socket: Path

    def stop(self) -> int:
        """Stops it as systemd would; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def start(
    home: Path, *options: str, socket: str = "server.sock", log: IO[bytes] | None = None, within: Sequence[str] = ()
) -> Server:
    """Starts a server on a data directory, which writes its log to a file, or where the tests write theirs.

    The words `within` are put before its command.
    """
    path = home / socket
    command = [sys.executable, "-m", "tests.server.main", "--home", str(home), "serve", "--port", "0"]
    command += ["--policy", "default"]  # calls of tests are short
    process = subprocess.Popen(
        [*within, *command, "--socket", str(path), *options],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if "serving at" not in line:
        process.kill()
        raise AssertionError(f"the server did not start: {line!r}")
    return Server(process, line.split("serving at ")[1].split(",")[0].strip(), path)


@pytest.fixture(scope="session")
def server_home(terminal_image: Image, tvsnap_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that shares the images of the session."""
    return with_images_of(tvsnap_home, tmp_path_factory.mktemp("server-home"))


@pytest.fixture(scope="session")
def server(server_home: Path) -> Iterator[Server]:
    """A server for the session."""
    started = start(server_home)
    yield started
    assert started.stop() == 0


@pytest.fixture(scope="session")
def workers(server_home: Path) -> Iterator[Server]:
    """A server of two processes for the session, on the same data directory."""
    started = start(server_home, "--workers", "2", socket="workers.sock")
    yield started
    assert started.stop() == 0


def url_of(request: pytest.FixtureRequest) -> str:
    """Returns the address of the server that a test is to use: by TCP, by its Unix socket, or of several processes."""
    if place_of(request) == "workers":
        found: Server = request.getfixturevalue("workers")
        return found.url
    found = request.getfixturevalue("server")
    return found.url if place_of(request) == "tcp" else f"unix:{found.socket}"


def place_of(request: pytest.FixtureRequest) -> str:
    """Returns where what a test uses is: one of `PLACES`."""
    return str(request.param).split(",")[0]


@pytest.fixture(scope="session")
def second(server_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Another server for the session, on a data directory of its own, which shares the images."""
    started = start(with_images_of(server_home, tmp_path_factory.mktemp("second-home")))
    yield started
    assert started.stop() == 0


PLACES = ("here", "tcp", "unix", "workers")
WAYS = ("here", "here, awaited", "unix", "tcp, awaited", "workers", "fleet, awaited")
"""Each place, and caches and clients both ways; the one of a fleet that is awaited asks the one that blocks."""


@pytest.fixture(params=WAYS)
def cache(request: pytest.FixtureRequest, tvsnap_home: Path, terminal_image: Image) -> Iterator[AnyCache]:
    """What gives rollouts and sandboxes: a cache in this process, or a client of the server; or one that is awaited."""
    if request.param.endswith("awaited"):
        with blocking(_opened(request, tvsnap_home)) as awaited:
            yield awaited
        return
    if request.param == "here":
        with tvsnap.Cache(tvsnap_home) as opened:
            yield opened
        return
    if request.param == "fleet":
        with Fleet(urls_of_fleet(request)) as fleet:
            yield cast("AnyCache", fleet)
        return
    with tvsnap.connect(url_of(request)) as client:
        yield client


def urls_of_fleet(request: pytest.FixtureRequest) -> list[str]:
    """Returns the addresses of two servers, each on a data directory of its own."""
    return [request.getfixturevalue(name).url for name in ("server", "second")]


OpenAsync = Callable[[], AbstractAsyncContextManager[AnyAsyncCache]]


@pytest.fixture(params=(*PLACES, "fleet"))
def open_async(request: pytest.FixtureRequest, tvsnap_home: Path, terminal_image: Image) -> OpenAsync:
    """Opens what gives rollouts and sandboxes that are awaited: a cache in this process, or a client of the server."""
    return _opened(request, tvsnap_home)


def _opened(request: pytest.FixtureRequest, tvsnap_home: Path) -> OpenAsync:
    place = place_of(request)
    urls = urls_of_fleet(request) if place == "fleet" else []
    url = "" if place in ("here", "fleet") else url_of(request)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[AnyAsyncCache]:
        if place == "here":
            async with tvsnap.AsyncCache(tvsnap_home) as cache:
                yield cache
            return
        if place == "fleet":
            async with AsyncFleet(urls) as fleet:
                yield cast("AnyAsyncCache", fleet)
            return
        async with await tvsnap.aio.connect(url) as client:
            yield client

    return opened
