"""Rollouts of a model as they were played, and what a learner learns from in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tvsnap import Grade, ToolResult, UsageError
from tvsnap.plugins.training.loop import Trajectory
from tvsnap.plugins.training.tasks import Task


@dataclass(frozen=True)
class Call:
    """A tool call of a rollout.

    Attributes:
        command: what was run.
        result: what it returned.
        shown: the part of it that the model was shown.
        seconds: that the rollout waited for it.
    """

    command: str
    result: ToolResult
    shown: str
    seconds: float


@dataclass
class Played:
    """A rollout.

    Attributes:
        task: its task.
        number: which of the task's rollouts it is, from 0 on.
        tokens: all that was said, as tokens.
        turns: where the model wrote, see `Trajectory`.
        calls: the commands that were run for the model, the task's own (`Task.setup`) not among them.
        grade: what its last state was worth, and 0 if it has failed; None where the verifier failed.
        graded_s: seconds that it waited for that.
        prepared_s: seconds that it waited for the task to be set up.
        done: whether it ended by itself.
        failed: whether it has used up its commands and not ended then. Its state is not graded.
        cancelled: whether it was cancelled as a straggler, see `Stragglers`.
        rollout: its id in the graph; None where nothing is recorded.
        advantages: of its turns, where credit is by state.
        before: how many commands led to the state in which it began: 0, but for branches (`Agents.branch`). Their turns
            are not among `turns`, as another rollout took them.
        setup: how many of its calls set the sandbox up before its first turn.
        tree: the number of the rollout of the group to which it goes back, by branches: that rollout's own number.
    """

    task: Task
    number: int
    tokens: list[int]
    turns: list[tuple[int, int]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    grade: Grade | None = None
    graded_s: float = 0.0
    prepared_s: float = 0.0
    done: bool = False
    failed: bool = False
    cancelled: bool = False
    rollout: str | None = None
    advantages: tuple[float, ...] | None = None
    before: int = 0
    setup: int = 0
    tree: int = 0

    @property
    def written(self) -> int:
        """The number of tokens that the model wrote in it."""
        return sum(end - first for first, end in self.turns)

    @property
    def trajectory(self) -> Trajectory:
        """What the learner needs of it; raises UsageError where there is no grade, and so nothing to learn."""
        if self.grade is None:
            raise UsageError(f"rollout {self.number} of task {self.task.name} has no grade: leave it out of its group")
        return Trajectory(self.tokens, self.turns, self.grade.reward, self.advantages)


def trajectories(groups: Iterable[Sequence[Played]]) -> list[list[Trajectory]]:
    """Returns what the learner learns from in groups of rollouts, those of `Agents.play` and `Agents.branch`.

    Rollouts without a grade are left out. So is one that then is alone in its group, as there is nothing to compare it
    with, unless it has advantages by state or tree.

    Args:
        groups: the rollouts, those of one task, or the branches of one state, together.
    """
    graded = [[one.trajectory for one in group if one.grade is not None] for group in groups]
    return [group for group in graded if len(group) > 1 or (group and group[0].advantages is not None)]
