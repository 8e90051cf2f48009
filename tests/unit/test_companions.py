"""Sandboxes that are made while a model thinks: for whom, and what becomes of them."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend, Faults
from tests.fakes.caches import Gate, backend_of, bash, eventually, open_cache, run, settle, threads
from tvsnap import Budget, Verifier
from tvsnap.cache import Cache
from tvsnap.engine import between_calls
from tvsnap.engine.events import Answered
from tvsnap.engine.position import Position
from tvsnap.engine.supply import companions
from tvsnap.model.errors import ForkFailed
from tvsnap.sandboxes.protocol import Sandbox

THINKING = companions.THINKING
LONG = 5 * (THINKING + companions.LOOK_AGAIN)


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with nothing else to do."""
    monkeypatch.setattr(companions, "THINKING", THINKING)
    monkeypatch.setattr(companions, "running", lambda: 0)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with open_cache(tmp_path, budget=Budget(parked=0)) as cache:
        yield cache
    assert backend_of(cache).live == {}


def made_ahead(cache: Cache) -> int:
    return cache.stats().preforks


def test_a_new_call_after_a_pause_finds_its_sandbox(cache: Cache) -> None:
    run(cache, "echo a > f")
    with cache.rollout("terminal") as rollout:
        assert bash(rollout, "echo a > f").source == "hit"
        eventually(lambda: made_ahead(cache) == 1)
        assert bash(rollout, "cat f").output == "a\n"
    stats = cache.stats()
    assert (stats.preforks_used, stats.arrivals["ready"], stats.arrivals["forked"]) == (1, 1, 0)


def test_who_is_answered_at_once_again_is_given_none(cache: Cache) -> None:
    commands = [f"echo {number} > f" for number in range(40)]
    run(cache, *commands)
    with cache.rollout("terminal") as rollout:
        began = time.monotonic()
        for command in commands:
            assert bash(rollout, command).source == "hit"
        if time.monotonic() - began < THINKING:
            assert made_ahead(cache) == 0


def test_none_is_made_where_the_next_call_is_likely_to_be_answered(cache: Cache) -> None:
    for _ in range(4):
        run(cache, "echo a > f", "echo b > f")
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo a > f")
        time.sleep(LONG)
        assert made_ahead(cache) == 0
        bash(rollout, "echo b > f")
        eventually(lambda: made_ahead(cache) == 1)  # nobody went on from there


def test_none_is_made_while_processors_are_busy(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companions, "running", lambda: 10_000)
    run(cache, "echo a > f")
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo a > f")
        time.sleep(LONG)
        assert made_ahead(cache) == 0
        monkeypatch.setattr(companions, "running", lambda: 0)
        eventually(lambda: made_ahead(cache) == 1)  # it still thinks


def test_none_is_made_where_none_is_to_be_made_ahead(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=Budget(parked=0), prefork=0) as cache:
        run(cache, "echo a > f")
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo a > f")
            time.sleep(LONG)
            assert made_ahead(cache) == 0


def test_a_call_waits_for_the_one_that_is_being_made(tmp_path: Path) -> None:
    gate = Gate("")
    with open_cache(tmp_path, FakeBackend(), budget=Budget(parked=0)) as cache, threads(1) as others:
        run(cache, "echo a > f")
        with cache.rollout("terminal") as rollout:
            backend_of(cache).hooks["observe"] = gate
            bash(rollout, "echo a > f")
            assert gate.arrived.wait(60)
            call = others.submit(bash, rollout, "cat f")
            time.sleep(LONG)
            del backend_of(cache).hooks["observe"]
            gate.open.set()
            assert call.result(60).output == "a\n"
        assert cache.stats().forks == 1


def test_who_is_answered_meanwhile_leaves_it_to_others(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        run(cache, "echo a > f", "echo b > f")
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo a > f")
            eventually(lambda: made_ahead(cache) == 1)
            assert bash(rollout, "echo b > f").source == "hit"
            first = rollout.state
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo a > f")
            assert rollout.state != first
            assert bash(rollout, "cat f").output == "a\n"
        assert cache.stats().arrivals["parked"] == 1


def test_one_that_cannot_be_made_fails_nobody(tmp_path: Path) -> None:
    faults = Faults()
    with open_cache(tmp_path, FakeBackend(faults=faults), budget=Budget(parked=0)) as cache:
        run(cache, "echo a > f")
        faults.fail("observe", ForkFailed("as the test wants it"))
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo a > f")
            eventually(lambda: made_ahead(cache) == 1)
            assert bash(rollout, "cat f").output == "a\n"
            settle(rollout)
    assert backend_of(cache).live == {}


def test_a_rollout_that_ends_while_it_is_made_leaves_nothing(tmp_path: Path) -> None:
    gate = Gate("")
    with open_cache(tmp_path, FakeBackend(), budget=Budget(parked=0)) as cache:
        run(cache, "echo a > f")
        rollout = cache.rollout("terminal")
        backend_of(cache).hooks["observe"] = gate
        bash(rollout, "echo a > f")
        assert gate.arrived.wait(60)
        rollout.close()
        del backend_of(cache).hooks["observe"]
        gate.open.set()
        eventually(lambda: backend_of(cache).live == {})


def test_one_that_takes_long_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    gate = Gate("")
    with open_cache(tmp_path, FakeBackend(), budget=Budget(parked=0)) as cache:
        run(cache, "echo a > f")
        with cache.rollout("terminal") as slow, cache.rollout("terminal") as quick:
            backend_of(cache).hooks["observe"] = gate
            bash(slow, "echo a > f")
            assert gate.arrived.wait(60)
            del backend_of(cache).hooks["observe"]
            bash(quick, "echo a > f")
            eventually(lambda: made_ahead(cache) == 1)
            assert bash(quick, "cat f").output == "a\n"
            gate.open.set()


def test_it_is_tried_again_where_there_was_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companions, "PATIENCE", THINKING)
    with open_cache(tmp_path, budget=Budget(sandboxes=1, parked=0)) as cache:
        run(cache, "sleep 1000 && echo late > f &")
        with cache.rollout("terminal", salt="other") as other, cache.rollout("terminal") as rollout:
            other.sandbox()
            assert bash(rollout, "sleep 1000 && echo late > f &").source == "hit"
            time.sleep(LONG)
            assert made_ahead(cache) == 0
            other.close()
            eventually(lambda: made_ahead(cache) == 1)


def test_it_is_tried_again_once_a_grade_is_done(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(between_calls, "PATIENCE", math.inf)
    gate = threading.Event()

    def check(_: Sandbox) -> float:
        return 1.0 if gate.wait(60) else 0.0

    run(cache, "sleep 1000 && echo late > f &")
    with threads(1) as others, cache.rollout("terminal") as rollout:
        assert bash(rollout, "sleep 1000 && echo late > f &").source == "hit"
        grade = others.submit(rollout.grade, Verifier(check, version="waits"))
        time.sleep(companions.PATIENCE + LONG)
        assert not rollout._engine.has_sandbox
        gate.set()
        assert grade.result(60).reward == 1.0
        eventually(lambda: rollout._engine.has_sandbox)


def test_a_grade_leaves_a_sandbox_where_something_runs(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each grade there would wait for as long as the rollout has waited, and the next one for twice as long."""
    monkeypatch.setattr(companions, "PATIENCE", math.inf)
    monkeypatch.setattr(between_calls, "PATIENCE", 0.0)
    run(cache, "sleep 1000 && echo late > f &")
    with cache.rollout("terminal") as rollout:
        assert bash(rollout, "sleep 1000 && echo late > f &").source == "hit"
        for _ in range(2):
            rollout.grade("echo 1")
            assert rollout._engine.has_sandbox
        assert cache.stats().forks == 1, "grades are given in forks of that sandbox"


def test_a_sandbox_that_has_caught_up_is_not_late_again(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rollout does not count as having waited for its sandbox to catch up."""
    monkeypatch.setattr(companions, "PATIENCE", math.inf)
    run(cache, "sleep 1000 && echo late > f &")
    with cache.rollout("terminal") as rollout:
        assert bash(rollout, "sleep 1000 && echo late > f &").source == "hit"
        engine = rollout._engine
        engine._cursor.advance_time(0.5)
        engine.reach()
        assert engine._own.live is not None
        assert engine._cursor.at.waited - engine._own.live.age() < 0.1


def test_a_rollout_waits_once_for_what_its_sandbox_lacks(cache: Cache) -> None:
    """Else each wait would make the next one longer."""
    with cache.rollout("terminal") as rollout:
        bash(rollout, "sleep 1000 && echo late > f &")
        for _ in range(2):
            assert rollout.call("bash", {"command": f"cat f; : {time.time()}"}, after=0.3).source == "executed"
            settle(rollout)
            own = rollout._engine._own.standing_at(rollout.state)
            assert own is not None
            assert rollout._engine._cursor.at.waited <= own.age() + 0.01


def test_a_grade_that_finds_no_room_for_a_second_sandbox_does_not_make_the_next_one_longer(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companions, "PATIENCE", math.inf)
    monkeypatch.setattr(between_calls, "PATIENCE", math.inf)
    run(cache, "sleep 1000 && echo late > f &")
    with cache.rollout("terminal") as rollout:
        assert bash(rollout, "sleep 1000 && echo late > f &").source == "hit"
        rollout._engine._cursor.advance_time(1.0)
        for _ in range(3):
            rollout.grade("echo 1")
        assert rollout._engine._cursor.at.waited < 2.0


def test_rollouts_that_begin_where_something_runs_have_sandboxes_before_their_first_call(cache: Cache) -> None:
    run(cache, "sleep 1000 && echo late > f &")
    with cache.rollout("terminal") as rollout:
        assert bash(rollout, "sleep 1000 && echo late > f &").source == "hit"
        with rollout.fork(2) as forks:
            eventually(lambda: all(fork._engine.has_sandbox for fork in forks))
        with cache.resume(rollout.state) as resumed:
            eventually(lambda: resumed._engine.has_sandbox)


def test_a_fork_does_not_count_as_having_waited_while_it_was_made(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(between_calls, "PATIENCE", 0.0)
    with cache.rollout("terminal") as rollout:
        bash(rollout, "sleep 1000 && echo late > f &")
        assert rollout.state  # waits for the outcome of the call
        backend_of(cache).hooks["fork"] = lambda *_: time.sleep(0.1)
        with rollout.fork(3) as forks:
            engines = [fork._engine for fork in forks]
            assert all(engine.has_sandbox for engine in engines)
            for engine in engines:
                waited = engine._cursor.at.waited
                assert engine._own.live is not None
                assert waited <= engine._own.live.age() + 0.01


def test_a_fork_counts_all_of_the_time_that_its_rollout_was_told_of(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of a longer wait makes a rollout count as having waited as long; its sandbox has not run for that."""
    monkeypatch.setattr(between_calls, "PATIENCE", 0.0)
    with cache.rollout("terminal") as rollout:
        bash(rollout, "sleep 1000 && echo late > f &")
        rollout._engine._catch_up()
        rollout._engine._cursor.advance_time(100.0)
        with rollout.fork(2) as forks:
            for fork in forks:
                assert fork._engine.has_sandbox
                assert fork._engine._cursor.at.waited >= 100.0


def test_forks_that_find_no_room_begin_without_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(between_calls, "PATIENCE", 0.0)
    with open_cache(tmp_path, budget=Budget(sandboxes=3, parked=0)) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "sleep 1000 && echo late > f &")
        assert rollout.state
        with rollout.fork(8) as forks:
            assert len(forks) == 8
            assert sum(fork._engine.has_sandbox for fork in forks) <= 3


def test_one_that_found_no_room_does_not_take_the_place_of_a_later_one(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companions, "PATIENCE", 3600.0)  # the later one waits for as long as this takes

    class Crowded:
        def lacks_sandbox(self, _: str) -> bool:
            return True

        def make_companion(self, _: str) -> bool:
            return False

    run(cache, "echo a > f")
    (edge,) = (cache.graph.edge(node.made_by.id) for node in cache.graph.tree() if node.made_by)
    makers, rollout = companions.Companions(cache.graph), Crowded()
    try:
        at = Position("later", quiet_s=0.0)
        makers.answered(Answered(weakref.ref(rollout), edge, "hit", at, True, 1, 0.0))
        makers._make(weakref.ref(rollout), "earlier", True)
        assert [state for _, state, _ in makers._waiting.values()] == ["later"]
    finally:
        makers.close()
