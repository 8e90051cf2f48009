"""What only event loops have: many tasks at once, their order, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
import secrets

import pytest

import tvsnap
from tests.server.conftest import OpenAsync
from tvsnap.protocols import AnyAsyncRollout


def test_calls_of_many_rollouts_at_once(open_async: OpenAsync) -> None:
    async def go() -> None:
        salt = secrets.token_hex(4)
        async with open_async() as cache:

            async def one(number: int) -> str:
                async with cache.rollout("terminal", task="many", salt=salt) as rollout:
                    both = await rollout.call("bash", {"command": "cd /tmp; echo same > same"})
                    assert both.exit_code == 0
                    own = await rollout.call("bash", {"command": f"echo {number} > own; cat same own"})
                    await rollout.settled()
                    assert rollout.depth == 2
                    assert rollout.private is None
                    return own.output

            assert await asyncio.gather(*map(one, range(6))) == [f"same\n{number}\n" for number in range(6)]
            assert cache.stats().calls >= 12

    asyncio.run(go())


def test_a_group_is_graded_at_once(open_async: OpenAsync) -> None:
    async def go() -> None:
        async with open_async() as cache:

            async def one(rollout: AnyAsyncRollout) -> tvsnap.Grade:
                async with rollout:
                    await rollout.call("bash", {"command": "echo 0.25 > /tmp/truth; sleep 0.05"})
                    return await rollout.grade("cat /tmp/truth")

            group = cache.group("terminal", "graded", 4, salt=secrets.token_hex(4))
            grades = await asyncio.gather(*map(one, group))
            assert [grade.reward for grade in grades] == [0.25] * 4

    asyncio.run(go())


def test_what_is_asked_of_a_rollout_at_once_is_done_in_order(open_async: OpenAsync) -> None:
    async def go() -> None:
        async with open_async() as cache, cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
            commands = [f"sleep 0.0{9 - n}; echo {n} >> /tmp/order; cat /tmp/order" for n in range(5)]
            results = await asyncio.gather(*(rollout.call("bash", {"command": command}) for command in commands))
            assert results[-1].output == "0\n1\n2\n3\n4\n"

    asyncio.run(go())


def test_a_call_that_nobody_awaits_any_more_is_ended(open_async: OpenAsync) -> None:
    async def go() -> None:
        async with open_async() as cache, cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(rollout.call("bash", {"command": "sleep 60"}, timeout=90), 1.0)
            result = await asyncio.wait_for(rollout.call("bash", {"command": "echo on"}), 30)
            assert result.output == "on\n"

    asyncio.run(go())


def test_a_call_that_is_cancelled_while_the_one_before_is_concluded_is_not_made(open_async: OpenAsync) -> None:
    """It waits for the end of that before it is executed; whenever it is cancelled, it does not go on."""

    async def go() -> None:
        async with open_async() as cache, cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
            for number, seconds in enumerate((0.0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08)):
                await rollout.call("bash", {"command": f"head -c 5M /dev/urandom > /tmp/{number}"})
                late = rollout.call("bash", {"command": "sleep 2; touch /tmp/ran"}, timeout=90)
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(late, seconds)
            result = await asyncio.wait_for(rollout.call("bash", {"command": "sleep 2; ls /tmp/ran"}), 60)
            assert result.exit_code != 0

    asyncio.run(go())


def test_a_call_that_is_cancelled_before_its_rollout_has_begun_is_not_made(open_async: OpenAsync) -> None:
    async def go() -> None:
        async with open_async() as cache:
            rollout = cache.rollout("terminal", salt=secrets.token_hex(4))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(rollout.call("bash", {"command": "touch /tmp/ran"}), 0.0001)
            assert (await rollout.call("bash", {"command": "ls /tmp/ran"})).exit_code != 0
            await rollout.close()

    asyncio.run(go())


def test_commands_that_are_awaited_at_once_run_side_by_side(open_async: OpenAsync) -> None:
    """Each waits for the next: one after the other, they would wait for ever."""

    async def go() -> None:
        async with open_async() as cache:
            salt, told = secrets.token_hex(4), []
            for _ in range(2):
                async with cache.rollout("terminal", salt=salt) as rollout:
                    await rollout.exec("mkfifo /tmp/a /tmp/b /tmp/c; sleep 0.05", user="root")
                    found = await asyncio.gather(
                        rollout.exec("cat < a > b; echo first", 60, cwd="/tmp"),
                        rollout.exec("cat < /tmp/b > /tmp/c; echo second >&2; exit 4", 60, separate=True),
                        rollout.exec('echo "$WORD" > /tmp/a; cat < /tmp/c', 60, env={"WORD": "all the way"}),
                    )
                    assert [each.exit_code for each in found] == [0, 4, 0]
                    told.append([(each.output, each.stderr) for each in found])
                    apart = await asyncio.gather(rollout.exec("id -un", user="nobody"), rollout.exec("echo own", 20))
                    assert [each.output for each in apart] == ["nobody\n", "own\n"]
            assert told == [[("first\n", None), ("", "second\n"), ("all the way\n", None)]] * 2
            assert [each.source for each in found] == ["hit"] * 3

            async with cache.rollout("terminal", salt=salt) as rollout:
                done, late = await asyncio.gather(rollout.exec("echo done", 1), rollout.exec("echo begun; sleep 60", 1))
                assert (done.output, done.timed_out, late.output, late.timed_out) == ("done\n", False, "begun\n", True)
                ended = asyncio.ensure_future(rollout.exec("sleep 60", 90))
                kept = asyncio.ensure_future(rollout.exec("sleep 1; echo kept", 90))
                await asyncio.sleep(0.3)
                ended.cancel()
                await asyncio.sleep(0.1)
                both = [asyncio.ensure_future(rollout.exec("sleep 60", 90)) for _ in range(2)]
                kept.cancel()  # now nobody waits for either
                await asyncio.sleep(0.5)
                for each in both:
                    each.cancel()
                assert (await asyncio.wait_for(rollout.exec("echo on"), 30)).output == "on\n"

    asyncio.run(go())
