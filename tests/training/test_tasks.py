"""Generated tasks: the same from the same seed, disjoint between splits, and graded as their solutions say."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import tvsnap
from tests.training.attempts import ATTEMPTS
from tvsnap.images import Image, ImageStore
from tvsnap.plugins.training.tasks import KINDS, Task, tasks

SHIPPED = Path(__file__).parents[2] / "images"


@pytest.fixture(scope="module")
def cache(terminal_image: Image, tvsnap_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tvsnap.Cache]:
    home = Path(os.environ.get("TVSNAP_TEST_IMAGES") or tvsnap_home)
    images = Images(ImageStore(home), {"terminal": terminal_image})
    with tvsnap.Cache(tmp_path_factory.mktemp("tasks"), policy="default", images=images) as cache:
        yield cache


class Images:
    """The images that are shipped, each built when it is first asked for."""

    def __init__(self, store: ImageStore, built: dict[str, Image]) -> None:
        self.store = store
        self.built = built

    def get(self, name: str) -> Image:
        if name not in self.built:
            self.built[name] = self.store.build(SHIPPED / name)
        return self.built[name]


def grade_of(cache: tvsnap.Cache, task: Task, commands: Sequence[str]) -> tvsnap.Grade:
    with cache.rollout(task.image, task.name) as rollout:
        for command in task.setup:
            made = rollout.call("bash", {"command": command}, 60.0)
            assert (made.exit_code, made.output) == (0, ""), made.output
        outputs = [rollout.call(task.tool, task.arguments(command), 60.0).output for command in commands]
        if task.outputs and commands == task.solutions[0]:
            assert outputs == [*task.outputs]
        return rollout.grade(task.verifier)


def test_the_same_seed_gives_the_same_tasks() -> None:
    assert tasks("train", 30, 7) == tasks("train", 40, 7)[:30]
    assert tasks("train", 30, 7) != tasks("train", 30, 8)
    assert {task.name.split("/")[0] for task in tasks(n=len(KINDS))} == set(KINDS)
    assert {task.family for task in tasks(n=20, families=["sql", "python"])} == {"sql", "python"}


def test_no_instruction_is_in_two_splits() -> None:
    told = [
        {task.instruction for seed in range(3) for task in tasks(split, 60, seed)} for split in ("train", "dev", "test")
    ]
    assert sum(map(len, told)) == len(set().union(*told))


def test_each_has_several_ways_of_one_to_eight_calls() -> None:
    for task in tasks(n=40):
        assert len(task.solutions) >= 2
        assert task.wrong
        assert all(1 <= len(commands) <= 8 for commands in task.solutions)
        assert len(set(map(len, task.solutions))) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_solutions_are_graded_1_and_others_0(cache: tvsnap.Cache, kind: str) -> None:
    (task,) = tasks("train", 1, seed=1, kinds=[kind])
    grades = [grade_of(cache, task, commands) for commands in (*task.solutions, *task.wrong)]
    assert [grade.reward for grade in grades] == [1.0] * len(task.solutions) + [0.0] * len(task.wrong), grades


@pytest.mark.parametrize("kind", KINDS)
def test_what_only_looks_right_is_told_from_what_is(cache: tvsnap.Cache, kind: str) -> None:
    (task,) = tasks("test", 1, seed=5, kinds=[kind])
    assert grade_of(cache, task, task.solutions[0]).reward == 1.0
    for reward, what, commands in ATTEMPTS[kind](task):
        grade = grade_of(cache, task, commands)
        assert grade.reward == reward, (what, dict(grade.tests), grade.log)


@pytest.mark.parametrize("options", [{"split": "none"}, {"families": ["none"]}, {"kinds": ["none"]}])
def test_what_there_is_none_of(options: dict[str, object]) -> None:
    with pytest.raises(tvsnap.UsageError):
        tasks(**options)  # type: ignore[arg-type]
