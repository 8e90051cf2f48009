"""Commands that are awaited in the same turn of an event loop: which become one call, and what each caller gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from tvsnap.model.calls import Part, ToolResult
from tvsnap.model.errors import StateLost, UsageError
from tvsnap.model.exec_all import MOST_COMMANDS
from tvsnap.model.same_turn import SameTurn

T = TypeVar("T")


class Calls:
    """Makes calls as a rollout does: each command prints itself. `slow` takes until it is released or cancelled.

    Attributes:
        made: the calls that were made, in order.
        ended: what was under way when it was cancelled.
    """

    def __init__(self) -> None:
        self.made: list[tuple[str, Mapping[str, Any], float | None]] = []
        self.ended: list[str] = []
        self.release = asyncio.Event()
        self.same_turn = SameTurn(self.call)

    async def call(self, name: str, arguments: Mapping[str, Any], timeout: float | None) -> ToolResult:
        self.made.append((name, arguments, timeout))
        commands = [each["command"] for each in arguments.get("commands", [arguments])]
        if "wrong" in commands:
            raise UsageError("a wrong argument")
        if "lost" in commands:
            raise StateLost("it is gone")
        if "slow" in commands:
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.ended += commands
                raise
        if name == "exec":
            return ToolResult.of_text(arguments["command"], 0, 1.0)
        told = [{"output": command, "exit_code": place} for place, command in enumerate(commands)]
        return ToolResult((Part.json(told),), 1, 2.0, source="hit")

    def exec(self, command: str, timeout: float | None = 9.0, **more: Any) -> Coroutine[Any, Any, ToolResult]:
        return self.same_turn.exec({"command": command, **more}, timeout)

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.made]


async def outputs(asked: Sequence[Coroutine[Any, Any, ToolResult]]) -> list[str]:
    return [result.output for result in await asyncio.gather(*asked)]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def failing(doing: Coroutine[Any, Any, ToolResult]) -> str:
    with pytest.raises((UsageError, StateLost)) as raised:
        await doing
    return str(raised.value)


def test_what_is_awaited_at_once_is_one_call() -> None:
    async def go() -> None:
        calls = Calls()
        asked = [calls.exec("one", cwd="/tmp"), calls.exec("two", env={"A": "1"}, separate=True), calls.exec("three")]
        found = await asyncio.gather(*asked)
        assert [(each.output, each.exit_code, each.source) for each in found] == [
            ("one", 0, "hit"),
            ("two", 1, "hit"),
            ("three", 2, "hit"),
        ]
        commands = [
            {"command": "one", "cwd": "/tmp"},
            {"command": "two", "env": {"A": "1"}, "separate": True},
            {"command": "three"},
        ]
        assert calls.made == [("exec_all", {"commands": commands}, 9.0)]

    asyncio.run(go())


def test_a_lone_command_is_what_it_was() -> None:
    async def go() -> None:
        calls = Calls()
        alone = {"command": "one", "cwd": "/", "separate": False, "user": "nobody"}
        assert (await calls.same_turn.exec(alone, None)).output == "one"
        await calls.exec("two")
        assert calls.made == [("exec", alone, None), ("exec", {"command": "two"}, 9.0)]

    asyncio.run(go())


def test_users_and_timeouts_stay_apart_in_the_order_of_arrival() -> None:
    async def go() -> None:
        calls = Calls()
        asked = [calls.exec(name, user="root") for name in "ab"]
        asked += [calls.exec("c"), calls.exec("d", 5.0), calls.exec("e", None), calls.exec("f", None)]
        assert await outputs(asked) == list("abcdef")
        assert calls.names == ["exec_all", "exec", "exec", "exec_all"]
        assert calls.made[0][1]["user"] == "root"
        assert [timeout for _, _, timeout in calls.made] == [9.0, 9.0, 5.0, None]
        calls = Calls()
        await outputs([calls.exec(f"{n}") for n in range(MOST_COMMANDS + 1)])
        assert calls.names == ["exec_all", "exec"]

    asyncio.run(go())


def test_what_comes_later_is_another_call_however_long_the_first_takes() -> None:
    async def go() -> None:
        calls = Calls()
        first = [asyncio.ensure_future(calls.exec(name)) for name in ("slow", "fast")]
        await turns()
        second = [asyncio.ensure_future(calls.exec(name)) for name in ("x", "y")]
        await turns()
        third = asyncio.ensure_future(calls.exec("z"))
        await turns()
        assert calls.names == ["exec_all", "exec_all", "exec"]
        calls.release.set()
        assert [(await each).output for each in (*first, *second, third)] == ["slow", "fast", "x", "y", "z"]

    asyncio.run(go())


def test_one_that_is_cancelled_leaves_the_others_whole() -> None:
    async def go() -> None:
        calls = Calls()
        early, slow, other = (asyncio.ensure_future(calls.exec(name)) for name in ("early", "slow", "other"))
        await asyncio.sleep(0)
        early.cancel()  # before anything was made
        await turns()
        assert [each["command"] for each in calls.made[0][1]["commands"]] == ["slow", "other"]
        other.cancel()
        await turns()
        assert (other.cancelled(), calls.ended) == (True, [])
        calls.release.set()
        assert (await slow).output == "slow"

        for kept in ([], ["beside"]):
            calls = Calls()
            tasks = [asyncio.ensure_future(calls.exec(name)) for name in ("slow", *kept)]
            await turns()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert calls.ended == ["slow", *kept]

        calls = Calls()
        nothing = asyncio.ensure_future(calls.exec("never"))
        await asyncio.sleep(0)
        nothing.cancel()
        await turns()
        assert calls.made == []
        assert await outputs([calls.exec("again")]) == ["again"]

    asyncio.run(go())


def test_wrong_arguments_are_their_own_callers_trouble() -> None:
    async def go() -> None:
        calls = Calls()
        one, bad, two = calls.exec("one"), failing(calls.exec("wrong")), calls.exec("two")
        first, said, second = await asyncio.gather(one, bad, two)
        assert (first.output, said, second.output) == ("one", "a wrong argument", "two")
        assert calls.names == ["exec_all", "exec", "exec", "exec"]

    asyncio.run(go())


def test_a_failure_is_everybodys() -> None:
    async def go() -> None:
        calls = Calls()
        assert await asyncio.gather(*(failing(calls.exec(name)) for name in ("one", "lost"))) == ["it is gone"] * 2
        assert calls.names == ["exec_all"]

    asyncio.run(go())


def test_it_outlives_its_event_loop() -> None:
    async def made() -> Calls:
        return Calls()

    async def left(calls: Calls) -> None:
        asyncio.ensure_future(calls.exec("slow"))  # noqa: RUF006
        await turns()
        asyncio.ensure_future(calls.exec("never begun"))  # noqa: RUF006
        await asyncio.sleep(0)

    async def on(calls: Calls) -> ToolResult:
        return await calls.exec("on")

    calls = asyncio.run(made())
    asyncio.run(left(calls))
    assert calls.ended == ["slow"]
    assert asyncio.run(on(calls)).output == "on"
    assert json.dumps([arguments["command"] for _, arguments, _ in calls.made]) == '["slow", "on"]'
