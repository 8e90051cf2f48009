"""Audits: a share of the answers is made again in the background; what differs answers nothing from then on."""

from __future__ import annotations

import logging
import random
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import FakeBackend
from tests.fakes.caches import bash, open_cache, prove, run, sources, writes
from tvsnap import Budget
from tvsnap.engine.auditing.audit import BACKLOG, Auditor
from tvsnap.engine.events import Answered
from tvsnap.engine.meter import Meter
from tvsnap.engine.position import Position
from tvsnap.graph import Edge
from tvsnap.graph.reexecution import Remade
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import InfrastructureError, UsageError

CHANCE = "echo $RANDOM"


def test_nothing_is_audited_unasked(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        for _ in range(3):
            run(cache, "echo x > f", CHANCE)
        assert cache.audit.wait(0)
        assert (cache.audit.report().checked, cache.stats().audited) == (0, 0)
        assert not [thread for thread in threading.enumerate() if thread.name == "tvsnap-audit"]


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_that_is_none(tmp_path: Path, share: float) -> None:
    with pytest.raises(UsageError, match="audit must be a number from 0 to 1, not"):
        open_cache(tmp_path, audit=share)


def test_answers_that_hold(tmp_path: Path) -> None:
    with open_cache(tmp_path, audit=1.0) as cache:
        run(cache, "echo x > f", "cat f")
        assert sources(run(cache, "echo x > f", "cat f")) == ["hit", "hit"]
        assert sources(run(cache, "echo x > f", "cat f")) == ["hit", "hit"]
        assert cache.audit.wait(60)
        report = cache.audit.report()
        assert (report.checked, report.same, report.differences, report.failures) == (2, 2, (), ())
        assert not report.interrupted
        assert (cache.stats().audited, cache.stats().audit_differences) == (2, 0)


def test_a_wrong_answer_is_told_of_and_served_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_cache(tmp_path, audit=1.0) as cache, caplog.at_level(logging.WARNING):
        first = run(cache, "echo x > f", CHANCE)[1]
        assert run(cache, "echo x > f", CHANCE)[1].output == first.output  # as nobody knows better yet
        assert cache.audit.wait(60)
        (found,) = cache.audit.report().differences
        assert found.edge.call.arguments == {"command": CHANCE}
        assert found.edge.result.output == first.output != found.seen.output
        again = run(cache, "echo x > f", CHANCE)[1]
        assert (again.source, again.output != first.output) == ("executed", True)
        edge = cache.graph.edge(found.edge.id)
        assert not edge.deterministic
        assert str(edge.reason).startswith("an audit printed ")
        assert cache.stats().audit_differences == 1
    assert "an audit found an answer that cannot be relied on, given " in caplog.text
    assert CHANCE in caplog.text


@pytest.mark.usefixtures("proofs_at_once")
def test_a_state_that_cannot_be_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The call on the way is what cannot be relied on: it is told of as well."""
    backend = FakeBackend()
    way = "cat coin 2> /dev/null || echo tossed; x=1"
    prove(tmp_path, backend, [way, "cat f; echo $x"])
    with (
        open_cache(tmp_path, backend, audit=1.0, policy="never", budget=Budget(parked=0)) as cache,
        caplog.at_level(logging.WARNING),
    ):
        backend.hooks["run"] = writes("/task/coin", b"tails\n")
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, way).source == "hit"
            assert bash(rollout, "cat f; echo $x").source == "hit"
        assert cache.audit.wait(60)
        report = cache.audit.report()
        assert {found.edge.call.arguments["command"] for found in report.differences} == {way}
        assert run(cache, way)[0].source == "executed"
    assert way in caplog.text


def test_what_is_left_behind_is_compared(tmp_path: Path) -> None:
    """Its output is the same each time; what it writes is not, and the snapshot alone tells what it was."""
    silent = "echo $RANDOM > f"
    with open_cache(tmp_path, audit=1.0) as cache:
        run(cache, silent, "cat f")
        run(cache, silent, "cat f")
        assert cache.audit.wait(60)
        report = cache.audit.report()
        assert [edge.call.arguments["command"] for edge in report.by_chance] == [silent]
        assert (report.checked, report.same, report.differences) == (2, 1, ())
        assert sources(run(cache, silent, "cat f")) == ["hit", "hit"], "its snapshot answers for it"


@pytest.mark.usefixtures("proofs_at_once")
def test_what_was_known_to_leave_the_same_behind_and_does_not(tmp_path: Path) -> None:
    backend = FakeBackend()
    way = "cat coin > f 2> /dev/null; x=1"
    prove(tmp_path, backend, [way])
    with open_cache(tmp_path, backend, audit=1.0) as cache:
        backend.hooks["run"] = writes("/task/coin", b"tails\n")
        run(cache, way)
        assert cache.audit.wait(60)
        assert [found.words for found in cache.audit.report().differences] == ["left something else behind"]
        assert run(cache, way)[0].source == "executed"


@pytest.mark.usefixtures("proofs_at_once")
def test_an_audit_proves_what_it_finds_to_hold(tmp_path: Path) -> None:
    with open_cache(tmp_path, audit=1.0) as cache:
        run(cache, "echo 1 > f", "echo $RANDOM > g")
        for _ in range(2):
            run(cache, "echo 1 > f", "cat f")
        assert cache.audit.wait(60)
        proven = {
            edge.call.arguments["command"]: edge.proven for edge in cache.graph.out_edges(cache.graph.roots()[0].hash)
        }
        assert proven == {"echo 1 > f": True}
        for snapshot in cache.graph.snapshots():
            cache.graph.drop_snapshot(snapshot.state, "fake")
        assert sources(run(cache, "echo 1 > f", "echo $RANDOM > g")) == ["hit", "executed"]


def test_an_audit_that_fails(tmp_path: Path) -> None:
    """It is no difference, and what is served goes on being served."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend, audit=1.0) as cache:
        run(cache, "echo x > f")
        backend.faults.fail("run", InfrastructureError("no luck"), times=9)
        assert run(cache, "echo x > f")[0].source == "hit"
        assert cache.audit.wait(60)
        report = cache.audit.report()
        assert (report.checked, report.differences) == (0, ())
        assert [reason for _, reason in report.failures] == ["no luck"]
        assert run(cache, "echo x > f")[0].source == "hit"


def test_closing_ends_an_audit_under_way(tmp_path: Path) -> None:
    entered, gate = threading.Event(), threading.Event()

    def hold(_: Any, command: str) -> None:
        if threading.current_thread().name == "tvsnap-audit":
            entered.set()
            assert gate.wait(60)

    backend = FakeBackend(hooks={"run": hold})
    with open_cache(tmp_path, backend, audit=1.0) as cache:
        run(cache, "echo x > f", "echo y > g", "echo z > h")
        run(cache, "echo x > f", "echo y > g", "echo z > h")
        assert entered.wait(60)
        assert not cache.audit.wait(0)
        assert cache.audit.report().interrupted
        closing = threading.Thread(target=cache.close)
        closing.start()
        gate.set()
        closing.join(60)
        assert not closing.is_alive()
    assert cache.audit.report().checked <= 1
    assert not [thread for thread in threading.enumerate() if thread.name == "tvsnap-audit"]
    assert not backend.live


class _Waiting:
    """Stands in for `Cache.reexecute`: waits, then fails."""

    def __init__(self) -> None:
        self.entered, self.gate = threading.Event(), threading.Event()

    def __call__(self, edge: Edge) -> Remade:
        self.entered.set()
        self.gate.wait(60)
        raise InfrastructureError("waited")


def test_the_backlog_and_the_share_are_bounds(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        run(cache, "echo x > f")
        (edge,) = (cache.graph.edge(node.made_by.id) for node in cache.graph.tree() if node.made_by)
        rollout = cache.rollout("terminal")._engine
        event = Answered(weakref.ref(rollout), edge, "hit", Position(edge.next_state), False, 1, 0.0)
        waiting = _Waiting()
        auditor = Auditor(0.25, cache.graph, waiting, Meter())
        random.seed(7)
        while not waiting.entered.is_set():
            auditor.answered(event)
        for number in range(2 * BACKLOG):
            auditor.answered(replace(event, edge=replace(edge, id=10_000 + number)))
        assert 350 < len(auditor._waiting) < 650
        for number in range(20 * BACKLOG):
            auditor.answered(replace(event, edge=replace(edge, id=20_000 + number)))
        assert len(auditor._waiting) == BACKLOG
        auditor.close()
        waiting.gate.set()
        auditor.join()


def test_a_call_in_a_message_acts_upon_no_terminal() -> None:
    assert ToolCall("bash", {"command": "echo \x1b]0;x\x07\n  b"}).brief == 'bash "echo \\u001b]0;x\\u0007 b"'
    assert ToolCall("screen", {}).brief == "screen"
    assert len(ToolCall("sql", {"query": "SELECT 1" * 100}).brief) == len('sql ""') + 60
