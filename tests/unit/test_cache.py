"""The flow of a call: hits, misses, where sandboxes come from, and what is recorded."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import inside
from tests.fakes.backend import FakeBackend, FakeSandbox, fake_image
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
from tvsnap import Budget
from tvsnap.cache import Cache
from tvsnap.engine.conclusion import conclusion
from tvsnap.engine.keeping.policy.costs import LATEST
from tvsnap.graph import Graph
from tvsnap.host import load
from tvsnap.host.home import GRAPH_FILE
from tvsnap.model.errors import InfrastructureError, NotFound, UsageError
from tvsnap.model.limits import Limits
from tvsnap.model.operations.rollouts import Call


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with open_cache(tmp_path) as cache:
        yield cache


def test_the_second_rollout_is_answered_from_the_graph(cache: Cache) -> None:
    commands = ["echo 1 > f", "cat f", "x=2; cd /tmp", "echo $x; pwd", "false", "echo $?"]
    first = run(cache, *commands)
    executed = list(backend_of(cache).commands)
    second = run(cache, *commands)
    assert sources(first) == ["executed"] * 6
    assert sources(second) == ["hit"] * 6
    assert [result.from_source("executed") for result in second] == first
    assert first[-1].output == "1\n"
    assert backend_of(cache).commands == executed


def test_a_hit_needs_no_sandbox(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache:
        first = run(cache, "echo 1 > f", "cat f")
    backend.counts.clear()
    with open_cache(tmp_path, backend) as cache:
        assert [result.output for result in run(cache, "echo 1 > f", "cat f")] == [result.output for result in first]
        assert backend.counts == {}


def test_states_are_named_by_what_led_there(cache: Cache) -> None:
    with cache.rollout("terminal") as one, cache.rollout("terminal") as two:
        assert one.state == two.state == one.root
        bash(one, "echo 1 > f")
        assert one.state != two.state
        bash(two, "echo 1 > f")
        assert one.state == two.state
        assert (one.depth, two.depth) == (1, 1)


def test_states_are_named_for_what_they_hold(tmp_path: Path) -> None:
    """Not for the call alone: where two executions leave different things behind, they lead to different states."""
    backend = FakeBackend()
    with open_cache(tmp_path / "one", backend) as one, open_cache(tmp_path / "two", backend) as two:
        for cache in (one, two):
            run(cache, "echo 1 > f", "echo $RANDOM > g")
        ways = [sorted(node.state.hash for node in cache.graph.tree() if node.state.depth) for cache in (one, two)]
        assert len(set(ways[0]) & set(ways[1])) == 1
        with one.rollout("terminal") as rollout:
            assert rollout.state == two.graph.roots()[0].hash
            bash(rollout, "echo 1 > f")
            assert rollout.state in ways[0]
            assert rollout.state in ways[1]


def test_calls_that_change_nothing_lead_back(cache: Cache) -> None:
    with cache.rollout("terminal") as one, cache.rollout("terminal") as two:
        for command in ("echo 1 > f", "cat f", "ls"):
            bash(one, command)
        settle(one)
        assert [bash(two, command).source for command in ("echo 1 > f", "ls", "cat f")] == ["hit"] * 3
        assert one.state == two.state
        assert one.depth == 1


@pytest.mark.parametrize("thinks", [True, False])
def test_no_call_of_an_agent_that_thinks_waits_until_its_sandbox_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thinks: bool
) -> None:
    """While processors are busy, it is noted in between only if the agent leaves time for that."""
    noted: list[str] = []
    monkeypatch.setattr(load, "is_idle", lambda: False)
    monkeypatch.setattr(FakeSandbox, "note", lambda _: noted.append(threading.current_thread().name))
    with open_cache(tmp_path, policy="never") as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        settle(rollout)
        noted.clear()
        if thinks:
            cache._services.costs.paused(10 * conclusion.THINKING / LATEST)
        bash(rollout, "echo 2 > f")
        settle(rollout)
    assert [name.startswith("tvsnap-work") for name in noted] == [True] * thinks


def test_read_only_tools_are_not_observed(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        result = rollout.call("read_file", {"path": "/etc/hostname"})
        assert result.output == "sandbox\n"
        assert rollout.state == rollout.root
        settle(rollout)
        assert backend_of(cache).counts["observe"] == 0
        bash(rollout, "true")
        settle(rollout)
        assert backend_of(cache).counts["observe"] == 2
    assert run(cache, "true")[0].source == "hit"


def test_an_observation_is_kept_for_the_next_call(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        for number in range(5):
            bash(rollout, f"echo {number} >> f")
        settle(rollout)
    assert backend_of(cache).counts["observe"] == 6


def test_salt_and_limits_and_image_separate_states(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        run(cache, "true")
        assert run(cache, "true", salt="other")[0].source == "executed"
        with cache.rollout(fake_image("another")) as rollout:
            assert bash(rollout, "true").source == "executed"
        assert run(cache, "true", task="another")[0].source == "hit"
    with open_cache(tmp_path, limits=Limits(output=100)) as cache:
        assert run(cache, "true")[0].source == "executed"
    with open_cache(tmp_path, limits=Limits(cpus=1.0)) as cache:
        assert run(cache, "true")[0].source == "executed"


def test_a_miss_below_a_hit_forks_the_snapshot(cache: Cache) -> None:
    run(cache, "echo 1 > f", "echo 2 >> f")
    backend = backend_of(cache)
    backend.commands.clear()
    inside.park_nothing(cache.pool)
    with cache.rollout("terminal") as rollout:
        assert bash(rollout, "echo 1 > f").source == "hit"
        assert bash(rollout, "cat f").output == "1\n"
        settle(rollout)
    assert backend.commands == ["cat f"]
    assert backend.counts["fork"] == 1
    assert cache.stats().prefix_hits == 1


def test_a_parked_sandbox_is_used_before_a_fork(cache: Cache) -> None:
    run(cache, "echo 1 > f")
    eventually(lambda: cache.pool.parked == 1)
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        assert bash(rollout, "cat f").output == "1\n"
    assert backend_of(cache).counts["fork"] == 0
    assert backend_of(cache).counts["start"] == 1


def test_a_parked_sandbox_that_has_changed_is_not_used(cache: Cache) -> None:
    run(cache, "echo 1 > f")
    eventually(lambda: cache.pool.parked == 1)
    (sandbox,) = backend_of(cache).live.values()
    sandbox.machine.write("/task/f", b"changed by a background job\n")
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        assert bash(rollout, "cat f").output == "1\n"
    assert backend_of(cache).counts["fork"] == 1


@pytest.mark.usefixtures("proofs_at_once")
def test_without_snapshots_a_state_is_rebuilt_by_replay(tmp_path: Path) -> None:
    backend = FakeBackend()
    prove(tmp_path, backend, ["echo 1 > f", "ls", "echo 2 >> f", "x=3"])
    with open_cache(tmp_path, backend, policy="never", budget=Budget(parked=0)) as cache:
        backend_of(cache).commands.clear()
        with cache.rollout("terminal") as rollout:
            for command in ("echo 1 > f", "echo 2 >> f", "x=3"):
                assert bash(rollout, command).source == "hit"
            assert bash(rollout, "cat f; echo $x").output == "1\n2\n3\n"
        # What changed nothing is not replayed.
        assert backend_of(cache).commands == ["echo 1 > f", "echo 2 >> f", "x=3", "cat f; echo $x"]
        stats = cache.stats()
        assert (stats.replayed, stats.starts, stats.forks, stats.checkpoints) == (3, 1, 0, 0)


@pytest.mark.usefixtures("proofs_at_once")
def test_a_replay_begins_in_the_nearest_snapshot(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=Budget(parked=0)) as cache:
        run(cache, "echo 1 > f")
    snapshots = backend_of(cache)
    prove(tmp_path, snapshots, ["echo 1 > f", "echo 2 >> f"])
    with open_cache(tmp_path, snapshots, policy="never", budget=Budget(parked=0)) as cache:
        snapshots.commands.clear()
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, "echo 1 > f").source == "hit"
            assert bash(rollout, "echo 2 >> f").source == "hit"
            assert bash(rollout, "cat f").output == "1\n2\n"
        assert snapshots.commands == ["echo 2 >> f", "cat f"]


@pytest.mark.usefixtures("proofs_at_once")
def test_a_replay_begins_in_a_nearer_parked_sandbox(tmp_path: Path) -> None:
    backend = FakeBackend()
    prove(tmp_path, backend, ["echo 1 > f", "echo 2 >> f", "echo 3 >> f"], ["echo 1 > f", "x=1"])
    with open_cache(tmp_path, backend, policy="never") as cache:
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo 1 > f")
            bash(rollout, "echo 2 >> f")
            bash(rollout, "echo 3 >> f")
            bash(rollout, "pwd")
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo 1 > f")
            bash(rollout, "x=1")
            bash(rollout, "pwd")  # from the root: what is parked stands further down
        eventually(lambda: cache.pool.parked == 2)
        backend_of(cache).commands.clear()
        with cache.rollout("terminal") as rollout:
            for command in ("echo 1 > f", "x=1", "y=2"):
                bash(rollout, command)
        assert backend_of(cache).commands == ["y=2"]
        eventually(lambda: cache.pool.parked == 2)
        with cache.rollout("terminal") as rollout:
            for command in ("echo 1 > f", "echo 2 >> f", "echo 3 >> f"):
                assert bash(rollout, command).source == "hit"
            backend_of(cache).commands.clear()
            assert bash(rollout, "cat f").output == "1\n2\n3\n"
        assert backend_of(cache).commands == ["cat f"]


def test_a_rollout_that_moves_on_hits_parks_its_sandbox(cache: Cache) -> None:
    with cache.rollout("terminal") as one, cache.rollout("terminal") as two:
        bash(one, "a=1")
        bash(one, "b=2")
        bash(two, "c=1")
        settle(two)
        assert cache.pool.parked == 0
        with cache.rollout("terminal") as three:
            bash(three, "c=1")
            bash(three, "d=2")
            settle(three)
        assert bash(two, "d=2").source == "hit"
        eventually(lambda: cache.pool.parked == 2)
        assert bash(two, "echo $c$d").output == "12\n"


def test_the_result_comes_before_observation_and_checkpoint(tmp_path: Path) -> None:
    observing, go = threading.Event(), threading.Event()

    def wait(sandbox: object, subject: str) -> None:
        if backend.counts["run"]:
            observing.set()
            assert go.wait(60)

    backend = FakeBackend(hooks={"observe": wait})
    with open_cache(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
        assert bash(rollout, "echo 1").output == "1\n"
        assert observing.wait(60)
        assert rollout._engine.pending() is not None
        go.set()
        assert rollout.state == rollout.root


def test_what_is_slow_to_look_at_holds_up_nobody_else(tmp_path: Path) -> None:
    """However many rollouts have seen to that: each has a worker."""
    slow, begun, allowed = set[str](), threading.Semaphore(0), threading.Event()

    def run(sandbox: FakeSandbox | None, command: str) -> None:
        if sandbox is not None and command == "echo slow > f":
            slow.add(sandbox.id)

    def wait(sandbox: FakeSandbox | None, _: str) -> None:
        if sandbox is not None and sandbox.id in slow:
            begun.release()
            allowed.wait(60)

    hostile = 40
    backend = FakeBackend(hooks={"run": run, "observe": wait})
    with open_cache(tmp_path, backend) as cache, contextlib.ExitStack() as rollouts:
        other = rollouts.enter_context(cache.rollout("terminal", salt="other"))
        bash(other, "echo 1 > f")
        for number in range(hostile):
            rollout = rollouts.enter_context(cache.rollout("terminal", salt=f"hostile {number}"))
            bash(rollout, "echo slow > f")
        try:
            for _ in range(hostile):
                assert begun.acquire(timeout=60), "they wait for each other"
            assert bash(other, "echo 2 > f").source == "executed"
            settle(other)
        finally:
            allowed.set()


@pytest.mark.usefixtures("proofs_at_once")
def test_a_hit_does_not_wait_for_a_checkpoint(tmp_path: Path) -> None:
    prove(tmp_path, FakeBackend(command_duration=3.0), ["a=1", "b=2"])
    checkpointing, go = threading.Event(), threading.Event()

    def wait(sandbox: object, subject: str) -> None:
        checkpointing.set()
        assert go.wait(60)

    with open_cache(tmp_path, FakeBackend(hooks={"checkpoint": wait})) as cache:
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, "a=1", timeout=1.0).source == "executed"
            assert checkpointing.wait(60)
            assert bash(rollout, "b=2", timeout=5.0).source == "hit"
            go.set()
        assert cache.pool.live == 1
    assert cache.stats().checkpoints == 1


def test_two_that_miss_the_same_call_execute_it_once(tmp_path: Path) -> None:
    gate = Gate("make")
    with open_cache(tmp_path, FakeBackend(hooks={"run": gate})) as cache, threads(8) as pool:
        first = pool.submit(run, cache, "make", "echo $?")
        assert gate.arrived.wait(60)
        others = [pool.submit(run, cache, "make", "echo $?") for _ in range(7)]
        eventually(lambda: len(inside.rollouts(cache)) == 8)
        gate.open.set()
        results = [future.result(60) for future in [first, *others]]
    assert gate.passed == 1
    made = [result[0].source for result in results]
    assert made.count("executed") == 1, made
    assert "coalesced" in made, made  # on a busy machine, the last may come after it
    assert len({result[0].output for result in results}) == 1
    assert sum(result[1].source == "executed" for result in results) == 1


def test_who_waits_is_answered_once_what_it_led_to_is_kept(tmp_path: Path) -> None:
    """Earlier, what he is shown might be the past of a state that nobody can go on from."""
    gate, checkpointing, go = Gate("make"), threading.Event(), threading.Event()

    def wait(sandbox: object, subject: str) -> None:
        checkpointing.set()
        assert go.wait(60)

    backend = FakeBackend(hooks={"run": gate, "checkpoint": wait})
    with open_cache(tmp_path, backend) as cache, threads(2) as pool:
        with cache.rollout("terminal") as one, cache.rollout("terminal") as two:
            first = pool.submit(bash, one, "make")
            assert gate.arrived.wait(60)
            second = pool.submit(bash, two, "make")
            gate.open.set()
            assert first.result(60).source == "executed"
            assert checkpointing.wait(60)
            assert two._engine.try_hit(Call("bash", {"command": "make"})) is None
            time.sleep(0.05)
            assert not second.done()
            go.set()
            assert second.result(60).source in ("coalesced", "hit")  # a hit if it came late
            assert one.state == two.state
            assert bash(two, "echo done").output == "done\n"
        assert backend.commands == ["make", "echo done"]


def test_who_waits_for_what_changes_nothing_does_not_wait_for_a_checkpoint(tmp_path: Path) -> None:
    gate = Gate("ls")
    backend = FakeBackend(hooks={"run": gate})
    with open_cache(tmp_path, backend, policy="never") as cache, threads(2) as pool:
        first = pool.submit(run, cache, "ls")
        assert gate.arrived.wait(60)
        second = pool.submit(run, cache, "ls")
        eventually(lambda: len(inside.rollouts(cache)) == 2)
        gate.open.set()
        assert first.result(60)[0].source == "executed"
        assert second.result(60)[0].source in ("coalesced", "hit")


def test_who_waits_for_what_cannot_be_kept_executes_it(tmp_path: Path) -> None:
    """Each then is the past of its own state; nobody goes on from what another was shown."""
    chance = "echo $RANDOM > f; cat f"
    gate = Gate(chance)
    with open_cache(tmp_path, FakeBackend(hooks={"run": gate}), policy="never") as cache, threads(5) as pool:
        first = pool.submit(run, cache, chance, "cat f")
        assert gate.arrived.wait(60)
        others = [pool.submit(run, cache, chance, "cat f") for _ in range(4)]
        eventually(lambda: len(inside.rollouts(cache)) == 5)
        gate.open.set()
        results = [future.result(60) for future in [first, *others]]
    assert gate.passed == 5
    assert all(shown.source == seen.source == "executed" for shown, seen in results)
    assert all(shown.output == seen.output for shown, seen in results)
    assert len({shown.output for shown, _ in results}) == 5


def test_a_call_that_takes_longer_than_the_caller_waits_is_not_a_hit(cache: Cache) -> None:
    assert run(cache, "sleep 5; echo done")[0].output == "done\n"
    with cache.rollout("terminal") as rollout:
        hurried = bash(rollout, "sleep 5; echo done", timeout=1.0)
        assert (hurried.timed_out, hurried.blocked, hurried.source) == (True, True, "executed")
        assert not rollout.private
        settle(rollout)
    with cache.rollout("terminal") as rollout:
        assert bash(rollout, "sleep 5; echo done", timeout=1.0).source == "hit"
    with cache.rollout("terminal") as rollout:
        assert bash(rollout, "sleep 5; echo done", timeout=6.0).output == "done\n"


def test_an_equal_result_within_a_shorter_timeout_keeps_the_record(tmp_path: Path) -> None:
    backend = FakeBackend(command_duration=3.0)
    with open_cache(tmp_path, backend) as cache:
        run(cache, "echo 1 > f")
        backend.command_duration = 0.5
        with cache.rollout("terminal") as rollout:
            result = bash(rollout, "echo 1 > f", timeout=1.0)
            assert (result.source, result.duration) == ("executed", 0.5)
            assert not rollout.private
            state = rollout.state
        with cache.rollout("terminal") as rollout:
            result = bash(rollout, "echo 1 > f", timeout=5.0)
            assert (result.source, result.duration) == ("hit", 3.0)
            assert rollout.state == state


def test_bad_calls_are_refused_before_anything_happens(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        for name, arguments, timeout, says in (
            ("bsh", {"command": "ls"}, 5.0, r'unknown tool "bsh"; have: bash, exec'),
            ("bash", {}, 5.0, '"command" is missing'),
            ("bash", {"command": "ls"}, 0.0, "timeout"),
            ("bash", {"command": "ls"}, float("nan"), "timeout"),
            ("bash", {"command": {1, 2}}, 5.0, "plain JSON"),
        ):
            with pytest.raises(UsageError, match=says):
                rollout.call(name, arguments, timeout)
        assert bash(rollout, "echo fine").output == "fine\n"
    with pytest.raises(UsageError, match="closed"):
        bash(rollout, "ls")
    with pytest.raises(NotFound, match="termnal"):
        cache.rollout("termnal")
    with pytest.raises(UsageError, match='environment "nowhere" not found; have: mariadb, postgres, python'):
        cache.rollout(replace(fake_image(), environment="nowhere"))


def test_without_the_cache_nothing_is_looked_up_or_recorded(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        wanted = run(cache, "echo 1 > f", "cat f")
    with open_cache(tmp_path, use_cache=False, same_ids=True) as cache:
        results = run(cache, "echo 1 > f", "cat f")
        assert sources(results) == ["executed"] * 2
        assert [result.output for result in results] == [result.output for result in wanted]
        assert run(cache, "echo 3", "cat f; echo $?")[1].output.endswith("1\n")
        backend = backend_of(cache)
        assert (backend.counts["start"], backend.counts["checkpoint"], backend.counts["digest"]) == (2, 0, 0)
        eventually(lambda: not backend.live)
        with cache.rollout("terminal") as rollout:
            bash(rollout, "x=1")
            assert rollout.sandbox().run("echo $x", timeout=5).output == b"1\n"
    with open_cache(tmp_path) as cache:
        assert len(cache.graph.rollouts()) == 1


def test_what_a_rollout_was_is_recorded(cache: Cache) -> None:
    with cache.rollout("terminal", task="fix", label="one") as rollout:
        bash(rollout, "x=1")
        state = rollout.state
    (record,) = cache.graph.rollouts("fix")
    assert (record.id, record.label, record.image, record.root) == (rollout.id, "one", "terminal", rollout.root)
    assert record.state == state
    assert record.finished is not None
    assert cache.graph.tasks() == ["fix"]


def test_stats(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache:
        run(cache, "x=1", "sleep 3")
        run(cache, "x=1", "sleep 3", "echo $x")
        stats = cache.stats()
    assert (stats.rollouts, stats.hits, stats.executed, stats.starts, stats.checkpoints) == (2, 2, 3, 1, 1)
    assert stats.calls == 5
    assert stats.hit_rate == 0.4
    assert stats.tool_time_s == pytest.approx(3.003)
    assert stats.answered_s == pytest.approx(3.002)
    assert stats.saved_s < stats.answered_s
    assert len(stats.latency_s["hit"]) == 2
    assert len(stats.latency_s["executed"]) == 3
    assert stats.by_depth == {1: (2, 1), 2: (2, 1), 3: (1, 0)}
    with open_cache(tmp_path, backend) as cache:
        run(cache, "x=1")
        totals = cache.stats().totals
        assert (totals["hits"], totals["executed"], totals["rollouts"]) == (3, 3, 3)
        assert cache.stats().hits == 1
    assert cache.stats().totals["hits"] == 3


def test_what_was_done_is_counted_while_rollouts_are_open(tmp_path: Path) -> None:
    """So that little of it is lost where a signal ends the process."""
    with open_cache(tmp_path) as cache, cache.rollout("terminal") as rollout, Graph(tmp_path / GRAPH_FILE) as graph:
        for number in range(3):
            bash(rollout, f"echo {number} > f")
        eventually(lambda: graph.counters().get("executed") == 3)
        assert bash(cache.rollout("terminal"), "echo 0 > f").source == "hit"
        eventually(lambda: graph.counters().get("hits") == 1)


def test_closing_ends_rollouts_and_sandboxes(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    rollout = cache.rollout("terminal", task="t")
    bash(rollout, "x=1")
    cache.close()
    cache.close()
    assert backend_of(cache).live == {}
    with pytest.raises(UsageError, match="closed"):
        bash(rollout, "ls")
    with pytest.raises(UsageError, match="closed"):
        cache.rollout("terminal")
    with open_cache(tmp_path) as again:
        (record,) = again.graph.rollouts()
        assert record.finished is not None
        assert record.state == rollout.state


def test_closing_ends_calls_under_way(tmp_path: Path) -> None:
    gate = Gate("make")

    def died(sandbox: object, subject: str) -> None:
        gate(sandbox, subject)
        if gate.passed:
            raise InfrastructureError("the sandbox was closed under it")

    with threads(2) as pool:
        cache = open_cache(tmp_path, FakeBackend(hooks={"run": died}))
        one = pool.submit(run, cache, "make")
        assert gate.arrived.wait(60)
        two = pool.submit(run, cache, "make")
        eventually(lambda: len(inside.rollouts(cache)) == 2)
        closing = threading.Thread(target=cache.close)
        closing.start()
        with pytest.raises((InfrastructureError, UsageError), match="is closed"):  # it may not have called yet
            two.result(60)
        eventually(lambda: not backend_of(cache).live)
        gate.open.set()
        with pytest.raises(InfrastructureError):
            one.result(60)
        closing.join(60)
    with open_cache(tmp_path) as cache:
        assert cache.graph.leases() == []


def test_more_rollouts_than_sandboxes(tmp_path: Path) -> None:
    """Idle rollouts give up their sandboxes to those that need one."""
    with open_cache(tmp_path, budget=Budget(sandboxes=3)) as cache:
        rollouts = [cache.rollout("terminal", salt=str(number)) for number in range(10)]
        for _ in range(3):
            for number, rollout in enumerate(rollouts):
                bash(rollout, f"echo {number} >> f")
                assert len(backend_of(cache).live) <= 3
        assert [bash(rollout, "cat f").output for rollout in rollouts] == [f"{n}\n" * 3 for n in range(10)]


def test_many_threads_many_rollouts(tmp_path: Path) -> None:
    """All see what a fresh run sees, whatever is hit, coalesced, forked or replayed."""
    histories = [[f"echo {(seed * step) % 3} >> f; cat f" for step in range(1, 8)] for seed in range(24)]
    with open_cache(tmp_path / "fresh", use_cache=False, same_ids=True) as cache:
        wanted = [[result.output for result in run(cache, *history)] for history in histories]
    for policy in ("eager", "never", "default"):
        with (
            open_cache(
                tmp_path / policy, FakeBackend(delays={"run": 0.001}), policy=policy, budget=Budget(sandboxes=10)
            ) as cache,
            threads(24) as pool,
        ):
            found = list(pool.map(lambda history: run(cache, *history), histories))
            assert [[result.output for result in results] for results in found] == wanted
            executed = cache.stats().executed
            distinct = {tuple(history[:length]) for history in histories for length in range(1, 8)}
            if policy == "never":  # what nobody keeps is executed by each who comes
                assert executed >= len(distinct)
            else:
                assert executed == len(distinct)


def test_a_rollout_that_nobody_holds_makes_room_for_who_waits(tmp_path: Path) -> None:
    with open_cache(tmp_path, policy="never", budget=Budget(sandboxes=1, parked=0)) as cache:
        dropped = cache.rollout("terminal", salt="dropped")
        dropped.sandbox()
        with cache.rollout("terminal", salt="waits") as waits, threads(1) as others:
            call = others.submit(bash, waits, "echo 1")
            time.sleep(0.1)
            del dropped
            gc.collect()
            assert call.result(60).output == "1\n"
