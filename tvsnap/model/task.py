"""How a task is to be run and graded, for its harness: tvsnap only passes this on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TaskPhase:
    """How one part of a trial is to be run: the agent, the verifier or the reference solution.

    Attributes:
        user: the user that it runs as, by name or number inside; None for the image's.
        env: environment variables in addition to the image's. A value such as `${NAME}` or `${NAME:-default}` stands
            for a variable of the harness's own environment; tvsnap does not replace it.
        network: what it may reach, as a text that `Network.parse` reads; None for the image's setting.
        timeout: seconds; None where the task does not specify it.
    """

    user: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    network: str | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class TaskStep:
    """One of several steps of a task, which follow each other in the same sandbox, each graded by itself.

    Attributes:
        name: of the step, and of its folder below `steps/` of the task.
        agent: how the agent is to be run in it.
        verifier: how its tests are to be run.
    """

    name: str
    agent: TaskPhase = field(default_factory=TaskPhase)
    verifier: TaskPhase = field(default_factory=TaskPhase)


@dataclass(frozen=True, slots=True)
class Task:
    """How the parts of a task are to be run, beyond its image.

    Attributes:
        agent: how its agent is to be run; its user and its timeout are those of the image.
        verifier: how its tests are to be run; their timeout is that of the image.
        solution: how its reference solution is to be run.
        steps: the steps of a task that has several, in their order; else none.
    """

    agent: TaskPhase = field(default_factory=TaskPhase)
    verifier: TaskPhase = field(default_factory=TaskPhase)
    solution: TaskPhase = field(default_factory=TaskPhase)
    steps: tuple[TaskStep, ...] = ()

    def said(self) -> dict[str, Any]:
        """Returns what is specified as plain JSON; empty if nothing is."""
        said: dict[str, Any] = _said(asdict(self))
        return said

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Task:
        """Returns the task that `said` described.

        Args:
            said: what it returned.
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
