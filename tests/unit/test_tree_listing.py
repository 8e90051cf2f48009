"""The listing of a tree for terminals, where it would be longer than a few screens."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from cli import tree_view
from tests.unit.graph_helpers import add_root, step, walk
from tvsnap.graph import Graph


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph(tmp_path / "graph.db")


def listing(graph: Graph, *, everything: bool = False) -> list[str]:
    printed = io.StringIO()
    roots = {root.hash: root for root in graph.roots()}
    console = Console(file=printed, width=100)
    tree_view.print_trees(graph.tree(), roots, graph.rollouts(), console, everything=everything)
    return printed.getvalue().splitlines()


def test_hundreds_of_rollouts_are_a_few_screens_in_which_the_most_used_calls_are(graph: Graph) -> None:
    root = add_root(graph)
    first = step(graph, root, "make setup").next_state
    with graph.together():  # else each call is a transaction of its own
        for rollout in range(248):
            after = step(graph, first, f"edit {rollout % 8}") if rollout < 8 else None
            state = after.next_state if after else walk(graph, first, f"edit {rollout % 8}", f"try {rollout}")[-1]
            walk(graph, state, *(f"step {rollout} {number}" for number in range(6)))
    often = step(graph, walk(graph, first, "edit 5", "try 205")[-1], "step 205 0")
    for _ in range(40):
        graph.touch_hit(often)
    graph.flush()
    shown, everything = listing(graph), listing(graph, everything=True)
    assert len(everything) > 1700
    legend = len(tree_view.LEGEND) + 2
    assert tree_view.LINES / 2 < len(shown) - legend <= tree_view.LINES
    assert "--all shows everything" in shown[-legend + 1]
    assert not any("--all" in line for line in everything)
    text = "\n".join(shown)
    assert all(f"edit {number}" in text for number in range(8))
    assert "step 205 0" in text
    assert "more branches (" in text


def test_a_short_tree_is_shown_as_it_is(graph: Graph) -> None:
    root = add_root(graph)
    for number in range(9):
        walk(graph, root, f"a {number}", f"b {number}", f"c {number}")
    shown = listing(graph)
    assert all(f"{letter} {number}" in "\n".join(shown) for letter in "abc" for number in range(9))
    assert not any("--all" in line for line in shown)
