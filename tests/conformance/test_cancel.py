"""A call that is cancelled ends in the sandbox, too, and nobody else is answered by it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FuturesTimeout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.helpers import eventually, is_running, make_beside, unique_sleep
from tests.conformance.targets import TARGETS
from tests.fakes.caches import settle
from tvsnap import AsyncCache, Budget, Cache
from tvsnap.engine.claiming import patience
from tvsnap.errors import CallCancelled
from tvsnap.images import Image
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import MachineLacks
from tvsnap.model.limits import MIB, Limits
from tvsnap.rollout import Rollout
from tvsnap.sandboxes.local.sandbox import LocalSandbox

LONG = 600.0
"""Seconds that a call here would take; nothing waits for that."""
SOON = 30.0

BEGUN = "/tmp/begun"
SESSIONS = {
    "python": ("python", "code", f"import subprocess; open('{BEGUN}', 'w'); subprocess.run(['sleep', '600'])"),
    "postgres": ("sql", "query", f"COPY (SELECT 1) TO '{BEGUN}'; UPDATE items SET price = 9; SELECT pg_sleep(600)"),
    "mariadb": ("sql", "query", f"SELECT 1 INTO OUTFILE '{BEGUN}'; BEGIN; UPDATE items SET price = 9; DO SLEEP(600)"),
}
"""For each environment with a session, a call that makes a file and then takes long."""
WORKS = {
    "python": ("import subprocess; subprocess.run(['pgrep', '-x', 'sleep']).returncode", "1\n"),
    "postgres": ("UPDATE items SET price = 8 WHERE id = 1", '{"affected":1}'),
    "mariadb": ("UPDATE items SET price = 8 WHERE id = 1", '{"affected":1}'),
}
"""What can be done once nothing of that call goes on any more, and what comes of it."""


@pytest.fixture(params=["local", "docker"])
def cache(request: pytest.FixtureRequest, tvsnap_home: Path) -> Iterator[Cache]:
    if TARGETS[request.param].engine:
        request.getfixturevalue("docker_engine")
    try:
        opened = Cache(tvsnap_home, backend=request.param)
    except MachineLacks as lack:
        pytest.skip(str(lack))
    with opened:
        yield opened


def cancel_amid(rollout: Rollout, tool: str, command: str) -> Any:
    """Returns what a call came to that was cancelled once its command had come to its `{marker}`."""
    with ThreadPoolExecutor(1) as threads:
        marker = unique_sleep()
        call = threads.submit(rollout.call, tool, {"command": command.format(marker=f"{marker} &")}, LONG)
        eventually(lambda: is_running(marker))
        began = time.monotonic()
        assert rollout.cancel()
        assert time.monotonic() - began < SOON
        return call.result(SOON)


@pytest.mark.parametrize(
    ("tool", "command"), [("bash", "sleep 600"), ("exec", "sleep 600"), ("bash", "while :; do :; done")]
)
def test_a_command_ends_as_by_its_timeout(cache: Cache, terminal_image: Image, tool: str, command: str) -> None:
    salt = f"cancel-{time.time_ns()}"
    with cache.rollout(terminal_image, salt=salt) as rollout:
        rollout.call("bash", {"command": "cd /tmp; x=kept; echo 1 > f"})
        result = cancel_amid(rollout, tool, f"echo said; echo 2 >> /tmp/f; {{marker}} {command}")
        assert (result.timed_out, result.exit_code, result.output) == (True, None, "said\n")
        assert result.duration < SOON
        assert rollout.private is not None
        assert rollout.private.startswith("was cancelled after ")
        # The shell is as it was, and what was done until then stays.
        assert rollout.call("bash", {"command": "echo $x; cat f; pgrep -x sleep"}).output == "kept\n1\n2\n"
    with cache.rollout(terminal_image, salt=salt) as other:
        other.call("bash", {"command": "cd /tmp; x=kept; echo 1 > f"})
        assert other.call("bash", {"command": "cat f"}).output == "1\n"


@pytest.mark.parametrize("cached", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("system", SESSIONS)
def test_a_session_is_begun_anew(
    system: str, cached: bool, request: pytest.FixtureRequest, terminal_image: Image, tvsnap_home: Path
) -> None:
    """What it was doing ends, and the rollout goes on with another."""
    if system == "python":
        image = replace(terminal_image, environment="python")
    else:
        image = request.getfixturevalue("sql_images").get(system)
    tool, argument, code = SESSIONS[system]
    with (
        Cache(tvsnap_home, use_cache=cached) as cache,
        cache.rollout(image, salt=f"cancel-{time.time_ns()}") as rollout,
        ThreadPoolExecutor(1) as threads,
    ):
        assert rollout.call("exec", {"command": "echo on"}).output == "on\n"
        call = threads.submit(rollout.call, tool, {argument: code}, 2 * SOON)
        eventually(lambda: call.done() or begun(rollout))
        assert rollout.cancel()
        result = call.result(SOON)
        assert (result.timed_out, result.exit_code) == (True, None), result
        assert result.duration < 2 * SOON
        assert (rollout.private or "").startswith("was cancelled after " if cached else "")
        code, output = WORKS[system]
        done = rollout.call(tool, {argument: code})
        assert (done.output, done.exit_code) == (output, 0)


def begun(rollout: Rollout) -> bool:
    """Whether the call under way has made its file in the rollout's sandbox."""
    engine = rollout._engine
    live = engine._own.live if engine._uncached is None else engine._uncached._live
    if live is None:  # it is just being had
        return False
    assert isinstance(live.sandbox, LocalSandbox)
    return Path(f"/proc/{live.sandbox.init}/root{BEGUN}").exists()


def test_who_waits_for_the_same_call_goes_on(cache: Cache, terminal_image: Image) -> None:
    salt = f"cancel-{time.time_ns()}"
    marker = unique_sleep()
    call = {"command": f"{marker} & until [ -e /tmp/go ]; do sleep 0.05; done; echo done"}
    with (
        cache.rollout(terminal_image, salt=salt) as one,
        cache.rollout(terminal_image, salt=salt) as two,
        ThreadPoolExecutor(2) as threads,
    ):
        first = threads.submit(one.call, "bash", call, LONG)
        eventually(lambda: is_running(marker))
        second = threads.submit(two.call, "bash", call, LONG)
        time.sleep(0.3)
        assert one.cancel()
        assert first.result(SOON).timed_out
        make_beside(marker, "/tmp/go")  # the other one's: of the first, nothing runs any more
        result = second.result(SOON)
        assert (result.source, result.output) == ("executed", "done\n")


def test_a_wait_for_another_s_call_ends(cache: Cache, terminal_image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FREE", LONG)  # until then, it waits; later it may execute the call itself
    salt = f"cancel-{time.time_ns()}"
    marker = unique_sleep()
    call = {"command": f"{marker} & until [ -e /tmp/go ]; do sleep 0.05; done; echo done"}
    with (
        cache.rollout(terminal_image, salt=salt) as one,
        cache.rollout(terminal_image, salt=salt) as two,
        ThreadPoolExecutor(2) as threads,
    ):
        first = threads.submit(one.call, "bash", call, LONG)
        eventually(lambda: cache.graph.leases())
        second = threads.submit(two.call, "bash", call, LONG)
        eventually(two.cancel)  # once the call is being made
        with pytest.raises(CallCancelled):
            second.result(SOON)
        make_beside(marker, "/tmp/go")
        assert first.result(SOON).output == "done\n"
        assert two.call("bash", {"command": "echo on"}).output == "on\n"
    assert not two.cancel()


def test_a_call_that_waits_for_its_time_keeps_its_sandbox(terminal_image: Image, tvsnap_home: Path) -> None:
    """It is cancelled while its sandbox is let run for as long as the rollout is to have waited."""
    with Cache(tvsnap_home, policy="eager", budget=Budget(parked=0)) as cache:
        with cache.rollout(terminal_image, salt=f"cancel-{time.time_ns()}") as first:
            first.call("bash", {"command": "while sleep 0.2; do :; done &"})
            settle(first)
            state = first.state
        with cache.resume(state, after=LONG) as rollout, ThreadPoolExecutor(1) as threads:
            forks = cache.stats().forks
            call = threads.submit(rollout.call, "bash", {"command": "echo on"}, LONG)
            eventually(lambda: cache.stats().forks > forks)
            assert rollout.cancel()
            with pytest.raises(CallCancelled):
                call.result(SOON)
            assert (rollout.state, rollout.private) == (state, None)
            live = rollout._engine._own.live  # `Rollout.sandbox` would let it run for all of that time
            assert live is not None
            assert live.sandbox.run("echo on", timeout=SOON).output == b"on\n"
            assert cache.stats().forks == forks + 1


def test_a_write_that_is_cancelled(terminal_image: Image, tvsnap_home: Path) -> None:
    """It is slow for want of processor time; what it has written until then stays, and forks have just that."""
    with Cache(tvsnap_home) as cache, cache.rollout(terminal_image, limits=Limits(cpus=0.02)) as rollout:
        rollout.call("bash", {"command": "x=kept"})
        path, result = cancel_a_write(rollout, 8 * MIB)
        assert (result.timed_out, result.exit_code) == (True, None)
        size, kept = rollout.call("bash", {"command": f"stat -c %s {path}; echo $x"}).output.split()
        assert kept == "kept"
        assert int(size) <= 8 * MIB
        with cache.materialise(rollout.state) as fork:
            assert len(fork.read_file(path)) == int(size)


def cancel_a_write(rollout: Rollout, size: int) -> tuple[str, ToolResult]:
    """Returns the path of a file, and what a call came to that was cancelled while it wrote there.

    One that is cancelled before it is executed was not made; one that had not begun to write, or was quicker, is made
    again.
    """
    with ThreadPoolExecutor(1) as threads:
        for attempt in range(50):
            path = f"/root/{time.time_ns()}"
            call = threads.submit(rollout.call, "write_file", {"path": path, "content": "x" * size}, LONG)
            with contextlib.suppress(FuturesTimeout):
                call.result(0.1 * (attempt % 10))
            rollout.cancel()
            with contextlib.suppress(CallCancelled):
                result = call.result(SOON)
                assert rollout.unshared is None or rollout.unshared.startswith("was cancelled after ")
                if result.timed_out and rollout.private:
                    return path, result
    pytest.fail("no write was cancelled while it was executed")


def test_a_cancelled_awaitable_ends_its_command(terminal_image: Image, tvsnap_home: Path) -> None:
    async def work() -> float:
        async with AsyncCache(tvsnap_home) as cache, cache.rollout(terminal_image, salt=f"{time.time_ns()}") as rollout:
            await rollout.call("bash", {"command": "x=kept"})
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(rollout.call("bash", {"command": "sleep 600"}, None), 1.0)
            began = time.monotonic()
            assert (await rollout.call("bash", {"command": "echo $x"}, SOON)).output == "kept\n"
            assert not await rollout.cancel()
            return time.monotonic() - began

    assert asyncio.run(work()) < SOON
    eventually(lambda: not [one for one in threading.enumerate() if one.name == "tvsnap-cancel"])
