"""Sandboxes in any state, for people: materialise and reexecute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend
from tests.fakes.caches import BUSY, backend_of, bash, eventually, open_cache, run, settle
from tvsnap import Budget
from tvsnap.cache import Cache
from tvsnap.graph import edges
from tvsnap.model.errors import NotFound, StateLost
from tvsnap.model.limits import Limits


@pytest.fixture(params=["eager", "never"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cache]:
    with open_cache(tmp_path, policy=request.param, budget=Budget(parked=0)) as cache:
        yield cache


def test_any_state_can_be_walked_into(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        states = [rollout.state]
        for number in range(3):
            bash(rollout, f"echo {number} >> f")
            states.append(rollout.state)
    wanted = ["", "0\n", "0\n1\n", "0\n1\n2\n"]
    for state, content in zip(states, wanted, strict=True):
        with cache.materialise(state) as sandbox:
            assert sandbox.run("cat f 2> /dev/null", timeout=5).output.decode() == content
            sandbox.run("rm -f f", timeout=5)
    with cache.materialise(states[-1]) as sandbox:
        assert sandbox.read_file("/task/f") == b"0\n1\n2\n"
    eventually(lambda: not backend_of(cache).live)
    assert run(cache, "echo 0 >> f", "cat f")[1].output == "0\n"


def test_what_is_looked_at_is_no_time_of_rollouts(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        settle(rollout)
        state = rollout.state
    before = cache.stats()
    with cache.materialise(state):
        pass
    with cache.fork(state, 2):
        pass
    done = cache.stats().since(before)
    assert done.forks + done.replayed > 0
    assert done.aside_time_s > 0
    assert (done.fork_time_s, done.start_time_s, done.replay_time_s, done.checkpoint_time_s) == (0, 0, 0, 0)
    assert done.saved_s == 0
    with cache.resume(state) as rollout:
        bash(rollout, "echo 2 > f")
    done = cache.stats().since(before)
    assert done.fork_time_s + done.replay_time_s > 0


def test_a_private_state_can_be_walked_into(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        bash(rollout, f"echo 2 >> f; {BUSY}", timeout=1.0)
        bash(rollout, "echo 3 >> f")
        assert rollout.private
        state = rollout.state
    with cache.materialise(state) as sandbox:
        assert sandbox.read_file("/task/f") == b"1\n2\n3\n"


def test_an_unknown_state(cache: Cache) -> None:
    with pytest.raises(NotFound, match="not in the graph"), cache.materialise("ab" * 32):
        pass
    with pytest.raises(NotFound, match="not in the graph"):
        cache.resume("ab" * 32)


def test_a_replay_that_differs_is_an_error(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, policy="never") as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo $RANDOM > f; cat f")
        bash(rollout, "echo 2 > g")
        state = rollout.state
    with open_cache(tmp_path, backend, policy="never") as cache:
        with (
            pytest.raises(
                StateLost, match=r"can no longer be reached: it has no snapshot, and, made again, .* printed"
            ),
            cache.materialise(state),
        ):
            pass
        eventually(lambda: not backend.live)
        edges = cache.graph.lineage(state)
        assert all(edge.deterministic for edge in edges), "it answered nothing, and so nothing is known to be wrong"


def test_a_replay_that_comes_to_the_same_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was never proven to; but this time it did, as the digests of what each call left behind tell."""
    monkeypatch.setattr(edges, "PROOF_APART", 3600.0)
    backend = FakeBackend()
    with open_cache(tmp_path, backend, policy="never") as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        bash(rollout, "echo 2 > g")
        state = rollout.state
    with open_cache(tmp_path, backend, policy="never") as cache:
        with cache.materialise(state) as sandbox:
            assert sandbox.read_file("/task/g") == b"2\n"
        assert not any(edge.proven for edge in cache.graph.lineage(state)), "both within a moment"


@pytest.mark.usefixtures("proofs_at_once")
def test_a_replay_that_comes_to_the_same_is_a_proof(tmp_path: Path) -> None:
    with open_cache(tmp_path, policy="never", budget=Budget(parked=0)) as cache:
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo 1 > f")
            state = rollout.state
        assert run(cache, "ls")[0].source == "executed"
        with cache.materialise(state):
            pass
        assert run(cache, "echo 1 > f")[0].source == "hit"


def test_what_only_an_open_rollout_keeps_is_snapshotted_for_who_looks_inside(tmp_path: Path) -> None:
    with open_cache(tmp_path, policy="never", budget=Budget(parked=0)) as cache:
        with cache.rollout("terminal") as rollout:
            shown = bash(rollout, "echo $RANDOM > f; cat f").output
            state = rollout.state
            with cache.materialise(state) as sandbox:
                assert sandbox.read_file("/task/f").decode() == shown
            assert bash(rollout, "cat f").output == shown
        with cache.materialise(state) as sandbox, cache.resume(state) as resumed:
            assert sandbox.read_file("/task/f").decode() == bash(resumed, "cat f").output == shown


def test_the_limits_are_those_of_the_root(tmp_path: Path) -> None:
    limits = Limits(output=100)
    with open_cache(tmp_path, limits=limits, policy="never") as cache, cache.rollout("terminal") as rollout:
        assert bash(rollout, "x=1; printf '%0200d' 1").truncated
        state = rollout.state
    with open_cache(tmp_path, limits=Limits(output=1000)) as cache, cache.materialise(state) as sandbox:
        assert sandbox.run("echo $x", timeout=5).output == b"1\n"


def test_reexecuting_records_nothing(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        for command in ("echo 1 > f", "cat f", "date"):
            bash(rollout, command)
        settle(rollout)
        state = rollout.state
    edges = cache.graph.out_edges(state)
    assert edges
    for edge in edges:
        cache.reexecute(edge)
    remade = cache.reexecute(edges[0])
    assert remade.result.same_value(edges[0].result)
    assert remade.difference(edges[0]) is None
    assert cache.graph.out_edges(state) == edges
    assert cache.stats().executed == 3


def test_a_rollout_whose_state_was_snapshotted_for_others_makes_room(tmp_path: Path) -> None:
    budget = Budget(sandboxes=1, parked=0)
    with open_cache(tmp_path, policy="never", budget=budget) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo a > f")
        settle(rollout)
        with cache.materialise(rollout.state) as sandbox:
            assert sandbox.run("cat f", timeout=5.0).output == b"a\n"
        assert bash(rollout, "cat f").output == "a\n"
