"""Which call is likely next, counted from the calls of rollouts."""

from __future__ import annotations

from tvsnap import ToolCall
from tvsnap.guessing import NextCalls, next_calls


def bash(command: str) -> ToolCall:
    return ToolCall("bash", {"command": command})


def learn(known: NextCalls, task: str, *commands: str, seconds: float = 1.0) -> None:
    calls = [bash(command) for command in commands]
    for place, call in enumerate(calls):
        known.learn(task, calls[:place], call, seconds)


def likely(known: NextCalls, task: str, *before: str, most: int = 3) -> list[str]:
    return [guess.call.arguments["command"] for guess in known.likely(task, [bash(one) for one in before], most)]


def test_nothing_is_likely_at_first() -> None:
    assert NextCalls().likely("t", [], 3) == []


def test_the_longest_context_comes_first() -> None:
    known = NextCalls()
    learn(known, "t", "a", "b", "c")
    learn(known, "t", "x", "b", "d")
    learn(known, "t", "x", "b", "d")
    assert likely(known, "t", "a", "b") == ["c", "d", "b"]
    assert likely(known, "t", "x", "b", most=1) == ["d"]
    assert likely(known, "t", "y", "b", most=1) == ["d"], "after one call, where the two were never seen"


def test_other_tasks_help_where_the_calls_are_the_same() -> None:
    known = NextCalls()
    learn(known, "t", "make", "make test")
    assert likely(known, "other", "make") == ["make test"]
    assert likely(known, "other") == []


def test_the_place_counts_where_the_call_before_is_new() -> None:
    known = NextCalls()
    learn(known, "t", "echo 1", "make", "make test")
    learn(known, "t", "echo 2", "make", "make test")
    assert likely(known, "t", "echo 3", most=1) == ["make"]


def test_chance_and_seconds() -> None:
    known = NextCalls()
    learn(known, "t", "a", seconds=1.0)
    learn(known, "t", "a", seconds=3.0)
    learn(known, "t", "b", seconds=5.0)
    first, second = known.likely("t", [], 2)
    assert (first.call.arguments["command"], first.chance, first.seconds) == ("a", 2 / 4, 2.0)
    assert (second.chance, second.seconds) == (1 / 4, 5.0)


def test_calls_that_have_an_answer_are_left_out() -> None:
    known = NextCalls()
    learn(known, "t", "a")
    learn(known, "t", "a")
    learn(known, "t", "b")
    assert [guess.call.arguments["command"] for guess in known.likely("t", [], 1, [bash("a")])] == ["b"]


def test_it_forgets(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(next_calls, "CONTEXTS", 20)
    monkeypatch.setattr(next_calls, "FOLLOWERS", 3)
    known = NextCalls()
    for number in range(100):
        learn(known, "t", f"a{number}", f"b{number}")
    assert len(known._contexts) == 20
    assert len(known._seconds) == 20
    assert all(len(followers.counts) <= 3 for followers in known._contexts.values())
    assert likely(known, "t", "a99", most=1) == ["b99"]
