"""Several processes on one data directory: leases, results that cross over, and what the dead leave behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.fakes.caches import bash, eventually, open_shared, run, sources, threads
from tests.unit.graph_helpers import claim
from tests.unit.other_processes import make, other_process
from tvsnap.model.calls import ToolCall

MAKE = ToolCall("bash", {"command": "make"})


def test_a_call_under_way_in_another_process_is_waited_for(tmp_path: Path) -> None:
    with other_process(make, tmp_path, "one") as other, open_shared(tmp_path) as cache:
        eventually((tmp_path / "making-one").exists, timeout=60)
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, "x=1").source == "hit"
            (lease,) = cache.graph.leases()
            assert (lease.state, lease.call_key) == (rollout.state, MAKE.key)
            assert lease.owner != cache.owner
            with threads(1) as pool:
                waiting = pool.submit(bash, rollout, "make")
                time.sleep(0.1)
                assert not waiting.done()
                (tmp_path / "go").touch()
                assert waiting.result(60).source == "coalesced"
        assert other.answer()[:2] == ["executed", "executed"]
        assert other.wait() == 0
        eventually(lambda: cache.graph.leases() == [])


def test_a_lease_of_a_process_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    with other_process(make, tmp_path, "one") as other, open_shared(tmp_path) as cache:
        eventually((tmp_path / "making-one").exists, timeout=60)
        with cache.rollout("terminal") as rollout:
            bash(rollout, "x=1")
            other.kill()
            assert len(cache.graph.leases()) == 1
            assert bash(rollout, "make").source == "executed"
        eventually(lambda: cache.graph.leases() == [])


def test_a_process_killed_while_others_wait(tmp_path: Path) -> None:
    with other_process(make, tmp_path, "one") as one:
        eventually((tmp_path / "making-one").exists, timeout=60)
        with other_process(make, tmp_path, "two") as two, open_shared(tmp_path) as cache:
            eventually(lambda: len(cache.graph.rollouts()) == 2, timeout=60)
            time.sleep(0.1)
            assert not (tmp_path / "making-two").exists()
            one.kill()
            eventually((tmp_path / "making-two").exists, timeout=60)
            (tmp_path / "go").touch()
            assert two.answer()[:2] == ["hit", "executed"]


def test_opening_sweeps_what_the_dead_left(tmp_path: Path) -> None:
    with other_process(make, tmp_path, "one") as other:
        eventually((tmp_path / "making-one").exists, timeout=60)
        other.kill()
    owners = tmp_path / "run" / "owners"
    assert len(os.listdir(owners)) == 1
    with open_shared(tmp_path) as cache:
        assert cache.graph.leases() == []
        assert os.listdir(owners) == [f"{cache.owner}.lock"]
        assert sources(run(cache, "x=1", "make")) == ["hit", "executed"]
    assert os.listdir(owners) == []


def test_a_lease_left_over_from_this_process_is_no_hindrance(tmp_path: Path) -> None:
    with open_shared(tmp_path) as cache, cache.rollout("terminal") as rollout:
        assert claim(cache.graph, rollout.state, "make", cache.owner)
        assert bash(rollout, "make", timeout=5).source == "executed"
        assert rollout.private is None
        eventually(lambda: cache.graph.leases() == [])


def test_waiting_for_another_process_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller waits for what would be over by its own timeout, not for ever."""
    monkeypatch.setattr("tvsnap.engine.claiming.claims.REMOTE_GRACE", 0.1)
    with other_process(make, tmp_path, "one") as other, open_shared(tmp_path) as cache:
        eventually((tmp_path / "making-one").exists, timeout=60)
        with cache.rollout("terminal") as rollout:
            bash(rollout, "x=1")
            assert bash(rollout, "make", timeout=0.2).source == "executed"
            assert not rollout.private
        (tmp_path / "go").touch()
        assert other.wait() == 0


def test_two_caches_in_one_process(tmp_path: Path) -> None:
    with open_shared(tmp_path) as one, open_shared(tmp_path) as two:
        run(one, "x=1", "echo $x")
        assert sources(run(two, "x=1", "echo $x", "y=1")) == ["hit", "hit", "executed"]
        assert sources(run(one, "x=1", "echo $x", "y=1")) == ["hit", "hit", "hit"]
