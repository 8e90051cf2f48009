"""A rollout's state is graded in a fork, once, and a verifier that fails gives no grade."""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import FakeSandbox
from tests.fakes.caches import BUSY, Gate, backend_of, bash, eventually, open_cache, settle, threads
from tvsnap import Cache, Grade, Verifier
from tvsnap.model.errors import GradingFailed, InfrastructureError, UsageError
from tvsnap.model.grades import read_grade
from tvsnap.rollout import Rollout

SEES = Verifier("cat truth")


def come_to(cache: Cache, truth: str = "1", **options: Any) -> Rollout:
    """Begins a rollout and makes the call that the verifier looks for."""
    rollout = cache.rollout("terminal", **options)
    bash(rollout, f"echo {truth} > truth")
    return rollout


def test_a_state_is_graded_once_and_the_rollout_goes_on_where_it_stood(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        for source in ("executed", "hit", "hit"):
            with come_to(cache, "0.5") as rollout:
                state, depth = rollout.state, rollout.depth
                grade = rollout.grade(Verifier("cat truth; rm truth"))
                assert (grade.reward, grade.tests, grade.source) == (0.5, {}, source)
                assert (rollout.state, rollout.depth, rollout.private) == (state, depth, None)
                assert bash(rollout, "cat truth").output == "0.5\n"


def test_a_grade_of_tests_is_their_mean(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache, cache.rollout("terminal") as rollout:
        rollout.put(b'seen\n{"builds": true, "runs": false, "speed": 0.5}\n', "/task/truth")
        grade = rollout.grade("cat truth")
        assert (grade.reward, grade.log) == (0.5, "seen\n")
        assert grade.tests == {"builds": 1.0, "runs": 0.0, "speed": 0.5}
        assert rollout.grade("cat truth") == Grade(0.5, grade.tests, "seen\n", grade.duration, "hit")


def test_another_verifier_or_state_is_another_grade(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache, come_to(cache) as rollout:
        assert rollout.grade(SEES).source == "executed"
        assert rollout.grade(Verifier("cat truth", {"/tests/a": "1"})).source == "executed"
        assert rollout.grade(Verifier("cat truth", {"/tests/a": "2"})).source == "executed"
        assert rollout.grade(Verifier("cat truth", {"/tests/a": b"1"}, timeout=5.0)).source == "hit"
        bash(rollout, "echo 0 > truth")
        assert (rollout.grade(SEES).reward, rollout.grade(SEES).source) == (0.0, "hit")


def test_a_function_is_given_a_sandbox_of_its_own(tmp_path: Path) -> None:
    def check(sandbox: FakeSandbox) -> dict[str, bool]:
        told = sandbox.read_file("/task/truth") == b"1\n"
        sandbox.write_file("/task/truth", b"spoilt")
        return {"told": told}

    with open_cache(tmp_path) as cache, come_to(cache) as rollout:
        assert rollout.grade(Verifier(check, version="1")).tests == {"told": 1.0}
        assert rollout.grade(Verifier(check, version="1")).source == "hit"
        assert rollout.grade(Verifier(check, version="2")).source == "executed"
        assert bash(rollout, "cat truth").output == "1\n"


@pytest.mark.parametrize("check", ["false", BUSY, "echo no json", "echo []", "true", "echo NaN"])
def test_a_verifier_that_fails_is_an_error_each_time(tmp_path: Path, check: str) -> None:
    with open_cache(tmp_path) as cache, come_to(cache) as rollout:
        for _ in range(2):
            with pytest.raises(GradingFailed):
                rollout.grade(Verifier(check, timeout=0.2))
        assert rollout.grade(SEES).reward == 1.0
        assert bash(rollout, "cat truth").output == "1\n"


def test_a_function_that_raises_is_an_error(tmp_path: Path) -> None:
    def check(_: object) -> float:
        raise KeyError("reward")

    with open_cache(tmp_path) as cache, come_to(cache) as rollout, pytest.raises(GradingFailed, match="KeyError"):
        rollout.grade(Verifier(check, version="1"))


def test_a_fault_of_the_machine_gives_no_grade(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache, come_to(cache) as rollout:
        settle(rollout)
        backend_of(cache).trouble = "its disk was full"
        with pytest.raises(InfrastructureError, match="its disk was full"):
            rollout.grade(SEES)
        backend_of(cache).trouble = None
        grade = rollout.grade(SEES)
        assert (grade.reward, grade.source) == (1.0, "executed"), "nothing was recorded"


def test_several_that_grade_at_once_wait_for_one(tmp_path: Path) -> None:
    gate = Gate("cat truth")
    with open_cache(tmp_path) as cache, threads(3) as pool:
        rollouts = [come_to(cache) for _ in range(3)]
        for rollout in rollouts:
            settle(rollout)
        backend_of(cache).hooks["exec"] = gate
        grades: list[Future[Grade]] = [pool.submit(rollout.grade, SEES) for rollout in rollouts]
        assert gate.arrived.wait(60)
        gate.open.set()
        done = [grade.result(60) for grade in grades]
        assert gate.passed == 1
        assert {grade.reward for grade in done} == {1.0}
        assert sorted(grade.source == "executed" for grade in done) == [False, False, True]


def test_a_grade_is_given_as_often_as_is_asked_for(tmp_path: Path) -> None:
    with open_cache(tmp_path, grade_executions=2) as cache:
        sources = []
        for _ in range(4):
            with come_to(cache) as rollout:
                sources.append(rollout.grade(SEES).source)
    assert sources == ["executed", "executed", "hit", "hit"]


def test_grades_that_differ_never_answer(tmp_path: Path) -> None:
    with open_cache(tmp_path, grade_executions=2) as cache, come_to(cache) as rollout:
        assert [rollout.grade("echo $RANDOM").source for _ in range(4)] == ["executed"] * 4


def test_without_the_cache_each_is_graded_in_a_fork(tmp_path: Path) -> None:
    with open_cache(tmp_path, use_cache=False) as cache, come_to(cache) as rollout:
        for _ in range(2):
            assert rollout.grade(Verifier("cat truth; rm truth")).source == "executed"
        assert bash(rollout, "cat truth").output == "1\n"
        eventually(lambda: len(backend_of(cache).live) == 1)


def test_in_a_private_branch_each_is_graded(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache, come_to(cache) as rollout:
        bash(rollout, BUSY, timeout=0.2)
        assert rollout.private
        assert [rollout.grade(SEES).source for _ in range(2)] == ["executed"] * 2
        assert bash(rollout, "cat truth").output == "1\n"


def test_grades_outlive_the_process(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache, come_to(cache) as rollout:
        rollout.grade(SEES)
        settle(rollout)
        backend = backend_of(cache)
    with open_cache(tmp_path, backend) as cache, come_to(cache) as rollout:
        assert rollout.grade(SEES).source == "hit"


def test_a_group_begins_at_one_root(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        group = cache.group("terminal", "task", 3, salt="s")
        assert len({rollout.root for rollout in group}) == 1
        assert len({rollout.id for rollout in group}) == 3
        barrier = threading.Barrier(3)

        def go(rollout: Rollout) -> Grade:
            barrier.wait(60)
            with rollout:
                bash(rollout, "echo 1 > truth")
                return rollout.grade(SEES)

        with threads(3) as pool:
            assert [grade.reward for grade in pool.map(go, group)] == [1.0] * 3
        with pytest.raises(UsageError, match="n must be"):
            cache.group("terminal", n=0)


@pytest.mark.parametrize(
    "options",
    [
        {"check": 1},
        {"check": len},
        {"check": len, "version": "1", "files": {"/a": ""}},
        {"check": "true", "files": {"a": ""}},
        {"check": "true", "timeout": -1},
    ],
)
def test_verifiers_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Verifier(**options)


def test_what_is_no_verifier(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache, cache.rollout("terminal") as rollout, pytest.raises(UsageError):
        rollout.grade(3)  # type: ignore[arg-type]


def test_what_a_verifier_may_print() -> None:
    assert read_grade("a\nb\n1\n\n", "c", 0) == Grade(1.0, {}, "a\nb\nc")
    assert read_grade('{"a": 1}', "", 0) == Grade(1.0, {"a": 1.0}, "")
    both = '{"reward": 0, "tests": {"a": true}}'
    assert read_grade(both, "", 0) == Grade(0.0, {"a": 1.0}, "")
    failed = [("1", 1), ("1", None)]
    for output, status in [*failed, *((said, 0) for said in ("", '{"a": "b"}', "{}", "Infinity", '{"tests": {}}'))]:
        with pytest.raises(GradingFailed, match="verifier"):
            read_grade(output, "", status)
    with pytest.raises(GradingFailed, match="finite"):
        Grade.of(math.nan)
