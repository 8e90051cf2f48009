"""Databases for graphs that hosts share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.shared_graph.server import Server, running
from tvsnap.plugins.shared_graph import SharedGraph

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that runs, for all tests of a process."""
    with running() as server:
        yield server


@pytest.fixture
def database(server: Server) -> str:
    """The address of an empty database."""
    return server.url(f"calls_{next(_numbers)}")


@pytest.fixture
def host(database: str, tmp_path: Path) -> Iterator[Callable[[str], SharedGraph]]:
    """Opens the graph of another host that shares the database, given its name."""
    with ExitStack() as stack:

        def opened(name: str) -> SharedGraph:
            return stack.enter_context(SharedGraph(tmp_path / name / "tvsnap.db", name, database))

        yield opened
