"""The parts that all operations of a server share: the cache, what clients hold, and who may execute something now."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from starlette.requests import HTTPConnection, Request

from tvsnap.aio.cache import AsyncCache
from tvsnap.aio.rollout import AsyncRollout
from tvsnap.aio.threads import in_thread
from tvsnap.graph import Edge
from tvsnap.host.contents import Contents
from tvsnap.images.build.runner import end_running
from tvsnap.model.errors import NotFound, UsageError
from tvsnap.plugins.client.wire.errors import Busy
from tvsnap.plugins.object_store import StoredTasks
from tvsnap.plugins.server.events import Events
from tvsnap.plugins.server.held import HeldRollout, HeldSandbox, Table
from tvsnap.plugins.server.http import KEY_HEADER, end_of_server, header_of, is_number, read_body, request_mark
from tvsnap.plugins.server.metrics import Metrics
from tvsnap.plugins.server.once import Once
from tvsnap.plugins.server.settings import ServerSettings
from tvsnap.plugins.server.tenants import Shares, Tenant, check_owned, check_possible, tenant_of

T = TypeVar("T")
KEYS_KNOWN = 65_536
"""Answers of requests that open something, at most; beyond that the oldest are forgotten."""
ANSWERS_KEPT = 4096
BETWEEN_LOOKS = 0.02
"""Seconds between looks whether a task has come from the object store."""
LONGEST_BETWEEN_LOOKS = 30.0
"""Seconds between looks at what is idle."""


class Service:
    """One server's state. It is used on one event loop.

    Attributes:
        cache: the cache.
        settings: the server's settings.
        contents: contents that clients upload and fetch.
        metrics: figures for Prometheus.
        rollouts: those that clients have open.
        sandboxes: those that clients hold.
        shares: the tenants' use of sandboxes.
        events: events of the server, for clients that listen.
        stored: keeps tasks in an object store; None if there is none.
        id: tells this start of the server from all others.
        stopping: whether the server is about to stop: it begins nothing any more.
        closing: whether it ends what is under way.
    """

    def __init__(self, cache: AsyncCache, settings: ServerSettings, prefix: str = "", id: str | None = None) -> None:
        """
        Args:
            cache: the cache; closing it is the caller's.
            settings: the server's settings.
            prefix: the beginning of the ids of rollouts and sandboxes.
            id: the server's, if it has several processes.
        """
        self.id = id or secrets.token_hex(8)
        self.cache = cache
        self.settings = settings
        self.contents = Contents(cache.cache.home)
        self.metrics = Metrics(cache.stats, lambda: {"rollout": len(self.rollouts), "sandbox": len(self.sandboxes)})
        options = (settings.ttl, self.metrics, prefix)
        self.rollouts: Table[HeldRollout] = Table("rollout", settings.max_rollouts, *options)
        self.sandboxes: Table[HeldSandbox] = Table("sandbox", settings.max_sandboxes, *options)
        self.stored = None if settings.store is None else StoredTasks(cache.cache, settings.store)
        self.stopping = self.closing = False
        self.events = Events()
        self._opened: dict[str, Once[bytes]] = defaultdict(lambda: Once(ANSWERS_KEPT, KEYS_KNOWN))  # by tenant
        self.shares = Shares({tenant for tenant in settings.tokens.values() if tenant is not None})

    def check_room(self, count: int, tenant: Tenant | None) -> None:
        """Checks that there may be so many further sandboxes, for a tenant.

        Raises:
            UsageError: so many may never be.
            Busy: as many as there may be are at work or held, or as the tenant may have.
        """
        self.shares.asked(tenant)
        room, in_use = self.cache.cache.budget.sandboxes, self.cache.cache.pool.in_use
        unmovable = 0
        used = self.shares.used
        if tenant is not None and tenant.sandboxes is not None:
            check_possible(count, "sandbox", tenant.sandboxes, "token file")
        check_possible(count, "sandbox", room, "--max-sandboxes")
        if used + in_use + count > room:
            idle = (
                handle.rollout for handle in self.rollouts if not handle.running and handle.given not in self.sandboxes
            )
            unmovable = min(in_use, sum(one.is_settled and one.has_sandbox for one in idle))
        if used + unmovable + count > room:
            raise Busy(
                f"all {room} sandboxes are used: {used - len(self.sandboxes)} calls are being executed, clients hold "
                f"{len(self.sandboxes)}, and {unmovable} cannot be given up, as their rollouts stand at states "
                "that cannot be kept (--max-sandboxes)"
            )
        self.shares.check(tenant, count, room - used - unmovable, room)

    @contextlib.contextmanager
    def executing(self, tenant: Tenant | None, rollout: AsyncRollout | None = None) -> Iterator[None]:
        """A block in which a call of a tenant is executed, which needs a sandbox.

        Args:
            tenant: whose it is; None if it is no tenant's.
            rollout: that makes the call; if it has a sandbox of its own, no other is needed.

        Raises:
            Busy: as many sandboxes as there may be are at work or held.
            ServerStopped, Stopping: the server is about to stop.
        """
        self.check_going(held=rollout is not None)
        if rollout is None or not rollout.has_sandbox:
            self.check_room(1, tenant)
        self.shares.add(tenant, 1)
        try:
            yield
        finally:
            self.shares.add(tenant, -1)

    def check_going(self, *, held: bool) -> None:
        """Checks that the server takes work.

        Args:
            held: whether the work is for something that a client holds, which ends with the server.

        Raises:
            ServerStopped, Stopping: the server is about to stop.
        """
        if self.stopping:
            raise end_of_server(held=held)

    async def brought(self, image: str, task: str) -> None:
        """Waits for what others have pushed of a task into the object store, if there is one, for some time at most."""
        if self.stored is None:
            return
        called = self.stored.begins(task)
        until = time.monotonic() + (0.0 if called.is_set() else self.stored.patience(image))
        while not called.is_set() and time.monotonic() < until and not self.stopping:
            await asyncio.sleep(BETWEEN_LOOKS)

    def using_sandbox(self, tenant: Tenant | None) -> contextlib.AsyncExitStack:
        """Returns a block, entered already, in which a sandbox is held for a tenant."""
        block = contextlib.AsyncExitStack()
        self.shares.add(tenant, 1)
        block.callback(self.shares.add, tenant, -1)
        return block

    async def owned(self, request: HTTPConnection, name: str = "state") -> str:
        """Returns the state that a request names in its path, if it may be seen by who asks.

        Args:
            request: the request.
            name: the name of the path's parameter.

        Raises:
            NotFound: a tenant asks, and has no such state.
        """
        tenant, state = tenant_of(request), request.path_params[name]
        if tenant is None:
            return str(state)
        return await self.in_thread(lambda: check_owned(self.cache.cache.graph, tenant, state))

    async def owned_call(self, request: HTTPConnection) -> Edge:
        """Returns the call that a request names in its path, if it may be seen by who asks.

        Args:
            request: the request.

        Raises:
            UsageError: the name is no number.
            NotFound: there is no such call, or a tenant asks, and it is not its own.
        """
        tenant, id, graph = tenant_of(request), request.path_params["call"], self.cache.cache.graph
        if not is_number(id):
            raise UsageError(f"a call is named by its number, not {id!r}; /v1/states/STATE tells it")

        def found() -> Edge:
            edge = graph.edge(int(id))
            try:
                check_owned(graph, tenant, edge.state)
            except NotFound:
                raise NotFound(f"call {id} is not in the graph (any more)") from None
            return edge

        return await self.in_thread(found)

    async def once(
        self, request: Request, work: Callable[[bytes], Awaitable[bytes]], of: Once[bytes] | None = None
    ) -> bytes:
        """Does what a request asks for, once for its idempotency key, to its end; returns the answer.

        What was refused as the server is busy was not begun: it may be sent again with the same key.

        Args:
            request: the request.
            work: does it, given the request's body.
            of: the requests among which the key counts; by default all of the same tenant.

        Raises:
            KeyReused, UsageError: the key or the body makes no sense.
            Exception: what the work raises.
        """
        body = await read_body(request, self.settings.max_body)
        tenant = tenant_of(request)
        answers = self._opened["" if tenant is None else tenant.name] if of is None else of
        key = header_of(request, KEY_HEADER)

        async def do() -> bytes:
            self.check_going(held=of is not None)
            try:
                return await work(body)
            except Busy:
                if key is not None:
                    answers.forget(key)
                raise

        return await answers.do(key, request_mark(request, body), do)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns, done by a thread: for what reads the graph or a disk."""
        return await asyncio.get_running_loop().run_in_executor(None, work)

    async def executed(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns, done by one of the cache's threads: for what executes something."""
        return await in_thread(self.cache._threads, work)

    async def end_what_is_idle(self) -> None:
        """Ends what clients have left, again and again, until it is cancelled."""
        while True:
            await asyncio.sleep(min(self.settings.ttl / 4, LONGEST_BETWEEN_LOOKS))
            await self.rollouts.end_idle()
            await self.sandboxes.end_idle()

    async def close(self) -> None:
        """Ends what clients hold, and builds; the cache is left open, and ends what is still being used."""
        self.closing = True
        end_running()
        for table in (self.sandboxes, self.rollouts):
            for handle in table:
                if not handle.running:
                    with contextlib.suppress(Exception):
                        await table.end(handle.id)
        self.contents.close()
