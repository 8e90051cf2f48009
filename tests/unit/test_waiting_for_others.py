"""Calls that another rollout is executing: who waits for it, who executes it beside, and what each is shown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import inside
from tests.fakes.backend import FakeBackend, FakeSandbox
from tests.fakes.caches import (
    First,
    Gate,
    backend_of,
    bash,
    eventually,
    open_cache,
    open_shared,
    run,
    settle,
    sources,
    threads,
)
from tests.unit.other_processes import Other, execute, other_process
from tvsnap import Budget
from tvsnap.engine.claiming import patience
from tvsnap.model.errors import InfrastructureError, NotCheckpointable

CHANCE = "echo $RANDOM > f; cat f"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets calls wait only where it is known that this pays."""
    monkeypatch.setattr(patience, "FREE", 0.0)


def together(count: int, command: str) -> tuple[FakeBackend, threading.Barrier]:
    """Returns a backend where a command goes on only once so many are executing it."""
    barrier = threading.Barrier(count, timeout=60)

    def wait(sandbox: FakeSandbox | None, subject: str) -> None:
        if subject == command:
            barrier.wait()

    return FakeBackend(hooks={"run": wait}), barrier


def test_who_executes_it_beside_takes_what_comes_first(impatient: None, tmp_path: Path) -> None:
    """Its own execution is cut short, and its sandbox used by nobody any more."""
    first = First(CHANCE)
    with open_cache(tmp_path, FakeBackend(hooks={"run": first})) as cache, threads(4) as pool:
        rollouts = [cache.rollout("terminal") for _ in range(4)]
        calls = [pool.submit(bash, rollouts[0], CHANCE)]
        eventually(lambda: len(first.arrived) == 1)
        calls += [pool.submit(bash, rollout, CHANCE) for rollout in rollouts[1:]]
        eventually(lambda: len(first.arrived) == 4)
        first.open.set()
        results = [call.result(60) for call in calls]
        assert sorted(sources(results)) == ["coalesced"] * 3 + ["executed"]
        assert len({result.output for result in results}) == 1
        assert len({rollout.state for rollout in rollouts}) == 1
        assert {bash(rollout, "cat f").output for rollout in rollouts} == {results[0].output}
        assert not any(rollout.private for rollout in rollouts)
        cut_short = {sandbox.id for sandbox in first.arrived[1:]}
        eventually(lambda: not cut_short & backend_of(cache).live.keys())
        for rollout in rollouts:
            rollout.close()


def test_all_execute_side_by_side_what_turns_out_not_to_be_kept(impatient: None, tmp_path: Path) -> None:
    backend, barrier = together(5, CHANCE)
    with open_cache(tmp_path, backend, policy="never") as cache, threads(5) as pool:
        results = list(pool.map(lambda _: run(cache, CHANCE, "cat f"), range(5)))
    assert not barrier.broken
    assert all(shown.source == seen.source == "executed" for shown, seen in results)
    assert all(shown.output == seen.output for shown, seen in results)
    assert len({shown.output for shown, _ in results}) == 5


def refused(backend: FakeBackend) -> FakeBackend:
    backend.faults.fail("checkpoint", NotCheckpointable("it has a traced process"), times=100)
    return backend


@pytest.mark.parametrize("reopened", [False, True])
def test_what_was_refused_before_is_not_waited_for(reopened: bool, tmp_path: Path) -> None:
    """Though a call might wait for a minute: who executed it, in this process or an earlier one, left a note."""
    with open_cache(tmp_path, refused(FakeBackend())) as cache:
        run(cache, CHANCE)
        backend, barrier = together(5, CHANCE)
        if not reopened:
            backend_of(cache).hooks.update(backend.hooks)
            with threads(5) as pool:
                results = list(pool.map(lambda _: run(cache, CHANCE), range(5)))
    if reopened:
        with open_cache(tmp_path, refused(backend)) as cache, threads(5) as pool:
            results = list(pool.map(lambda _: run(cache, CHANCE), range(5)))
    assert not barrier.broken
    assert sources([result for (result,) in results]) == ["executed"] * 5


def test_what_timed_out_while_it_worked_is_not_waited_for_again(tmp_path: Path) -> None:
    backend, barrier = together(3, "spin")
    with open_cache(tmp_path, FakeBackend()) as cache, cache.rollout("terminal") as rollout:
        assert bash(rollout, "spin", 5.0).timed_out
        settle(rollout)
    with open_cache(tmp_path, backend) as cache, threads(3) as pool:
        rollouts = [cache.rollout("terminal") for _ in range(3)]
        results = list(pool.map(lambda rollout: bash(rollout, "spin", 5.0), rollouts))
    assert not barrier.broken
    assert sources(results) == ["executed"] * 3


def test_after_a_failure_nobody_waits_again(tmp_path: Path) -> None:
    """The others had waited for the first; then all of them execute it side by side, whoever comes first to it."""
    gate = Gate(CHANCE)
    barrier = threading.Barrier(4, timeout=60)

    def wait(sandbox: FakeSandbox | None, subject: str) -> None:
        if subject == CHANCE:
            late = gate.open.is_set()
            gate(sandbox, subject)
            if late:
                barrier.wait()

    with open_cache(tmp_path, FakeBackend(hooks={"run": wait}), policy="never") as cache, threads(5) as pool:
        first = pool.submit(run, cache, CHANCE)
        assert gate.arrived.wait(60)
        others = [cache.rollout("terminal") for _ in range(4)]
        calls = [pool.submit(bash, rollout, CHANCE) for rollout in others]
        gate.open.set()
        results = [*first.result(60), *(call.result(60) for call in calls)]
    assert not barrier.broken
    assert gate.passed == 5
    assert sources(results) == ["executed"] * 5


def test_no_deadline_is_missed_by_waiting(tmp_path: Path) -> None:
    """Where the call's timeout would end after the deadline, there is no time to wait; the result is shared still."""
    first = First("make")
    with open_cache(tmp_path, FakeBackend(hooks={"run": first})) as cache, threads(3) as pool:
        executing = pool.submit(run, cache, "make")
        eventually(lambda: len(first.arrived) == 1)
        hurried, patient = cache.rollout("terminal", deadline=30.0), cache.rollout("terminal", deadline=3000.0)
        of_rollout = pool.submit(bash, hurried, "make", 60.0)
        eventually(lambda: len(first.arrived) == 2)
        of_call = pool.submit(patient.call, "bash", {"command": "make"}, 60.0, deadline=30.0)
        eventually(lambda: len(first.arrived) == 3)
        first.open.set()
        assert sources([of_rollout.result(60), of_call.result(60), *executing.result(60)]) == [
            "coalesced",
            "coalesced",
            "executed",
        ]


def test_a_deadline_far_away_is_no_reason_not_to_wait(tmp_path: Path) -> None:
    gate = Gate("make")
    with open_cache(tmp_path, FakeBackend(hooks={"run": gate})) as cache, threads(2) as pool:
        first = pool.submit(run, cache, "make")
        assert gate.arrived.wait(60)
        second = pool.submit(run, cache, "make", deadline=3000.0)
        passed = pool.submit(run, cache, "make", deadline=0.0)  # it is missed already, and counts no more
        gate.open.set()
        assert first.result(60)[0].source == "executed"
        assert second.result(60)[0].source in ("coalesced", "hit")
        assert passed.result(60)[0].source in ("coalesced", "hit")
    assert gate.passed == 1


def test_who_has_no_room_for_a_sandbox_waits_on(impatient: None, tmp_path: Path) -> None:
    first = First("make")
    backend = FakeBackend(hooks={"run": first})
    with open_cache(tmp_path, backend, budget=Budget(sandboxes=1)) as cache, threads(3) as pool:
        calls = [pool.submit(run, cache, "make")]
        eventually(lambda: len(first.arrived) == 1)
        calls += [pool.submit(run, cache, "make") for _ in range(2)]
        eventually(lambda: len(inside.rollouts(cache)) == 3)
        first.open.set()
        results = [call.result(60)[0] for call in calls]
    assert len(first.arrived) == 1
    assert sources(results).count("executed") == 1


def test_nobody_gives_up_the_only_sandbox_of_a_state(impatient: None, tmp_path: Path) -> None:
    """What changes nothing leads back to a state that only the rollouts' own sandboxes keep."""
    first = First("cat f")
    with open_cache(tmp_path, FakeBackend(hooks={"run": first}), policy="never") as cache, threads(2) as pool:
        one, two = cache.rollout("terminal"), cache.rollout("terminal")
        for rollout in (one, two):
            bash(rollout, "echo 1 > f")
        assert one.state == two.state
        quick = pool.submit(bash, one, "cat f")
        eventually(lambda: len(first.arrived) == 1)
        slow = pool.submit(bash, two, "cat f")
        eventually(lambda: len(first.arrived) == 2)
        first.open.set()
        assert quick.result(60).output == "1\n"
        settle(one)
        first.arrived[1].interrupted.set()  # which nobody else does
        assert slow.result(60).source == "executed"
        assert bash(two, "cat f; echo 2").output == "1\n2\n"


def test_a_cancelled_call_does_not_wait_for_the_other(impatient: None, tmp_path: Path) -> None:
    first = First("make")
    with open_cache(tmp_path, FakeBackend(hooks={"run": first})) as cache, threads(2) as pool:
        one, two = cache.rollout("terminal"), cache.rollout("terminal")
        executing = pool.submit(bash, one, "make")
        eventually(lambda: len(first.arrived) == 1)
        cancelled = pool.submit(bash, two, "make")
        eventually(lambda: len(first.arrived) == 2)
        assert two.cancel()
        assert cancelled.result(60).source == "executed"
        assert not executing.done()
        first.open.set()
        executing.result(60)


def test_a_sandbox_that_cannot_be_had_is_no_failure_while_the_other_works(impatient: None, tmp_path: Path) -> None:
    first = First("make")
    backend = FakeBackend(hooks={"run": first})
    with open_cache(tmp_path, backend) as cache, threads(2) as pool:
        one, two = cache.rollout("terminal"), cache.rollout("terminal")
        executing = pool.submit(bash, one, "make")
        eventually(lambda: len(first.arrived) == 1)
        backend.faults.fail("start", InfrastructureError("no memory"), times=1)
        starts = backend.counts["start"]
        beside = pool.submit(bash, two, "make")
        eventually(lambda: backend.counts["start"] > starts)
        first.open.set()
        assert executing.result(60).source == "executed"
        assert beside.result(60).source == "coalesced"


def test_who_ends_while_the_first_is_being_kept_leaves_its_record_alone(impatient: None, tmp_path: Path) -> None:
    """A second snapshot of what the call leads to would make the first one useless, and take as long again."""
    arrived: list[FakeSandbox] = []
    others, keeping, kept = threading.Event(), threading.Event(), threading.Event()

    def wait(sandbox: FakeSandbox | None, subject: str) -> None:
        if subject == CHANCE and sandbox is not None:
            arrived.append(sandbox)
            assert (others if sandbox is arrived[0] else keeping).wait(60)

    def keep(sandbox: FakeSandbox | None, subject: str) -> None:
        keeping.set()
        assert kept.wait(60)

    backend = FakeBackend(hooks={"run": wait, "checkpoint": keep})
    with open_cache(tmp_path, backend) as cache, threads(3) as pool:
        rollouts = [cache.rollout("terminal") for _ in range(3)]
        calls = [pool.submit(bash, rollouts[0], CHANCE)]
        eventually(lambda: len(arrived) == 1)
        calls += [pool.submit(bash, rollout, CHANCE) for rollout in rollouts[1:]]
        eventually(lambda: len(arrived) == 3)
        others.set()
        results = [call.result(60) for call in calls]
        for rollout in rollouts[1:]:
            settle(rollout)
            assert rollout.private == "another rollout that made this call at the same time came to another state"
        assert backend.counts["checkpoint"] == 1
        kept.set()
        settle(rollouts[0])
        assert not rollouts[0].private
        assert sources(results) == ["executed"] * 3
        assert [bash(rollout, "cat f").output for rollout in rollouts] == [result.output for result in results]
        (again,) = run(cache, CHANCE)
        assert (again.source, again.output) == ("hit", results[0].output)
    assert backend.counts["checkpoint"] == 1


@pytest.fixture(params=["eager", "never"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Other]]:
    """A policy, and a process with it that executes CHANCE until the file `go` is there."""
    with other_process(execute, tmp_path, request.param, CHANCE) as process:
        try:
            eventually((tmp_path / "making").exists, timeout=60)
            yield request.param, process
        finally:
            (tmp_path / "go").touch()


def test_beside_another_process(impatient: None, other: tuple[str, Other], tmp_path: Path) -> None:
    """What it comes to is taken if it is kept; else this process has executed the call meanwhile."""
    policy, process = other
    executing: list[FakeSandbox] = []

    def wait(sandbox: FakeSandbox | None, subject: str) -> None:
        if subject == CHANCE and sandbox is not None:
            executing.append(sandbox)
            if policy == "eager":
                assert sandbox.interrupted.wait(60)
            else:
                eventually(lambda: cache.graph.leases() == [])

    with open_shared(tmp_path, hooks={"run": wait}, seed=1) as cache, threads(3) as pool:
        rollouts = [cache.rollout("terminal") for _ in range(3)]
        # The first waits for the other process, which has executed the call for long: half of that time.
        calls = [pool.submit(bash, rollout, CHANCE) for rollout in rollouts]
        eventually(lambda: len(executing) == 3)
        (tmp_path / "go").touch()
        results = [call.result(60) for call in calls]
        theirs = process.answer()
        if policy == "eager":
            assert {(result.source, result.output) for result in results} == {("coalesced", theirs)}
        else:
            assert theirs not in {result.output for result in results}
        for rollout, result in zip(rollouts, results, strict=True):
            assert bash(rollout, "cat f").output == result.output
