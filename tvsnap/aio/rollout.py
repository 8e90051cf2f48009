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
from tvsnap.model.operations.operation import Operation
from tvsnap.model.operations.rollouts import Call, ExecAll, Get, GradeState, Keep, Put, Record, SnapshotIfIdle
from tvsnap.model.several import AsyncForks, awaited_or_entered
from tvsnap.rollout import Rollout, exec_all, get, put

T = TypeVar("T")
ANY_TIME = (Keep, SnapshotIfIdle, Record)
"""Operations that do not wait for what was asked of the rollout before."""
CANCELLATION: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)
"""What ends the calls that a task makes; None where nothing does but the end of the task."""


class AsyncRollout(RolloutTwin[Rollout]):
    """A `Rollout` whose calls are awaited. `AsyncCache.rollout` makes it.

    It begins with its first call, or when it is entered as an asynchronous context manager, which closes it.
    """

    async def tools(self) -> Mapping[str, Tool]:
        """Returns the tools that may be called, by name; see `Rollout.tools`."""
        return (self._begun or await self._start()).tools

    @property
    def is_settled(self) -> bool:
        """Whether it is known where the last call led, so that nothing has to be waited for."""
        return self.rollout._engine.pending() is None

    @property
    def is_given_out(self) -> bool:
        """Whether its sandbox was given out by `sandbox`, so that it has to be looked at to know where it stands."""
        return self.rollout._engine.is_given_out

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
        """Returns where it stands, once what was asked of it before has been done and that is known."""
        async with self.in_order() as rollout:
            return await in_thread(self._threads, rollout._engine.where)

    async def settled(self) -> None:
        """Waits until it is known where the last call led."""
        outcome = self.rollout._engine.pending()
        if outcome is not None:
            await asyncio.wrap_future(outcome)

    async def perform(self, operation: Operation[T]) -> T:
        """Performs an operation: one that the graph answers on the event loop, any other by a thread."""
        done: T
        if isinstance(operation, ANY_TIME):
            done = await self._in_thread(self.rollout, operation)
            return done
        async with self._order:
            rollout = self._begun
            if rollout is None or self._ending is not None:
                rollout = await self._ready()
            done = await _PERFORMERS[type(operation)](self, rollout, operation)
            return done

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
    async def fork(self, n: int = 1) -> AsyncForks[AsyncRollout]:
        """Begins several rollouts where this one stands; see `Rollout.fork`.

        Args:
            n: how many.

        Returns:
            The rollouts, to be closed after their last calls: together, as with `AsyncCache.fork`, or each by itself.

        Raises:
            UsageError: `n` makes no sense, the rollout is closed, or nothing is recorded.
            StateLost: no snapshot can be taken of the state, and nothing else leads to it.
            InfrastructureError: the snapshot failed.
        """
        async with self.in_order() as rollout:
            return await forked(self._threads, lambda: rollout.fork(n), lambda one: AsyncRollout.of(one, self._threads))

    async def sandbox(self) -> AsyncSandbox:
        """Returns the rollout's own sandbox in its present state; see `Rollout.sandbox`.

        Raises:
            StateLost: the rollout's state is no longer kept, and nothing else leads to it.
            InfrastructureError: no sandbox could be made.
        """
        async with self.in_order() as rollout:
            return AsyncSandbox(await in_thread(self._threads, rollout.sandbox), self._threads)


class _OnLoop:
    """Where the calls of a rollout are made: on the event loop if the graph answers, else by a thread."""

    def __init__(self, its: AsyncRollout, rollout: Rollout) -> None:
        self._its = its
        self._rollout = rollout
        self.engine = rollout._engine

    async def call(self, call: Call) -> ToolResult:
        return await self._its._call(self._rollout, call)

    async def state(self) -> str:
        await self._its.settled()
        return self.engine.where().state

    async def work(self, work: Callable[[], T]) -> T:
        return await in_thread(self._its._threads, work)


_PERFORMERS: Mapping[type, Callable[[AsyncRollout, Rollout, Any], Coroutine[Any, Any, Any]]] = {
    Call: AsyncRollout._call,
    ExecAll: lambda its, rollout, operation: exec_all(_OnLoop(its, rollout), operation),
    Put: lambda its, rollout, operation: put(_OnLoop(its, rollout), operation),
    Get: lambda its, rollout, operation: get(_OnLoop(its, rollout), operation),
    GradeState: AsyncRollout._in_thread,
}
