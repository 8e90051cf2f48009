"""Commands that are awaited in the same turn of an event loop become one call of `exec_all`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvsnap.model.calls import DEFAULT_TIMEOUT, ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.model.exec_all import MOST_COMMANDS, exec_all_arguments, results_of
from tvsnap.model.observations import Command
from tvsnap.model.operations.rollouts import AwaitedRolloutMethods


@dataclass(slots=True, eq=False)
class _Asked:
    """A command, as arguments of `exec`, and its answer."""

    arguments: Mapping[str, Any]
    answer: asyncio.Future[ToolResult]


@dataclass(slots=True, eq=False)
class _Group:
    """Commands that are made together, in the order of their requests."""

    kind: tuple[asyncio.AbstractEventLoop, str | None, float | None]
    asked: list[_Asked] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


class SameTurn:
    """Puts commands together that an event loop's tasks request in one turn of the loop.

    Only these belong together in every run: whether an earlier command still runs when the next one is requested
    depends on its duration, and with the cache it takes no time. Commands of different users, or with different
    timeouts, stay apart, because one call has one of each.
    """

    def __init__(self, call: Callable[[str, Mapping[str, Any], float | None], Awaitable[ToolResult]]) -> None:
        """
        Args:
            call: makes a tool call: its name, its arguments, and its timeout in seconds.
        """
        self._call = call
        self._open: _Group | None = None

    async def exec(self, arguments: Mapping[str, Any], timeout: float | None) -> ToolResult:
        """Returns the result of a command, which ran beside those that were requested in the same turn.

        A single command is a call of `exec`. If the awaiting task is cancelled, its command is ended if no other one
        was made with it; else it runs on, so that the call remains whole.

        Args:
            arguments: arguments of the tool `exec`: `command`, `cwd`, `env`, `user` and `separate`.
            timeout: seconds; None for no limit.

        Raises:
            UsageError, StateLost, InfrastructureError: see `Rollout.call`.
        """
        loop = asyncio.get_running_loop()
        kind = (loop, arguments.get("user"), timeout)
        group = self._open
        if group is None or group.kind != kind or len(group.asked) == MOST_COMMANDS:
            group = self._open = _Group(kind)
            loop.call_soon(self._begin, group)
        answer: asyncio.Future[ToolResult] = loop.create_future()
        group.asked.append(_Asked(arguments, answer))
        try:
            return await answer
        except asyncio.CancelledError:
            if group.task is not None and all(each.answer.cancelled() for each in group.asked):
                group.task.cancel()
                await asyncio.wait([group.task])
            raise

    def _begin(self, group: _Group) -> None:
        if self._open is group:
            self._open = None
        group.asked = [each for each in group.asked if not each.answer.done()]  # others were cancelled meanwhile
        if group.asked:
            group.task = group.kind[0].create_task(self._make(group.asked, group.kind[2]))

    async def _make(self, requests: Sequence[_Asked], timeout: float | None) -> None:
        """Makes the calls, and gives the answers."""
        try:
            if len(requests) > 1:
                try:
                    result = await self._call("exec_all", _together(requests), timeout)
                except UsageError:
                    pass  # one may have wrong arguments: each is made by itself, so that only that one fails
                else:
                    for one, answer in zip(requests, results_of(result), strict=True):
                        if not one.answer.done():
                            one.answer.set_result(answer)
            for one in requests:
                if one.answer.done():
                    continue
                try:
                    answer = await self._call("exec", one.arguments, timeout)
                except UsageError as error:
                    _fail([one], error)
                else:
                    if not one.answer.done():
                        one.answer.set_result(answer)
        except asyncio.CancelledError:
            for one in requests:
                one.answer.cancel()
            raise
        except Exception as error:
            _fail(requests, error)


def _fail(requests: Sequence[_Asked], error: Exception) -> None:
    for one in requests:
        if not one.answer.done():
            one.answer.set_exception(error)


def _together(requests: Sequence[_Asked]) -> Mapping[str, Any]:
    commands = []
    for one in requests:
        own = {name: value for name, value in one.arguments.items() if name != "user" and value is not None}
        commands.append(Command(**own))
    return exec_all_arguments(commands, requests[0].arguments.get("user"))


class RunsSideBySide(AwaitedRolloutMethods):
    """An awaited rollout whose commands in fresh shells may run side by side."""

    _same_turn: SameTurn | None = None

    async def exec(
        self,
        command: str,
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        separate: bool = False,
    ) -> ToolResult:
        """Runs a command in a fresh shell, side by side with those that are awaited at the same time.

        Commands that are requested in one turn of the event loop, as by `asyncio.gather`, are one call of `exec_all` if
        they have the same user and the same timeout, in the order of the requests. That call is recorded and answered
        as a whole. A single command is a call of `exec`.

        If the awaiting task is cancelled, so is the call, unless other commands belong to it: then the command runs
        on, and the rollout's next call comes after it.

        Args:
            command: the command.
            timeout: seconds that its execution may take; None for no limit. If one of several has not ended by then,
                all processes that the others have left running end with it.
            cwd: the directory in which it starts; by default the image's working directory.
            env: environment variables in addition to the image's.
            user: the user that runs it; by default the image's.
            separate: keep standard error apart from the output.

        Returns:
            Its result. Its `duration`, in seconds, is that of the whole call.

        Raises:
            UsageError, StateLost, InfrastructureError: see `AsyncRollout.call`.
        """
        if self._same_turn is None:
            self._same_turn = SameTurn(self.call)
        chosen: dict[str, Any] = {"cwd": cwd, "env": dict(env or {}), "user": user, "separate": separate}
        options = {name: value for name, value in chosen.items() if value}
        return await self._same_turn.exec({"command": command, **options}, timeout)
