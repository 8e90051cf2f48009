"""Where tasks are: the same place each time, few moves when nodes come and go, and large tasks spread."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvsnap.plugins.fleet.routing import choose, ranking

NODES = st.lists(st.text(min_size=1, max_size=12), unique=True, min_size=2, max_size=8)
TASKS = st.lists(st.text(max_size=12), unique=True, max_size=30)


@given(NODES, TASKS)
def test_only_tasks_of_a_node_that_goes_move(nodes: list[str], tasks: list[str]) -> None:
    gone, *left = nodes
    for task in tasks:
        before, after = ranking("image", task, nodes), ranking("image", task, left)
        assert [node for node in before if node != gone] == after
        assert ranking("image", task, reversed(nodes)) == before, "whatever order nodes are named in"  # type: ignore[arg-type]


def test_tasks_are_dealt_out() -> None:
    nodes = [f"http://host-{number}:8420" for number in range(4)]
    first = Counter(ranking("image", f"task {number}", nodes)[0] for number in range(2000))
    assert min(first.values()) > 400
    assert ranking("one image", "t", nodes) != ranking("another", "t", nodes) or ranking(
        "one image", "u", nodes
    ) != ranking("another", "u", nodes)


def test_a_task_stays_together_until_it_is_large() -> None:
    preferred, here, load = ["a", "b", "c"], Counter[str](), Counter[str]({"c": 50})
    for number in range(14):
        node = choose(preferred, here, load, 4)
        here[node] += 1
        load[node] += 1
        if number < 4:
            assert node == "a"
        elif number < 8:
            assert node == "b"
        elif number < 12:
            assert node == "c"
    assert here["a"] + here["b"] == 10, "then, those with fewest rollouts in all get more"


@pytest.mark.parametrize("spread", [1, 3, 100])
def test_one_node_takes_all(spread: int) -> None:
    assert choose(["a"], Counter({"a": 1000}), Counter({"a": 1000}), spread) == "a"
