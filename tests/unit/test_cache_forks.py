"""Forks by hand: several sandboxes or rollouts that stand in one state, each of which goes on by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend
from tests.fakes.caches import BUSY, FakeImages, backend_of, bash, eventually, open_cache, settle
from tvsnap import AsyncCache, Budget, Limits
from tvsnap.cache import Cache
from tvsnap.model.errors import ForkFailed, InfrastructureError, NotFound, UsageError


@pytest.fixture(params=["eager", "never"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cache]:
    with open_cache(tmp_path, policy=request.param, budget=Budget(parked=0, sandboxes=8)) as cache:
        yield cache


def test_sandboxes_go_on_by_themselves(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 0 > f")
        with cache.fork(rollout.state, 3) as forks:
            assert len(forks) == 3
            for number, sandbox in enumerate(forks):
                sandbox.run(f"echo {number} >> f", timeout=5)
            assert [sandbox.read_file("/task/f") for sandbox in forks] == [b"0\n0\n", b"0\n1\n", b"0\n2\n"]
            assert [one.id for one in forks[:2]] == [forks[0].id, forks[1].id]
        assert bash(rollout, "cat f").output == "0\n"
    eventually(lambda: not backend_of(cache).live)


def test_rollouts_go_on_by_themselves_and_share_what_they_do(cache: Cache) -> None:
    with cache.rollout("terminal", task="search") as rollout:
        bash(rollout, "echo 0 > f")
        forks = rollout.fork(2)
        assert {fork.state for fork in forks} == {rollout.state}
        for number, fork in enumerate(forks):
            bash(fork, f"echo {number} >> f")
            assert bash(fork, "cat f").output == f"0\n{number}\n"
            settle(fork)
        assert len({fork.state for fork in (*forks, rollout)}) == 3
        assert bash(rollout, "echo 1 >> f").output == ""
        assert bash(rollout, "cat f").output == "0\n1\n"
        assert [one.task for one in cache.graph.rollouts()] == ["search"] * 3
        for fork in forks:
            fork.close()


def test_a_private_state_is_forked(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, f"echo 1 > f; {BUSY}", timeout=1.0)
        (fork,) = rollout.fork()
        with fork, cache.fork(rollout.state) as sandboxes:
            assert fork.private
            assert bash(fork, "echo 2 >> f; cat f").output == "1\n2\n"
            assert sandboxes[0].read_file("/task/f") == b"1\n"


def test_nothing_is_left_where_one_cannot_be_made(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=Budget(parked=0)) as cache:
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo 0 > f")
            settle(rollout)
            state = rollout.state
        backend.faults.fail("fork", ForkFailed("no third"), times=9, after=2)
        backend.faults.fail("start", ForkFailed("no third"), times=9)
        with pytest.raises(InfrastructureError, match="no third"):
            cache.fork(state, 5)
        eventually(lambda: not backend.live)


def test_what_makes_no_sense(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        for number in (0, -1, True, 1.5, 9):
            with pytest.raises(UsageError, match="n must be"):
                cache.fork(rollout.root, number)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="n must be"):
            rollout.fork(0)
        with pytest.raises(NotFound):
            cache.fork("ab" * 32)
        with pytest.raises(NotFound):
            cache.fork("ab" * 32, as_rollouts=True)
    with pytest.raises(UsageError, match="closed"):
        rollout.fork()


def test_without_the_cache_there_is_nothing_to_fork(tmp_path: Path) -> None:
    with (
        open_cache(tmp_path, use_cache=False) as cache,
        cache.rollout("terminal") as rollout,
        pytest.raises(UsageError, match="without the cache"),
    ):
        rollout.fork()


@pytest.mark.parametrize("same_ids", [False, True])
def test_without_the_cache_there_are_sandboxes_where_rollouts_stand(tmp_path: Path, same_ids: bool) -> None:
    """One harness serves a run with the cache and one without."""
    for use_cache in (True, False):
        with open_cache(tmp_path, use_cache=use_cache, same_ids=same_ids, budget=Budget(parked=0)) as cache:
            with cache.rollout("terminal") as rollout, cache.rollout("terminal") as other:
                with cache.materialise(rollout.root) as fork:
                    assert fork.run("cat f", timeout=5).exit_code == 1
                for one, text in ((rollout, "1"), (other, "2")):
                    bash(one, "cd /task")
                    bash(one, f"echo {text} > f; X={text}")
                with cache.materialise(rollout.state) as fork, cache.fork(other.state, 2) as forks:
                    assert fork.run("cat f; echo $X; rm f", timeout=5).output == b"1\n1\n"
                    assert [one.read_file("/task/f") for one in forks] == [b"2\n"] * 2
                assert bash(rollout, "cat f; echo $X").output == "1\n1\n"
                with cache.materialise(rollout.root) as fork:
                    assert fork.run("cat f", timeout=5).exit_code == 1
            backend = backend_of(cache)
        assert not backend.live


def test_calls_that_are_the_same_lead_two_rollouts_without_the_cache_to_states_of_their_own(tmp_path: Path) -> None:
    with open_cache(tmp_path, use_cache=False) as cache, cache.rollout("terminal") as one:
        with cache.rollout("terminal") as other:
            for rollout in (one, other):
                bash(rollout, "echo $RANDOM > f")
            seen = [bash(rollout, "cat f").output for rollout in (one, other)]
            assert one.state != other.state
            for rollout, text in zip((one, other), seen, strict=True):
                with cache.materialise(rollout.state) as sandbox:
                    assert sandbox.read_file("/task/f").decode() == text
            gone = one.state
            bash(one, "pwd")
        for state in (gone, other.state):
            with pytest.raises(NotFound, match=r"no open rollout stands at state .* before the rollout's next call"):
                cache.fork(state)
        with pytest.raises(UsageError, match="is no state"):
            cache.fork("no state")
        with pytest.raises(UsageError, match="begins at an image's root only"):
            cache.resume(one.state)
        with pytest.raises(UsageError, match="begins at an image's root only"):
            cache.fork(one.state, as_rollouts=True)
        assert not cache.graph.rollouts()


def test_time_passes_in_a_sandbox_without_the_cache(tmp_path: Path) -> None:
    with open_cache(tmp_path, use_cache=False) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "sleep 60 &")
        began = time.monotonic()
        with cache.materialise(rollout.state, after=0.4):
            assert time.monotonic() - began >= 0.35


def test_awaited(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            AsyncCache(tmp_path, backend=FakeBackend(), images=FakeImages()) as cache,
            cache.rollout("terminal") as rollout,
        ):
            await rollout.call("bash", {"command": "echo 0 > f"})
            await rollout.settled()
            async with cache.fork(rollout.state, 2) as forks:
                assert len(forks) == 2
                assert [await one.read_file("/task/f") for one in forks] == [b"0\n"] * 2
                assert await forks[1].read_file("/task/f") == b"0\n"
            made = await cache.fork(rollout.state)
            assert len(made) == 1
            await made.close()
            async with rollout.fork(2) as begun, cache.fork(rollout.state, as_rollouts=True) as more:
                for fork in (*begun, *more):
                    assert (await fork.call("bash", {"command": "cat f"})).output == "0\n"

            for fork in (*begun, *more):
                with pytest.raises(UsageError, match="closed"):
                    await fork.call("bash", {"command": "cat f"})
            with pytest.raises(NotFound):
                async with cache.fork("ab" * 32):
                    pass

    asyncio.run(work())


def test_rollouts_are_closed_together(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 0 > f")
        with rollout.fork(2) as forks, cache.fork(rollout.state, 2, as_rollouts=True) as more:
            assert [bash(one, "cat f").output for one in (*forks, *more)] == ["0\n"] * 4
        for one in (*forks, *more):
            with pytest.raises(UsageError, match="closed"):
                bash(one, "cat f")


def test_limits_of_one_rollout(cache: Cache) -> None:
    small = Limits(memory=64 << 20)
    with cache.rollout("terminal", limits=small) as rollout, cache.rollout("terminal") as other:
        bash(rollout, "echo 0 > f")
        settle(rollout)
        assert {sandbox.limits for sandbox in backend_of(cache).live.values()} == {small}
        assert rollout.root != other.root
    with pytest.raises(UsageError, match="limits"):
        cache.rollout("terminal", limits="small")  # type: ignore[arg-type]
