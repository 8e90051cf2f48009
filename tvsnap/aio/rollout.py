"""The awaitable twin of `Rollout`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from tvsnap.aio.rollout_twin import RolloutTwin
from tvsnap.aio.sandbox import AsyncSandbox
from tvsnap.aio.threads import forked, in_thread, with_its_task
from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.position import Position
from tvsnap.environments.tools import Tool
from tvsnap.model.calls import DEFAULT_TIMEOUT, ToolResult
from tvsnap.model.forks import AsyncForks, awaited_or_entered
from tvsnap.model.operations.operation import Operation
from tvsnap.model.operations.rollouts import Call, ExecAll, Get, GradeState, Keep, Put, Record, SnapshotIfIdle
from tvsnap.rollout import Rollout, exec_all, get, put

T = TypeVar("T")
ANY_TIME = (Keep, SnapshotIfIdle, Record)
"""Operations that do not wait for earlier operations of the rollout."""
CANCELLATION: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)
"""The object that ends the calls of a task; None if only the end of the task does."""


class AsyncRollout(RolloutTwin[Rollout]):
    """A `Rollout` whose calls are awaited. `AsyncCache.rollout` makes it.

    It begins with its first call, or when it is entered as an asynchronous context manager, which closes it.
    """

    async def tools(self) -> Mapping[str, Tool]:
        """Returns the tools that may be called, by name; see `Rollout.tools`."""
        return (self._begun or await self._start()).tools

    @property
    def is_settled(self) -> bool:
        """Whether the outcome of the last call is known, so that nothing has to be waited for."""
        return self.rollout._engine.pending() is None

    @property
    def place(self) -> Position | None:
        """Its position; None where that has to be found out: `where` does that."""
        return self.rollout._engine.place

    @property
    def has_sandbox(self) -> bool:
        """Whether a sandbox of its own is there, so that a call needs no other one."""
        return self.rollout._engine.has_sandbox

    def try_hit(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = DEFAULT_TIMEOUT, **options: Any
    ) -> ToolResult | None:
        """Makes a tool call if the graph has the answer, without waiting for anything, between two other calls.

        Args:
            name: the tool's name.
            arguments: the tool's arguments, as plain JSON.
            timeout: seconds; a recorded call that took longer is no answer. None for any.
            options: `after` and `grade`, as in `call`.

        Returns:
            The recorded result; None if the call was not made.

        Raises:
            UsageError: the arguments make no sense.
        """
        return self.answer_to(Call(name, arguments, timeout, **options))

    def answer_to(self, call: Call) -> ToolResult | None:
        """Makes a tool call if the graph has the answer; see `try_hit`.

        Args:
            call: the call.
        """
        return self.rollout._engine.try_hit(call)

    async def where(self) -> Position:
        """Returns its position, once all earlier operations have ended and that is known."""
        async with self.in_order() as rollout:
            return await in_thread(self._threads, rollout._engine.where)

    async def settled(self) -> None:
        """Waits until the outcome of the last call is known."""
        outcome = self.rollout._engine.pending()
        if outcome is not None:
            await asyncio.wrap_future(outcome)

    async def perform(self, operation: Operation[T]) -> T:
        """Performs an operation: one that the graph answers on the event loop, any other by a thread."""
        answer: T
        if isinstance(operation, ANY_TIME):
            answer = await self._in_thread(self.rollout, operation)
            return answer
        async with self._order:
            rollout = self._begun
            if rollout is None or self._ending is not None:
                rollout = await self._ready()
            answer = await _PERFORMERS[type(operation)](self, rollout, operation)
            return answer

    async def _in_thread(self, rollout: Rollout, operation: Operation[Any]) -> Any:
        return await in_thread(self._threads, lambda: rollout.perform(operation))

    async def _call(self, rollout: Rollout, call: Call) -> ToolResult:
        """Makes a tool call whose turn has come. If the awaiting task is cancelled, so is the call."""
        engine, cancellation = rollout._engine, CANCELLATION.get() or Cancellation()
        if engine.pending() is not None:
            await self.settled()
        cancellation.check()
        result = engine.try_hit(call)
        if result is not None:
            return result
        under_way = self._threads.submit(engine.call, call, cancellation)
        try:
            return await with_its_task(under_way, cancellation)
        except asyncio.CancelledError:
            if not under_way.cancelled():
                self._ending = under_way
            raise

    @awaited_or_entered
    async def fork(self, n: int = 1, *, reseed: bool = False) -> AsyncForks[AsyncRollout]:
        """Begins several rollouts at this one's state; see `Rollout.fork`.

        Args:
            n: the number of rollouts.
            reseed: give each random numbers of its own.

        Returns:
            The rollouts, to be closed after their last calls: together, as with `AsyncCache.fork`, or each by itself.

        Raises:
            UsageError: `n` makes no sense, the rollout is closed, or nothing is recorded.
            StateLost: no snapshot can be taken of the state, and nothing else leads to it.
            InfrastructureError: the snapshot failed.
        """
        async with self.in_order() as rollout:
            return await forked(
                self._threads, lambda: rollout.fork(n, reseed=reseed), lambda one: AsyncRollout.of(one, self._threads)
            )

    async def sandbox(self) -> AsyncSandbox:
        """Returns the rollout's own sandbox in its present state; see `Rollout.sandbox`.

        Raises:
            StateLost: the rollout's state is no longer kept, and nothing else leads to it.
            InfrastructureError: no sandbox could be made.
        """
        async with self.in_order() as rollout:
            return AsyncSandbox(await in_thread(self._threads, rollout.sandbox), self._threads)


class _OnLoop:
    """The place where the calls of a rollout are made: the event loop if the graph answers, else a thread."""

    def __init__(self, owner: AsyncRollout, rollout: Rollout) -> None:
        self._owner = owner
        self._rollout = rollout
        self.engine = rollout._engine

    async def call(self, call: Call) -> ToolResult:
        return await self._owner._call(self._rollout, call)

    async def state(self) -> str:
        await self._owner.settled()
        return self.engine.where().state

    async def work(self, work: Callable[[], T]) -> T:
        return await in_thread(self._owner._threads, work)


_PERFORMERS: Mapping[type, Callable[[AsyncRollout, Rollout, Any], Coroutine[Any, Any, Any]]] = {
    Call: AsyncRollout._call,
    ExecAll: lambda owner, rollout, operation: exec_all(_OnLoop(owner, rollout), operation),
    Put: lambda owner, rollout, operation: put(_OnLoop(owner, rollout), operation),
    Get: lambda owner, rollout, operation: get(_OnLoop(owner, rollout), operation),
    GradeState: AsyncRollout._in_thread,
}
