"""When a result says that the load of the machine may have had a part in it."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend
from tests.fakes.caches import open_cache, settle
from tvsnap.engine.execution.strain import held_up, near_limit
from tvsnap.host import load
from tvsnap.host.load import Load, LoadGauge
from tvsnap.model.calls import ToolCall, ToolResult

CALM = Load()


def said(
    took: float, command: str = "make", timeout: float = math.inf, load: Load = CALM, *, blocked: bool = False
) -> str | None:
    result = ToolResult.of_text("", 0, took, blocked=blocked, timed_out=took >= timeout)
    return held_up(result, load) or near_limit(ToolCall("bash", {"command": command}), result, timeout)


def test_nothing_is_said_of_what_had_the_time_that_it_needs() -> None:
    assert said(9.0) is None
    assert said(9.0, timeout=60) is None
    assert said(9.0, "timeout 60 make") is None
    assert said(9.0, load=Load(throttled=1.0, waited=3.0)) is None
    assert said(0.4, load=Load(throttled=0.4, waited=0.4)) is None


def test_throttled_or_without_a_processor() -> None:
    assert said(2.0, load=Load(throttled=0.5)) == "was throttled for 0.5 of its 2 s"
    assert said(2.0, load=Load(waited=1.5)) == "for 1.5 of its 2 s the processors were taken"


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("timeout 60 make", 60),
        ("timeout -k 5 60s make", 60),
        ("timeout 1m make", 60),
        ("pytest --timeout=60 tests", 60),
        ("pytest --timeout 60", 60),
        ("curl --connect-timeout 60 localhost", 60),
        ("python3 -c 'run(timeout=60)'", 60),
        ("python3 -c 'run(timeout = 60.0)'", 60),
        ("wait --timeout_sec=60", 60),
        ("timeout 0.5h make", 1800),
        ("timeout 300 a; timeout 60 b", 60),
    ],
)
def test_near_a_limit_that_it_names(command: str, limit: float) -> None:
    assert said(limit * 0.49, command) is None
    assert said(limit * 0.5, command) == f"took {limit * 0.5:.3g} s of the {limit:.3g} s that it had"


def test_near_the_timeout_that_it_was_given() -> None:
    assert said(31.0, timeout=60) == "took 31 s of the 60 s that it had"


@pytest.mark.parametrize("command", ["cat timeout.txt", "echo timeouts 5", "timeout 0 make", "grep timeout 5.txt"])
def test_what_names_no_limit(command: str) -> None:
    assert said(4.0, command) is None


def test_a_timeout_is_the_machines_doing_where_that_was_busy() -> None:
    assert said(60.0, timeout=60) is None
    assert said(0.1, timeout=0.1) is None
    assert said(60.0, timeout=60, load=Load(throttled=30)) == "was throttled for 30 of its 60 s"
    assert said(0.1, timeout=0.1, load=Load(waited=0.09)) == "for 0.09 of its 0.1 s the processors were taken"


def test_what_waited_for_ever_is_not_the_machines_doing() -> None:
    assert said(60.0, timeout=60, blocked=True) is None


@pytest.mark.parametrize(
    ("mounts", "group", "stat", "seconds"),
    [
        ("cgroup2 {} cgroup2 rw 0 0", "0::/a/b", "usage_usec 750000\nthrottled_usec 2500000\n", 2.5),
        ("cgroup {} cgroup rw,cpu,cpuacct 0 0", "5:cpu,cpuacct:/a/b\n0::/", "throttled_time 2500000000\n", 2.5),
    ],
)
def test_the_gauge_reads_control_groups_of_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounts: str, group: str, stat: str, seconds: float
) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/cpu.stat").write_text(stat)
    (tmp_path / "a/b/cpuacct.usage").write_text("750000000\n")
    (tmp_path / "a/b/cpu.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull total=9\n")
    files = {f"/proc/{os.getpid()}/cgroup": group + "\n", "/proc/self/mounts": mounts.format(tmp_path) + "\n"}
    reading = load._read
    monkeypatch.setattr(load, "_read", lambda path, most=4096: files.get(path) or reading(path, most))
    load._hierarchy.cache_clear()
    try:
        assert LoadGauge(os.getpid()).read() == Load(seconds, 1.5, 0.75)
    finally:
        load._hierarchy.cache_clear()


def test_the_gauge_of_what_is_gone_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_PRESSURE", "/nowhere")
    assert LoadGauge(1 << 30).read() == Load()


def test_a_hit_says_what_its_execution_suffered(tmp_path: Path) -> None:
    backend = FakeBackend(command_duration=2.0)
    with open_cache(tmp_path, backend) as cache:
        results = []
        for _ in range(2):
            with cache.rollout("terminal") as rollout:
                results.append(rollout.call("bash", {"command": "echo 1 > f"}, 3.0))
                settle(rollout)
        assert [result.source for result in results] == ["executed", "hit"]
        assert {result.strain for result in results} == {"took 2 s of the 3 s that it had"}
