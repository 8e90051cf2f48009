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
