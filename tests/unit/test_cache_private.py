"""Where a rollout leaves what can be shared: it goes on correctly, and nobody else is answered from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import inside
from tests.fakes.backend import FakeBackend
from tests.fakes.caches import (
    BUSY,
    Gate,
    OddEnvironment,
    backend_of,
    bash,
    eventually,
    open_cache,
    prove,
    run,
    settle,
    sources,
    threads,
    writes,
)
from tvsnap import Budget, TerminalEnvironment, tool
from tvsnap.cache import Cache
from tvsnap.engine.between_calls import OUTSIDE
from tvsnap.errors import DependencyFailed
from tvsnap.host import load
from tvsnap.model.errors import InfrastructureError, StateLost, UsageError
from tvsnap.types import CallContext

CHANCE = "echo $RANDOM > f; cat f"


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with open_cache(tmp_path) as cache:
        yield cache


@pytest.fixture
def odd_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = OddEnvironment()
    monkeypatch.setattr("tvsnap.engine.supply.recipes.environment", lambda name: odd)


@pytest.mark.parametrize(("held_up", "timeouts"), [(False, "private"), (True, "shared")])
def test_a_timeout_while_working_is_shared_where_nothing_held_it_up_or_that_does_not_matter(
    tmp_path: Path, held_up: bool, timeouts: str
) -> None:
    with open_cache(tmp_path, FakeBackend(held_up=held_up), timeouts=timeouts) as cache:
        for source in ("executed", "hit"):
            with cache.rollout("terminal") as rollout:
                result = bash(rollout, f"echo 1 > f; {BUSY}", timeout=2.0)
                assert (result.timed_out, result.blocked, result.source) == (True, False, source)
                assert rollout.private is None
                assert bash(rollout, "cat f").source == source
                settle(rollout)
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, f"echo 1 > f; {BUSY}", timeout=3.0).source == "executed"
    with pytest.raises(UsageError, match="timeouts"):
        open_cache(tmp_path, timeouts="never")


def test_shared_timeouts_answer_only_caches_that_share_them(tmp_path: Path) -> None:
    """Several caches use one data directory, each in its way."""
    backend = FakeBackend()

    def ask(timeouts: str) -> str:
        with open_cache(tmp_path, backend, timeouts=timeouts) as cache, cache.rollout("terminal") as rollout:
            return bash(rollout, f"echo 1 > f; {BUSY}", timeout=2.0).source

    assert [ask(timeouts) for timeouts in ("shared", "private", "shared")] == ["executed", "executed", "hit"]


def test_a_timeout_while_the_machine_was_busy_is_not_shared(cache: Cache) -> None:
    why = "timed out after 2 s on a busy machine"
    for _ in range(2):
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo 1 > f")
            before = rollout.state
            result = bash(rollout, BUSY, timeout=2.0)
            assert (result.timed_out, result.blocked, result.source) == (True, False, "executed")
            assert rollout.private == rollout.unshared == why
            assert bash(rollout, "cat f; echo 2 >> f").source == "executed"
            assert bash(rollout, "cat f").output == "1\n2\n"
            assert rollout.depth == 3
            state = cache.graph.state(rollout.state)
            assert state.private == rollout.private
    edges = cache.graph.out_edges(before)
    assert [(edge.shared, edge.timeout, edge.reason) for edge in edges] == [(False, 2.0, why)] * 2


def test_a_blocked_timeout_is_shared_under_the_same_timeout_only(cache: Cache) -> None:
    with cache.rollout("terminal") as one, cache.rollout("terminal") as two, cache.rollout("terminal") as three:
        result = bash(one, "sleep 100", timeout=2.0)
        assert (result.timed_out, result.blocked) == (True, True)
        assert one.private == one.unshared is None
        settle(one)
        assert bash(two, "sleep 100", timeout=2.0).source == "hit"
        assert bash(three, "sleep 100", timeout=3.0).source == "executed"
        assert one.state == two.state != three.state
        assert three.private is None


def test_a_private_branch_is_not_snapshotted_or_parked(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, BUSY, timeout=1.0)
        bash(rollout, "x=1")
        settle(rollout)
    assert backend_of(cache).counts["checkpoint"] == 0
    eventually(lambda: not backend_of(cache).live)


@pytest.mark.usefixtures("proofs_at_once")
def test_a_replay_that_differs_is_the_end_of_a_rollout(tmp_path: Path) -> None:
    """It has been shown what only the state that is gone is the past of: it goes on from no other."""
    backend = FakeBackend()
    coin = "cat coin 2> /dev/null || echo heads > coin; echo tossed"
    prove(tmp_path, backend, [coin, "x=1"])
    with open_cache(tmp_path, backend, policy="never", budget=Budget(parked=0)) as cache:
        with cache.rollout("terminal") as rollout:
            assert [bash(rollout, command).source for command in (coin, "x=1")] == ["hit", "hit"]
            backend.hooks["run"] = writes("/task/coin", b"tails\n")
            with pytest.raises(StateLost, match=r"made again, .*coin.* printed .tails. where .tossed. was recorded"):
                bash(rollout, "cat coin")
            backend.hooks.clear()
            assert not rollout.private
            assert cache.graph.leases() == []
        (edge,) = cache.graph.out_edges(rollout.root)
        assert not edge.deterministic, "it was relied on"
        assert str(edge.reason).startswith("made again, it printed")
        # It is served no more, and what comes of it is nobody else's.
        assert sources(run(cache, coin, "x=1")) == ["executed", "executed"]
        eventually(lambda: not backend.live)


@pytest.mark.usefixtures("proofs_at_once")
def test_a_replay_that_leaves_something_else_behind_silently(tmp_path: Path) -> None:
    """Its output is the same and what it left behind is not: nobody is to see parts of both."""
    backend = FakeBackend()
    prove(tmp_path, backend, ["echo 1 > f", "x=1"])
    with (
        open_cache(tmp_path, backend, policy="never", budget=Budget(parked=0)) as cache,
        cache.rollout("terminal") as rollout,
    ):
        assert [bash(rollout, command).source for command in ("echo 1 > f", "x=1")] == ["hit", "hit"]
        backend.hooks["run"] = writes("/task/g", b"by chance\n")
        with pytest.raises(StateLost, match="left something else behind"):
            bash(rollout, "ls")
        backend.hooks.clear()
        edges = cache.graph.lineage(rollout.state)
        assert [edge.deterministic for edge in edges] == [True, False], "only ends are compared where all are proven"


def test_a_nondeterministic_call_is_made_by_all_at_once(tmp_path: Path) -> None:
    """Nobody waits for a result that will not be shared."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache:
        run(cache, CHANCE)
        (edge,) = cache.graph.out_edges(cache.graph.roots()[0].hash)
        cache.graph.mark_nondeterministic(edge, "seen to differ")
    gate = Gate(CHANCE)
    backend.hooks["run"] = gate
    with open_cache(tmp_path, backend) as cache, threads(4) as pool:
        results = [pool.submit(run, cache, CHANCE) for _ in range(4)]
        eventually(lambda: gate.passed == 4)
        gate.open.set()
        assert [result.result(60)[0].source for result in results] == ["executed"] * 4
        edges = cache.graph.out_edges(edge.state)
        assert [edge.shared for edge in edges] == [True] + [False] * 4


def test_who_waits_for_what_cannot_be_shared_executes_at_once(tmp_path: Path) -> None:
    gate = Gate(BUSY)
    with open_cache(tmp_path, FakeBackend(hooks={"run": gate})) as cache, threads(5) as pool:
        first = pool.submit(run, cache, BUSY, "echo 1")
        assert gate.arrived.wait(60)
        others = [pool.submit(run, cache, BUSY, "echo 1") for _ in range(4)]
        eventually(lambda: len(inside.rollouts(cache)) == 5)
        gate.open.set()
        results = [future.result(60) for future in [first, *others]]
    assert {result[0].source for result in results} == {"executed"}
    assert gate.passed == 5


def test_a_race_keeps_the_first_record(tmp_path: Path) -> None:
    """Where two execute the same call after all, the first to record it wins; the other's branch is private."""
    backend = FakeBackend(command_duration=3.0)
    with open_cache(tmp_path, backend) as cache:
        before = run(cache, CHANCE)[0]
        backend.command_duration = 0.001
        with cache.rollout("terminal") as rollout:
            ours = bash(rollout, CHANCE, timeout=1.0)
            assert ours.output != before.output
            assert rollout.private == "another rollout that made this call at the same time came to another state"
            assert bash(rollout, "cat f").output == ours.output
        assert sources(run(cache, CHANCE)) == ["hit"]
        assert run(cache, CHANCE)[0].output == before.output


@pytest.mark.usefixtures("odd_tools")
def test_a_stochastic_value_is_never_shared(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, "x=1")
        for _ in range(2):  # it changes nothing here: the state before it stays shared
            assert rollout.call("ask", {"command": "echo $RANDOM"}).source == "executed"
            assert not rollout.private
            assert rollout.unshared == "the value of the tool ask is left to chance"
        assert bash(rollout, "y=2").source == "executed"
        assert rollout.unshared is None
        settle(rollout)
    assert run(cache, "x=1", "y=2")[1].source == "hit"
    with cache.rollout("terminal") as rollout:
        assert bash(rollout, "x=1").source == "hit"
        rollout.call("ask", {"command": "z=$RANDOM"})
        assert rollout.private == "the value of the tool ask is left to chance"


@pytest.mark.usefixtures("odd_tools")
def test_after_an_uncacheable_tool_all_is_private(cache: Cache) -> None:
    for _ in range(2):
        with cache.rollout("terminal") as rollout:
            assert rollout.call("fetch", {"command": "true"}).source == "executed"
            assert rollout.state == rollout.root
            assert rollout.call("send", {"command": "true"}).source == "executed"
            assert rollout.private == "the tool send acts on what is not in the sandbox"
            assert bash(rollout, "echo 1").source == "executed"


def test_a_grader_that_only_looks_changes_nothing(cache: Cache) -> None:
    run(cache, "echo 1 > f", "x=1")
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        sandbox = rollout.sandbox()
        assert sandbox.read_file("/task/f") == b"1\n"
        assert rollout.sandbox() is sandbox
        assert bash(rollout, "x=1").source == "hit"
        assert not rollout.private
        assert rollout.sandbox().run("echo $x", timeout=5).output == b"1\n"


def test_no_call_of_a_rollout_counts_as_a_graders_change(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where processors are too busy to note each state at once."""
    monkeypatch.setattr(load, "is_idle", lambda: False)
    with cache.rollout("terminal") as rollout:
        rollout.sandbox()
        for command in ("echo 1 > f", "echo 2 > f"):
            assert bash(rollout, command).source == "executed"
        assert not rollout.private
    assert [result.source for result in run(cache, "echo 1 > f", "echo 2 > f")] == ["hit", "hit"]


def test_what_a_grader_changes_is_nobody_elses(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        rollout.sandbox().run("echo 2 >> f", timeout=5)
        assert bash(rollout, "cat f").output == "1\n2\n"
        assert rollout.private == "changed from outside, in the sandbox that was given out"
        rollout.sandbox().run("echo 3 >> f", timeout=5)
        assert bash(rollout, "cat f").output == "1\n2\n3\n"
        edges = cache.graph.lineage(rollout.state)
        assert [edge.call.name for edge in edges] == ["bash", OUTSIDE, OUTSIDE]
    assert run(cache, "echo 1 > f", "cat f")[1].output == "1\n"
    eventually(lambda: cache.pool.parked == 1)  # that of the last rollout: a grader's is not left to others


def test_a_graders_sandbox_is_not_left_to_others(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        rollout.sandbox()
    eventually(lambda: not backend_of(cache).live)


def test_keeping_what_was_done_outside(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        before = rollout.state
        with pytest.raises(UsageError, match=r"Rollout\.sandbox"):
            rollout.keep("by hand")
        sandbox = rollout.sandbox()
        assert rollout.keep("by hand") == before
        sandbox.run("echo 2 >> f", timeout=5)
        kept = rollout.keep("by hand", "$ echo 2 >> f\n")
        assert kept == rollout.state != before
        assert rollout.private == "by hand"
    edge = cache.graph.edge_to(kept)
    assert edge is not None
    assert (edge.call.arguments, edge.result.output) == ({"what": "by hand"}, "$ echo 2 >> f\n")
    with cache.materialise(kept) as sandbox:
        assert sandbox.read_file("/task/f") == b"1\n2\n"
    with cache.resume(kept) as rollout:
        assert bash(rollout, "cat f").output == "1\n2\n"
        assert rollout.private == "by hand"
        rollout.sandbox().close()
        with pytest.raises(InfrastructureError, match="has ended"):
            rollout.keep("too late")


def test_a_rollout_that_is_resumed_where_nothing_is_kept_is_shared(tmp_path: Path) -> None:
    """Its sandbox is made ahead, and is given to nobody."""
    with open_cache(tmp_path, policy="never") as cache:
        with cache.rollout("terminal") as first:
            bash(first, "echo 1 > f")
            begun = first.state
        reached = set()
        for _ in range(2):
            with cache.resume(begun) as rollout:
                bash(rollout, "echo 2 > f")
                assert not rollout.private
                reached.add(rollout.state)
        assert len(reached) == 1


def test_a_rollout_can_be_resumed_anywhere(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        state = rollout.state
        bash(rollout, "echo 2 > f")
        settle(rollout)
    with cache.resume(state, task="by hand") as rollout:
        assert (rollout.state, rollout.depth) == (state, 1)
        assert bash(rollout, "cat f").output == "1\n"
        assert bash(rollout, "echo 2 > f").source == "hit"
    assert cache.graph.rollouts("by hand")[0].root == rollout.root


def test_a_rollout_goes_on_where_its_state_was_forgotten(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        cache.graph.forget(rollout.state)
        assert bash(rollout, "cat f").output == "1\n"
        assert "could not be recorded" in str(rollout.unshared)
        bash(rollout, "echo 2 >> f")
        assert "could not be recorded" in str(rollout.private)
        assert bash(rollout, "cat f").output == "1\n2\n"
    assert run(cache, "echo 1 > f", "cat f")[1].output == "1\n"


class Asking(TerminalEnvironment):
    """The terminal, with tools that ask something outside, which fails the first time."""

    def __init__(self) -> None:
        super().__init__(tools=(tool(self.write), tool(read_only=True)(self.read)))
        self.failures: list[Exception] = []

    def write(self, context: CallContext, command: str) -> str:
        """Asks, and runs a command."""
        return self.read(context, command)

    def read(self, context: CallContext, command: str) -> str:
        """Asks, and runs a command that changes nothing."""
        if self.failures:
            raise self.failures.pop()
        return context.sandbox.exec(command, timeout=context.timeout).output.decode()


@pytest.mark.parametrize("failure", [DependencyFailed("the model is away"), UsageError("no package")])
@pytest.mark.parametrize("where", ["shared", "private", "without"])
def test_what_a_tool_asks_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, where: str
) -> None:
    """A rollout goes on in its sandbox, even where it has the only one in that state, if the tool is read-only."""
    asking, backend = Asking(), FakeBackend()
    monkeypatch.setattr("tvsnap.engine.supply.recipes.environment", lambda name: asking)
    with open_cache(tmp_path, backend, use_cache=where != "without") as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        if where == "private":
            bash(rollout, BUSY, timeout=2.0)
            assert rollout.private
        settle(rollout)
        state, before = rollout.state, backend.counts["start"] + backend.counts["fork"]
        for _ in range(2):
            asking.failures = [failure]
            with pytest.raises(type(failure), match=str(failure)):
                rollout.call("read", {"command": "cat f"})
            assert rollout.state == state
        assert rollout.call("read", {"command": "cat f"}).output == "1\n"
        assert bash(rollout, "echo 2 >> f; cat f").output == "1\n2\n"
        settle(rollout)
        assert backend.counts["start"] + backend.counts["fork"] == before
        asking.failures = [failure]
        with pytest.raises(type(failure)):
            rollout.call("write", {"command": "echo 3 >> f; cat f"})
        if where == "without":
            with pytest.raises(InfrastructureError, match="nothing can rebuild it"):
                rollout.call("write", {"command": "echo 3 >> f; cat f"})
        else:
            assert rollout.call("write", {"command": "echo 3 >> f; cat f"}).output == "1\n2\n3\n"
    assert not backend.live
