"""What the verbs work with: the cache, the graph, and where they print."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from . import options

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from tvsnap.acquisition.recipes import ImageSource
    from tvsnap.cache import Cache
    from tvsnap.graph import Graph
    from tvsnap.model.limits import Budget
    from tvsnap.sandboxes.protocol import Backend

GRAPH_FILE = "tvsnap.db"


@contextlib.contextmanager
def open_cache(
    home: str | None,
    backend: str,
    *,
    policy: str = "break-even",
    use_cache: bool = True,
    prefork: int | None = 0,
    audit: float = 0.0,
    budget: Budget | None = None,
) -> Iterator[Cache]:
    """A block with an open cache. Its end, however it comes, ends all sandboxes and cannot be interrupted.

    Args:
        home: the data directory; None for the usual one.
        backend: the backend's name.
        policy: when to take snapshots.
        use_cache: answer calls from the graph.
        prefork: how many sandboxes to keep ready; None to let the cache decide, for verbs that run many rollouts.
        audit: the share of answers to make again in the background, 0 to 1.
        budget: what snapshots and sandboxes may use.
    """
    from tvsnap.cache import Cache

    cache = Cache(
        home=home,
        backend=backend,
        policy=policy,
        use_cache=use_cache,
        prefork=prefork,
        audit=audit,
        budget=budget,
        images=open_images(home),
    )
    try:
        yield cache
    finally:
        with uninterrupted():
            cache.close()


@dataclass(frozen=True)
class Parts:
    """The parts of a data directory, opened without tidying up.

    Attributes:
        home: the data directory.
        graph: its graph.
        backend: its backend.
        owner: the id of this process on it.
    """

    home: Path
    graph: Graph
    backend: Backend
    owner: str


@contextlib.contextmanager
def open_parts(home: str | None, backend: str) -> Iterator[Parts]:
    """A block with the graph and the backend open, for verbs that run nothing: opening a cache would tidy up."""
    from tvsnap.graph import Graph
    from tvsnap.host.owners import Owner
    from tvsnap.sandboxes import open_backend

    path = data_directory(home)
    with contextlib.ExitStack() as stack:
        owner = Owner(path)
        stack.callback(owner.close)
        graph = stack.enter_context(Graph(path / GRAPH_FILE, owner.id))
        opened = open_backend(backend, path, owner.id)
        stack.callback(opened.close)
        yield Parts(path, graph, opened, owner.id)


@contextlib.contextmanager
def open_graph(home: str | None) -> Iterator[Graph]:
    """A block with the graph open, for verbs that need no sandbox."""
    from tvsnap.graph import Graph

    path = data_directory(home)
    _clean_up_after_the_dead(path)
    with Graph(path / GRAPH_FILE) as graph:
        yield graph


def _clean_up_after_the_dead(path: Path) -> None:
    """Takes away what a killed process left behind: the next command does that, whichever it is."""
    from tvsnap.host import owners
    from tvsnap.model.errors import TvsnapError

    if not owners.dead_owners(path):
        return
    from tvsnap.upkeep.housekeeping import tidy

    with contextlib.suppress(TvsnapError), open_parts(str(path), options.DEFAULT_BACKEND) as parts:
        tidy(parts.home, parts.graph, parts.backend)


def open_images(home: str | None) -> ImageSource:
    """Returns the images of the data directory."""
    from tvsnap.images import ImageStore

    return ImageStore(data_directory(home))


def data_directory(home: str | None) -> Path:
    """Returns the data directory, which is there from then on."""
    from tvsnap.host.home import resolve_home

    return resolve_home(home)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """A block that Ctrl-C does not interrupt: cleaning up is short, and half of it is of no use."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def console() -> Console:
    """Returns where results go: standard output."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def messages() -> Console:
    """Returns where progress and remarks go: standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def print_json(data: Any) -> None:
    """Prints JSON; all but ASCII is escaped, so that nothing in it can act upon a terminal."""
    typer.echo(json.dumps(data, indent=2))


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Shows on standard error that something takes a while, where a person looks at it.

    Args:
        what: is being done, for people.
    """
    shown = messages()
    with shown.status(what) if shown.is_terminal else contextlib.nullcontext():
        yield


def is_terminal() -> bool:
    """Whether a person types and reads."""
    return sys.stdin.isatty() and sys.stdout.isatty()
