"""What only the client has whose methods are awaited; `bases` is what only the other one has."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from tvsnap.client.async_transport import AsyncTransport
from tvsnap.client.bases import RemoteTool, steps_of, tools_of
from tvsnap.client.client import Client
from tvsnap.client.operations import RolloutAbout, SandboxAbout
from tvsnap.client.transport import Transport
from tvsnap.client.wire import Ask
from tvsnap.graph import Step
from tvsnap.model.display import Displayed
from tvsnap.model.images import Image
from tvsnap.model.same_turn import RunsSideBySide
from tvsnap.model.stats import Stats
from tvsnap.wire.errors import Unreachable

if TYPE_CHECKING:
    from tvsnap.images import BuildProgress

P = ParamSpec("P")
T = TypeVar("T")


class AsyncRolloutBase(RolloutAbout, Displayed, RunsSideBySide):
    """An `AsyncRemoteRollout` without what it has in common with a `RemoteRollout`: the order of what it is asked for.

    What is asked of it is done in the order in which it was asked for. It begins with its first use.
    """

    def __init__(self, transport: AsyncTransport, opening: Ask | None, data: Mapping[str, Any] | None) -> None:
        super().__init__(opening, data)
        self._transport = transport
        self._order = asyncio.Lock()
        self._ending: asyncio.Future[Any] | None = None  # of a call that nobody waits for any more
        self._tools: Mapping[str, RemoteTool] | None = None

    async def tools(self) -> Mapping[str, RemoteTool]:
        """Returns the tools that may be called, by name; see `AsyncRollout.tools`."""
        if self._tools is None:
            self._tools = tools_of(await self._do(self._ask_for_tools))
        return self._tools

    async def settled(self) -> None:
        """Waits until it is known where the last call led."""
        await self._do(self._settle)

    async def cancel(self) -> bool:
        """Ends the call that is being made."""
        raise NotImplementedError

    async def close(self, outcome: str | None = None) -> None:
        """Ends it, if it has begun."""
        raise NotImplementedError

    def _steps(self) -> list[Step]:
        """Returns its calls in order, for what people are shown; a loop waits for them."""
        return steps_of(self, self._transport.blocking)

    @property
    def _blocking(self) -> Transport:
        return self._transport.blocking

    async def _begin(self) -> None:
        raise NotImplementedError

    async def _ask_for_tools(self) -> Any:
        await self._begin()
        return await self._transport.ask(Ask("GET", self._target("tools")))

    async def _settle(self) -> None:
        if self._place is None or self._given_out:
            answer = await self._transport.ask(Ask("GET", self._target()))
            self._place = answer["place"]

    async def _do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with self._order:
            if self._ending is not None:
                await asyncio.wait([self._ending])
                self._ending = None
            self._dropped = False
            begun = asyncio.ensure_future(work())
            try:
                return await asyncio.shield(begun)
            except asyncio.CancelledError:
                self._dropped = True
                self._ending = asyncio.ensure_future(self._end(begun))
                raise

    async def _end(self, begun: asyncio.Future[Any]) -> None:
        """Ends what is being done, and waits until it has ended."""
        with contextlib.suppress(Exception):
            await self.cancel()
        await asyncio.wait([begun])
        if not begun.cancelled():
            begun.exception()


R = TypeVar("R", bound=AsyncRolloutBase)


class AsyncClientBase(Generic[R]):
    """An `AsyncClient` without what it has in common with a `Client`. It is for one event loop.

    Attributes:
        cache: the `Client` of the same server, whose methods block, for what needs little time (`cache.graph`, ...).
        transport: its connections.
    """

    def __init__(self, transport: Transport) -> None:
        self.cache = Client(transport)
        self.transport = AsyncTransport(transport)
        self._open: set[R] = set()

    @property
    def images(self) -> AsyncRemoteImages:
        """The images of the server; see `AsyncCache.images`."""
        return AsyncRemoteImages(self.cache)

    def stats(self) -> Stats:
        """Returns what the server's cache has done; see `Cache.stats`. It blocks for as long as one request does."""
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

    def _opened(self, rollout: R) -> R:
        return rollout  # it begins with its first use

    def _all(self, rollouts: Iterable[R]) -> list[R]:
        return list(rollouts)


def in_order(
    method: Callable[Concatenate[R, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """Returns a method of a rollout that begins once what was asked for before has ended.

    A task that is cancelled while it waits ends what it had asked for; what is asked for next waits until it has ended.
    """

    @functools.wraps(method)
    async def do(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._do(lambda: method(self, *args, **kwargs))

    return do


class AsyncSandboxBase(SandboxAbout):
    """An `AsyncRemoteSandbox` without what it has in common with a `RemoteSandbox`."""

    def __init__(self, transport: AsyncTransport, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self._transport = transport


class AsyncRemoteImages:
    """The images of a server, whose methods are awaited; see `AsyncImageStore`."""

    def __init__(self, cache: Client) -> None:
        self._images = cache.images

    async def get(self, name: str) -> Image:
        """Returns an image by its name or digest; see `ImageStore.get`."""
        return await asyncio.to_thread(self._images.get, name)

    async def list(self) -> list[Image]:
        """Returns the images; see `ImageStore.list`."""
        return await asyncio.to_thread(self._images.list)

    async def build(
        self,
        source: Path | str,
        *,
        name: str | None = None,
        progress: BuildProgress | None = None,
        force: bool = False,
        keep_layers: bool = False,
        from_dockerfile: bool = False,
        docker_image: str | None = None,
        task_user: bool = True,
    ) -> Image:
        """Builds an image; see `RemoteImages.build`."""
        return await asyncio.to_thread(
            lambda: self._images.build(
                source,
                name=name,
                progress=progress,
                force=force,
                keep_layers=keep_layers,
                from_dockerfile=from_dockerfile,
                docker_image=docker_image,
                task_user=task_user,
            )
        )
