"""`tvsnap.aio.connect`: the cache of a server, its rollouts and its sandboxes, with awaited methods."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from tvsnap.graph.model import Edge
from tvsnap.graph.reexecution import Remade
from tvsnap.model.arguments import check_outcome, outcome_of
from tvsnap.model.display import Displayed
from tvsnap.model.forks import AsyncForks, awaited_or_entered, reseeded_later
from tvsnap.model.network import NetworkLike
from tvsnap.model.operations.caches import AwaitedCacheMethods, OpenRollout, Resume
from tvsnap.model.operations.operation import Operation, awaited
from tvsnap.model.same_turn import RunsSideBySide
from tvsnap.model.stats import Stats
from tvsnap.plugins.client.async_transport import AsyncTransport
from tvsnap.plugins.client.client import Client, RemoteSandbox
from tvsnap.plugins.client.connection import File
from tvsnap.plugins.client.events import Event, EventParser
from tvsnap.plugins.client.http import Ask, target
from tvsnap.plugins.client.images_and_graph import RemoteImages, RemoteTool
from tvsnap.plugins.client.performing import (
    CACHE_PERFORMERS,
    RolloutCore,
    SandboxCore,
    make_sandboxes,
    opening_of,
    reexecute,
    resuming,
)
from tvsnap.plugins.client.terminals import AsyncTerminal, async_open_terminal
from tvsnap.plugins.client.transport import PATIENCE, Transport
from tvsnap.plugins.client.wire.errors import Unreachable

P = ParamSpec("P")
T = TypeVar("T")


async def connect(
    url: str,
    token: str | None = None,
    *,
    patience: float = PATIENCE,
    ca: File | None = None,
    certificate: File | tuple[File, File] | None = None,
) -> AsyncClient:
    """Returns the cache of a server, which is used like an `AsyncCache`.

    Args:
        url: `http://HOST:PORT`, `https://HOST:PORT`, or `unix:PATH`.
        token: the server's token; None if it needs none.
        patience: seconds to wait while the server's sandboxes are used up.
        ca: a file with the certificate of the authority that has signed the server's, for https; None for the file
            named by the variable TVSNAP_CA, or else the authorities that this machine trusts.
        certificate: a file with the certificate of this client and its key; or two files, one for each. None for the
            file named by the variable TVSNAP_CERTIFICATE, if it is set.

    Raises:
        UsageError: the address is none, a file with certificates cannot be used, or the server does not know the token.
        Unreachable: there is no server, or its certificate or ours is not trusted.
    """
    client = AsyncClient(Transport(url, token, patience, ca=ca, certificate=certificate))
    await client.transport.ask(Ask("GET", target("rollouts")))
    return client


class AsyncClient(AwaitedCacheMethods["AsyncRemoteRollout", "AsyncRemoteSandbox"]):
    """The `AsyncCache` of a server, and a context manager that ends its rollouts. It is for one event loop.

    Attributes:
        cache: the `Client` of the same server, whose methods block, for short requests (`cache.graph`, ...).
        transport: its connections.
    """

    def __init__(self, transport: Transport) -> None:
        self.cache = Client(transport)
        self.transport = AsyncTransport(transport)
        self._open: set[AsyncRemoteRollout] = set()

    def begin(self, opening: OpenRollout | Resume) -> AsyncRemoteRollout:
        """Returns a rollout that begins with its first use; see `BeginsRollouts.begin`."""
        return AsyncRemoteRollout(self, opening_of(opening))

    async def perform(self, operation: Operation[T]) -> T:
        """Performs an operation; see `Performs.perform`."""
        answer: T = await CACHE_PERFORMERS[type(operation)](self.transport, operation)
        return answer

    async def terminal(self, state: str, columns: int = 80, rows: int = 24) -> AsyncTerminal:
        """Returns the terminal of a fork of a state. The fork ends with it, or with this process.

        Args:
            state: the state's full hash.
            columns: the width of the terminal in cells.
            rows: its height in cells.

        Raises:
            NotFound: there is no such state, or its image was removed.
            StateLost: the state is no longer kept, and nothing else leads to it.
            Busy: the server's sandboxes are used up, and stayed so for the client's `patience`.
        """
        return await async_open_terminal(
            self.transport, target("states", state, "terminal", columns=columns, rows=rows)
        )

    @contextlib.asynccontextmanager
    async def events(self) -> AsyncIterator[AsyncIterator[Event]]:
        """Returns a context manager with the server's events from then on, as they happen.

        A tenant sees its own. If events come faster than they are taken, some are left out, and an event `dropped`
        gives their number.

        Yields:
            The events, which end when the server is stopped.
        """
        async with self.transport.stream("GET", target("events")) as pieces:
            parser = EventParser()
            parser.take(await anext(pieces, b""))  # a comment, from which on no event is missed
            yield (event async for piece in pieces for event in parser.take(piece))

    async def reexecute(self, edge: Edge) -> Remade:
        """Makes a recorded call once more, in a sandbox that is ended afterwards; see `Client.reexecute`."""
        return await reexecute(self.transport, edge)

    @property
    def images(self) -> AsyncRemoteImages:
        """The images of the server; see `AsyncCache.images`."""
        return AsyncRemoteImages(self.cache.images)

    def stats(self) -> Stats:
        """Returns the statistics of the server's cache; see `Cache.stats`. It blocks for one request."""
        return self.cache.stats()

    def refusal(self, state: str) -> str | None:
        """Returns why the server could take no snapshot of a state; see `Client.refusal`. It blocks as `stats` does.

        Args:
            state: the state's full hash.
        """
        return self.cache.refusal(state)

    async def close(self) -> None:
        """Ends the rollouts that were begun here, and the connections. It may be called more than once."""
        if self.transport.forked_off:  # all of it belongs to the process that connected
            return
        with contextlib.suppress(Unreachable):  # a server that has gone has ended them
            await asyncio.gather(*(rollout.close() for rollout in list(self._open)))
        self.transport.close()
        self.cache.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @contextlib.asynccontextmanager
    async def _materialised(self, state: str, after: float, network: NetworkLike) -> AsyncIterator[AsyncRemoteSandbox]:
        async with await self._made(state, 1, after, network) as sandboxes:
            yield sandboxes[0]

    async def _made(
        self, state: str, n: int, after: float = 0.0, network: NetworkLike = None
    ) -> AsyncForks[AsyncRemoteSandbox]:
        sandboxes = await make_sandboxes(self.transport, state, n, after, network)
        return together([AsyncRemoteSandbox(self.transport, one) for one in sandboxes])

    async def _forked(self, opening: Resume, n: int) -> AsyncForks[AsyncRemoteRollout]:
        answer = await self.transport.ask(resuming(opening, n))
        return together([AsyncRemoteRollout(self, None, one) for one in answer["rollouts"]])


class AsyncRemoteRollout(RolloutCore, RunsSideBySide, Displayed):
    """The `AsyncRollout` of a server, and an asynchronous context manager that closes it.

    Its operations are performed in the order of their calls. It begins with its first use.
    """

    def __init__(self, client: AsyncClient, opening: Ask | None, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(client.transport, opening, data)
        self._client = client
        self._order = asyncio.Lock()
        self._ending: asyncio.Future[Any] | None = None  # of a call that nobody waits for any more
        client._open.add(self)

    async def tools(self) -> Mapping[str, RemoteTool]:
        """Returns the tools that may be called, by name; see `AsyncRollout.tools`."""
        return await self._do(self._list_tools)

    async def settled(self) -> None:
        """Waits until the outcome of the last call is known."""
        await self._do(self._settle)

    async def perform(self, operation: Operation[T]) -> T:
        """Performs an operation; see `Performs.perform`. A call is executed once, also if a connection breaks."""
        return await self._do(lambda: self._performing(operation))

    @awaited_or_entered
    async def fork(self, n: int = 1, *, reseed: bool = False) -> AsyncForks[AsyncRemoteRollout]:
        """Begins rollouts at its state; see `Rollout.fork`."""
        rollouts = await self._do(lambda: self._forked(n))
        forks = together([AsyncRemoteRollout(self._client, None, one) for one in rollouts])
        return await reseeded_later(forks, forks[0].state) if reseed else forks

    async def sandbox(self) -> AsyncRemoteSandbox:
        """Returns its own sandbox in its present state; see `Rollout.sandbox`."""
        return AsyncRemoteSandbox(self._client.transport, await self._do(self._give_out))

    async def cancel(self) -> bool:
        """Ends the call that is being made; see `Rollout.cancel`."""
        return await self._cancel()

    async def close(self, outcome: str | None = None) -> None:
        """Ends it, if it has begun; see `Rollout.close`. It may be called more than once."""
        self._client._open.discard(self)
        words = check_outcome(outcome)
        await self._do(lambda: self._end(words))

    async def _leave(self) -> None:
        await self.close()

    async def __aenter__(self) -> AsyncRemoteRollout:
        await self._do(self._begin)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        await self.close(outcome_of(error))

    async def _settle(self) -> None:
        if self._place is None or self._given_out:
            answer = await self._asking.ask(Ask("GET", self._target()))
            self._place = answer["place"]

    async def _do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with self._order:
            if self._ending is not None:
                await asyncio.wait([self._ending])
                self._ending = None
            self._dropped = False
            task = asyncio.ensure_future(work())
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                self._dropped = True
                self._ending = asyncio.ensure_future(self._end_dropped(task))
                raise

    async def _end_dropped(self, task: asyncio.Future[Any]) -> None:
        """Cancels an operation, and waits until it has ended."""
        with contextlib.suppress(Exception):
            await self.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()


class AsyncRemoteSandbox(SandboxCore):
    """The `AsyncSandbox` of a server."""

    def __init__(self, transport: AsyncTransport, data: Mapping[str, Any]) -> None:
        super().__init__(transport, data)
        self._transport = transport

    run = awaited(RemoteSandbox.run)
    """`Sandbox.run`, to be awaited."""
    exec = awaited(RemoteSandbox.exec)
    """`Sandbox.exec`, to be awaited."""
    exec_all = awaited(RemoteSandbox.exec_all)
    """`Sandbox.exec_all`, to be awaited."""
    request = awaited(RemoteSandbox.request)
    """`Sandbox.request`, to be awaited."""
    send_keys = awaited(RemoteSandbox.send_keys)
    """`Sandbox.send_keys`, to be awaited."""
    terminal = awaited(RemoteSandbox.terminal)
    """`Sandbox.terminal`, to be awaited."""
    digest = awaited(RemoteSandbox.digest)
    """`Sandbox.digest`, to be awaited."""
    processes = awaited(RemoteSandbox.processes)
    """`Sandbox.processes`, to be awaited."""
    changes = awaited(RemoteSandbox.changes)
    """`Sandbox.changes`, to be awaited."""
    shell_state = awaited(RemoteSandbox.shell_state)
    """`Sandbox.shell_state`, to be awaited."""
    read_file = awaited(RemoteSandbox.read_file)
    """`Sandbox.read_file`, to be awaited."""
    list_folder = awaited(RemoteSandbox.list_folder)
    """`Sandbox.list_folder`, to be awaited."""
    write_file = awaited(RemoteSandbox.write_file)
    """`Sandbox.write_file`, to be awaited."""
    put = awaited(RemoteSandbox.put)
    """`Sandbox.put`, to be awaited."""
    get = awaited(RemoteSandbox.get)
    """`Sandbox.get`, to be awaited."""

    async def attach(self, columns: int, rows: int) -> AsyncTerminal:
        """Returns the shell's terminal, for a person; see `RemoteSandbox.attach`."""
        path = target("sandboxes", self.id, "attach", columns=columns, rows=rows)
        return await async_open_terminal(self._transport, path)

    def _run(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return work


_T = TypeVar("_T", AsyncRemoteRollout, AsyncRemoteSandbox)


def together(items: Sequence[_T]) -> AsyncForks[_T]:
    """Returns sandboxes or rollouts that are closed together."""

    async def end() -> None:
        for one in items:
            await one._leave()

    return AsyncForks(items, end)


def _by_thread(
    method: Callable[Concatenate[RemoteImages, P], T],
) -> Callable[Concatenate[AsyncRemoteImages, P], Coroutine[Any, Any, T]]:
    """Returns a method that a thread executes."""

    @functools.wraps(method)
    async def do(self: AsyncRemoteImages, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self._images, *args, **kwargs)

    return do


class AsyncRemoteImages:
    """The images of a server, with awaited methods; see `AsyncImageStore`."""

    def __init__(self, images: RemoteImages) -> None:
        self._images = images

    get = _by_thread(RemoteImages.get)
    """`ImageStore.get`, to be awaited."""
    list = _by_thread(RemoteImages.list)
    """`ImageStore.list`, to be awaited."""
    build = _by_thread(RemoteImages.build)
    """`RemoteImages.build`, to be awaited."""
