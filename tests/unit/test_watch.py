"""`tvsnap watch`: samples of what rollouts do, as a screen, as lines and as JSON."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli import watch, watch_view
from tests.fakes.caches import Gate, bash, eventually, open_cache, settle, threads
from tests.unit.cli_helpers import CommandLine, make_command_line
from tests.unit.graph_helpers import add_root, call, result
from tvsnap.graph import Graph, NewEdge
from tvsnap.model.calls import next_state


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return make_command_line(tmp_path, monkeypatch)


def lines_of(samples: list[dict[str, Any]]) -> str:
    console = Console(width=110, record=True, color_system=None, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(watch_view.screen(samples))
    return console.export_text()


def test_one_sample_as_json(line: CommandLine) -> None:
    with open_cache(line.home, line.backend) as cache:
        for _ in range(2):
            with cache.rollout("terminal", "fix it") as rollout:
                bash(rollout, "echo 1 > f")
                settle(rollout)
    data = line.json("watch", "--interval", "0.1")
    assert (data["calls"], data["hits"], data["executed"]) == (2, 1, 1)
    assert data["hit_rate"] == 0.5
    assert data["rollouts"] == {"open": 0, "executing": 0, "waiting": None, "thinking": None}
    assert data["recent"]["hit_rate"] is None
    assert data["recent"]["calls_per_s"] == 0.0
    assert data["snapshots"] >= 1
    assert data["free_bytes"] > 0


def test_what_rollouts_do_now(line: CommandLine) -> None:
    gate = Gate("sleep 9")
    line.backend.hooks["run"] = gate
    with (
        open_cache(line.home, line.backend) as cache,
        threads(2) as pool,
        cache.rollout("terminal") as one,
        cache.rollout("terminal") as other,
    ):
        bash(other, "echo 1 > f")
        settle(other)
        samples = watch._samples(watch._Here(line.home, cache.graph), 0.01)
        next(samples)
        made = pool.submit(bash, one, "sleep 9")
        assert gate.arrived.wait(60)
        sample = next(samples)
        assert sample["rollouts"]["open"] == 2
        assert sample["rollouts"]["executing"] == 1
        assert "1 executing, 1 waiting or thinking" in watch_view.line(sample)
        gate.open.set()
        made.result()
        sample = eventually(lambda: (now := next(samples))["rollouts"]["executing"] == 0 and now)
        assert sample["rollouts"]["open"] == 2


def test_refusals_are_told_as_they_come(line: CommandLine) -> None:
    with Graph(line.home / "tvsnap.db") as graph:
        root = add_root(graph)
        samples = watch._samples(watch._Here(line.home, graph), 0.0)
        assert next(samples)["refusals"] == []
        for n in range(3):
            made = call(f"date {n}")
            after = next_state(root, made)
            graph.record(
                NewEdge(
                    root, made, result(), next_state=after, private="why", shared=False, reason=f"by\x1b[31m chance {n}"
                )
            )
        graph.note_refusal(after, "local", "it watches files")
        sample = next(samples)
        words = [told["words"] for told in sample["refusals"]]
        assert words[:2] == ["by^[[31m chance 0", "by^[[31m chance 1"]
        assert "not kept: it watches files" in words
        text = lines_of(list(itertools.islice(samples, 3)))
        assert "last refusals" in text
        assert "by^[[31m chance 2" in text
        assert "\x1b" not in text


def test_it_needs_a_positive_interval(line: CommandLine) -> None:
    assert "interval" in line.error("watch", "--interval", "0", status=2)
