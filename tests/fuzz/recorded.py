"""Histories from rollout files, as real agents made them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.fuzz.cases import Step
from tvsnap.upkeep.rollout_files import PlannedRollout, read_rollouts

LONGEST = 10
"""Calls of one rollout that are used at once: what is wrong shows sooner in a short one."""
PATIENCE = 5.0
"""Seconds, at most, for a recorded call."""
TOPIC = "recorded"


class Recorded:
    """Rollout files, by environment."""

    def __init__(self, files: Iterable[Path]) -> None:
        """Reads them.

        Raises:
            UsageError: one cannot be read.
        """
        rollouts, _ = read_rollouts(files)
        self.terminal = [found for rollout in rollouts if (found := _steps(rollout)) and not _has_sql(found)]
        self.sql = [found for rollout in rollouts if (found := _steps(rollout)) and _has_sql(found)]

    def of(self, environment: str) -> list[list[Step]]:
        """Returns the histories that an environment's tools can make."""
        return self.terminal if environment == "terminal" else self.sql


def _steps(rollout: PlannedRollout) -> list[Step]:
    return [
        Step(call.name, call.arguments, min(planned.timeout or PATIENCE, PATIENCE), topic=TOPIC)
        for planned in rollout.calls
        for call in [rollout.made(planned)]
    ]


def _has_sql(steps: list[Step]) -> bool:
    return any(step.name in ("sql", "schema") for step in steps)
