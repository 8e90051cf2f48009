"""The awaitable twin of `Rollout`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tvsnap.aio.forks import AsyncForks
from tvsnap.aio.rollout_twin import RolloutTwin
from tvsnap.aio.sandbox import AsyncSandbox
from tvsnap.aio.threads import awaited, begin, in_thread, with_its_task
from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.position import Position
from tvsnap.engine.supply.forks import Forks
from tvsnap.environments.files import GET, PUT, Fetched
from tvsnap.environments.tools import Tool
from tvsnap.host.trees import MOST_FETCHED
from tvsnap.model.calls import DEFAULT_TIMEOUT, ToolResult
from tvsnap.model.grades import Grade, Verifier
from tvsnap.model.observations import Command
from tvsnap.model.several import awaited_or_entered
from tvsnap.model.side_by_side import exec_all_arguments, results_of
from tvsnap.rollout import Rollout

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
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        after: float = 0.0,
        grade: Sequence[str] | None = None,
    ) -> ToolResult | None:
        """Makes a tool call if the graph has the answer, without waiting for anything, between two other calls.

        Args:
            name: the tool's name.
            arguments: the tool's arguments, as plain JSON.
            timeout: seconds; a recorded call that took longer is no answer. None for any.
            after: seconds that are at least to have passed since the last call, as in `call`.
            grade: the files in which a call that grades leaves its grade, as in `call`.

        Returns:
            The recorded result; None if the call was not made.

        Raises:
            UsageError: the arguments make no sense.
        """
        return self.rollout._engine.try_hit(name, arguments, timeout, after=after, grade=grade)

    async def where(self) -> Position:
        """Returns where it stands, once what was asked of it before has been done and that is known."""
        async with self.in_order() as rollout:
            return await in_thread(self._threads, rollout._engine.where)

    async def settled(self) -> None:
        """Waits until it is known where the last call led."""
        outcome = self.rollout._engine.pending()
        if outcome is not None:
            await asyncio.wrap_future(outcome)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        after: float = 0.0,
        deadline: float | None = None,
        grade: Sequence[str] | None = None,
    ) -> ToolResult:
        """Makes a tool call: answers it from the graph if that is possible, and executes it in a thread otherwise.

        If the awaiting task is cancelled, so is the call: a command that is being executed is ended as by its timeout,
        and counts as made. The rollout's next call comes after it. See `Rollout.cancel`.

        Args:
            name: the tool's name.
            arguments: the tool's arguments, as plain JSON.
            timeout: seconds that the call may take where it is executed; None for as long as it takes.
            after: seconds that are at least to have passed in the sandbox since the last call; see `Rollout.call`.
            deadline: seconds from now on by which the caller needs the result; see `Rollout.call`.
            grade: the files in which a call that grades leaves its grade; see `Rollout.call`.

        Returns:
            What the tool returned, now or when the same call was made in the same state before.

        Raises:
            UsageError: there is no such tool, its arguments are wrong, or the rollout is closed.
            StateLost: what kept the rollout's state is gone, and nothing else leads to it. The rollout cannot go on.
            InfrastructureError: tvsnap, not the tool, failed. The call may be made again.
        """
        async with self.in_order() as rollout:
            return await self._call(rollout, name, arguments, timeout, after, deadline, grade)

    async def _call(
        self,
        rollout: Rollout,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None,
        after: float = 0.0,
        deadline: float | None = None,
        grade: Sequence[str] | None = None,
    ) -> ToolResult:
        """Makes a tool call whose turn has come; see `call`."""
        cancellation = CANCELLATION.get() or Cancellation()
        if rollout._engine.pending() is not None:
            await self.settled()
        cancellation.check()
        result = rollout._engine.try_hit(name, arguments, timeout, after=after, grade=grade)
        if result is not None:
            return result

        def make() -> ToolResult:
            return rollout._engine.call(name, arguments, timeout, after, cancellation, deadline, grade)

        under_way = self._threads.submit(make)
        try:
            return await with_its_task(under_way, cancellation)
        except asyncio.CancelledError:
            if not under_way.cancelled():
                self._ending = under_way
            raise

    async def exec_all(
        self,
        commands: Sequence[Command | str],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        user: str | None = None,
        after: float = 0.0,
    ) -> list[ToolResult]:
        """Runs several commands side by side, each in a fresh shell, as one call; see `Rollout.exec_all`.

        Args:
            commands: the commands, at most 256.
            timeout: seconds that all of them may take where they are executed; None for as long as they take.
            user: the user that runs them; by default the image's.
            after: see `call`.

        Returns:
            What each command came to, in the order of the commands.

        Raises:
            UsageError, StateLost, InfrastructureError: see `call`.
        """
        return results_of(await self.call("exec_all", exec_all_arguments(commands, user), timeout, after=after))

    async def put(
        self,
        source: str | Path | bytes,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> ToolResult:
        """Copies a file or a folder of this machine into the sandbox, as a call like any other; see `Rollout.put`.

        Args:
            source: a path of this machine, or the contents of a file as bytes.
            path: where to.
            user: the user that writes it, and owns it; by default the image's.
            owners: root writes it, and it keeps its numeric owners and groups.
            mode: the permission bits of a single file; by default its own, and 0644 for bytes.
            timeout: seconds that it may take where it is executed; None for as long as it takes.

        Returns:
            The result of the call.

        Raises:
            UsageError: the source cannot be read, or holds more than files, folders and links; or see `call`.
            StateLost: see `call`.
            InfrastructureError: the content could not be kept; or see `call`.
        """
        chosen: dict[str, Any] = {"user": user, "owners": owners, "mode": mode}
        async with self.in_order() as rollout:
            files = rollout._engine.files
            arguments = await in_thread(self._threads, lambda: files.put_arguments(source, path, **chosen))
            return await self._call(rollout, PUT, arguments, timeout)

    async def get(
        self,
        path: str,
        destination: str | Path | None = None,
        *,
        owners: bool = False,
        limit: int = MOST_FETCHED,
        timeout: float | None = None,
    ) -> Fetched:
        """Copies a file or a folder out of the sandbox, as a call like any other; see `Rollout.get`.

        Args:
            path: the file or folder.
            destination: what it becomes on this machine; None to be read or written by `Fetched` later.
            owners: fetch its numeric owners, too, and give them to what is written.
            limit: the most bytes, holes included.
            timeout: seconds that it may take where it is executed; None for as long as it takes.

        Returns:
            What was fetched. Its methods block for as long as a disk does.

        Raises:
            OSError: with a destination: there is no such path, or it cannot be written.
            UsageError: see `call`.
            StateLost: see `call`.
            InfrastructureError: the content could not be kept; or see `call`.
        """
        fetched = None
        async with self.in_order() as rollout:
            arguments = rollout._engine.files.get_arguments(path, owners=owners, limit=limit)
            while fetched is None:
                await self.settled()
                state = rollout.state
                result = await self._call(rollout, GET, arguments, timeout)
                fetched = rollout._engine.files.fetched(result, arguments, state)
        if destination is not None:
            got = fetched
            await in_thread(self._threads, lambda: got.extract(destination))
        return fetched

    async def grade(self, verifier: Verifier | str) -> Grade:
        """Grades the state at which it stands, in a fork; see `Rollout.grade`.

        Args:
            verifier: finds out what the state is worth; a text is the command of one.

        Returns:
            The reward, the results of the tests and the log.

        Raises:
            GradingFailed: the verifier failed, so that there is no grade.
            UsageError, StateLost, InfrastructureError: see `Rollout.grade`.
        """
        async with self.in_order() as rollout:
            return await in_thread(self._threads, lambda: rollout.grade(verifier))

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
            forks = await begin(self._threads, lambda: rollout.fork(n), Forks.close)
        return AsyncForks(forks, [AsyncRollout.of(fork, self._threads) for fork in forks], self._threads)

    async def sandbox(self) -> AsyncSandbox:
        """Returns the rollout's own sandbox in its present state; see `Rollout.sandbox`.

        Raises:
            StateLost: what kept the rollout's state is gone, and nothing else leads to it.
            InfrastructureError: no sandbox could be made.
        """
        async with self.in_order() as rollout:
            return AsyncSandbox(await in_thread(self._threads, rollout.sandbox), self._threads)

    keep = awaited(Rollout.keep)
    """`Rollout.keep`, to be awaited."""
    snapshot_if_idle = awaited(Rollout.snapshot_if_idle)
    """`Rollout.snapshot_if_idle`, to be awaited."""

    record = awaited(Rollout.record)
    """`Rollout.record`, to be awaited."""
