"""Figures of several seeds: a table for people, and plots."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.priors.runs import Outcome

_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Of Student's distribution, for 95 % and 1, 2, ... degrees of freedom."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds, with half the width of its confidence interval of 95 %; None for a single seed."""

    value: float
    half_width: float | None

    def told(self, digits: int = 2, scale: float = 1.0) -> str:
        """Returns both in words."""
        width = "" if self.half_width is None else f" ± {self.half_width * scale:,.{digits}f}"
        return f"{self.value * scale:,.{digits}f}{width}"


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What a variant was like, over all seeds.

    Attributes:
        task, model, variant: their names.
        seeds: how many.
        mean_return: of the second half of the rollouts.
        queries: how often the model was asked.
        asked: the share of lookups for which it was.
        median_s, p95_s: latencies of an action, of all seeds together.
        near: the share of lookups that a similar state answered; `false`: the share of these that were wrong.
        divergence: what refreshes of similar states found, in nats; None without any.
        surrogate: of the whole runs.
        overhead: of the tuner, of the time that the cache takes without the model; `overhead_run` of all of the run,
            without the model's delay.
        delta, refresh, capacity: at the end, the mean of all seeds.
        curve: mean returns, each over a twelfth of the rollouts.
    """

    task: str
    model: str
    variant: str
    seeds: int
    mean_return: Mean
    queries: Mean
    asked: Mean
    median_s: float
    p95_s: float
    near: float
    false: float | None
    divergence: float | None
    surrogate: Mean
    overhead: float | None
    overhead_run: float
    delta: float
    refresh: float
    capacity: float
    curve: list[float]

    def as_json(self) -> dict[str, Any]:
        """Returns what the JSON report holds."""
        return dataclasses.asdict(self)


def row(task: str, model: str, variant: str, outcomes: Sequence[Outcome]) -> Row:
    """Returns the row that the outcomes of several seeds make."""

    def mean(of: Callable[[Outcome], float]) -> Mean:
        values = [of(outcome) for outcome in outcomes]
        width = None
        if len(values) > 1:
            student = _STUDENT[len(values) - 2] if len(values) - 2 < len(_STUDENT) else 1.96
            width = student * statistics.stdev(values) / math.sqrt(len(values))
        return Mean(statistics.fmean(values), width)

    latencies = sorted(second for outcome in outcomes for second in outcome.latencies_s)
    near, lookups = sum(each.near for each in outcomes), sum(each.lookups for each in outcomes)
    divergences = [each.divergence for each in outcomes if each.divergence is not None]
    cache_s, tuner_s = sum(each.cache_s for each in outcomes), sum(each.tuner_s for each in outcomes)
    return Row(
        *(task, model, variant, len(outcomes)),
        mean_return=mean(lambda each: statistics.fmean(each.returns[len(each.returns) // 2 :])),
        queries=mean(lambda each: each.queries),
        asked=mean(lambda each: each.queries / each.lookups),
        median_s=latencies[len(latencies) // 2],
        p95_s=latencies[int(len(latencies) * 0.95)],
        near=near / lookups,
        false=sum(each.false for each in outcomes) / near if near else None,
        divergence=statistics.fmean(divergences) if divergences else None,
        surrogate=mean(lambda each: each.surrogate),
        overhead=tuner_s / cache_s if cache_s else None,
        overhead_run=tuner_s / sum(each.run_s for each in outcomes),
        delta=statistics.fmean(each.variant.delta for each in outcomes),
        refresh=statistics.fmean(each.variant.refresh for each in outcomes),
        capacity=statistics.fmean(each.variant.capacity for each in outcomes),
        curve=_curve([each.returns for each in outcomes]),
    )


def _curve(returns: Sequence[Sequence[float]]) -> list[float]:
    size = max(1, len(returns[0]) // 12)
    firsts = range(0, len(returns[0]) - size + 1, size)
    return [statistics.fmean(value for each in returns for value in each[first : first + size]) for first in firsts]


def table(rows: Sequence[Row]) -> str:
    """Returns tables in Markdown, one for each task and model."""
    lines: list[str] = []
    for task, model in dict.fromkeys((each.task, each.model) for each in rows):
        lines += ["", f"`{task}`, {model}:", ""]
        lines += [
            "| cache | return | queries | asked | median / p95 of an action | near, of these false | divergence | "
            "surrogate |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for each in rows:
            if (each.task, each.model) != (task, model):
                continue
            false = "" if each.false is None else f", {each.false:.0%}"
            cells = [
                _named(each),
                each.mean_return.told(),
                each.queries.told(0),
                f"{each.asked.value:.0%}",
                f"{each.median_s * 1e3:.1f} / {each.p95_s * 1e3:.0f} ms",
                f"{each.near:.0%}{false}",
                "" if each.divergence is None else f"{each.divergence:.2f}",
                each.surrogate.told(),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        for each in rows:
            if (each.task, each.model, each.variant) == (task, model, "adaptive"):
                within = "" if each.overhead is None else f"{each.overhead:.2%} of the cache's time without the model, "
                lines += ["", f"The tuner took {within}{each.overhead_run:.3%} of the run's."]
    return "\n".join(lines)


def _named(row: Row) -> str:
    if row.variant in ("best of a grid", "adaptive"):
        return f"{row.variant} (delta {row.delta:.3f}, refresh {row.refresh:.3f}, capacity {row.capacity:,.0f})"
    return row.variant


def write(folder: Path, rows: Sequence[Row], machine: str) -> None:
    """Writes `report.md` with its plots into a folder, which is made if it is missing."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    told = ["# Caches of proposals", "", machine, table(rows)]
    for task, model in dict.fromkeys((each.task, each.model) for each in rows):
        of_these = [each for each in rows if (each.task, each.model) == (task, model)]
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
        for each in of_these:
            left.plot(range(1, len(each.curve) + 1), each.curve, label=each.variant)
        left.set(title=f"{task}, {model}: mean return", xlabel="twelfth of the rollouts")
        left.legend(fontsize="x-small")
        widths = [each.queries.half_width or 0.0 for each in of_these]
        right.barh([each.variant for each in of_these], [each.queries.value for each in of_these], xerr=widths)
        right.set(title="queries")
        right.invert_yaxis()
        name = f"{task}-{model.replace(', ', '-')}.svg"
        figure.tight_layout()
        figure.savefig(folder / name)
        pyplot.close(figure)
        told += ["", f"![{task}, {model}]({name})"]
    (folder / "report.md").write_text("\n".join(told) + "\n", encoding="utf-8")
