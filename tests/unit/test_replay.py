"""The replay engine: order, passes, parallelism, infrastructure errors and interrupts."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import FakeBackend, FakeSandbox
from tests.fakes.caches import BUSY, FakeImages, eventually
from tvsnap import Budget
from tvsnap.cache import Cache
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import InfrastructureError
from tvsnap.upkeep.replay import CallRecord, Latency, Replay, ReplayOptions, ReplayReport, RolloutRun
from tvsnap.upkeep.rollout_files import PlannedCall, PlannedRollout

REPORT_KEYS = {
    *("rollouts", "calls", "hits", "coalesced", "executed", "replayed", "forks", "checkpoints"),
    *("hit_rate", "wall_s", "tool_time_s", "saved_s", "latency_ms"),
}
OUTPUT_KEYS = {
    *("task", "rollout", "index", "name", "source", "exit_code", "timed_out", "output", "duration", "state"),
}


def planned(name: str, *commands: str, timeout: float | None = None) -> PlannedRollout:
    calls = tuple(PlannedCall(ToolCall("bash", {"command": command}), timeout) for command in commands)
    return PlannedRollout("task", name, None, calls)


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def cache(tmp_path: Path, backend: FakeBackend) -> Iterator[Cache]:
    with Cache(tmp_path, backend=backend, images=FakeImages()) as cache:
        yield cache


def replay(cache: Cache, rollouts: list[PlannedRollout], **options: Any) -> ReplayReport:
    return Replay(cache, rollouts, ReplayOptions("terminal", **options)).run()


class Recorder:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[CallRecord] = []
        self.runs: list[RolloutRun] = []

    def called(self, record: CallRecord) -> None:
        self.calls.append(record)

    def ended(self, run: RolloutRun) -> None:
        self.runs.append(run)


def test_report_and_outputs_have_the_documented_keys(cache: Cache) -> None:
    report = replay(cache, [planned("a", "echo x", "echo x > f")])
    data = report.data()
    assert data.keys() >= REPORT_KEYS
    assert data["latency_ms"].keys() >= {"hit", "executed", "fork", "checkpoint"}
    assert all(latency.keys() == {"n", "p50", "p99"} for latency in data["latency_ms"].values())
    json.dumps(data, allow_nan=False)
    stream = io.StringIO()
    report.write_outputs(stream)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["index"] for line in lines] == [0, 1]
    assert all(line.keys() >= OUTPUT_KEYS for line in lines)
    assert lines[0]["output"] == "x\n"


def test_calls_are_counted_by_where_they_came_from(cache: Cache) -> None:
    rollouts = [planned("a", "echo x > f", "cat f"), planned("b", "echo x > f", "cat f", "echo y")]
    data = replay(cache, rollouts).data()
    assert (data["rollouts"], data["calls"], data["hits"], data["executed"]) == (2, 5, 2, 3)
    assert data["hit_rate"] == pytest.approx(0.4)
    again = replay(cache, rollouts).data()
    assert (again["hits"] + again["coalesced"], again["executed"], again["hit_rate"]) == (5, 0, 1.0)


def test_the_report_tells_how_sandboxes_were_had(tmp_path: Path, backend: FakeBackend) -> None:
    with Cache(tmp_path, backend=backend, images=FakeImages(), prefork=4, budget=Budget(parked=0)) as cache:
        replay(cache, [planned(name, f"echo {name}") for name in "abcd"])
        eventually(lambda: cache.pool.ready)
        data = replay(cache, [planned("e", "echo e")]).data()
    assert sum(data["arrivals"].values()) == data["executed"] + 4
    assert data["arrivals"]["ready"] == data["preforks_used"] > 0
    assert data["preforks"] >= data["preforks_used"] + data["preforks_wasted"]
    assert data["prefork_time_s"] > 0


def test_outputs_follow_the_files_and_not_the_clock(cache: Cache, backend: FakeBackend) -> None:
    backend.hooks["run"] = lambda sandbox, command: time.sleep(0.05 if "slow" in command else 0)
    rollouts = [planned("slow", "echo slow", "echo slow 2"), planned("quick", "echo q"), planned("other", "echo o")]
    report = replay(cache, rollouts, parallel=3, repeat=2)
    assert [(call.repeat, call.rollout, call.index) for call in report.calls] == [
        (repeat, name, index)
        for repeat in (0, 1)
        for name, index in (("slow", 0), ("slow", 1), ("quick", 0), ("other", 0))
    ]


def test_a_pass_begins_when_the_one_before_has_ended(cache: Cache) -> None:
    rollouts = [planned("a", "echo x > f"), planned("b", "echo y > f")]
    report = replay(cache, rollouts, parallel=2, repeat=3)
    passes = report.data()["passes"]
    assert [(entry["repeat"], entry["executed"], entry["hits"] + entry["coalesced"]) for entry in passes] == [
        (0, 2, 0),
        (1, 0, 2),
        (2, 0, 2),
    ]
    assert report.wall_s >= sum(report.passes_s) * 0.99
    assert report.data()["rollouts"] == 6


def test_rollouts_run_side_by_side_as_many_as_asked_for(cache: Cache, backend: FakeBackend) -> None:
    def meet(sandbox: FakeSandbox | None, command: str) -> None:
        together.wait(60)

    together = threading.Barrier(3)
    backend.hooks["run"] = meet
    report = replay(cache, [planned(name, f"echo {name}") for name in "abcdef"], parallel=3)
    assert not report.failed


def test_calls_without_a_timeout_get_the_default_one(cache: Cache) -> None:
    report = replay(cache, [planned("a", BUSY), planned("b", BUSY, timeout=2)], timeout=7.0)
    assert [call.result.timed_out for call in report.calls] == [True, True]
    assert [round(call.result.duration) for call in report.calls] == [7, 2]


def test_what_is_not_shared_comes_with_the_reason(cache: Cache) -> None:
    report = replay(cache, [planned("a", "echo x > f", BUSY, "cat f")], timeout=3.0)
    first, busy, after = report.calls
    assert first.not_shared is None
    assert busy.not_shared == "timed out after 3 s on a busy machine"
    assert after.not_shared == "in a private branch: timed out after 3 s on a busy machine"
    data = report.data()
    assert [entry["index"] for entry in data["not_shared"]] == [1, 2]
    assert sum(data["not_shared_reasons"].values()) == 2


def test_a_rollout_that_tvsnap_fails_does_not_stop_the_others(cache: Cache, backend: FakeBackend) -> None:
    backend.faults.fail("run", InfrastructureError("the disk is on fire"))
    listener = Recorder()
    rollouts = [planned("a", "echo a", "echo b"), planned("b", "echo c"), planned("c", "echo d")]
    report = Replay(cache, rollouts, ReplayOptions("terminal"), listener).run()
    assert [run.planned.rollout for run in report.failed] == ["a"]
    assert "on fire" in report.failed[0].error
    assert [run.finished for run in report.runs] == [False, True, True]
    assert report.data()["failed"][0]["rollout"] == "a"
    assert len(listener.runs) == 3
    assert len(listener.calls) == 2


def test_a_missing_image_fails_each_rollout(cache: Cache) -> None:
    report = Replay(cache, [planned("a", "ls")], ReplayOptions("nope")).run()
    assert "nope" in report.failed[0].error


def test_a_mistake_of_ours_is_not_swallowed(cache: Cache, backend: FakeBackend) -> None:
    backend.faults.fail("run", ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        replay(cache, [planned("a", "ls")])


def test_an_interrupt_reports_what_was_done(cache: Cache, backend: FakeBackend) -> None:
    class Impatient(Recorder):
        def called(self, record: CallRecord) -> None:
            super().called(record)
            if len(self.calls) == 3:
                under_way.set()

    under_way = threading.Event()
    backend.hooks["run"] = lambda sandbox, command: time.sleep(0.02)
    listener = Impatient()
    rollouts = [planned(n, *map("echo {}".format, range(500))) for n in "ab"]
    engine = Replay(cache, rollouts, ReplayOptions("terminal", 2), listener)
    real_join = threading.Thread.join

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        if under_way.is_set() and thread.name.startswith("replay-"):
            under_way.clear()
            raise KeyboardInterrupt
        real_join(thread, timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "join", join)
        began = time.monotonic()
        report = engine.run()
    assert time.monotonic() - began < 60
    assert report.interrupted
    assert 3 <= len(report.calls) < 100
    assert report.data()["interrupted"] is True
    assert not report.failed
    assert not backend.live
    assert len(listener.calls) >= 3


def test_thinking_is_not_counted_as_waiting(cache: Cache) -> None:
    report = replay(cache, [planned("a", "echo 1", "echo 2", "echo 3")], think=0.5)
    assert report.wall_s >= 1.0
    assert max(call.elapsed for call in report.calls) < 0.5


def test_percentiles() -> None:
    assert Latency.of([]) == Latency(0, None, None)
    assert Latency.of([0.004]) == Latency(1, 4.0, 4.0)
    hundred = Latency.of(number / 1000 for number in range(1, 101))
    assert hundred.n == 100
    assert hundred.p50 == pytest.approx(50)
    assert hundred.p99 == pytest.approx(99)
