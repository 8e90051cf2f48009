"""Rollout files are read and written as documented, and each broken line comes with its number and the reason."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import UsageError
from tvsnap.upkeep.rollout_files import (
    PlannedCall,
    PlannedRollout,
    parse_rollout,
    read_rollouts,
    select,
)

GOOD: dict[str, Any] = {
    "task": "t",
    "rollout": "r",
    "calls": [{"name": "bash", "arguments": {"command": "ls"}, "timeout": 5}],
}


def line(**changes: Any) -> str:
    data = {**GOOD, **changes}
    return json.dumps({key: value for key, value in data.items() if value is not ...})


def call(**changes: Any) -> str:
    data = {**GOOD["calls"][0], **changes}
    return line(calls=[GOOD["calls"][0], {key: value for key, value in data.items() if value is not ...}])


def test_a_rollout_is_read_with_what_it_names_and_what_it_carries() -> None:
    rollout = parse_rollout(line(image="terminal", model="x", calls=[{**GOOD["calls"][0], "thought": "hm"}]))
    planned = PlannedCall(ToolCall("bash", {"command": "ls"}), 5.0, {"thought": "hm"})
    assert rollout == PlannedRollout("t", "r", "terminal", (planned,), {"model": "x"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON: "),
        ("", "no JSON: "),
        ("[1]", "must be an object, is a list"),
        ("null", "must be an object, is null"),
        (line(task=...), '"task" is missing'),
        (line(task=3), '"task" must be a string, is a number'),
        (line(rollout=...), '"rollout" is missing'),
        (line(image=7), '"image" must be a string, is a number'),
        (line(calls=...), '"calls" is missing'),
        (line(calls={}), '"calls" must be a list, is an object'),
        (line(calls=["ls"]), "call 0 must be an object, is a string"),
        (call(name=...), 'call 1: "name" is missing'),
        (call(name=""), 'call 1: "name" is empty'),
        (call(arguments=...), 'call 1: "arguments" is missing'),
        (call(arguments=[]), 'call 1: "arguments" must be an object, is a list'),
        (call(timeout="5"), 'call 1: "timeout" must be a number of seconds, is a string'),
        (call(timeout=True), 'call 1: "timeout" must be a number of seconds, is true or false'),
        (call(timeout=0), 'call 1: "timeout" must be more than 0 s, is 0'),
        (call(timeout=1e10), 'call 1: "timeout" must be at most 31622400 s, which is a year, is 10000000000.0'),
        (call(timeout=10**400), 'call 1: "timeout" must be at most 31622400 s'),
        (line(task="a\0b"), '"task" must not hold a NUL character'),
        (line(rollout="\ud800"), '"rollout" is no text'),
        (call(timeout=-1), 'call 1: "timeout" must be more than 0 s, is -1'),
        (line(task="TASK").replace('"TASK"', "NaN"), "no JSON: NaN"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_rollout_is_told_apart(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (the reason is compared below)
        parse_rollout(text)
    assert str(caught.value).startswith(reason) or reason in str(caught.value)


def test_a_line_that_is_not_utf8() -> None:
    with pytest.raises(ValueError, match="not UTF-8: byte 11 is 0xff"):
        parse_rollout(b'{"task": "\xff"}')


def test_broken_lines_are_numbered_and_the_others_read(tmp_path: Path) -> None:
    file = tmp_path / "rollouts.jsonl"
    file.write_text(f"{line()}\n\n{{\n{line(rollout='s')}\n[]\n")
    rollouts, broken = read_rollouts([file])
    assert [(rollout.rollout, rollout.line, rollout.file) for rollout in rollouts] == [
        ("r", 1, str(file)),
        ("s", 4, str(file)),
    ]
    assert [(one.line, one.file) for one in broken] == [(3, str(file)), (5, str(file))]
    assert str(broken[1]) == f"{file}:5: must be an object, is a list"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(line().encode())))
    rollouts, broken = read_rollouts(["-"])
    assert len(rollouts) == 1
    assert not broken


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.jsonl: No such file"):
        read_rollouts([tmp_path / "nothing.jsonl"])
    with pytest.raises(UsageError, match="Is a directory"):
        read_rollouts([tmp_path])


def test_selecting() -> None:
    rollouts = [PlannedRollout(task, "r", None, ()) for task in ("fix-git", "fix-vim", "Fix-x", "other")]
    assert [rollout.task for rollout in select(rollouts, tasks=["fix-*"])] == ["fix-git", "fix-vim"]
    assert [rollout.task for rollout in select(rollouts, tasks=["oth*", "fix-git"], limit=1)] == ["fix-git"]
    assert len(select(rollouts)) == 4


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
names = texts.filter(bool)


def extras(taken: set[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.text().filter(lambda key: key not in taken), plain, max_size=2)


planned_calls = st.builds(
    PlannedCall,
    st.builds(ToolCall, names, st.dictionaries(st.text(), plain, max_size=3)),
    st.none() | st.floats(0.001, 1e6),
    extras({"name", "arguments", "timeout"}),
)
planned_rollouts = st.builds(
    PlannedRollout,
    texts,
    texts,
    st.none() | names,
    st.lists(planned_calls, max_size=3).map(tuple),
    extras({"task", "rollout", "image", "calls"}),
)


@given(planned_rollouts)
def test_what_is_written_is_what_is_read(rollout: PlannedRollout) -> None:
    calls = [
        {"name": each.call.name, "arguments": each.call.arguments, "timeout": each.timeout, **each.extra}
        for each in rollout.calls
    ]
    written = {
        "task": rollout.task,
        "rollout": rollout.rollout,
        "image": rollout.image,
        "calls": calls,
        **rollout.extra,
    }
    assert parse_rollout(json.dumps(written)) == rollout
