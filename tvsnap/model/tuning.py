"""The parameters by which a cache decides what pays. None of them can change what a rollout sees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tvsnap.model.errors import UsageError

TUNING_BOUNDS: Mapping[str, tuple[float, float]] = {
    "break_even": (0.25, 8.0),
    "unproven_share": (0.01, 0.6),
    "record_share": (0.005, 0.5),
    "trial_s": (0.05, 10.0),
    "unproven_s": (0.05, 20.0),
    "youth_s": (10.0, 20_000.0),
    "half_life_s": (0.1, 1000.0),
    "incumbency": (1.0, 8.0),
    "new_call_chance": (0.02, 1.0),
}
"""The least and the largest value of each parameter."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a cache weighs, as `Cache(tuning=...)` takes it and `tvsnap tune` learns it.

    The defaults were chosen by hand. None of these can change what a rollout sees: they decide which states are kept,
    what is recorded and what is made ahead of time. What shares of answers are audited is no part of it, so that
    nothing that is learned makes the audit weaker.

    Attributes:
        break_even: a state that can be rebuilt is kept once that costs so many times what a checkpoint and a fork take.
        unproven_share: a state that is not known to be reproducible is kept if a checkpoint takes less than this share
            of the time of the calls since the last snapshot.
        record_share: of the time that rollouts last: the cache may cost that much beyond what it saves.
        trial_s: seconds that the cache may cost at the start, before it is known whether it pays; divided by the number
            of calls that are made at once.
        unproven_s: seconds of replay that are added to a snapshot's worth where nothing else leads to its state.
        youth_s: seconds; a younger snapshot is not considered as seldom used.
        half_life_s: seconds after which the need for a sandbox that was made ahead counts half.
        incumbency: how much more a sandbox that was made ahead counts than one to be made.
        new_call_chance: the chance of a new call, 0 to 1, from which on a sandbox is forked while a model thinks.

    Raises:
        UsageError: a parameter is outside of `TUNING_BOUNDS`, or no number.
    """

    break_even: float = 1.0
    unproven_share: float = 0.15
    record_share: float = 0.02
    trial_s: float = 0.75
    unproven_s: float = 1.0
    youth_s: float = 600.0
    half_life_s: float = 30.0
    incumbency: float = 2.0
    new_call_chance: float = 0.25

    def __post_init__(self) -> None:
        for name, (low, high) in TUNING_BOUNDS.items():
            value: Any = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and math.isfinite(value) and low <= value <= high):
                raise UsageError(f"{name} of a tuning must be a number from {low:g} to {high:g}, not {value!r}")

    def as_dict(self) -> dict[str, float]:
        """Returns all parameters by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def of(cls, values: object) -> Tuning:
        """Returns the tuning with some values; what is not named has its default.

        Args:
            values: by name, as `as_dict` returns them.

        Raises:
            UsageError: these are no values by name, a name is unknown, or a value is out of bounds.
        """
        if not isinstance(values, Mapping):
            raise UsageError(f"a tuning must be an object with values by name, not {values!r}")
        if unknown := sorted(set(map(str, values)) - set(TUNING_BOUNDS)):
            raise UsageError(f"a tuning has no {', '.join(unknown)}; it has {', '.join(TUNING_BOUNDS)}")
        return cls(**values)


DEFAULT_TUNING = Tuning()
"""The parameters that were chosen by hand."""


def default_tuning() -> Tuning:
    """Returns the parameters that were chosen by hand."""
    return DEFAULT_TUNING
