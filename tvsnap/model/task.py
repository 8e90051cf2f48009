"""Settings of a task for its harness: tvsnap only passes them on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TaskPhase:
    """The settings of one part of a trial: the agent, the verifier or the reference solution.

    Attributes:
        user: its user, by name or number inside; None for the image's.
        env: environment variables in addition to the image's. A value such as `${NAME}` or `${NAME:-default}` stands
            for a variable of the harness's own environment; tvsnap does not replace it.
        network: its network policy, as a text for `Network.parse`; None for the image's.
        timeout: seconds; None if the task does not specify it.
    """

    user: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    network: str | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class TaskStep:
    """One of several steps of a task, which follow each other in the same sandbox, each graded by itself.

    Attributes:
        name: that of the step, and of its folder below `steps/` of the task.
        agent: the settings of the agent in it.
        verifier: the settings of its tests.
    """

    name: str
    agent: TaskPhase = field(default_factory=TaskPhase)
    verifier: TaskPhase = field(default_factory=TaskPhase)


@dataclass(frozen=True, slots=True)
class Task:
    """The settings of the parts of a task, beyond its image.

    Attributes:
        agent: the settings of its agent, whose user and timeout are those of the image.
        verifier: the settings of its tests, whose timeout is that of the image.
        solution: the settings of its reference solution.
        steps: the steps of a task that has several, in their order; else none.
    """

    agent: TaskPhase = field(default_factory=TaskPhase)
    verifier: TaskPhase = field(default_factory=TaskPhase)
    solution: TaskPhase = field(default_factory=TaskPhase)
    steps: tuple[TaskStep, ...] = ()

    def said(self) -> dict[str, Any]:
        """Returns the specified settings as plain JSON; empty if there are none."""
        values: dict[str, Any] = _said(asdict(self))
        return values

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Task:
        """Returns the task from a result of the method `said`.

        Args:
            said: the result.
        """
        phases = {name: TaskPhase(**said[name]) for name in ("agent", "verifier", "solution") if name in said}
        steps = tuple(
            TaskStep(step["name"], TaskPhase(**step.get("agent", {})), TaskPhase(**step.get("verifier", {})))
            for step in said.get("steps", ())
        )
        return cls(**phases, steps=steps)


def _said(value: Any) -> Any:
    """Returns a value without its empty parts."""
    if isinstance(value, dict):
        parts = {key: _said(item) for key, item in value.items()}
        return {key: item for key, item in parts.items() if item not in (None, {}, [])}
    return [_said(item) for item in value] if isinstance(value, (list, tuple)) else value
