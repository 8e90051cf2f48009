"""Rollouts and sandboxes that clients hold open, with their time to live."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tvsnap.aio.rollout import CANCELLATION, AsyncRollout
from tvsnap.aio.sandbox import AsyncSandbox
from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.model.errors import NotFound
from tvsnap.plugins.client.wire.errors import Busy
from tvsnap.plugins.server.metrics import Metrics
from tvsnap.plugins.server.once import Once
from tvsnap.plugins.server.tenants import Tenant, check_possible

ANSWERS_KEPT = 16
"""Answers of one rollout or sandbox that are kept for a client that does not say which have come."""
_MOMENT = 0.001

logger = logging.getLogger("tvsnap.server")


@dataclass(eq=False)
class Held:
    """Something that a client holds open.

    Attributes:
        id: its name in paths.
        answers: answers of its requests.
        running: the number of requests that are being made of it.
        used: when the last one began or ended, by time.monotonic().
        tenant: whose it is; None if it is no tenant's.
    """

    id: str = field(default_factory=lambda: secrets.token_hex(12))
    answers: Once[bytes] = field(default_factory=lambda: Once(ANSWERS_KEPT))
    running: int = 0
    used: float = field(default_factory=time.monotonic)
    tenant: Tenant | None = None

    def is_for(self, tenant: Tenant | None) -> bool:
        """Returns whether a tenant may use it; None stands for who may use all."""
        return tenant is None or self.tenant == tenant

    def note_received(self, keys: str | None) -> None:
        """Notes which answers the client has, by the keys that it says; None if it does not say."""
        if keys is not None:
            self.answers.acknowledge(keys.split(","))

    async def end(self) -> None:
        """Ends it."""
        raise NotImplementedError

    def expire(self, seconds: float) -> None:
        """Is told that it is ended as nothing was asked of it for so many seconds."""

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """A block in which it is not ended for want of requests."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self.used = time.monotonic()


@dataclass(eq=False, kw_only=True)
class HeldSandbox(Held):
    """A sandbox that a client has in a state.

    Attributes:
        sandbox: the sandbox.
        state: the state in which it was made.
        leave: ends the block that made it.
    """

    sandbox: AsyncSandbox
    state: str
    leave: Callable[[], Awaitable[object]]
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Returns a block in which no other request uses it."""
        return self._turn

    async def end(self) -> None:
        """Ends the sandbox."""
        await self.leave()


@dataclass(eq=False, kw_only=True)
class HeldRollout(Held):
    """A rollout that a client has open.

    Attributes:
        rollout: the rollout.
        given: its sandbox, if the client has asked for it.
        leave: ends what belongs to it.
        outcome: the error that ends it, in words; None if none does.
    """

    rollout: AsyncRollout
    given: GivenSandbox | None = None
    outcome: str | None = None
    leave: Callable[[HeldRollout], Awaitable[object]]
    _calls: dict[str, Cancellation] = field(default_factory=dict)

    @contextlib.contextmanager
    def cancellable(self, key: str | None) -> Iterator[Cancellation]:
        """A block in which a call is made that `cancel` ends; the key is the one that the client chose for it."""
        cancellation = Cancellation()
        if key is not None:
            self._calls[key] = cancellation
        reset = CANCELLATION.set(cancellation)
        try:
            yield cancellation
        finally:
            CANCELLATION.reset(reset)
            cancellation.end()
            if key is not None:
                del self._calls[key]

    async def find_call(self, key: str) -> Cancellation | None:
        """Returns what ends the call of a key; None if it has ended."""
        while key not in self._calls and self.answers.is_under_way(key):
            await asyncio.sleep(_MOMENT)  # it has come, and is just about to begin
        return self._calls.get(key)

    async def end(self) -> None:
        """Closes the rollout."""
        await self.leave(self)
        await self.rollout.close(self.outcome)

    def expire(self, seconds: float) -> None:
        """Notes that it is ended for want of requests."""
        self.outcome = f"no request for {seconds:g} s"


@dataclass(eq=False, kw_only=True)
class GivenSandbox(HeldSandbox):
    """The sandbox of a rollout: what is done with it is done between two calls of the rollout, which is in use then."""

    of: HeldRollout

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Returns a block in which neither another request uses it nor the rollout makes a call."""
        return self.of.rollout.in_order()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """A block in which neither it nor the rollout is ended for want of requests."""
        with self.of.in_use(), super().in_use():
            yield


H = TypeVar("H", bound=Held)


class Table(Generic[H]):
    """Rollouts, or sandboxes, that clients hold, by id. It is used on one event loop."""

    def __init__(self, what: str, most: int, ttl: float, metrics: Metrics, prefix: str = "") -> None:
        """
        Args:
            what: `rollout` or `sandbox`, for messages.
            most: the number that there may be.
            ttl: seconds without a request after which one is ended.
            metrics: count what is ended.
            prefix: the beginning of the ids.
        """
        self._what = what
        self._most = most
        self._ttl = ttl
        self._metrics = metrics
        self._prefix = prefix
        self._held: dict[str, H] = {}
        self._coming = 0

    def __len__(self) -> int:
        return len(self._held) + self._coming

    def __iter__(self) -> Iterator[H]:
        return iter(list(self._held.values()))

    @contextlib.contextmanager
    def room_for(self, count: int, most: int | None = None, tenant: Tenant | None = None) -> Iterator[None]:
        """A block in which further ones are made and added; a tenant may have `most`.

        Raises:
            UsageError: there may never be so many.
            Busy: there would be too many.
        """
        if most is not None:
            check_possible(count, self._what, most, "token file")
        check_possible(count, self._what, self._most, "serve --help")
        theirs = sum(entry.tenant is tenant for entry in self._held.values()) if tenant and most is not None else 0
        if most is not None and theirs + count > most:
            raise Busy(f"you have {theirs} open {self._what}s, and may have {most} (token file): close some")
        if len(self) + count > self._most:
            raise Busy(
                f"there are {len(self)} open {self._what}s, and at most {self._most} are allowed (serve --help): "
                "close some"
            )
        self._coming += count
        try:
            yield
        finally:
            self._coming -= count

    def __contains__(self, entry: Held | None) -> bool:
        return entry is not None and self._held.get(entry.id) is entry

    def add(self, entry: H) -> H:
        """Adds one; returns it, with the id by which it is found."""
        entry.id = self._prefix + entry.id
        self._held[entry.id] = entry
        return entry

    def find(self, id: str, tenant: Tenant | None = None) -> H:
        """Returns one that a tenant may use; None stands for who may use all.

        Raises:
            NotFound: there is none of this id.
        """
        entry = self._held.get(id)
        if entry is None or not entry.is_for(tenant):
            raise NotFound(
                f'no {self._what} "{id}" is open: closed, or ended after {self._ttl:g} s without request (--ttl), or '
                "the server was started again; open a new one"
            )
        return entry

    async def end(self, id: str) -> None:
        """Ends one, if it is there."""
        entry = self._held.pop(id, None)
        if entry is not None:
            await entry.end()

    async def end_idle(self) -> None:
        """Ends those of which nothing was asked for longer than their time to live."""
        now = time.monotonic()
        for entry in self:
            if not entry.running and now - entry.used > self._ttl:
                logger.info("ending %s %s: no request for %g s", self._what, entry.id, self._ttl)
                self._metrics.ended(self._what)
                entry.expire(self._ttl)
                try:
                    await self.end(entry.id)
                except Exception:
                    logger.exception("%s %s could not be ended", self._what, entry.id)
