"""What the default policy keeps, and what is executed although its result is known, by how busy the machine is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import inside
from tests.fakes.backend import FakeBackend, FakeSandbox
from tests.fakes.caches import (
    Gate,
    backend_of,
    bash,
    eventually,
    open_cache,
    prove,
    run,
    settle,
    sources,
    threads,
)
from tvsnap import Budget, Verifier
from tvsnap.host.load import Load

PATH = ("echo 1 > f", "echo 2 >> f", "cat f", "echo 3 >> f")
NOT_PARKED = Budget(parked=0)


def test_what_a_loop_makes_is_answered_from_the_second_time_on(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, policy="default", budget=NOT_PARKED) as cache:
        assert sources(run(cache, *PATH)) == ["executed"] * 4
        assert sources(run(cache, *PATH)) == ["hit"] * 4


@pytest.mark.usefixtures("short_processors")
def test_on_a_busy_machine_the_cheap_states_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvsnap.engine.keeping.policy.costs.BURST", 0.0)
    with open_cache(tmp_path, policy="default", budget=NOT_PARKED) as cache:
        run(cache, *PATH)
        assert backend_of(cache).counts["checkpoint"] == 0
        assert sources(run(cache, *PATH)) == ["executed", "executed", "hit", "executed"]
        run(cache, "echo 4 > f", "sleep 9; echo 5 > g", salt="pays")
        assert backend_of(cache).counts["checkpoint"] == 1


@pytest.mark.usefixtures("short_processors")
def test_a_state_is_kept_for_a_long_call_that_did_not_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its result would be lost to those whose own way there leaves something else behind."""
    monkeypatch.setattr("tvsnap.engine.keeping.policy.costs.BURST", 0.0)
    with open_cache(tmp_path, policy="default", budget=NOT_PARKED) as cache:
        run(cache, "echo $RANDOM > f", "sleep 9; cat f")
        assert backend_of(cache).counts["checkpoint"] == 1
        assert sources(run(cache, "echo $RANDOM > f", "sleep 9; cat f")) == ["hit", "hit"]


@pytest.mark.usefixtures("short_processors", "proofs_at_once")
def test_a_cheap_proven_call_is_executed_where_a_sandbox_is_at_hand(tmp_path: Path) -> None:
    """An answer would make a fork necessary as soon as the rollout makes a new call."""
    backend = FakeBackend()
    prove(tmp_path, backend, PATH)
    with open_cache(tmp_path, backend, policy="default", budget=NOT_PARKED) as cache:
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, "echo 1 > f").source == "executed"
            assert bash(rollout, "echo 2 >> f").source == "executed"
            assert bash(rollout, "cat f").output == "1\n2\n"
            assert rollout.private is None
            assert bash(rollout, "echo new > g").source == "executed"
            settle(rollout)
        assert backend.counts["fork"] == 0


@pytest.mark.usefixtures("short_processors")
def test_siblings_stand_in_one_state_although_no_snapshot_of_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The long call behind cheap ones is executed once."""
    monkeypatch.setattr("tvsnap.engine.keeping.policy.costs.BURST", 0.0)
    waits, gate = inside.waits(monkeypatch), Gate("sleep 9; cat f")
    backend = FakeBackend(sleep_scale=0.01, hooks={"run": gate})
    with open_cache(tmp_path, backend, policy="default", budget=NOT_PARKED) as cache, threads(2) as pool:
        one, two = cache.rollout("terminal"), cache.rollout("terminal")
        for rollout in (one, two):
            bash(rollout, "echo 1 > f")
            settle(rollout)
        assert one.state == two.state
        long = [pool.submit(bash, rollout, "sleep 9; cat f") for rollout in (one, two)]
        eventually(lambda: waits)
        gate.open.set()
        assert sorted(each.result(60).source for each in long) == ["coalesced", "executed"]
        assert backend.commands.count("sleep 9; cat f") == 1
        one.close()
        two.close()


class HeldUp(FakeSandbox):
    """A sandbox whose machine holds up all that is executed."""

    def load(self) -> Load:
        self.backend.load = Load(throttled=self.backend.load.throttled + 1000.0)
        return self.backend.load


def test_a_grade_that_a_busy_machine_gave_is_given_again_by_the_next_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvsnap.engine.execution.strain.LONG", 0.0)
    monkeypatch.setattr(FakeSandbox, "load", HeldUp.load)
    with open_cache(tmp_path) as cache:

        def graded(verifier: Verifier) -> str:
            with cache.rollout("terminal") as rollout:
                bash(rollout, "echo 1 > f")
                return rollout.grade(verifier).source

        assert [graded(Verifier("echo 0")) for _ in range(3)] == ["executed", "executed", "hit"]
        assert [graded(Verifier("echo 1")) for _ in range(2)] == ["executed", "hit"]  # a full reward is no mistake


def test_a_graded_call_likewise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend(command_duration=2.0)
    monkeypatch.setattr(FakeSandbox, "load", HeldUp.load)
    with open_cache(tmp_path, backend) as cache:

        def graded(reward: str) -> str:
            with cache.rollout("terminal") as rollout:
                command = {"command": f"echo {reward} > /reward"}
                result = rollout.call("bash", command, 20.0, grade=["/reward"])
                settle(rollout)
                return result.source

        assert [graded("0.5") for _ in range(3)] == ["executed", "executed", "hit"]
        assert [graded("1.0") for _ in range(2)] == ["executed", "hit"]
