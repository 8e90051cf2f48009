"""A measured figure: the distribution of its samples, and whether its target is met."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SCALE = {"µs": 1e6, "ms": 1e3, "s": 1.0, "MB": 1e-6, "kB": 1e-3}
"""Units in which figures are given, in terms of seconds and bytes."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the report.

    Attributes:
        name: what it is called in the JSON; unique.
        what: what it is, in words.
        unit: of all the numbers.
        median, p90, p99: of the samples.
        n: how many samples there are.
        at_most, at_least: the target for the median; None where it is measured for comparison only.
        floor: measured without tvsnap, as the least that it could cost.
        subject: whose figure it is, where several do the same: those of one `what` are a row of a table side by side.
    """

    name: str
    what: str
    unit: str
    median: float
    p90: float
    p99: float
    n: int
    at_most: float | None = None
    at_least: float | None = None
    floor: bool = False
    subject: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if there is none."""
        if self.at_most is not None:
            return self.median <= self.at_most
        if self.at_least is not None:
            return self.median >= self.at_least
        return None

    @property
    def target(self) -> str:
        """The target in words; empty if there is none."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return ""

    def as_json(self) -> dict[str, Any]:
        """Returns what the JSON report holds."""
        target = {"at_most": self.at_most, "at_least": self.at_least}
        return {
            "name": self.name,
            "what": self.what,
            "unit": self.unit,
            **{key: round(getattr(self, key), 4) for key in ("median", "p90", "p99")},
            "n": self.n,
            "target": {key: value for key, value in target.items() if value is not None} or None,
            "met": self.met,
            "floor": self.floor,
            **({"subject": self.subject} if self.subject else {}),
        }


def figure(
    name: str,
    what: str,
    samples: Sequence[float],
    unit: str,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    floor: bool = False,
    subject: str = "",
) -> Figure:
    """Returns the figure that samples make.

    Args:
        name, what, floor, subject: see `Figure`.
        samples: in seconds or bytes for a unit of `SCALE`, else in the unit itself.
        unit: of the figure.
        at_most, at_least: the target, in the unit.
    """
    scale = SCALE.get(unit, 1.0)
    ordered = sorted(sample * scale for sample in samples)
    # Where less is worse, the tail that matters is the low one.
    tail = ordered[::-1] if at_least is not None else ordered
    return Figure(
        name,
        what,
        unit,
        statistics.median(ordered),
        _percentile(tail, 0.90),
        _percentile(tail, 0.99),
        len(ordered),
        at_most,
        at_least,
        floor,
        subject,
    )


def _percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
