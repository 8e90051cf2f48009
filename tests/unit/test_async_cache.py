"""The cache for event loops: hits stay in the loop, misses leave it, and cancelling is clean."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.fakes import inside
from tests.fakes.backend import FakeBackend
from tests.fakes.caches import FakeImages, Gate, eventually, open_cache, run
from tvsnap import AsyncCache, AsyncRollout, AsyncSandbox, Cache, ImageStore, Rollout, Sandbox, ToolResult
from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.claiming.claims import Claim, Wanted
from tvsnap.model.errors import InfrastructureError, NotFound, UsageError
from tvsnap.types import AsyncImageStore

T = TypeVar("T")


def in_loop(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 120))


def open_async(home: Path, backend: FakeBackend | None = None, **options: Any) -> AsyncCache:
    options.setdefault("policy", "eager")
    return AsyncCache(home, backend=backend or FakeBackend(), images=FakeImages(), **options)


async def bash(rollout: AsyncRollout, command: str, timeout: float = 20.0) -> ToolResult:
    return await rollout.call("bash", {"command": command}, timeout)


def test_calls_are_answered_as_without_a_loop(tmp_path: Path) -> None:
    backend = FakeBackend()

    async def work() -> list[str]:
        async with open_async(tmp_path, backend) as cache:
            sources: list[str] = []
            for _ in range(2):
                async with cache.rollout("terminal", task="t") as rollout:
                    sources += [(await bash(rollout, command)).source for command in ("echo 1 > f", "cat f")]
                    await rollout.settled()
                    assert rollout.depth == 1
                    assert rollout.private is None
                    async with cache.materialise(rollout.state) as sandbox:
                        assert await sandbox.read_file("/task/f") == b"1\n"
            assert cache.stats().hits == 2
            return sources

    assert in_loop(work()) == ["executed", "executed", "hit", "hit"]
    with open_cache(tmp_path, backend) as cache:
        assert [result.source for result in run(cache, "echo 1 > f", "cat f")] == ["hit", "hit"]


def test_a_hit_never_leaves_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache:
        run(cache, "x=1", "y=2")

    async def work() -> None:
        async with open_async(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
            monkeypatch.setattr("tvsnap.aio.rollout.in_thread", forbidden)
            # Driven by hand: it must end without once giving way to the loop.
            for command in ("x=1", "y=2"):
                with pytest.raises(StopIteration) as end:
                    bash(rollout, command).send(None)
                assert end.value.value.source == "hit"
            monkeypatch.undo()

    async def forbidden(*arguments: object) -> None:
        raise AssertionError("a thread was asked")

    in_loop(work())


def test_64_rollouts_at_once(tmp_path: Path) -> None:
    """Of eight tasks, eight rollouts each: every call is executed once, and all see the same."""
    backend = FakeBackend(delays={"run": 0.002, "checkpoint": 0.002})

    async def roll(cache: AsyncCache, number: int) -> list[str]:
        async with cache.rollout("terminal", task=str(number % 8)) as rollout:
            return [(await bash(rollout, f"echo {number % 8}.{step} >> f; cat f")).output for step in range(6)]

    async def work() -> None:
        async with open_async(tmp_path, backend) as cache:
            results = await asyncio.gather(*(roll(cache, number) for number in range(64)))
            for number, outputs in enumerate(results):
                lines = [f"{number % 8}.{step}\n" for step in range(6)]
                assert outputs == ["".join(lines[: step + 1]) for step in range(6)]
            stats = cache.stats()
            assert stats.executed == 48
            assert stats.hits + stats.coalesced == 64 * 6 - 48
        assert backend.live == {}

    in_loop(work())


def test_64_calls_are_executed_side_by_side(tmp_path: Path) -> None:
    barrier = threading.Barrier(64)

    def meet(sandbox: object, subject: str) -> None:
        barrier.wait(60)

    async def roll(cache: AsyncCache, number: int) -> None:
        async with cache.rollout("terminal", salt=str(number)) as rollout:
            await bash(rollout, "true")

    async def work() -> None:
        async with open_async(tmp_path, FakeBackend(hooks={"run": meet}), policy="never") as cache:
            await asyncio.gather(*(roll(cache, number) for number in range(64)))

    in_loop(work())


def test_the_loop_goes_on_while_a_call_is_executed(tmp_path: Path) -> None:
    gate = Gate("make")

    async def work() -> None:
        async with (
            open_async(tmp_path, FakeBackend(hooks={"run": gate})) as cache,
            cache.rollout("terminal") as one,
            cache.rollout("terminal") as two,
        ):
            call = asyncio.create_task(bash(one, "make"))
            assert (await bash(two, "x=1")).source == "executed"
            assert not call.done()
            gate.open.set()
            assert (await call).source == "executed"

    in_loop(work())


def test_cancelling_a_call_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate("make")
    waits = threading.Event()
    wait = Claim.wait

    def noticed(claim: Claim, wanted: Wanted, cancellation: Cancellation) -> bool:
        waits.set()
        return wait(claim, wanted, cancellation)

    monkeypatch.setattr(Claim, "wait", noticed)

    async def work() -> None:
        async with open_async(tmp_path, FakeBackend(hooks={"run": gate})) as cache:
            async with cache.rollout("terminal") as one, cache.rollout("terminal") as two:
                call = asyncio.create_task(bash(one, "make"))
                while not gate.arrived.is_set():
                    await asyncio.sleep(0.001)
                waiting = asyncio.create_task(bash(two, "make"))
                while not waits.is_set():
                    await asyncio.sleep(0.001)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                gate.open.set()
                # It went on to its end, for others and for the rollout itself.
                assert (await waiting).source == "coalesced"
                for rollout in (one, two):
                    assert (await bash(rollout, "pwd")).output == "/task\n"
                assert one.state == two.state
            assert cache.cache.graph.leases() == []

    in_loop(work())


def test_what_is_asked_at_once_happens_in_the_order_in_which_it_was_asked(tmp_path: Path) -> None:
    """An answer from the graph would otherwise be given before a thread has begun with the call that precedes it."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache:
        assert [result.output for result in run(cache, "echo 0 > f", "cat f")] == ["", "0\n"]

    async def work() -> list[str]:
        async with open_async(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
            await bash(rollout, "echo 0 > f")
            commands = ["echo 1 > f", "cat f", "echo 2 >> f", "cat f"]
            results = asyncio.gather(*(bash(rollout, command) for command in commands))
            await asyncio.sleep(0)  # they begin
            (fork,) = await rollout.fork(1)
            async with fork:
                assert (await bash(fork, "cat f")).output == "1\n2\n"
            return [result.output for result in await results]

    assert in_loop(work()) == ["", "1\n", "", "1\n2\n"]


def test_the_next_call_waits_for_one_that_was_cancelled_and_is_ending(tmp_path: Path) -> None:
    gate = Gate("make")
    backend = FakeBackend(hooks={"run": gate})
    with open_cache(tmp_path, backend) as cache:
        assert [result.output for result in run(cache, "pwd")] == ["/task\n"]

    async def work() -> None:
        async with open_async(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
            call = asyncio.create_task(bash(rollout, "make"))
            while not gate.arrived.is_set():
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            following = asyncio.create_task(bash(rollout, "pwd"))
            done, _ = await asyncio.wait([following], timeout=0.05)
            assert not done
            gate.open.set()
            assert (await following).output == "/task\n"

    in_loop(work())


def test_cancelling_who_waits_for_an_outcome_is_clean(tmp_path: Path) -> None:
    observing, go = threading.Event(), threading.Event()

    def wait(sandbox: object, subject: str) -> None:
        if backend.counts["run"]:
            observing.set()
            assert go.wait(60)

    backend = FakeBackend(hooks={"observe": wait})

    async def work() -> None:
        async with open_async(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
            await bash(rollout, "x=1")
            call = asyncio.create_task(bash(rollout, "y=2"))
            while not observing.is_set():
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            go.set()
            assert (await bash(rollout, "echo $x$y")).output == "1\n"

    in_loop(work())


def test_errors_come_through(tmp_path: Path) -> None:
    async def work() -> None:
        backend = FakeBackend()
        async with open_async(tmp_path, backend) as cache:
            with pytest.raises(NotFound, match="nowhere"):
                async with cache.rollout("nowhere"):
                    pass
            rollout = cache.rollout("terminal")
            with pytest.raises(UsageError, match="has not begun"):
                _ = rollout.state
            with pytest.raises(UsageError, match="unknown tool"):
                await rollout.call("sh", {})
            backend.faults.fail("start", InfrastructureError("no memory"))
            with pytest.raises(InfrastructureError, match="no memory"):
                await bash(rollout, "ls")
            assert (await bash(rollout, "pwd")).output == "/task\n"
            assert (await (await rollout.sandbox()).run("pwd", timeout=5)).output == b"/task\n"
            await rollout.close()
            with pytest.raises(UsageError, match="closed"):
                await bash(rollout, "ls")
            await cache.rollout("terminal").close()

    in_loop(work())


def test_a_closed_cache(tmp_path: Path) -> None:
    async def work() -> None:
        cache = open_async(tmp_path)
        begun, later, entered = (cache.rollout("terminal") for _ in range(3))
        await bash(begun, "x=1")
        state = begun.state
        sandbox = await begun.sandbox()
        forks, rollouts = await cache.fork(state), await begun.fork()
        await cache.close()
        for ask in (
            lambda: bash(begun, "x=1"),
            lambda: bash(begun, "pwd"),
            lambda: bash(later, "pwd"),
            entered.__aenter__,
            lambda: bash(cache.rollout("terminal"), "pwd"),
            lambda: bash(cache.resume(state), "pwd"),
            lambda: cache.materialise(state).__aenter__(),
            lambda: cache.fork(state).__aenter__(),
            lambda: cache.fork(state, as_rollouts=True).__aenter__(),
            lambda: cache.warm("terminal"),
            lambda: cache.expect("terminal"),
            lambda: cache.images.get("terminal"),
            lambda: begun.sandbox(),
            lambda: begun.fork().__aenter__(),
            lambda: begun.grade("true"),
            lambda: sandbox.run("pwd", timeout=5),
        ):
            with pytest.raises(UsageError, match="closed"):
                await ask()
        for rollout in (begun, later, *rollouts):
            await rollout.close()
        await forks.close()
        await cache.close()
        assert not await begun.cancel()
        assert cache.stats().rollouts == 2

    in_loop(work())


def test_without_the_cache(tmp_path: Path) -> None:
    async def work() -> list[str]:
        async with open_async(tmp_path, use_cache=False) as cache, cache.rollout("terminal") as rollout:
            return [(await bash(rollout, command)).source for command in ("x=1", "x=1")]

    assert in_loop(work()) == ["executed", "executed"]


@pytest.mark.parametrize("step", ["begin_rollout", "root_of"])
def test_nothing_is_left_of_what_was_cancelled_while_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A rollout is begun, or a sandbox made, by a thread, which goes on though nobody waits for it any more."""
    with open_cache(tmp_path) as cache, cache.rollout("terminal") as rollout:
        rollout.call("bash", {"command": "x=1"})
        state = rollout.state

    async def work() -> None:
        async with open_async(tmp_path) as cache:
            under_way, go_on = threading.Event(), threading.Event()
            graph = cache.cache.graph
            real = getattr(graph, step)

            def held_up(*arguments: Any, **options: Any) -> Any:
                under_way.set()
                assert go_on.wait(60)
                return real(*arguments, **options)

            monkeypatch.setattr(graph, step, held_up)
            block = cache.rollout("terminal") if step == "begin_rollout" else cache.materialise(state)
            beginning = asyncio.create_task(_enter(block))
            assert await asyncio.to_thread(under_way.wait, 60)
            beginning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await beginning
            go_on.set()
            # One thread makes it and ends it; there is nothing of it once that has nothing left to do.
            await asyncio.to_thread(inside.threads(cache).shutdown)
            assert all(rollout.finished for rollout in cache.cache.graph.rollouts()[1:])
            await asyncio.to_thread(eventually, lambda: not cache.cache.pool.live)

    in_loop(work())


def test_a_rollout_ends_though_its_end_was_cancelled(tmp_path: Path) -> None:
    async def work() -> None:
        busy = threading.Event()
        async with open_async(tmp_path, threads=1) as cache:
            rollout = cache.rollout("terminal")
            await bash(rollout, "x=1")
            inside.threads(cache).submit(busy.wait, 60)
            closing = asyncio.create_task(rollout.close())
            await asyncio.sleep(0)  # it waits for the thread now
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            busy.set()
            await asyncio.to_thread(eventually, lambda: cache.cache.graph.rollouts()[0].finished)

    in_loop(work())


async def _enter(block: AbstractAsyncContextManager[Any]) -> None:
    async with block:
        raise AssertionError("it was cancelled before")


OURS = frozenset(
    {
        "attach",
        "checkpoint",
        "close",
        "go_back",
        "interrupt",
        "lend",
        "uninterrupted",
        "load",
        "note",
        "read_tree",
        "settle",
        "stillness",
        "turn",
        "file_times",
        "set_file_times",
        "traffic",
        "machine_fault",
    }
)
"""What tvsnap does with a sandbox, and a user of a rollout does not."""


@pytest.mark.parametrize(
    ("plain", "twin", "left_out"),
    [
        (Cache, AsyncCache, frozenset({"limits_for"})),
        (Rollout, AsyncRollout, frozenset()),
        (Sandbox, AsyncSandbox, OURS),
        (
            *(ImageStore, AsyncImageStore),
            frozenset({"adopt", "drop_packages", "make_base", "manifest", "packages", "sweep", "trees"}),
        ),
    ],
)
def test_a_twin_has_all_that_can_be_awaited(plain: type, twin: type, left_out: frozenset[str]) -> None:
    public = {name for name, value in vars(plain).items() if not name.startswith("_") and name not in left_out}
    assert public <= set(dir(twin))
    for name in public:
        method = vars(plain)[name]
        if inspect.isfunction(method):
            given, taken = (inspect.signature(getattr(one, name)).parameters for one in (plain, twin))
            assert {key: one.default for key, one in given.items()} == {key: one.default for key, one in taken.items()}
