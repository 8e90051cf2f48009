"""`tvsnap report`: a page with charts of what a cache did."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from cli import report_view
from cli.text import place_words
from tests.fakes.caches import bash, open_cache, settle
from tests.unit.cli_helpers import CommandLine, make_command_line
from tests.unit.graph_helpers import add_root, call, result
from tvsnap.graph import Graph, NewEdge, Tally
from tvsnap.model.calls import next_state
from tvsnap.model.stats import DEEPEST
from tvsnap.upkeep.figures import by_place

HOSTILE = "</style></title><script>alert(1)</script>\x1b[31m \"'&lt;"
FIGURES: dict[str, Any] = {
    **dict.fromkeys(("hits", "coalesced", "executed", "forks", "snapshots", "calls", "rollouts"), 3),
    **dict.fromkeys(("answered_s", "saved_s", "snapshot_bytes", "disk_bytes"), 2.0),
    "by_depth": [{"from": 1, "to": 1, "answered": 3, "calls": 4}, {"from": 2, "to": 99, "answered": 0, "calls": 4}],
}
TALLY = Tally("0", 2, 0.5, 4, 1, 0, 1, 2.0, 4.0, 1.0, 1.0, 0)


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return make_command_line(tmp_path, monkeypatch)


def texts(page: str) -> list[str]:
    """Returns all texts of a page; checks that its elements are those of a report, and closed."""
    found: list[str] = []
    opened: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            assert tag not in ("script", "img", "iframe")
            assert not [name for name, _ in attrs if name in ("src", "style") or name.startswith("on")]
            if tag not in ("meta", "link"):
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag not in ("meta", "link"):
                assert opened.pop() == tag

        def handle_data(self, data: str) -> None:
            if opened and opened[-1] != "style" and data.strip():
                found.append(data)

    Reader().feed(page)
    assert not opened
    return found


def heights(page: str, kind: int = 0) -> list[float]:
    return [float(tall) for tall in re.findall(rf'<rect class="bar{kind}"[^>]* height="([\d.]+)"', page)]


def test_a_report_of_a_cache(line: CommandLine, tmp_path: Path) -> None:
    with open_cache(line.home, line.backend) as cache:
        for epoch in (0, 1):
            with cache.rollout("terminal", "fix it", epoch=epoch) as rollout:
                for command in ("echo 1 > f", "cat f"):
                    bash(rollout, command)
                    settle(rollout)
    path = tmp_path / "report.html"
    done = line("report", str(path))
    assert done.stderr.startswith(f"wrote {path}: ")
    page = path.read_text()
    found = texts(page)
    assert "tvsnap: 4 calls in 2 rollouts" in found
    assert {"0: 0 %", "1: 100 %", "Hit rate by epoch", "fix it", "All recorded calls answer others."} <= set(found)
    start = found.index("How long rollouts waited for a call")
    waits = found[start : found.index("How long the recorded calls take")]
    assert sum(int(told[1]) for text in waits if (told := re.fullmatch(r"≥ .*: (\d+)", text))) == 4
    assert line("report", "-").stdout[:15] == "<!DOCTYPE html>"


def test_mistakes(line: CommandLine, tmp_path: Path) -> None:
    missing = tmp_path / "report.html"
    assert "nothing was recorded yet" in line.error("report", str(missing), status=3)
    assert not missing.exists()
    line.rollout("echo x > f")
    assert "cannot write" in line.error("report", str(tmp_path), status=2)


def test_bars_are_as_tall_as_their_values(tmp_path: Path) -> None:
    epochs = [replace(TALLY, key=str(n), hits=n, waited_s=4.0 * n, took_s=8.0) for n in range(4)]
    page = report_view.report({**FIGURES, "by_depth": []}, epochs, [], [], [])
    rates, rewards, waited, took = heights(page)[:4], heights(page)[4:8], heights(page)[8:], heights(page, 1)
    full = report_view.HEIGHT - report_view.TOP - report_view.BOTTOM
    assert rates == pytest.approx([full * n / 4 for n in range(4)], abs=0.01)
    assert rewards == pytest.approx([full] * 4, abs=0.01)
    assert waited == pytest.approx([full * n / 3 for n in range(4)], abs=0.01)
    assert took == pytest.approx([full * 2 / 3] * 4, abs=0.01)


def test_rewards_by_epoch_may_be_negative_or_missing() -> None:
    def bars(*rewards: float | None) -> list[float]:  # where each one begins, and how tall it is
        epochs = [replace(TALLY, key=str(n), calls=1, hits=1, reward=reward) for n, reward in enumerate(rewards)]
        page = report_view.report({**FIGURES, "by_depth": []}, epochs, [], [], [])
        if "Mean reward by epoch" not in page:
            return []
        of_chart = page.partition("Mean reward by epoch")[2].partition("</svg>")[0]
        found = re.findall(r'<rect class="bar0" x="[^"]*" y="([\d.]+)" width="[^"]*" height="([\d.]+)"', of_chart)
        return [float(number) for bar in found for number in bar]

    top, full = report_view.TOP, report_view.HEIGHT - report_view.TOP - report_view.BOTTOM
    assert bars(1.0, None, -1.0) == pytest.approx([top, full / 2, top + full / 2, full / 2], abs=0.01)
    assert bars(-1.0, -2.0) == pytest.approx([top, full / 2, top, full], abs=0.01)
    assert bars(0.0) == pytest.approx([top + full, 0], abs=0.01)
    assert bars(None, None) == []


def test_why_calls_were_not_shared_is_counted(tmp_path: Path) -> None:
    with Graph(tmp_path / "graph.db") as graph:
        root = add_root(graph)
        for number, reason in enumerate([HOSTILE, HOSTILE, "it asked the network"]):
            made = call(f"echo {number}")
            after = next_state(root, made)
            graph.record(
                NewEdge(root, made, result("", 10.0 ** (number - 9)), next_state=after, reason=reason, shared=False)
            )
        nodes = graph.tree()
    page = report_view.report(FIGURES, [], [replace(TALLY, key=HOSTILE)], nodes, [])
    found = texts(page)
    place = found.index("not shared: " + HOSTILE.replace("\x1b", "^["))
    assert found[place + 1] == "2"
    assert found[place + 2 : place + 4] == ["not shared: it asked the network", "1"]
    assert "\x1b" not in page
    assert "not saved" in texts(report_view.report({**FIGURES, "saved_s": -1.0}, [], [], [], []))


def test_hundreds_of_epochs_and_tasks_stay_readable() -> None:
    many = [replace(TALLY, key=str(n)) for n in range(500)]
    page = report_view.report(FIGURES, many, many, [], [])
    assert len(re.findall(r'text-anchor="middle"', page)) <= 3 * report_view.LABELS + 2
    assert "and 470 more" in texts(page)


def test_a_report_of_one_task_and_as_json(line: CommandLine, tmp_path: Path) -> None:
    with open_cache(line.home, line.backend) as cache:
        for task in ("a", "a", "b"):
            with cache.rollout("terminal", task, epoch=0) as rollout:
                for command in (f"echo {task} > f", "cat f"):
                    bash(rollout, command)
                    settle(rollout)
    whole = line.json("report")
    assert whole["task"] is None
    assert [one["key"] for one in whole["tasks"]] == ["a", "b"]
    assert whole["figures"]["calls"] == 6
    data = line.json("report", "--task", "a")
    assert [one["key"] for one in data["tasks"]] == ["a"]
    figures = data["figures"]
    assert (figures["calls"], figures["rollouts"], figures["hits"], figures["executed"]) == (4, 2, 2, 2)
    assert figures["by_depth"] == [
        {"from": 1, "to": 1, "calls": 2, "answered": 1},
        {"from": 2, "to": 2, "calls": 2, "answered": 1},
    ]
    assert sum(one["calls"] for one in data["waits"]["answered"]) == 2
    assert sum(one["calls"] for one in data["durations"]) == 2
    assert data["unshared"] == []
    path = tmp_path / "a.html"
    line("report", str(path), "--task", "a")
    found = texts(path.read_text())
    assert "tvsnap: 4 calls in 2 rollouts of a" in found
    assert "b" not in found
    line("report", str(tmp_path / "a.json"), "--json")
    assert '"epochs"' in (tmp_path / "a.json").read_text()


def test_a_report_that_cannot_be_made(line: CommandLine) -> None:
    assert "--json" in line.error("report", status=2)
    with open_cache(line.home, line.backend) as cache, cache.rollout("terminal", "a") as rollout:
        bash(rollout, "echo 1 > f")
        settle(rollout)
    assert 'task "b"' in line.error("report", "-", "--task", "b", status=3)


def test_places_end_where_rollouts_did() -> None:
    counts = {place: (2, 1) for place in range(1, 26)}
    rows = by_place(counts)
    assert [(row["from"], row["to"]) for row in rows] == [(1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, 20), (21, 25)]
    assert rows[-1] == {"from": 21, "to": 25, "calls": 10, "answered": 5}
    assert [place_words(row["from"], row["to"]) for row in rows[2:4]] == ["3", "4-5"]
    (last,) = by_place({DEEPEST: (1, 0)})
    assert place_words(last["from"], last["to"]) == "99+"
