"""The simulation of guesses, on rollouts of which it is known what can be guessed."""

from __future__ import annotations

import json

from benchmarks.guessing import BUDGETS, measure
from tvsnap.upkeep.rollout_files import PlannedRollout, parse_rollout


def rollout(task: str, name: str, commands: str, tool: str = "bash", argument: str = "command") -> PlannedRollout:
    calls = [{"name": tool, "arguments": {argument: command}} for command in commands.split(";")]
    return parse_rollout(json.dumps({"task": task, "rollout": name, "calls": calls}))


def test_what_follows_elsewhere_is_guessed() -> None:
    rollouts = [rollout(f"task {number}", "1", f"cd /{number};make;make test") for number in range(10)]
    for row in measure(rollouts, seeds=2):
        # Of each rollout but the first, `make test` is guessed; what begins a rollout is never the same.
        assert row.misses == 1.0
        assert row.hidden == 9 / 30
        assert row.guesses is not None


def test_what_only_the_same_task_does_is_guessed_with_its_rollouts_alone() -> None:
    rollouts = [rollout("task", f"{number}", f"cd /{number};make;make test") for number in range(10)]
    hidden = {row.held_out: row.hidden for row in measure(rollouts, seeds=1)}
    assert hidden == {"rollout": 9 / 30, "task": 0.0}


def test_a_hit_needs_no_guess() -> None:
    rows = measure([rollout("task", f"{number}", "ls;make") for number in range(10)], seeds=1)
    assert {row.budget for row in rows} == set(BUDGETS)
    for row in rows:
        assert row.misses == 2 / 20
        assert row.hidden == 0.0


def test_a_statement_that_reads_leads_nowhere() -> None:
    rollouts = [rollout("task", "1", "SELECT 1;SELECT 2;SELECT 1", "sql", "query")]
    assert {row.misses for row in measure(rollouts, seeds=1)} == {2 / 3}
    rollouts = [rollout("task", "1", "SELECT 1;DELETE FROM a;SELECT 1", "sql", "query")]
    assert {row.misses for row in measure(rollouts, seeds=1)} == {1.0}
