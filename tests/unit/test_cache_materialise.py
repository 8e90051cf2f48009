"""Sandboxes in any state, for people: materialise and reexecute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend
from tests.unit.cache_helpers import BUSY, backend_of, bash, eventually, open_cache, run, settle
from tvsnap.backends.base import Limits
from tvsnap.cache import Cache
from tvsnap.calls import ToolResult
from tvsnap.errors import InfrastructureError, NotFound
from tvsnap.graph import Edge
from tvsnap.pool import ParkLimits


@pytest.fixture(params=["eager", "never"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cache]:
    with open_cache(tmp_path, policy=request.param, park=ParkLimits(count=0)) as cache:
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


def test_a_replay_that_differs_is_an_error_or_told(tmp_path: Path) -> None:
    with open_cache(tmp_path, policy="never") as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo $RANDOM > f; cat f")
        bash(rollout, "echo 2 > g")
        state = rollout.state
    with open_cache(tmp_path, FakeBackend(seed=7), policy="never") as cache:
        with (
            pytest.raises(InfrastructureError, match=r"cannot be rebuilt: a replay of .* printed"),
            cache.materialise(state),
        ):
            pass
        told: list[tuple[Edge, ToolResult]] = []
        with cache.materialise(state, lambda edge, result: told.append((edge, result))) as sandbox:
            assert sandbox.read_file("/task/g") == b"2\n"
        assert [edge.next_state == state for edge, _ in told] == [False, True]
        assert told[0][0].result.output != told[0][1].output
        eventually(lambda: not backend_of(cache).live)


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
    assert cache.reexecute(edges[0]).same_value(edges[0].result)
    assert cache.graph.out_edges(state) == edges
    assert cache.stats().executed == 3
