"""The parts that verbs share: access to the cache and the graph, and printing."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from tvsnap.host.home import GRAPH_FILE, resolve_home
from tvsnap.model.errors import TvsnapError, UsageError

from . import options

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import ProgressColumn
    from rich.table import Table

    from tvsnap.cache import Cache
    from tvsnap.client import Client
    from tvsnap.graph import Graph
    from tvsnap.images import ImageStore
    from tvsnap.model.limits import Budget
    from tvsnap.protocols import AnyAsyncCache, AnyCache, AnyGraph, AnyImages
    from tvsnap.sandboxes.protocol import Backend


def backend_name() -> str:
    """Returns the name of the chosen backend."""
    return os.environ.get(options.BACKEND_VARIABLE) or options.DEFAULT_BACKEND


@contextlib.contextmanager
def open_cache(*, prefork: int | None = 0, **settings: Any) -> Iterator[Cache]:
    """Opens a cache for a block; its end, also by an exception, ends all sandboxes and cannot be interrupted.

    `prefork` is how many sandboxes to keep ready; with None, the cache decides, for verbs that run many rollouts.
    """
    from tvsnap.cache import Cache

    cache = Cache(backend=backend_name(), prefork=prefork, images=open_images(), **settings)
    try:
        yield cache
    finally:
        with uninterrupted():
            cache.close()


def connected() -> Client | None:
    """Returns a client of the chosen server, or None if no server is chosen and a local data directory is used."""
    url = os.environ.get(options.URL_VARIABLE)
    if not url:
        return None
    from tvsnap.host import plugins

    client: Client = plugins.find("client", "http")(url, **_shown())
    return client


def _shown() -> dict[str, Any]:
    """Returns the token and certificate to show to the chosen server, and the authority that must have certified it."""
    variables = {
        "token": options.TOKEN_VARIABLE,
        "ca": options.CA_VARIABLE,
        "certificate": options.CERTIFICATE_VARIABLE,
    }
    return {name: os.environ.get(variable) or None for name, variable in variables.items()}


@contextlib.contextmanager
def any_cache(*, policy: str = options.POLICY, budget: Budget | None = None) -> Iterator[AnyCache]:
    """Opens the cache of the chosen server for the block, or else that of the data directory."""
    from tvsnap.model.limits import Budget

    client = connected()
    if client is None:
        with open_cache(policy=policy, budget=budget) as cache:
            yield cache
        return
    with client:
        server_decides(("--policy", policy != options.POLICY), ("--max-...", budget not in (None, Budget())))
        yield client


@contextlib.contextmanager
def any_images() -> Iterator[AnyImages]:
    """Gives the images of the chosen server to the block, or else those of the data directory."""
    client = connected()
    if client is None:
        yield open_images()
        return
    with client:
        yield client.images


@contextlib.asynccontextmanager
async def any_async_cache(policy: str, usual: str) -> AsyncIterator[AnyAsyncCache]:
    """Opens the cache of the chosen server for the block, or else that of the data directory.

    Args:
        policy: the policy for snapshots.
        usual: the default policy, the only one that goes with a server.
    """
    from tvsnap.aio.cache import AsyncCache
    from tvsnap.host import plugins

    url = os.environ.get(options.URL_VARIABLE)
    if not url:
        async with AsyncCache(backend=backend_name(), policy=policy, images=open_images()) as cache:
            yield cache
        return
    server_decides(("--policy", policy != usual))
    connect = plugins.find("client", "http-async")
    async with await connect(url, **_shown()) as client:
        yield client


def server_decides(*options: tuple[str, bool]) -> None:
    """Raises `UsageError` for options that a server's own replace.

    Args:
        options: each option, with whether it was given.
    """
    wrong = [name for name, is_given in options if is_given]
    if wrong:
        raise UsageError(f"with --url, the server says it (tvsnap serve --help): leave out {' and '.join(wrong)}")


@contextlib.contextmanager
def any_graph() -> Iterator[AnyGraph]:
    """Opens the graph of the chosen server for reading in the block, or else that of the data directory."""
    client = connected()
    if client is None:
        with open_graph() as graph:
            yield graph
        return
    with client:
        yield client.graph


class Parts(NamedTuple):
    """The parts of a data directory, opened without cleaning up."""

    home: Path
    graph: Graph
    backend: Backend


@contextlib.contextmanager
def open_parts(backend: str | None = None) -> Iterator[Parts]:
    """Opens the graph and the backend for a block, for verbs that run nothing: opening a cache would clean up."""
    from tvsnap.graph import Graph
    from tvsnap.host import disk_reserve
    from tvsnap.host.owners import Owner
    from tvsnap.sandboxes import open_backend

    path = resolve_home()
    with contextlib.ExitStack() as stack:
        stack.enter_context(disk_reserve.lent(path))
        owner = stack.enter_context(contextlib.closing(Owner(path)))
        graph = stack.enter_context(Graph(path / GRAPH_FILE, owner.id))
        opened = open_backend(backend or backend_name(), path, owner.id)
        yield Parts(path, graph, stack.enter_context(contextlib.closing(opened)))


@contextlib.contextmanager
def open_graph() -> Iterator[Graph]:
    """Opens the graph for a block, for verbs that need no sandbox."""
    from tvsnap.graph import Graph

    path = resolve_home()
    _clean_up_after_the_dead(path)
    with Graph(path / GRAPH_FILE) as graph:
        yield graph


def _clean_up_after_the_dead(path: Path) -> None:
    """Removes the remains of killed processes, so that any next command cleans up."""
    from tvsnap.host import owners

    if not owners.dead_owners(path):
        return
    from tvsnap.engine.keeping.housekeeping import tidy

    with contextlib.suppress(TvsnapError), open_parts(options.DEFAULT_BACKEND) as parts:
        tidy(parts.home, parts.graph, parts.backend)


def open_images() -> ImageStore:
    """Returns the image store of the data directory."""
    from tvsnap.images import ImageStore

    return ImageStore(resolve_home())


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignores Ctrl-C during the block: cleaning up is short, and useless if only half of it is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def console(*, stderr: bool = False, soft_wrap: bool = False) -> Console:
    """Returns a console on standard output, for results, or on standard error, for progress and remarks.

    With `soft_wrap`, the terminal itself wraps long lines, so that they can be copied.
    """
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=soft_wrap, highlight=False, markup=False, emoji=False)


def table(*headings: str, left: int = 1, **style: Any) -> Table:
    """Returns an empty table without lines; its first `left` columns hold text, the others figures."""
    from rich.table import Table

    result = Table(box=None, pad_edge=False, **{"padding": (0, 2, 0, 0), "header_style": "dim", **style})
    for number, heading in enumerate(headings):
        result.add_column(heading, justify="left" if number < left else "right", no_wrap=number < left)
    return result


def grid(rows: Iterable[Sequence[str]], width: int = 3) -> Table:
    """Returns a table of labels, figures and remarks; rows may be shorter than `width`."""
    from rich.table import Table

    result = Table.grid(padding=(0, 2))
    result.add_column(style="dim")
    for _ in range(width - 2):
        result.add_column(justify="right")
    result.add_column(style="dim", overflow="fold")
    for row in rows:
        result.add_row(*row)
    return result


def print_json(data: Any) -> None:
    """Prints JSON with everything but ASCII escaped, so that it cannot contain control characters of terminals."""
    typer.echo(json.dumps(data, indent=2))


def answer(data: Any, *, as_json: bool, show: Callable[[], object]) -> None:
    """Prints the result of a verb: `data` as JSON, or with `show` for people."""
    if as_json:
        print_json(data)
    else:
        show()


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Shows on standard error, if that is a terminal, that something takes a while."""
    shown = console(stderr=True)
    with shown.status(what) if shown.is_terminal else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def progress(total: float, *columns: ProgressColumn) -> Iterator[Callable[..., None] | None]:
    """Shows a bar on standard error during the block and yields its `update`, or None if that is no terminal."""
    from rich.progress import BarColumn, Progress

    shown = console(stderr=True)
    if not shown.is_terminal:
        yield None
        return
    with Progress(BarColumn(bar_width=None), *columns, console=shown, transient=True, expand=True) as bar:
        yield functools.partial(bar.update, bar.add_task("", total=total, words=""))


def confirm(deed: str, *, yes: bool) -> None:
    """Asks a person on standard error before something that cannot be undone.

    Args:
        deed: the action in words, with all its consequences.
        yes: do not ask.

    Raises:
        typer.Abort: the person does not want it.
        UsageError: nobody can be asked because standard input is no terminal.
    """
    if yes:
        return
    if not asks():
        raise UsageError(f"without a terminal to ask at, --yes is needed to {deed}; nothing was done")
    typer.confirm(f"{deed}?", abort=True, err=True)


def page(text: str) -> None:
    """Shows a text, which may have colours, with $PAGER or less; prints it if there is neither."""
    import pydoc

    os.environ.setdefault("LESS", "-R")
    pydoc.pager(text)


def asks() -> bool:
    """Returns whether a person can be asked."""
    return sys.stdin.isatty()


def is_terminal() -> bool:
    """Returns whether standard input and standard output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()
