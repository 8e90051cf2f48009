"""What `tvsnap.aio.connect` returns: a cache elsewhere whose methods are awaited."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast, overload

from tvsnap.client.client import Client
from tvsnap.client.operations import (
    Hosts,
    RolloutSteps,
    SandboxSteps,
    end_sandboxes,
    make_sandboxes,
    open_rollout,
    resume_rollouts,
    warm_image,
)
from tvsnap.client.steps import Ask, Awaited, Steps, T, awaited, in_turn
from tvsnap.client.transport import IDLE_CONNECTIONS, PATIENCE, TRIES, Transport, pause_after
from tvsnap.client.wire import LONGEST_HEAD, Head, parse_head, read_answer, target
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.stats import Stats
from tvsnap.wire.errors import Busy, Unreachable


async def connect(url: str, token: str | None = None, *, patience: float = PATIENCE) -> AsyncClient:
    """Returns the cache of a server, which is used as an `AsyncCache` is.

    Args:
        url: `http://HOST:PORT`, or `unix:PATH`.
        token: what the server lets in with; None where it asks for none.
        patience: seconds to wait while the server's sandboxes are used up.

    Raises:
        UsageError: the address is none, or the server does not know the token.
        Unreachable: there is no server.
    """
    client = AsyncClient(Transport(url, token, patience))
    await client.transport.ask(Ask("GET", target("rollouts")))
    return client


class AsyncConnection:
    """One connection, used by one task at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> Head:
        """Returns the head of the next answer."""
        try:
            return parse_head((await self.reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n"))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise ConnectionError("the connection was closed") from None

    async def pieces(self, head: Head) -> AsyncIterator[bytes]:
        """Yields the body that follows a head."""
        try:
            left = head.length
            if left is not None:
                while left:
                    piece = await self.reader.read(min(left, 1 << 20))
                    if not piece:
                        raise ConnectionError("the connection was closed")
                    left -= len(piece)
                    yield piece
                return
            while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                yield (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readuntil(b"\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            raise ConnectionError("the connection was closed") from None

    def close(self) -> None:
        """Ends it."""
        self.writer.close()


class AsyncTransport:
    """A server, as the tasks of one event loop ask it; what blocks is done by threads, with a `Transport`."""

    def __init__(self, blocking: Transport) -> None:
        """
        Args:
            blocking: knows the server.
        """
        self._blocking = blocking
        self._idle: list[AsyncConnection] = []

    async def do(self, steps: Steps[T]) -> T:
        """Returns what an operation comes to."""
        try:
            step = next(steps)
            while True:
                try:
                    if isinstance(step, Ask):
                        done = await self.ask(step)
                    else:
                        done = await asyncio.to_thread(step, self._blocking)
                except BaseException as error:  # noqa: PERF203
                    step = steps.throw(error)
                else:
                    step = steps.send(done)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def ask(self, ask: Ask) -> Any:
        """Returns the JSON that a request is answered with; see `Transport.ask`."""
        data = self._blocking.request(ask.method, ask.path, ask.body, ask.key)
        until = time.monotonic() + self._blocking.patience
        while True:
            status, answer = await self._exchange(data)
            try:
                return read_answer(status, answer)
            except Busy as busy:
                if time.monotonic() + busy.retry_after > until:
                    raise
                await asyncio.sleep(busy.retry_after)

    def close(self) -> None:
        """Ends the connections that nobody uses."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    async def _exchange(self, data: bytes) -> tuple[int, bytes]:
        for attempt in range(1, TRIES + 1):
            try:
                async with self.connection() as connection:
                    connection.writer.write(data)
                    head = await connection.head()
                    return head.status, b"".join([piece async for piece in connection.pieces(head)])
            except (OSError, Unreachable) as error:  # noqa: PERF203
                if attempt == TRIES:
                    if isinstance(error, Unreachable):
                        raise
                    where = self._blocking.address
                    raise Unreachable(f"the connection to {where} broke {TRIES} times: {error}") from None
                if attempt > 1:
                    await asyncio.sleep(pause_after(attempt))
        raise AssertionError("not reached")

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """A block with a connection, which others use after it."""
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if len(self._idle) < IDLE_CONNECTIONS:
            self._idle.append(connection)
        else:
            connection.close()

    async def _connect(self) -> AsyncConnection:
        address = self._blocking.address
        try:  # asyncio itself has TCP send what it is given at once (TCP_NODELAY)
            if address.path:
                made = await asyncio.open_unix_connection(address.path, limit=LONGEST_HEAD)
            else:
                made = await asyncio.open_connection(address.host, address.port, limit=LONGEST_HEAD)
        except OSError as error:
            raise Unreachable(
                f"the server at {address} cannot be reached: {error}; does it run (tvsnap serve)?"
            ) from None
        return AsyncConnection(*made)


class AsyncClient:
    """An `AsyncCache` elsewhere, for one event loop; an asynchronous context manager that ends its rollouts.

    Attributes:
        cache: the `Client` of the same server, whose methods block, for what needs little time (`cache.graph`, ...).
        transport: its connections.
    """

    def __init__(self, transport: Transport) -> None:
        self.cache = Client(transport)
        self.transport = AsyncTransport(transport)
        self._open: set[AsyncRemoteRollout] = set()

    def rollout(
        self,
        image: str,
        task: str = "",
        salt: str | None = None,
        label: str | None = None,
        *,
        limits: Limits | None = None,
        network: Hosts = None,
        deadline: float | None = None,
    ) -> AsyncRemoteRollout:
        """Returns a rollout at the root of an image, which begins with its first use; see `AsyncCache.rollout`."""
        return AsyncRemoteRollout(self, RolloutSteps(open_rollout(image, task, salt, label, limits, network, deadline)))

    def resume(self, state: str, task: str = "", label: str | None = None, *, after: float = 0.0) -> AsyncRemoteRollout:
        """Returns a rollout at any state, which begins with its first use; see `AsyncCache.resume`."""
        return AsyncRemoteRollout(self, RolloutSteps(resume_rollouts(state, 1, task, label, after)))

    @contextlib.asynccontextmanager
    async def materialise(
        self, state: str, *, after: float = 0.0, network: Hosts = None
    ) -> AsyncIterator[AsyncRemoteSandbox]:
        """A block with a sandbox in any state; see `AsyncCache.materialise`."""
        async with await self._make(make_sandboxes(state, 1, after, network)) as made:
            yield made[0]

    @overload
    async def fork(self, state: str, n: int = 1, *, as_rollouts: Literal[False] = False) -> AsyncRemoteForks: ...

    @overload
    async def fork(
        self, state: str, n: int = 1, *, as_rollouts: Literal[True], task: str = "", label: str | None = None
    ) -> list[AsyncRemoteRollout]: ...

    async def fork(
        self, state: str, n: int = 1, *, as_rollouts: bool = False, task: str = "", label: str | None = None
    ) -> AsyncRemoteForks | list[AsyncRemoteRollout]:
        """Returns several sandboxes, or rollouts, that stand at any state; see `AsyncCache.fork`."""
        if as_rollouts:
            answer = await self.transport.ask(resume_rollouts(state, n, task, label, 0.0))
            return [AsyncRemoteRollout(self, RolloutSteps(None, one)) for one in answer["rollouts"]]
        return await self._make(make_sandboxes(state, n, 0.0, None))

    async def warm(self, image: str) -> str:
        """Takes a snapshot of an image's root where its sandboxes run a service; see `Cache.warm`."""
        return str((await self.transport.ask(warm_image(image)))["root"])

    @property
    def images(self) -> AsyncRemoteImages:
        """The images of the server; see `AsyncCache.images`."""
        return AsyncRemoteImages(self.cache)

    def stats(self) -> Stats:
        """Returns what the server's cache has done; see `Cache.stats`. It blocks for as long as one request does."""
        return self.cache.stats()

    async def close(self) -> None:
        """Ends the rollouts that were begun here, and the connections. It may be called more than once."""
        with contextlib.suppress(Unreachable):  # a server that has gone has ended them
            await asyncio.gather(*(rollout.close() for rollout in list(self._open)))
        self.transport.close()
        self.cache.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _make(self, ask: Ask) -> AsyncRemoteForks:
        made = (await self.transport.ask(ask))["sandboxes"]
        return AsyncRemoteForks(self.transport, [one["id"] for one in made])


class AsyncRemoteRollout(Awaited[RolloutSteps]):
    """An `AsyncRollout` elsewhere. What is asked of it is done in the order in which it was asked for."""

    def __init__(self, client: AsyncClient, steps: RolloutSteps) -> None:
        self._client = client
        self._steps = steps
        self._order = asyncio.Lock()
        self._ending: asyncio.Future[Any] | None = None  # of a call that nobody waits for any more
        client._open.add(self)

    async def _do(self, steps: Steps[T]) -> T:
        async with self._order:
            if self._ending is not None:
                await asyncio.wait([self._ending])
                self._ending = None
            begun = asyncio.ensure_future(self._client.transport.do(steps))
            try:
                return await asyncio.shield(begun)
            except asyncio.CancelledError:
                self._ending = asyncio.ensure_future(self._end(begun))
                raise

    async def _end(self, begun: asyncio.Future[Any]) -> None:
        """Ends what is being done, and waits until it has ended."""
        with contextlib.suppress(Exception):
            await self.cancel()
        await asyncio.wait([begun])
        if not begun.cancelled():
            begun.exception()

    @property
    def id(self) -> str | None:
        """Its name in the graph; see `Rollout.id`."""
        return cast("str | None", self._steps.data["name"])

    @property
    def root(self) -> str:
        """The hash of its root."""
        return str(self._steps.data["root"])

    @property
    def state(self) -> str:
        """The hash of the state at which it stands. Await `settled` first, so that the loop does not wait for it."""
        return str(self._where()["state"])

    @property
    def depth(self) -> int:
        """The number of calls that changed the state; see `state` for what may be waited for."""
        return int(self._where()["depth"])

    @property
    def private(self) -> str | None:
        """Why it is in a private branch, or None; see `state` for what may be waited for."""
        return cast("str | None", self._where()["private"])

    @property
    def unshared(self) -> str | None:
        """Why the last call's result answers no other, or None; see `state` for what may be waited for."""
        return cast("str | None", self._where()["unshared"])

    settled = awaited(RolloutSteps.settled)
    """Waits until it is known where the last call led."""
    call = awaited(RolloutSteps.call)
    """Makes a tool call; see `AsyncRollout.call`. It is executed once, also where the connection breaks."""
    exec_all = awaited(RolloutSteps.exec_all)
    """Runs several commands side by side, as one call; see `AsyncRollout.exec_all`."""
    put = awaited(RolloutSteps.put)
    """Copies a file or a folder of this machine into the sandbox; see `AsyncRollout.put`."""
    get = awaited(RolloutSteps.get)
    """Copies a file or a folder out of the sandbox; see `AsyncRollout.get`."""
    snapshot_if_idle = awaited(RolloutSteps.snapshot_if_idle)
    """Takes a snapshot where it stands; see `Rollout.snapshot_if_idle`."""

    async def fork(self, n: int = 1) -> list[AsyncRemoteRollout]:
        """Begins rollouts where it stands; see `AsyncRollout.fork`."""
        begun = await self._do(self._steps.fork(n))
        return [AsyncRemoteRollout(self._client, RolloutSteps(None, one)) for one in begun]

    async def cancel(self) -> bool:
        """Ends the call that is being made; see `AsyncRollout.cancel`."""
        return await self._client.transport.do(self._steps.cancel())

    async def close(self) -> None:
        """Ends it, if it has begun. It may be called more than once."""
        self._client._open.discard(self)
        await self._do(self._steps.close())

    async def __aenter__(self) -> AsyncRemoteRollout:
        await self._do(self._steps.begin())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _where(self) -> Mapping[str, Any]:
        self._steps.data  # noqa: B018  # raises UsageError where it has not begun
        return self._steps.place or in_turn(self._client.cache.transport, self._steps.where())


class AsyncRemoteSandbox(Awaited[SandboxSteps]):
    """An `AsyncSandbox` elsewhere."""

    def __init__(self, transport: AsyncTransport, key: str) -> None:
        self._transport = transport
        self._steps = SandboxSteps(key)

    async def _do(self, steps: Steps[T]) -> T:
        return await self._transport.do(steps)

    @property
    def id(self) -> str:
        """Its name on the server."""
        return self._steps.key

    run = awaited(SandboxSteps.run)
    """Runs a command in the persistent shell; see `Sandbox.run`."""
    exec = awaited(SandboxSteps.exec)
    """Runs a command in a fresh shell; see `Sandbox.exec`."""
    exec_all = awaited(SandboxSteps.exec_all)
    """Runs commands side by side, each in a fresh shell; see `Sandbox.exec_all`."""
    read_file = awaited(SandboxSteps.read_file)
    """Returns a file's contents; see `Sandbox.read_file`."""
    write_file = awaited(SandboxSteps.write_file)
    """Writes a file; see `Sandbox.write_file`."""
    put = awaited(SandboxSteps.put)
    """Copies a file or a folder of this machine into it; see `Sandbox.put`."""
    get = awaited(SandboxSteps.get)
    """Copies a file or a folder out of it; see `Sandbox.get`."""
    processes = awaited(SandboxSteps.processes)
    """Returns the live processes; see `Sandbox.processes`."""
    changes = awaited(SandboxSteps.changes)
    """Returns what differs from the image; see `Sandbox.changes`."""
    shell_state = awaited(SandboxSteps.shell_state)
    """Returns the shell's state by name; see `Sandbox.shell_state`."""


class AsyncRemoteForks:
    """Sandboxes elsewhere that stood in one state when they were made; see `AsyncForks`."""

    def __init__(self, transport: AsyncTransport, keys: Sequence[str]) -> None:
        self._transport = transport
        self._sandboxes = [AsyncRemoteSandbox(transport, key) for key in keys]
        self._closed = False

    def __getitem__(self, index: int) -> AsyncRemoteSandbox:
        return self._sandboxes[index]

    def __iter__(self) -> Iterator[AsyncRemoteSandbox]:
        return iter(self._sandboxes)

    def __len__(self) -> int:
        return len(self._sandboxes)

    async def close(self) -> None:
        """Ends all of them. It may be called more than once."""
        if not self._closed:
            self._closed = True
            await self._transport.do(end_sandboxes([sandbox.id for sandbox in self._sandboxes]))

    async def __aenter__(self) -> AsyncRemoteForks:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncRemoteImages:
    """The images of a server, whose methods are awaited; see `AsyncImageStore`."""

    def __init__(self, cache: Client) -> None:
        self._images = cache.images

    async def get(self, name: str) -> Image:
        """Returns an image; see `ImageStore.get`."""
        return await asyncio.to_thread(self._images.get, name)

    async def list(self) -> list[Image]:
        """Returns all images; see `ImageStore.list`."""
        return await asyncio.to_thread(self._images.list)

    async def build(
        self, source: Path | str, *, name: str | None = None, progress: Any = None, force: bool = False
    ) -> Image:
        """Builds an image; see `ImageStore.build`."""
        return await asyncio.to_thread(lambda: self._images.build(source, name=name, progress=progress, force=force))
