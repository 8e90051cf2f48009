"""Grades are executed as often as is asked for before they answer others, and never answer if they differ."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.fakes.backend import FakeSandbox
from tests.fakes.caches import backend_of, bash, open_cache, settle
from tvsnap import Cache
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import UsageError

VERIFY = "cat truth > /reward; cat /reward"


def graded(cache: Cache, command: str = VERIFY, truth: str = "1") -> ToolResult:
    """Makes a rollout that is graded."""
    with cache.rollout("terminal") as rollout:
        bash(rollout, f"echo {truth} > truth")
        result = rollout.call("bash", {"command": command}, 20.0, grade=["/reward"])
        settle(rollout)
        return result


def sources(results: list[ToolResult]) -> list[str]:
    return [result.source for result in results]


@pytest.mark.parametrize(("executions", "executed"), [(1, 1), (2, 2), (3, 3)])
def test_a_grade_answers_once_it_was_given_often_enough(tmp_path: Path, executions: int, executed: int) -> None:
    with open_cache(tmp_path, grade_executions=executions) as cache:
        results = [graded(cache) for _ in range(5)]
    assert sources(results) == ["executed"] * executed + ["hit"] * (5 - executed)
    assert {result.output for result in results} == {"1\n"}


def test_grades_that_differ_never_answer(tmp_path: Path) -> None:
    with open_cache(tmp_path, grade_executions=2) as cache:
        results = [graded(cache, "echo $RANDOM > /reward; cat /reward") for _ in range(5)]
    assert sources(results) == ["executed"] * 5
    assert len({result.output for result in results}) > 1


def test_output_may_differ_where_the_grade_does_not(tmp_path: Path) -> None:
    with open_cache(tmp_path, grade_executions=2) as cache:
        results = [graded(cache, "echo 1 > /reward; echo $RANDOM") for _ in range(3)]
    assert sources(results) == ["executed", "executed", "hit"]
    assert results[2].output == results[1].output


def test_the_exit_status_is_part_of_a_grade(tmp_path: Path) -> None:
    with open_cache(tmp_path, grade_executions=2) as cache:
        results = [graded(cache, "false") for _ in range(3)]
    assert sources(results) == ["executed", "executed", "hit"]


def test_one_that_was_shared_before_is_executed_as_often_as_is_asked_now(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        graded(cache)
        backend = backend_of(cache)
    with open_cache(tmp_path, backend, grade_executions=3) as cache:
        results = [graded(cache) for _ in range(4)]
    assert sources(results) == ["executed", "executed", "hit", "hit"]


def test_a_call_that_does_not_grade_is_not_delayed(tmp_path: Path) -> None:
    with open_cache(tmp_path, grade_executions=3) as cache:
        for expected in ("executed", "hit"):
            with cache.rollout("terminal") as rollout:
                assert bash(rollout, "echo 1 > f").source == expected
                settle(rollout)


def test_nobody_waits_for_a_grade_that_is_not_shared_yet(tmp_path: Path) -> None:
    with open_cache(tmp_path, grade_executions=2) as cache:
        graded(cache, "true")
        results: list[ToolResult] = []
        both = threading.Barrier(2)

        def meet(sandbox: FakeSandbox | None, subject: str) -> None:
            both.wait(60)  # each is executed, at the same time

        backend_of(cache).hooks["run"] = meet

        def grade() -> None:
            with cache.rollout("terminal") as rollout:
                assert bash(rollout, "echo 1 > truth").source == "hit"
                results.append(rollout.call("bash", {"command": VERIFY}, 20.0, grade=["/reward"]))

        threads = [threading.Thread(target=grade) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sources(results) == ["executed", "executed"]


@pytest.mark.parametrize("grade", ["/reward", ["reward"], [1]])
def test_where_a_grade_is_left_must_be_absolute_paths(tmp_path: Path, grade: object) -> None:
    refused = pytest.raises(UsageError, match="absolute paths")
    with open_cache(tmp_path) as cache, cache.rollout("terminal") as rollout, refused:
        rollout.call("bash", {"command": "true"}, grade=grade)  # type: ignore[arg-type]


@pytest.mark.parametrize("executions", [0, 1.5, True])
def test_executions_are_a_whole_number(tmp_path: Path, executions: object) -> None:
    with pytest.raises(UsageError, match="grade_executions"):
        open_cache(tmp_path, grade_executions=executions)
