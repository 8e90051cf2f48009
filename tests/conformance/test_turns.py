"""Several threads, or tasks, use one sandbox: each is told what it has asked for."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.helpers import eventually, is_running, make_beside, unique_sleep
from tvsnap.aio.sandbox import AsyncSandbox
from tvsnap.sandboxes.protocol import Sandbox

SOON = 60.0
"""Seconds, much less than what is ended would take."""


def test_threads_take_turns(sandbox: Sandbox) -> None:
    names = [str(number) for number in range(4)]
    with ThreadPoolExecutor(12) as threads:
        for _ in range(5):
            ran = [threads.submit(sandbox.run, f"echo {name}", timeout=SOON) for name in names]
            executed = [threads.submit(sandbox.exec, f"sleep 0.02; echo {name}", timeout=SOON) for name in names]
            states = [threads.submit(sandbox.observe) for _ in names]
            for name, one, other in zip(names, ran, executed, strict=True):
                assert one.result().output == other.result().output == f"{name}\n".encode()
            for state in states:
                assert state.result().shell


def test_threads_read_files(sandbox: Sandbox) -> None:
    contents = {f"/tmp/{name}": name.encode() * 300_000 for name in "abcdef"}
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(sandbox.write_file, contents, contents.values()))
        for _ in range(3):
            assert list(threads.map(sandbox.read_file, contents)) == list(contents.values())


def test_tasks_take_turns(sandbox: Sandbox) -> None:
    async def all_of() -> list[bytes]:
        awaitable = AsyncSandbox(sandbox, threads)
        outcomes = await asyncio.gather(*(awaitable.exec(f"echo {number}", timeout=SOON) for number in range(8)))
        return [outcome.output for outcome in outcomes]

    with ThreadPoolExecutor(4) as threads:
        assert asyncio.run(all_of()) == [f"{number}\n".encode() for number in range(8)]


@pytest.mark.parametrize("method", ["run", "exec"])
@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.05, 0.5])
def test_what_a_cancelled_task_awaited_is_ended(sandbox: Sandbox, method: str, after_s: float) -> None:
    """Its output is nobody else's, and nobody waits for it."""

    async def use() -> list[bytes]:
        awaitable = AsyncSandbox(sandbox, threads)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(getattr(awaitable, method)("sleep 600; echo slow", timeout=1000), after_s)
        return [(await awaitable.exec(f"echo {number}", timeout=SOON)).output for number in range(3)]

    began = time.monotonic()
    with ThreadPoolExecutor(4) as threads:
        assert asyncio.run(use()) == [b"0\n", b"1\n", b"2\n"]
    assert time.monotonic() - began < SOON


def test_a_task_is_cancelled_while_another_has_its_turn(sandbox: Sandbox) -> None:
    """The other's command goes on."""
    marker = unique_sleep()

    async def use() -> tuple[bytes, bool]:
        awaitable = AsyncSandbox(sandbox, threads)
        command = f"{marker} & until [ -e /tmp/go ]; do sleep 0.05; done; kill $!; echo first"
        first = asyncio.create_task(awaitable.exec(command, timeout=SOON))
        await asyncio.to_thread(eventually, lambda: is_running(marker))
        second = asyncio.create_task(awaitable.exec("touch /tmp/second", timeout=SOON))
        await asyncio.sleep(0.1)
        second.cancel()
        await asyncio.to_thread(make_beside, marker, "/tmp/go")
        outcome = await first
        made = await awaitable.exec("test -e /tmp/second", timeout=SOON)
        return outcome.output, made.exit_code == 0

    with ThreadPoolExecutor(4) as threads:
        assert asyncio.run(use()) == (b"first\n", False)


def test_a_task_is_cancelled_while_a_file_is_written(sandbox: Sandbox) -> None:
    """Only what the task itself awaited is ended."""

    async def use() -> bytes:
        awaitable = AsyncSandbox(sandbox, threads)
        for _ in range(4):
            writing = asyncio.create_task(awaitable.write_file("/tmp/large", b"x" * 15_000_000))
            await asyncio.sleep(0.005)
            waiting = asyncio.create_task(awaitable.exec("echo never", timeout=SOON))
            await asyncio.sleep(0.005)
            waiting.cancel()
            await writing
        return (await awaitable.exec("wc -c < /tmp/large", timeout=SOON)).output

    with ThreadPoolExecutor(4) as threads:
        assert asyncio.run(use()) == b"15000000\n"


def test_a_file_is_written_whole_by_a_cancelled_task(sandbox: Sandbox) -> None:
    async def use() -> bytes:
        awaitable = AsyncSandbox(sandbox, threads)
        task = asyncio.create_task(awaitable.write_file("/tmp/large", b"x" * 30_000_000))
        await asyncio.sleep(0.01)
        task.cancel()
        return (await awaitable.exec("wc -c < /tmp/large", timeout=SOON)).output

    with ThreadPoolExecutor(4) as threads:
        assert asyncio.run(use()) in (b"30000000\n", b"")
