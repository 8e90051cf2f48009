"""Time: where something runs by itself, what a rollout has waited counts; elsewhere it never does.

The time in the backend in memory is virtual. What a call is to have waited for is said with `after`, and where a
sandbox is made to wait, its virtual clock is put forward.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import FakeBackend, FakeSandbox
from tests.fakes.caches import (
    First,
    Gate,
    OddEnvironment,
    backend_of,
    bash,
    eventually,
    open_cache,
    run,
    settle,
    sources,
    threads,
)
from tvsnap import Budget, Verifier
from tvsnap.cache import Cache
from tvsnap.engine.claiming import patience
from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.host.waiting import LATE_S, SLACK, SLACK_S, alike
from tvsnap.model.errors import UsageError
from tvsnap.model.observations import Captures
from tvsnap.model.operations.rollouts import Call
from tvsnap.rollout import Rollout

NOT_PARKED = Budget(parked=0)
JOB = "(sleep 20; echo done > f) &"
TWICE = "(sleep 20; echo one > f; sleep 60; echo two > f) &"
"""In virtual seconds, so that no load of the machine comes near them."""


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waiting for a sandbox puts its clock forward instead; returns the seconds, as they come."""
    waits: list[float] = []

    def let_run(live: LiveSandbox, seconds: float, pause: object = None) -> None:
        missing = seconds - live.age()
        if missing > 0:
            assert isinstance(live.sandbox, FakeSandbox)
            live.sandbox.machine.advance(missing)
            live.since -= missing
            waits.append(missing)

    monkeypatch.setattr(LiveSandbox, "let_run", let_run)
    return waits


@pytest.fixture(autouse=True)
def no_companions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is forked in the background: it would wait in real time."""
    monkeypatch.setattr("tvsnap.engine.supply.companions.PATIENCE", 3600.0)


@pytest.fixture(params=["eager", "default", "never"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cache]:
    with open_cache(tmp_path, policy=request.param, budget=NOT_PARKED) as cache:
        yield cache


def ask(rollout: Rollout, command: str, after: float = 0.0) -> tuple[str, str]:
    """Makes a call that long after the last; returns its output, and where that came from."""
    result = rollout.call("bash", {"command": command}, 20.0, after=after)
    settle(rollout)
    return result.output.strip(), result.source


LOOK = "cat f 2> /dev/null || echo none"
WORTH = Verifier("cat f > g 2> /dev/null && echo 1 || echo 0")


def test_how_much_longer_is_about_as_long() -> None:
    assert alike(10.0) == (10.0 - SLACK_S - 10 * SLACK, 10.0 + LATE_S + 10 * SLACK)
    assert alike(0.0)[0] > 0.0, "what was recorded without a wait that counts is not asked for by this"
    assert alike(1000.0)[1] < 1200.0


def test_the_same_question_after_a_longer_wait_is_executed(cache: Cache) -> None:
    """An agent that polls a build is not stuck."""
    for _ in range(3):
        with cache.rollout("terminal") as rollout:
            ask(rollout, JOB)
            assert ask(rollout, LOOK)[0] == "none"
            assert ask(rollout, LOOK, 5.0)[0] == "none"
            assert ask(rollout, LOOK, 30.0)[0] == "done"
            assert ask(rollout, LOOK, 30.0)[0] == "done"


def test_any_wait_while_it_stands_still_finds_the_same(tmp_path: Path) -> None:
    with open_cache(tmp_path, policy="default", budget=NOT_PARKED) as cache:
        for wait, found in (
            (50.0, ("done", "executed")),
            (30.0, ("done", "hit")),
            (70.0, ("done", "hit")),
            (15.0, ("none", "executed")),
            (900.0, ("done", "hit")),
        ):
            with cache.rollout("terminal") as rollout:
                ask(rollout, JOB)
                assert ask(rollout, LOOK, wait) == found


@pytest.mark.parametrize(
    ("wait", "found"), [(50.0, "hit"), (47.5, "hit"), (53.5, "hit"), (30.0, "executed"), (70.0, "executed")]
)
def test_if_something_is_still_to_come_it_comes_about_as_late(tmp_path: Path, wait: float, found: str) -> None:
    """Of 30 s that are left, a tenth may be missing."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        for seconds, source in ((50.0, "executed"), (wait, found)):
            with cache.rollout("terminal") as rollout:
                ask(rollout, TWICE)
                assert ask(rollout, LOOK, seconds) == ("one", source)


@pytest.mark.parametrize(("recorded", "again"), [((1.0, 12.0), (18.0, 12.0)), ((18.0, 12.0), (1.0, 12.0))])
@pytest.mark.parametrize("last", [LOOK, f"{LOOK}; : new"])
def test_no_time_is_lost_or_won_by_the_answer_to_a_change(
    cache: Cache, recorded: tuple[float, float], again: tuple[float, float], last: str
) -> None:
    """A job that ends 20 s after its start does so whatever else was done meanwhile."""
    for first, second in (recorded, again, recorded, again):
        with cache.rollout("terminal") as rollout:
            ask(rollout, JOB)
            ask(rollout, "echo x > x", first)
            assert ask(rollout, last, second)[0] == ("done" if first + second > 20.0 else "none")


@pytest.mark.parametrize(("first", "reward"), [(18.0, 1.0), (1.0, 0.0)])
def test_a_grade_is_that_of_the_rollouts_own_time(tmp_path: Path, first: float, reward: float) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        for before_the_change in (19.0 - first, first):
            with cache.rollout("terminal") as rollout:
                ask(rollout, JOB)
                ask(rollout, "echo x > x", before_the_change)
                ask(rollout, "true", 12.0)
                found = rollout.grade(WORTH)
        assert found.reward == reward


def test_answers_of_longer_waits_do_not_add_up(tmp_path: Path) -> None:
    """Eight answers, each of a wait that is longer by a second, would show an event of eight seconds later."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        for wait, found in ((1.0, "done"), (0.1, "none")):
            with cache.rollout("terminal") as rollout:
                ask(rollout, "(sleep 5; echo done > f) &")
                for number in range(8):
                    ask(rollout, f"echo {number} > x", wait)
                assert ask(rollout, LOOK)[0] == found


def test_an_event_that_is_far_away_costs_no_hit(tmp_path: Path) -> None:
    """An agent's terminal is a program that waits for an hour, at most, whenever it waits."""
    calls = [f"echo {number} > x" for number in range(12)]
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        for waits, source in (([2.0] * 12, "executed"), ([1.0, 2.9] * 6, "hit"), ([3.5] * 12, "hit")):
            with cache.rollout("terminal") as rollout:
                ask(rollout, "(sleep 3600; echo done > f) &")
                assert [ask(rollout, call, wait)[1] for call, wait in zip(calls, waits, strict=True)] == [source] * 12
                assert ask(rollout, LOOK, 0.0)[0] == "none"


def test_slow_rollouts_see_the_event_of_an_hour_later(tmp_path: Path) -> None:
    """Each difference is small beside an hour, but not their sum."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        for wait, found in ((1.0, "none"), (300.0, "done")):
            with cache.rollout("terminal") as rollout:
                ask(rollout, "(sleep 3600; echo done > f) &")
                for number in range(13):
                    ask(rollout, f"echo {number} > x", wait)
                assert ask(rollout, LOOK)[0] == found


def test_an_event_that_was_shown_is_not_taken_back(tmp_path: Path) -> None:
    """An answer may be of a slightly longer wait; whatever follows is of a wait at least as long."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, JOB, "pwd")
        with cache.rollout("terminal") as rollout:
            ask(rollout, JOB)
            assert ask(rollout, LOOK, 20.5)[0] == "done"
        with cache.rollout("terminal") as rollout:
            ask(rollout, JOB)
            assert ask(rollout, LOOK, 19.5) == ("done", "hit")
            assert ask(rollout, "cat f; pwd")[0].startswith("done")


def test_who_polls_in_step_is_answered_as_the_first_was(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        polls = [(LOOK, 0.0), (LOOK, 5.0), (LOOK, 30.0), ("cat f", 0.0), (LOOK, 30.0)]
        seen: list[list[tuple[str, str]]] = []
        for _ in range(3):
            with cache.rollout("terminal") as rollout:
                ask(rollout, JOB)
                seen.append([ask(rollout, command, after) for command, after in polls])
        assert [output for output, _ in seen[0]] == ["none", "none", "done", "done", "done"]
        for again in seen[1:]:
            assert again == [(output, "hit") for output, _ in seen[0]]


def test_a_new_call_finds_what_the_wait_brought(tmp_path: Path, virtual_time: list[float]) -> None:
    """A hit before it made no sandbox run: the fork is let run for as long as the rollout has waited."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, JOB)
        with cache.rollout("terminal") as rollout:
            assert ask(rollout, JOB)[1] == "hit"
            assert ask(rollout, "cat f; : new", 30.0) == ("done", "executed")
        assert virtual_time == pytest.approx([30.0], abs=5.0)


def test_a_wait_before_a_hit_that_changed_nothing_counts_for_the_next_call(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, JOB, "pwd")
        with cache.rollout("terminal") as rollout:
            assert ask(rollout, JOB)[1] == "hit"
            assert ask(rollout, "pwd", 12.0)[1] == "hit"
            assert ask(rollout, "cat f; : new", 12.0)[0] == "done"


def test_while_it_is_quiet_a_models_thinking_costs_no_hit(tmp_path: Path) -> None:
    """Nothing happens before the job's sleep is over."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, JOB, LOOK, "pwd")
        for after in (0.0, 3.0, 9.0):
            with cache.rollout("terminal") as rollout:
                assert ask(rollout, JOB)[1] == "hit"
                assert ask(rollout, LOOK, after) == ("none", "hit")
                assert ask(rollout, "pwd", after)[1] == "hit"


@pytest.mark.parametrize("commands", [["echo 1 > f"], ["sleep 1000 &", "kill %1; wait"], ["x=1", "ls"]])
def test_where_nothing_runs_time_never_counts(tmp_path: Path, commands: list[str], virtual_time: list[float]) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, *commands, "pwd")
        with cache.rollout("terminal") as rollout:
            for command in commands:
                assert ask(rollout, command)[1] == "hit"
            for _ in range(3):
                assert ask(rollout, "pwd", 1e6)[1] == "hit"
        assert virtual_time == []


def test_what_is_executed_finds_the_clock_where_its_rollout_is(tmp_path: Path, virtual_time: list[float]) -> None:
    """A program may compare the time of day with one that it wrote down."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, "x=1", "pwd")
        with cache.rollout("terminal") as rollout:
            assert ask(rollout, "x=1", 500.0)[1] == "hit"
            assert virtual_time == []
            assert ask(rollout, "pwd", 100.0)[1] == "hit"
            assert ask(rollout, "pwd", 100.0)[1] == "hit"
            assert ask(rollout, "pwd; : new", 100.0)[1] == "executed"
            assert ask(rollout, "pwd; : more")[1] == "executed"
            assert ask(rollout, "y=1", 100.0)[1] == "executed"
        with cache.rollout("terminal") as rollout:
            assert ask(rollout, "x=1", 100.0)[1] == "hit"
        assert virtual_time == pytest.approx([800.0, 100.0], abs=5.0)


def test_a_wait_is_made_up_for_by_the_age_of_the_answer_that_comes_next(
    tmp_path: Path, virtual_time: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a state holds was written when the state was recorded."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, "x=1", "y=1")
        now = time.time()
        monkeypatch.setattr("tvsnap.engine.lookup.cursor.time.time", lambda: now + 70.0)
        with cache.rollout("terminal") as rollout:
            ask(rollout, "x=1")
            assert ask(rollout, "y=1", 100.0)[1] == "hit"
            assert ask(rollout, "pwd; : new")[1] == "executed"
        assert virtual_time == pytest.approx([30.0], abs=5.0)


def test_a_fork_of_a_rollout_has_waited_as_that_has(tmp_path: Path, virtual_time: list[float]) -> None:
    """What was said of waits that nothing needed so far, and what has really passed since the last call."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, "x=1", "pwd")
        with cache.rollout("terminal") as rollout:
            assert ask(rollout, "x=1", 500.0)[1] == "hit"
            assert ask(rollout, "pwd", 100.0)[1] == "hit"
            time.sleep(0.3)
            for fork in (forks := rollout.fork(2)):
                assert ask(fork, "pwd; : new", 0.3)[0] == "/task"
            (of_fork,) = forks[0].fork()
            assert ask(of_fork, "pwd; : more")[1] == "executed"
            for fork in (*forks, of_fork):
                fork.close()
        (waited,) = virtual_time
        assert 590.0 < waited <= 599.7, "0.3 s have passed"


def test_forks_where_something_runs_are_made_from_one_snapshot(tmp_path: Path) -> None:
    """If each had its own, each would stand a little later than the one before."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache, cache.rollout("terminal") as rollout:
        ask(rollout, JOB)
        rollout._engine.reach()
        cursor, counts = rollout._engine._cursor, backend_of(cache).counts
        cursor.at = cursor.at.pass_time(5.0)
        with rollout.fork(1):  # the state itself is kept from here on
            before = counts["checkpoint"]
        with rollout.fork(3) as forks:
            assert counts["checkpoint"] == before + 1
            assert [fork._engine.has_sandbox for fork in forks] == [True] * 3


@pytest.mark.parametrize(("at_fork", "later"), [(30.0, 0.0), (21.0, 9.0), (5.0, 25.0)])
def test_what_came_by_itself_is_a_state_of_its_own_in_a_fork(tmp_path: Path, at_fork: float, later: float) -> None:
    """Also what had come when the fork was made, and what comes between that and its first call."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache, cache.rollout("terminal") as rollout:
        ask(rollout, JOB)
        rollout._engine.reach()
        before, cursor = rollout.state, rollout._engine._cursor
        cursor.at = cursor.at.pass_time(at_fork)
        rollout._engine.reach()
        with rollout.fork(1) as (fork,):
            live = fork._engine._own._live
            assert live is not None
            live.let_run(live.age() + later)  # as if that had passed
            fork._engine._cursor.at = fork._engine._cursor.at.pass_time(later)
            assert ask(fork, LOOK) == ("done", "executed")
            assert fork.state != before


def test_what_came_by_itself_is_a_state_of_its_own(tmp_path: Path) -> None:
    """The call that found it changed nothing, and yet leads on: the rollout goes on from what it was shown."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        with cache.rollout("terminal") as rollout:
            ask(rollout, JOB)
            before = rollout.state
            ask(rollout, LOOK)
            assert rollout.state == before
            ask(rollout, LOOK, 30.0)
            after = rollout.state
            assert after != before
            ask(rollout, "pwd", 500.0)
            assert rollout.state == after, "the job has ended, and time counts no more"
        edge = cache.graph.edge_to(after)
        assert edge is not None
        assert edge.waited == pytest.approx(30.0, abs=5.0)
        assert (edge.quiet_s, edge.active) == (math.inf, None)
        made_by = cache.graph.edge_to(before)
        assert made_by is not None
        assert made_by.quiet_s == pytest.approx(20.0, abs=5.0)
        assert "goes on by itself" in str(made_by.active)


def test_read_only_tools_are_observed_where_something_runs(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED) as cache, cache.rollout("terminal") as rollout:
        ask(rollout, JOB)
        before = rollout.state
        assert rollout.call("read_file", {"path": "/etc/hostname"}).output == "sandbox\n"
        settle(rollout)
        assert rollout.state == before
        assert rollout.call("read_file", {"path": "/etc/hostname"}, after=30.0).output == "sandbox\n"
        settle(rollout)
        assert rollout.state != before, "what the job has written meanwhile is there from now on"
        assert ask(rollout, "cat f; : new")[0] == "done"


def test_a_replay_waits_as_the_recording_did(
    tmp_path: Path, virtual_time: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would save an empty page, silently."""
    odd = OddEnvironment()
    monkeypatch.setattr("tvsnap.engine.supply.recipes.environment", lambda name: odd)
    backend = FakeBackend()
    with open_cache(tmp_path, backend, policy="never", budget=NOT_PARKED) as cache:
        with cache.rollout("terminal") as rollout:
            rollout.call("note", {"command": JOB})
            rollout.call("note", {"command": "cat f > page 2> /dev/null; true"}, after=30.0)
            state = rollout.state
            settle(rollout)
        virtual_time.clear()
        with cache.materialise(state) as sandbox:
            assert sandbox.read_file("/task/page") == b"done\n"
        assert virtual_time == pytest.approx([30.0], abs=5.0)
        for edge in cache.graph.lineage(state):
            assert cache.reexecute(edge).difference(edge) is None


def test_an_audit_waits_as_the_recording_did(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED, audit=1.0) as cache:
        for _ in range(2):
            with cache.rollout("terminal") as rollout:
                ask(rollout, JOB)
                ask(rollout, LOOK, 30.0)
        assert cache.audit.wait(60)
        report = cache.audit.report()
        assert (report.checked, report.differences, report.failures) == (2, (), ())


def test_a_state_is_looked_into_after_a_while(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        with cache.rollout("terminal") as rollout:
            ask(rollout, JOB)
            state = rollout.state
        with cache.materialise(state) as sandbox:
            assert sandbox.run(LOOK, timeout=5).output == b"none\n"
        with cache.materialise(state, after=30.0) as sandbox:
            assert sandbox.run(LOOK, timeout=5).output == b"done\n"


def test_a_resumed_rollout_begins_to_wait_then(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        with cache.rollout("terminal") as rollout:
            ask(rollout, JOB)
            ask(rollout, LOOK)
            state = rollout.state
        with cache.resume(state) as rollout:
            assert ask(rollout, LOOK) == ("none", "hit")
            assert ask(rollout, LOOK, 30.0) == ("done", "executed")


@pytest.mark.parametrize(("duration", "found"), [(10.0, ("done", "hit")), (0.001, ("none", "executed"))])
def test_an_answer_of_a_longer_wait_is_held_until_it_fits(
    tmp_path: Path, duration: float, found: tuple[str, str]
) -> None:
    """Unless an execution is there sooner."""
    with open_cache(tmp_path, FakeBackend(command_duration=duration), budget=NOT_PARKED) as cache:
        for after, expected in ((334.0, ("done", "executed")), (296.0, found)):  # it fits 3 s later
            with cache.rollout("terminal") as rollout:
                ask(rollout, "(sleep 330; echo done > f) &")
                assert ask(rollout, LOOK, after) == expected


def test_what_is_made_for_a_rollout_has_waited_as_it_has(cache: Cache) -> None:
    """A grade, a sandbox that is given out, and those of forks are of the moment at which the rollout stands."""
    with cache.rollout("terminal") as first:
        ask(first, JOB)
        state = first.state
        assert first.grade(WORTH).reward == 0.0
        for after, reward in ((5.0, 0.0), (30.0, 1.0)):
            with cache.resume(state, after=after) as rollout, rollout.fork() as (fork,), fork.fork() as (of_fork,):
                assert [one.grade(WORTH).reward for one in (rollout, fork, of_fork)] == [reward] * 3
                assert fork.sandbox().run(LOOK, timeout=5).output == (b"done\n" if reward else b"none\n")
                assert ask(rollout, LOOK)[0] == ("done" if reward else "none")


def test_a_grade_finds_the_clock_where_its_rollout_is(tmp_path: Path, virtual_time: list[float]) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, "x=1")
        with cache.rollout("terminal") as rollout:
            assert ask(rollout, "x=1", 500.0)[1] == "hit"
            rollout.grade(Verifier("echo 1"))
            ask(rollout, "pwd")
        assert virtual_time == pytest.approx([500.0], abs=5.0)


def test_the_time_for_a_fork_is_not_waited_for_again(tmp_path: Path, virtual_time: list[float]) -> None:
    """Nor any other wait for tvsnap, such as one for another rollout that makes the call."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, JOB)
        with cache.rollout("terminal") as rollout:
            assert ask(rollout, JOB)[1] == "hit"
            virtual_time.clear()
            backend_of(cache).hooks["fork"] = lambda *_: time.sleep(1.0)
            assert ask(rollout, LOOK, 5.0) == ("none", "executed")
            (waited,) = virtual_time
            assert 4.0 < waited < 5.5


def test_one_that_runs_is_not_parked(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        run(cache, JOB)
        eventually(lambda: not backend_of(cache).live)
        run(cache, "x=1")
        eventually(lambda: cache.pool.parked == 1)


def test_who_waits_for_a_call_under_way(tmp_path: Path) -> None:
    """Both have waited about as long: the second is given what the first found."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache, threads(4) as pool:
        run(cache, JOB)

        def roll(_: int) -> tuple[str, str]:
            with cache.rollout("terminal") as rollout:
                ask(rollout, JOB)
                return ask(rollout, LOOK, 30.0)

        found = list(pool.map(roll, range(4)))
        assert {output for output, _ in found} == {"done"}
        assert "executed" in {source for _, source in found}


def test_the_wait_for_another_execution_does_not_count(tmp_path: Path) -> None:
    """The answer to a call that is made at the same moment serves however long that takes."""
    job, gate = "(sleep 1; echo done > f) &", Gate("cat f")
    with open_cache(tmp_path, FakeBackend(hooks={"run": gate}), budget=NOT_PARKED) as cache, threads(2) as pool:
        run(cache, job)
        with cache.rollout("terminal") as one, cache.rollout("terminal") as other:
            ask(one, job)
            ask(other, job)
            first = pool.submit(ask, one, "cat f", 1.5)
            assert gate.arrived.wait(60)
            second = pool.submit(ask, other, "cat f", 1.5)
            time.sleep(1.0)  # far more than SLACK_S and SLACK allow
            gate.open.set()
            assert (first.result(60), second.result(60)) == (("done", "executed"), ("done", "coalesced"))
        assert gate.passed == 1


def test_who_executes_it_beside_is_given_what_fitted_when_it_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then its own sandbox has run for longer."""
    monkeypatch.setattr(patience, "FREE", 0.8)  # far more than SLACK_S and SLACK allow
    job, held = "(sleep 0.1; echo done > f) &", First("cat f")
    with open_cache(tmp_path, FakeBackend(hooks={"run": held}), budget=NOT_PARKED) as cache, threads(2) as pool:
        run(cache, job)
        with cache.rollout("terminal") as one, cache.rollout("terminal") as other:
            for rollout in (one, other):
                ask(rollout, job)
                rollout._engine.reach()
            time.sleep(0.3)
            first = pool.submit(ask, one, "cat f")
            eventually(lambda: len(held.arrived) == 1)
            second = pool.submit(ask, other, "cat f")
            eventually(lambda: len(held.arrived) == 2)
            held.open.set()
            assert (first.result(60)[1], second.result(60)[1]) == ("executed", "coalesced")


def test_nobody_waits_for_a_call_that_is_made_at_another_time(tmp_path: Path) -> None:
    barrier = threading.Barrier(2, timeout=15)  # less than a call waits for one with a timeout of 20 s

    def both(_: object, command: str) -> None:
        if command == LOOK:
            barrier.wait()

    with open_cache(tmp_path, FakeBackend(hooks={"run": both}), budget=NOT_PARKED) as cache, threads(2) as pool:
        run(cache, TWICE)
        with cache.rollout("terminal") as one, cache.rollout("terminal") as other:
            ask(one, TWICE)
            ask(other, TWICE)
            calls = [pool.submit(ask, one, LOOK, 30.0), pool.submit(ask, other, LOOK, 90.0)]
            assert [call.result(120) for call in calls] == [("one", "executed"), ("two", "executed")]


def test_where_what_runs_cannot_be_kept(tmp_path: Path) -> None:
    """Each rollout has its own sandbox, and its own time."""
    backend = FakeBackend(captures=Captures(files=True, processes=False, shell=True))
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        for _ in range(2):
            with cache.rollout("terminal") as rollout:
                assert ask(rollout, JOB)[1] == "executed"
                assert ask(rollout, LOOK) == ("none", "executed")
                assert ask(rollout, LOOK, 30.0) == ("done", "executed")
                assert ask(rollout, "cat f; : new")[0] == "done"


def test_without_the_cache_a_wait_is_real(tmp_path: Path) -> None:
    with open_cache(tmp_path, use_cache=False) as cache, cache.rollout("terminal") as rollout:
        began = time.monotonic()  # before the call from whose end the wait counts
        bash(rollout, "x=1")
        rollout.call("bash", {"command": "echo $x"}, after=0.3)
        assert time.monotonic() - began >= 0.29


@pytest.mark.parametrize("wrong", [-1.0, math.inf, math.nan, True, "3"])
def test_a_wait_of_nonsense_is_refused(tmp_path: Path, wrong: Any) -> None:
    with open_cache(tmp_path) as cache, cache.rollout("terminal") as rollout:
        for perform in (rollout.perform, rollout._engine.try_hit):
            with pytest.raises(UsageError, match=r"^after must be "):
                perform(Call("bash", {"command": "ls"}, after=wrong))


def test_what_a_rollout_has_really_waited_counts(tmp_path: Path) -> None:
    """Not what it says alone."""
    job = "(sleep 0.3; echo done > f) &"
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, job, LOOK)
        with cache.rollout("terminal") as rollout:
            assert ask(rollout, job)[1] == "hit"
            time.sleep(4.0)
            assert ask(rollout, LOOK) == ("done", "executed")
            assert sources(run(cache, job)) == ["hit"]
