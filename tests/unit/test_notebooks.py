"""What people are shown by notebooks and by print: rollouts, states, calls, trees and statistics."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from cli import notebooks
from tests.fakes.backend import FakeBackend
from tests.fakes.caches import FakeImages, bash, open_cache, settle
from tests.unit.graph_helpers import add_root, step, walk
from tvsnap import AsyncCache, Cache
from tvsnap.graph import Graph

HOSTILE = "</pre></iframe><script>alert(1)</script>\x1b[31m\u202e\"'&lt;"


@pytest.fixture(autouse=True)
def _this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvsnap_cli.notebooks", notebooks)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with open_cache(tmp_path) as opened:
        yield opened


def texts(value: Any) -> list[str]:
    """Returns the texts of what a notebook shows; checks that it is closed, and brings no script into the notebook."""
    found: list[str] = []
    opened: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            assert tag in ("div", "b", "table", "tr", "th", "td", "pre", "details", "summary", "iframe")
            if tag == "iframe":
                given = dict(attrs)
                assert given["sandbox"] == "allow-scripts"
                found.append(given["srcdoc"])
            opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

        def handle_data(self, data: str) -> None:
            found.append(data)

    page = value._repr_html_()
    assert not [char for char in page if char != "\n" and (ord(char) < 32 or 0x7F <= ord(char) < 0xA0)]
    assert "\u202e" not in page
    Reader().feed(page)
    assert not opened
    return found


def test_a_rollout_with_its_calls(cache: Cache) -> None:
    with cache.rollout("terminal", "fix it") as rollout:
        for command in ("echo 1 > f", "cat f"):
            bash(rollout, command)
            settle(rollout)
        found = texts(rollout)
        assert f"rollout {rollout.id}" in found
        assert {"echo 1 > f", "cat f", "2, 0 of them answered", rollout.state[:12]} <= set(found)
    with cache.rollout("terminal", "fix it") as rollout:
        bash(rollout, "echo 1 > f")
        assert "1, 1 of them answered" in texts(rollout)


def test_what_a_graph_returns(cache: Cache) -> None:
    with cache.rollout("terminal", "fix it", label=HOSTILE) as rollout:
        bash(rollout, "echo 1 > f")
        settle(rollout)
    graph = cache.graph
    (summary,), (record,), (tally,) = graph.summaries(), graph.rollouts(), graph.tallies("task")
    assert {"closed", "fix it"} <= set(texts(summary))
    assert "fix it" in texts(record)
    assert "fix it" in texts(tally)
    state = graph.state(record.state)
    assert f"state {state.hash}" in texts(state)
    (one,) = graph.steps(record.id)
    assert "1: echo 1 > f" in texts(one)


def test_a_call_with_its_output(tmp_path: Path) -> None:
    with Graph(tmp_path / "graph.db") as graph:
        made = step(graph, add_root(graph), f"echo {HOSTILE}", HOSTILE + "x" * 30_000)
        found = "\n".join(texts(made))
        assert "</pre></iframe><script>alert(1)</script>^[[31m\\u202e" in found
        assert "more characters" in found


def test_a_tree_is_a_picture_in_a_frame_of_its_own(tmp_path: Path) -> None:
    with Graph(tmp_path / "graph.db") as graph:
        assert texts(graph.tree()) == ["no states"]
        walk(graph, add_root(graph), "make", "echo '</script><script>alert(1)</script>'")
        (page,) = texts(graph.tree())
        assert page.startswith("<!DOCTYPE html>")
        assert "Content-Security-Policy" in page
        assert "<script>alert(1)" not in page
        assert graph.tree() == list(graph.tree())


def test_statistics(cache: Cache) -> None:
    for _ in range(2):
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo 1 > f")
            settle(rollout)
    assert {"answered from the graph", "1 (50.0 %)"} <= set(texts(cache.stats()))


def test_what_is_printed(cache: Cache) -> None:
    with cache.rollout("terminal", "fix it") as rollout:
        bash(rollout, "echo 1 > f")
        settle(rollout)
        assert str(rollout).splitlines() == [
            f"rollout {rollout.id}",
            f"  stands at  {rollout.state[:12]}",
            "  calls      1, 0 of them answered",
        ]
        record = cache.graph.rollouts()[0]
        assert str(record).startswith(f"rollout {rollout.id}\n  task   fix it\n")
    said = str(cache.stats()).splitlines()
    assert said[:3] == [
        "tvsnap: what this cache has done",
        "  rollouts                    1",
        "  calls                       1",
    ]
    assert all(len(line) < 80 for line in said)
    assert "TreeNode(" in str(cache.graph.tree())


def test_an_awaited_rollout_is_printed_likewise(tmp_path: Path) -> None:
    async def go() -> tuple[str, str]:
        async with AsyncCache(tmp_path, backend=FakeBackend(), images=FakeImages()) as cache:
            rollout = cache.rollout("terminal")
            before = str(rollout)
            async with rollout:
                await rollout.call("bash", {"command": "echo 1 > f"})
                await rollout.settled()
                return before, str(rollout)

    before, after = asyncio.run(go())
    assert before.startswith("<tvsnap.aio.rollout.AsyncRollout object at ")
    assert "  calls      1, 0 of them answered" in after
