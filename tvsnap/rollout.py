"""The public interface of a rollout; `tvsnap.engine` implements it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from tvsnap.engine.rollout import RolloutEngine
from tvsnap.environments.tools import Tool
from tvsnap.graph import Step
from tvsnap.model.arguments import check_outcome, check_reward, outcome_of
from tvsnap.model.blocking import finished
from tvsnap.model.calls import ToolResult
from tvsnap.model.display import Displayed
from tvsnap.model.exec_all import results_of
from tvsnap.model.fetched import Fetched
from tvsnap.model.forks import Forks, reseeded
from tvsnap.model.grades import Verifier
from tvsnap.model.operations.operation import Operation
from tvsnap.model.operations.rollouts import (
    Call,
    ExecAll,
    Get,
    GradeState,
    Keep,
    Put,
    Record,
    RolloutMethods,
    SnapshotIfIdle,
)
from tvsnap.sandboxes.protocol import Sandbox

T = TypeVar("T")


class Rollout(RolloutMethods, Displayed):
    """One run of an agent through one task: a cursor on the graph that has a sandbox only while it needs one.

    `Cache.rollout` and `Cache.resume` make rollouts. The calls of one rollout are made one after the other; different
    rollouts may be used by different threads at the same time. It is a context manager that closes the rollout.
    """

    def __init__(self, engine: RolloutEngine) -> None:
        self._engine = engine

    @property
    def id(self) -> str | None:
        """The rollout's name in the graph; None if nothing is recorded (`use_cache=False`, or a full disk)."""
        return self._engine.id

    @property
    def root(self) -> str:
        """The hash of its root, the state of a freshly started sandbox of its image."""
        return self._engine.root

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that may be called, by name: those of the image's environment."""
        return self._engine.tools

    @property
    def state(self) -> str:
        """The hash of the state at which it stands. It may wait for the outcome of the last call."""
        return self._engine.where().state

    @property
    def depth(self) -> int:
        """The number of calls that changed the state, counted from its root."""
        return self._engine.where().depth

    @property
    def private(self) -> str | None:
        """The reason why it is in a private branch, of which nothing is shared; None if it is not."""
        return self._engine.where().private

    @property
    def unshared(self) -> str | None:
        """The reason why the result of the last call will answer no other call; None if it may answer some."""
        return self._engine.where().unshared

    def perform(self, operation: Operation[T]) -> T:
        """Performs an operation; see `Performs.perform`."""
        answer: T = _PERFORMERS[type(operation)](self._engine, operation)
        return answer

    def cancel(self) -> bool:
        """Ends the call that another thread is making, and waits until it has ended.

        A command that is being executed is ended as by its timeout, and its call counts as made: `call` returns its
        output until then, `ToolResult.timed_out` is true, and the result answers nobody else. A call that is not being
        executed yet was not made, and raises `CallCancelled`. A service that answers calls in the sandbox, such as a
        database's session, is begun anew.

        Returns:
            Whether a call was being made.
        """
        return self._engine.cancel()

    def fork(self, n: int = 1, *, reseed: bool = False) -> Forks[Rollout]:
        """Begins several rollouts at this one's state, live processes included; this one goes on, too.

        Args:
            n: the number of rollouts.
            reseed: give each its own seed of random numbers (`reseed`), which depends on the state and on its number
                among the forks. They then stand at different states, and the same fork of the same state meets the same
                ones again. Otherwise all continue with the same random numbers.

        Returns:
            The rollouts, of the same task, to be closed after their last calls: together (`Forks.close`, or a `with`
            block), or each by itself.

        Raises:
            UsageError: `n` makes no sense, the rollout is closed, nothing is recorded (`use_cache=False`), or a fork
                cannot be reseeded.
            StateLost: no snapshot can be taken of the state, and nothing else leads to it.
            InfrastructureError: the snapshot failed.
        """
        rollouts = [Rollout(engine) for engine in self._engine.fork(n)]

        def end() -> None:
            with contextlib.ExitStack() as ends:
                for rollout in rollouts:
                    ends.callback(rollout.close)

        forks = Forks(rollouts, end)
        return reseeded(forks, rollouts[0].state) if reseed else forks

    def sandbox(self) -> Sandbox:
        """Returns the rollout's own sandbox in its present state, for programs that must look inside.

        The rollout goes on with this sandbox, so use it between calls only, and request it again after a call. Work in
        it is not recorded; if that changes anything, the rollout goes on in a private branch. Graders should use
        `Cache.materialise`, whose sandbox changes nothing for the rollout.

        Raises:
            StateLost: the rollout's state is no longer kept, and nothing else leads to it.
            InfrastructureError: no sandbox could be made.
        """
        return self._engine.sandbox()

    def close(self, outcome: str | None = None) -> None:
        """Ends the rollout. Its sandbox is left to other rollouts that come to its state.

        It may be called more than once.

        Args:
            outcome: the error that ended it, in words, for people; None if it has come to its end. A `with` block sets
                it for an exception that leaves the block.

        Raises:
            UsageError: `outcome` is no text.
        """
        self._engine.close(check_outcome(outcome))

    def _steps(self) -> list[Step]:
        """Returns its calls in order, for notebooks."""
        return self._engine.steps()

    def __enter__(self) -> Rollout:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.close(outcome_of(error))

    def __del__(self) -> None:
        # This thread may hold any locks now, so another one has to close it.
        engine = getattr(self, "_engine", None)
        if engine is not None:
            engine.drop()


class Place(Protocol):
    """The place where the calls of other operations are made: this thread, or threads for an event loop."""

    @property
    def engine(self) -> RolloutEngine:
        """The engine of the rollout."""

    async def call(self, call: Call) -> ToolResult:
        """Makes a tool call."""

    async def state(self) -> str:
        """Returns the state at which the rollout stands."""

    async def work(self, work: Callable[[], T]) -> T:
        """Returns the result of a function, which blocks."""


async def exec_all(place: Place, operation: ExecAll) -> list[ToolResult]:
    """Performs `Rollout.exec_all`."""
    return results_of(await place.call(operation.as_call()))


async def put(place: Place, operation: Put) -> ToolResult:
    """Performs `Rollout.put`."""
    return await place.call(await place.work(lambda: place.engine.files.put(operation)))


async def get(place: Place, operation: Get) -> Fetched:
    """Performs `Rollout.get`."""
    call, fetched = place.engine.files.get(operation), None
    while fetched is None:
        state = await place.state()
        fetched = place.engine.files.fetched(await place.call(call), call, state)
    content, destination = fetched, operation.destination
    if destination is not None:
        await place.work(lambda: content.extract(destination))
    return fetched


class _Here:
    """Makes calls in this thread."""

    def __init__(self, engine: RolloutEngine) -> None:
        self.engine = engine

    async def call(self, call: Call) -> ToolResult:
        return self.engine.call(call)

    async def state(self) -> str:
        return self.engine.where().state

    async def work(self, work: Callable[[], T]) -> T:
        return work()


_PERFORMERS: Mapping[type, Callable[[RolloutEngine, Any], Any]] = {
    Call: RolloutEngine.call,
    ExecAll: lambda engine, operation: finished(exec_all(_Here(engine), operation)),
    Put: lambda engine, operation: finished(put(_Here(engine), operation)),
    Get: lambda engine, operation: finished(get(_Here(engine), operation)),
    GradeState: lambda engine, operation: engine.grade(Verifier.of(operation.verifier)),
    Keep: lambda engine, operation: engine.keep(operation.label, operation.output),
    SnapshotIfIdle: lambda engine, _: engine.snapshot_if_idle(),
    Record: lambda engine, operation: engine.record(check_reward(operation.reward)),
}
