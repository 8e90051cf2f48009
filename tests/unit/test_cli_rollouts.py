"""The verbs that tell of rollouts: `rollouts`, and `show` with the name of one."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from cli import context, stats
from tests.fakes.caches import bash, open_cache, settle
from tests.unit.cli_helpers import CommandLine, make_command_line
from tvsnap import Limits
from tvsnap.cache import Cache
from tvsnap.graph import Tally


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return make_command_line(tmp_path, monkeypatch)


@pytest.fixture
def cache(line: CommandLine) -> Iterator[Cache]:
    """A cache on the data directory of the command line."""
    with open_cache(line.home, line.backend) as cache:
        yield cache


def fill(cache: Cache) -> list[str]:
    """Makes three rollouts of two tasks; returns their ids."""
    ids = []
    for task, label, epoch, commands in (
        ("fix", "first", 0, ["echo 1 > f", "cat f", "false"]),
        ("fix", "second", 1, ["echo 1 > f", "cat f", "true"]),
        ("other", None, None, ["echo 1 > f"]),
    ):
        with cache.rollout("terminal", task, label=label, epoch=epoch) as rollout:
            for command in commands:
                bash(rollout, command)
                settle(rollout)
        ids.append(str(rollout.id))
        if epoch is not None:
            rollout.record(epoch / 2)
    cache.close()
    return ids


def test_rollouts_are_listed_newest_first(line: CommandLine, cache: Cache) -> None:
    first, second, other = fill(cache)
    head, *lines = line("rollouts").stdout.splitlines()
    assert head.split() == [
        *("rollout", "task", "label", "epoch", "image", "began", "ended", "calls", "hits", "failing", "reward"),
    ]
    assert [words.split()[0] for words in lines] == [other[:8], second[:8], first[:8]]
    assert lines[1].split() == [second[:8], "fix", "second", "1", "terminal", "just", "now", "closed", "3", "2", "0.5"]
    assert lines[2].split() == [first[:8], "fix", "first", "0", "terminal", "just", "now", "closed", "3", "0", "1", "0"]
    assert [one["id"] for one in line.json("rollouts", "--task", "fix")["rollouts"]] == [second, first]
    assert [one["id"] for one in line.json("rollouts", "--label", "first")["rollouts"]] == [first]
    assert [one["id"] for one in line.json("rollouts", "--failed")["rollouts"]] == [first]  # its reward is 0
    assert [one["id"] for one in line.json("rollouts", "--limit", "1", "--since", "2h")["rollouts"]] == [other]
    assert line.json("rollouts", "--since", "2999-01-01")["rollouts"] == []
    assert line.json("rollouts", "--image", "nothing")["rollouts"] == []
    assert "the latest 2 rollouts; --limit 0 lists all" in line("rollouts", "--limit", "2").stdout
    assert "no rollout was made, or none is like that" in line("rollouts", "--label", "none").stdout


def test_mistakes_in_the_choice(line: CommandLine, cache: Cache) -> None:
    fill(cache)
    assert "--since must be 30m, 2h, 3d or a date" in line.error("rollouts", "--since", "yesterday", status=2)
    assert 'no rollouts of task "no" are known; have: fix, other' in line.error("rollouts", "--task", "no", status=3)


def test_a_rollout_is_shown_with_all_its_calls(line: CommandLine, cache: Cache) -> None:
    first, second, _ = fill(cache)
    text = line("show", first[:12]).stdout
    assert text.startswith(f"rollout {first} first\n")
    assert "fix, epoch 0" in text
    assert "3 calls, 0 of them answered (0.0 %), 1 failing" in text
    assert "executed 3, as it was not made in this state before" in text
    rows = [row.split() for row in text.splitlines() if row[:4].strip().isdigit()]
    sources = {"started", "executed"}
    assert [[word for word in row[2:] if word not in sources][:-4] for row in rows] == [
        ["echo", "1", ">", "f", "0"],
        ["same", "cat", "f", "0"],
        ["false", "1"],
    ]
    assert [next(word for word in row if word in sources) for row in rows] == ["started", "executed", "executed"]
    data = line.json("show", "second")
    assert data["rollout"]["id"] == second
    assert data["rollout"]["hits"] == 2
    assert [(step["call"]["arguments"]["command"], step["source"]) for step in data["steps"]] == [
        *(("echo 1 > f", "hit"), ("cat f", "hit"), ("true", "forked")),
    ]
    assert data["steps"][1]["record"]["output"] == "1\n"
    assert "| 1" not in text
    assert "      | 1\n" in line("show", "first", "--output").stdout


def test_what_calls_were_worth_is_shown_beside_what_others_did(line: CommandLine, cache: Cache) -> None:
    ids = []
    for commands, reward in ((["echo 1 > f", "echo 2 > f"], 1.0), (["echo 1 > f", "echo 3 > f"], 0.5), ([], None)):
        with cache.rollout("terminal", "t", epoch=0) as rollout:
            for command in commands:
                bash(rollout, command)
                settle(rollout)
            if reward is not None:
                rollout.record(reward)
        ids.append(str(rollout.id))
    cache.close()
    first, second, without = ids
    text = line("show", first).stdout
    assert "reward   1, +0.5 beside others that began there" in text
    rows = [row.split() for row in text.splitlines() if row[:4].strip().isdigit()]
    assert [row[-1] for row in rows] == ["+0", "+0.5"]
    data = line.json("show", second)
    assert [step["advantage"] for step in data["steps"]] == [0.0, -0.5]
    assert data["end_advantage"] == -0.5
    assert line.json("show", without)["end_advantage"] is None
    assert "advantage" not in line("show", without).stdout
    nodes = line.json("tree", "--task", "t")["nodes"]
    assert [node["value"] for node in nodes] == [
        *2 * [{"rollouts": 2, "mean": 0.75, "variance": 0.125}],
        *({"rollouts": 1, "mean": mean, "variance": None} for mean in (1.0, 0.5)),
    ]
    assert {node["value"] for node in line.json("tree")["nodes"]} == {None}


def test_a_state_is_still_shown(line: CommandLine, cache: Cache) -> None:
    first, _, _ = fill(cache)
    state = line.json("show", first)["rollout"]["state"]
    assert line.json("show", state[:10])["state"] == state
    assert "no state begins with 0000000000000000000000" in line.error("show", "0" * 22, status=3)
    error = line.error("show", "nothing of this", status=2)
    assert "names no state" in error
    assert "nor is there a rollout of this id or label (tvsnap rollouts)" in error


def test_failures_are_marked_in_the_tree(line: CommandLine, cache: Cache) -> None:
    with cache.rollout("terminal", "t") as rollout:
        for command in ("echo 1 > f", "cat missing", "cat missing; echo 2 > g; false"):
            bash(rollout, command)
            settle(rollout)
    cache.close()
    text = line("tree").stdout
    assert "cat missing ✗ 1" in text
    assert "✗ 1 exit status 1" in text


def test_roots_that_differ_are_told_apart(line: CommandLine, cache: Cache) -> None:
    for limits in (None, Limits(memory=64 << 20)):
        with cache.rollout("terminal", "t", limits=limits) as rollout:
            bash(rollout, "echo 1 > f")
            settle(rollout)
    cache.close()
    head, *lines = line("rollouts").stdout.splitlines()
    assert "root" in head.split()
    assert "memory 64 MiB" in lines[0]
    assert "memory 2.0 GiB" in lines[1]
    assert "memory 64 MiB" in line("tree").stdout


def test_epochs_are_in_their_order(line: CommandLine, cache: Cache) -> None:
    for epoch in (None, 10, 2):
        with cache.rollout("terminal", "t", epoch=epoch) as rollout:
            bash(rollout, "true")
            settle(rollout)
    cache.close()
    assert [group["key"] for group in line.json("stats", "--by", "epoch")["groups"]] == ["2", "10", None]


def test_stats_by_epoch_task_and_label(line: CommandLine, cache: Cache) -> None:
    fill(cache)
    zero, one, none = line.json("stats", "--by", "epoch")["groups"]
    assert [group["key"] for group in (zero, one, none)] == ["0", "1", None]
    assert (zero["rollouts"], zero["calls"], zero["hits"], zero["failing"], zero["reward"]) == (1, 3, 0, 1, 0.0)
    assert (one["calls"], one["hits"], one["hit_rate"], one["reward"]) == (3, 2, pytest.approx(2 / 3), 0.5)
    assert one["saved_s"] == pytest.approx(one["took_s"] - one["waited_s"])
    assert [group["key"] for group in line.json("stats", "--by", "task")["groups"]] == ["fix", "other"]
    (fix,) = line.json("stats", "--task", "fix")["groups"]
    assert (fix["key"], fix["rollouts"], fix["calls"], fix["reward"]) == (None, 2, 6, 0.25)
    (first,) = line.json("stats", "--label", "first", "--by", "label")["groups"]
    assert (first["key"], first["calls"]) == ("first", 3)
    text = line("stats", "--by", "epoch").stdout
    assert "saved: the difference, in wall time" in text
    assert "processor" in text.splitlines()[0]
    assert "no rollout was made" in line("stats", "--label", "nobody").stdout
    assert "rollouts are counted by epoch, task, label" in line.error("stats", "--by", "image", status=2)
    assert 'no rollouts of task "no" are known' in line.error("stats", "--task", "no", status=3)


def test_a_long_label_is_cut(line: CommandLine, cache: Cache) -> None:
    for label in ("x" * 10_000, "short"):
        with cache.rollout("terminal", "t", label=label) as rollout:
            bash(rollout, "true")
            settle(rollout)
    cache.close()
    head, *rows = line("stats", "--by", "label").stdout.splitlines()[:3]
    assert head.startswith("label")
    assert all(len(row) < 130 for row in (head, *rows))
    assert any("x" * 29 + "…" in row for row in rows)
    assert line.json("stats", "--by", "label")["groups"][0]["key"] == "x" * 10_000


def test_columns_stand_below_each_other_where_letters_are_wide(line: CommandLine, cache: Cache) -> None:
    for task in ("\u65e5\u672c\u8a9e", "plain"):
        with cache.rollout("terminal", task) as rollout:
            bash(rollout, "true")
    cache.close()
    head, *lines = line("rollouts").stdout.splitlines()
    assert {cell_len(words.partition("terminal")[0]) for words in lines} == {head.index("image")}


def test_an_empty_name_is_no_rollouts(line: CommandLine, cache: Cache) -> None:
    fill(cache)
    said = line.error("show", "", status=2)
    assert "the name is empty" in said
    assert "tvsnap rollouts --label ''" in said


@pytest.mark.parametrize(("width", "left_out"), [(200, ""), (80, "processor, failing, took"), (40, "reward, rollouts")])
def test_figures_fit_into_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int, left_out: str) -> None:
    written = io.StringIO()
    narrow = Console(file=written, width=width, force_terminal=True, no_color=True, soft_wrap=True)
    monkeypatch.setattr(context, "console", lambda **_: narrow)
    numbers = (1234, 0.5, 123_456, 100_000, 20_000, 345, 12_345.0, 99_999.0, 888.0, 777.0, 0)
    stats._print_tallies("task", [Tally(name, *numbers) for name in ("short", "a-name-that-is-" + 9 * "long-")])
    head, *rows = [re.sub("\x1b[^m]*m", "", line) for line in written.getvalue().splitlines()[:3]]
    assert all("97.2 %" in row and len(row) <= width for row in rows)
    assert {"task", "calls", "hits", "waited", "saved"} <= set(head.split())
    assert f"{left_out}; --json has all" in written.getvalue() if left_out else "Left out" not in written.getvalue()


def test_names_in_errors_are_cut(line: CommandLine, cache: Cache) -> None:
    for number in range(12):
        with cache.rollout("terminal", f"{number:02} " + 300 * "long ") as rollout:
            bash(rollout, "true")
    cache.close()
    for verb in (["report", "-"], ["stats"], ["tree"]):
        assert len(line.error(*verb, "--task", "nosuch", status=3)) < 600
