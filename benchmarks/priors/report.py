"""Figures of several seeds: a table for people, and plots."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.priors.runs import Outcome

NEARLY = 0.98
"""Returns that are at least this share of another count as equal."""
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
        bound: what the mean error that similar states brought is at most, over all lookups, as the cache measured it.
        cache_s: seconds that the cache took for a lookup, without the model.
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
    bound: float
    cache_s: float
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
    return Row(
        *(task, model, variant, len(outcomes)),
        mean_return=mean(lambda each: statistics.fmean(each.returns[len(each.returns) // 2 :])),
        queries=mean(lambda each: each.queries),
        asked=mean(lambda each: each.queries / each.lookups),
        median_s=latencies[len(latencies) // 2],
        p95_s=latencies[int(len(latencies) * 0.95)],
        near=near / lookups,
        false=sum(each.false for each in outcomes) / near if near else None,
        bound=statistics.fmean(each.bound for each in outcomes),
        cache_s=sum(each.cache_s for each in outcomes) / lookups,
        curve=_curve([each.returns for each in outcomes]),
    )


def _curve(returns: Sequence[Sequence[float]]) -> list[float]:
    size = max(1, len(returns[0]) // 12)
    firsts = range(0, len(returns[0]) - size + 1, size)
    return [statistics.fmean(value for each in returns for value in each[first : first + size]) for first in firsts]


def best_fixed(rows: Sequence[Row]) -> Row:
    """Returns, of the fixed thresholds of one task and model, that with the fewest queries among those whose return is
    within `NEARLY` of the largest."""
    fixed = [each for each in rows if each.variant.startswith("fixed")]
    enough = NEARLY * max(each.mean_return.value for each in fixed)
    return min((each for each in fixed if each.mean_return.value >= enough), key=lambda each: each.queries.value)


def table(rows: Sequence[Row]) -> str:
    """Returns tables in Markdown: one for each task and model, and one that compares with the best fixed threshold."""
    lines: list[str] = []
    compared: list[str] = []
    for task, model in dict.fromkeys((each.task, each.model) for each in rows):
        of_these = [each for each in rows if (each.task, each.model) == (task, model)]
        lines += ["", f"`{task}`, {model}:", ""]
        lines += [
            "| cache | return | queries | asked | median / p95 of an action | near, of these false | error at most |",
            "|---|---|---|---|---|---|---|",
        ]
        for each in of_these:
            false = "" if each.false is None else f", {each.false:.0%}"
            cells = [
                each.variant,
                each.mean_return.told(),
                each.queries.told(0),
                f"{each.asked.value:.0%}",
                f"{each.median_s * 1e3:.1f} / {each.p95_s * 1e3:.0f} ms",
                f"{each.near:.0%}{false}",
                f"{each.bound:.3f}" if each.near else "",
            ]
            lines.append(f"| {' | '.join(cells)} |")
        ours = [each for each in of_these if each.variant.startswith("tolerance")]
        if ours:
            best = best_fixed(of_these)
            for each in ours:
                share, times = (
                    each.mean_return.value / best.mean_return.value,
                    each.queries.value / best.queries.value,
                )
                cells = [
                    f"{task}, {model}",
                    f"{best.variant}: {best.mean_return.value:.3f}, {best.queries.value:,.0f}",
                    f"{each.variant}: {each.mean_return.value:.3f}, {each.queries.value:,.0f}",
                    f"{share:.1%}, {times:.1%}",
                    "yes" if share >= NEARLY and times <= 1.0 else "no",
                ]
                compared.append(f"| {' | '.join(cells)} |")
    if compared:
        lines += ["", "Return and queries, beside the best fixed threshold:", ""]
        lines += ["| task | best fixed | cache | of its return, of its queries | as good |", "|---|---|---|---|---|"]
        lines += compared
    return "\n".join(lines)


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
