"""Renders the report of a data directory as a page: tables, and charts as inline SVG."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tvsnap.graph import served, unserved_as
from tvsnap.model.stats import DEEPEST
from tvsnap.upkeep.figures import by_place

from .page import brought, page
from .text import costs, count, cut, one_line, percent, place_words, seconds, size

if TYPE_CHECKING:
    from tvsnap.graph import Edge, Step, Tally, TreeNode

WIDTH, HEIGHT = 820, 190
LEFT, BOTTOM, TOP = 78, 24, 22
"""The margins of a chart's bars, in pixels."""
LABELS = 16
"""Bars of a chart with a label at most."""
FEW = 6
"""Labels that have room on a narrow screen, too."""
PROSE = 30
"""Characters of a table's cell at most; a column with a longer one is set as running text."""
ROWS = 30
"""Rows of a table at most."""
LATEST = 200
"""Latest rollouts of which single calls are read; for each, a server gets a request."""
SHORTEST, LONGEST = -5, 3
"""Powers of 10: the shortest and the longest duration that a histogram distinguishes, in seconds."""


def report(
    figures: dict[str, Any],
    epochs: Sequence[Tally],
    tasks: Sequence[Tally],
    nodes: Sequence[TreeNode],
    steps: Sequence[Step],
    task: str | None = None,
) -> str:
    """Returns the page.

    Args:
        figures: those of `tvsnap stats`, or of `figures_of`.
        epochs: the sums over the rollouts of each epoch.
        tasks: the same, of each task.
        nodes: the states, with the calls that are recorded.
        steps: the calls of the latest `LATEST` rollouts.
        task: the only task; None for all tasks.
    """
    calls = _calls(nodes)
    title = f"tvsnap: {count(figures['calls'], 'call')} in {count(figures['rollouts'], 'rollout')}"
    title += "" if task is None else f" of {task}"
    parts = [f"<h1>{_text(title)}</h1>", *_totals(figures)]
    parts += [
        *_by_epoch(epochs),
        *_by_depth(figures["by_depth"]),
        *_waits(steps),
        *_durations(calls),
        *_executed(figures.get("reasons", ())),
        *_unshared(calls),
        *_tallied(tasks),
    ]
    return page(title, "\n".join(parts), brought("report.css"))


def figures_of(tallies: Sequence[Tally], nodes: Sequence[TreeNode], steps: Sequence[Step]) -> dict[str, Any]:
    """Returns the figures of `tvsnap stats` that are known of some rollouts.

    Args:
        tallies: their sums, each rollout in one of them.
        nodes: the states that they came to.
        steps: some of their calls, for the hit rate by place.
    """
    sums = {
        name: sum(getattr(one, name) for one in tallies)
        for name in ("calls", "rollouts", "hits", "coalesced", "took_s", "waited_s", "saved_s")
    }
    snapshots = [snapshot for node in nodes for snapshot in node.snapshots]
    by_depth: dict[int, tuple[int, int]] = {}
    for step in steps:
        place = min(step.place, DEEPEST)
        calls, answered = by_depth.get(place, (0, 0))
        by_depth[place] = calls + 1, answered + step.answered
    return {
        **sums,
        "executed": sums["calls"] - sums["hits"] - sums["coalesced"],
        "by_depth": by_place(by_depth),
        "forks": sum(snapshot.forks for snapshot in snapshots),
        "snapshots": len(snapshots),
        "snapshot_bytes": sum(snapshot.size for snapshot in snapshots),
    }


def as_data(
    figures: dict[str, Any],
    epochs: Sequence[Tally],
    tasks: Sequence[Tally],
    nodes: Sequence[TreeNode],
    steps: Sequence[Step],
) -> dict[str, Any]:
    """Returns the content of the page as plain JSON; its arguments are those of `report`."""
    calls = _calls(nodes)
    unshared = Counter(unserved_as(call) for call in calls if not served(call))
    return {
        "figures": figures,
        "epochs": [_tally_data(one) for one in epochs],
        "tasks": [_tally_data(one) for one in tasks],
        "waits": {
            kind: _binned(step.seconds for step in steps if step.answered is answered)
            for kind, answered in (("answered", True), ("executed", False))
        },
        "durations": _binned(call.result.duration for call in calls),
        "unshared": [{"reason": reason, "calls": number} for reason, number in unshared.most_common()],
    }


def _tally_data(tally: Tally) -> dict[str, Any]:
    return {**asdict(tally), "hit_rate": tally.hit_rate, "saved_s": tally.saved_s}


def _binned(durations: Iterable[float]) -> list[dict[str, float]]:
    bins = Counter(map(_bin, durations))
    return [{"from_s": 10 ** (one / 2), "calls": bins[one]} for one in sorted(bins)]


def _calls(nodes: Iterable[TreeNode]) -> list[Edge]:
    return [call for node in nodes for call in ([node.made_by] if node.made_by else []) + list(node.unchanging)]


def _totals(figures: dict[str, Any]) -> list[str]:
    saved = figures["saved_s"]
    rows = [
        ("answered from the graph", f"{figures['hits']:,}", percent(figures["hits"], figures["calls"])),
        ("answered by waiting", f"{figures['coalesced']:,}", percent(figures["coalesced"], figures["calls"])),
        ("executed", f"{figures['executed']:,}", percent(figures["executed"], figures["calls"])),
    ]
    if "answered_s" in figures:
        rows += [
            ("time of the answered calls", seconds(figures["answered_s"]), ""),
            ("spent on answers, forks and snapshots", seconds(figures["answered_s"] - saved), ""),
        ]
    else:
        rows += [
            ("time of the calls, executed", seconds(figures["took_s"]), ""),
            ("waited for the calls", seconds(figures["waited_s"]), ""),
        ]
    rows += [
        ("saved" if saved >= 0 else "not saved", seconds(abs(saved)), ""),
        ("forks", f"{figures['forks']:,}", ""),
        ("snapshots", f"{figures['snapshots']:,}", size(figures["snapshot_bytes"])),
    ]
    rows += [("cost saved", costs(figures["saved_cost"]), "")] if figures.get("saved_cost") else []
    rows += [("disk", size(figures["disk_bytes"]), "")] if "disk_bytes" in figures else []
    return [table(("", "", ""), rows), "<p>Times are sums over all rollouts, in wall time.</p>"]


def _by_epoch(epochs: Sequence[Tally]) -> list[str]:
    epochs = [one for one in epochs if one.calls]
    if not epochs:
        return []
    names = [one.key or "none" for one in epochs]
    rates = [100 * one.hit_rate for one in epochs]
    means = [[one.waited_s / one.calls for one in epochs], [one.took_s / one.calls for one in epochs]]
    rewards = [one.reward for one in epochs]
    reward = (
        ["<h2>Mean reward by epoch</h2>", _chart(names, [rewards], _reward)]
        if any(one is not None for one in rewards)
        else []
    )
    return [
        "<h2>Hit rate by epoch</h2>",
        _chart(names, [rates], _percent, most=100),
        *reward,
        "<h2>Seconds a call, by epoch</h2>",
        "<p>Blue: how long a rollout waited. Orange: how long its call takes where it is executed.</p>",
        _chart(names, means, seconds),
    ]


def _by_depth(places: Sequence[dict[str, int]]) -> list[str]:
    if not places:
        return []
    names = [place_words(one["from"], one["to"]) for one in places]
    rates = [100 * one["answered"] / one["calls"] for one in places]
    return ["<h2>Hit rate by a call's place in its rollout</h2>", _chart(names, [rates], _percent, most=100)]


def _waits(steps: Sequence[Step]) -> list[str]:
    if not steps:
        return []
    answered, executed = ([step.seconds for step in steps if step.answered is kind] for kind in (True, False))
    return [
        "<h2>How long rollouts waited for a call</h2>",
        f"<p>Of the latest {LATEST} rollouts, how many calls. Blue: answered. Orange: executed.</p>",
        _histogram(answered, executed),
    ]


def _durations(calls: Sequence[Edge]) -> list[str]:
    if not calls:
        return []
    return [
        "<h2>How long the recorded calls take</h2>",
        "<p>Where they are executed; how many calls there are of each duration.</p>",
        _histogram([call.result.duration for call in calls]),
    ]


def _histogram(*series: Iterable[float]) -> str:
    """Returns a chart of how many durations there are of each half power of 10."""
    counters = [Counter(map(_bin, durations)) for durations in series]
    bins = range(min(map(min, filter(None, counters))), max(map(max, filter(None, counters))) + 1)
    names = [f"≥ {seconds(10 ** (one / 2))}" for one in bins]
    return _chart(names, [[float(counts[one]) for one in bins] for counts in counters], lambda value: f"{value:,.0f}")


def _bin(duration: float) -> int:
    """Returns the half power of 10 below a duration."""
    least = 10.0**SHORTEST
    return min(2 * LONGEST, math.floor(2 * math.log10(max(duration, least))))


def _executed(reasons: Sequence[Mapping[str, Any]]) -> list[str]:
    if not reasons:
        return []
    rows = [(one["reason"], f"{one['count']:,}", one["advice"]) for one in reasons]
    return ["<h2>Why calls were executed</h2>", table(("reason", "calls", "for more answers"), rows)]


def _unshared(calls: Iterable[Edge]) -> list[str]:
    reasons = Counter(unserved_as(call) for call in calls if not served(call))
    heading = "<h2>What was not shared, and why</h2>"
    if not reasons:
        return [heading, "<p>All recorded calls answer others.</p>"]
    rows = [(cut(one_line(reason), 160), f"{number:,}") for reason, number in reasons.most_common(ROWS)]
    return [heading, table(("reason", "calls"), rows), _more(len(reasons) - ROWS)]


def _tallied(tasks: Sequence[Tally]) -> list[str]:
    if not tasks:
        return []
    names = ("task", "rollouts", "reward", "calls", "hits", "failing", "waited", "took")
    most = sorted(tasks, key=lambda one: one.calls, reverse=True)[:ROWS]
    rows = [
        (
            *(cut(one_line(one.key or "none"), 60), f"{one.rollouts:,}"),
            *("" if one.reward is None else f"{one.reward:.3g}", f"{one.calls:,}"),
            *(percent(one.hits + one.coalesced, one.calls), f"{one.failing:,}"),
            *(seconds(one.waited_s), seconds(one.took_s)),
        )
        for one in most
    ]
    return ["<h2>Tasks</h2>", table(names, rows), _more(len(tasks) - ROWS)]


def _more(number: int) -> str:
    return f"<p>and {number:,} more</p>" if number > 0 else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table as HTML, with all texts escaped; an empty `head` is left out."""
    rows = list(rows)
    prose = {place for row in rows for place, cell in enumerate(row) if len(cell) > PROSE}

    def line(tag: str, cells: Sequence[str]) -> str:
        kinds = (' class="prose"' if place in prose else "" for place in range(len(cells)))
        parts = (f"<{tag}{kind}>{_text(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
        return f"<tr>{''.join(parts)}</tr>"

    top = line("th", head) if any(head) else ""
    return f'<div class="scroll"><table>{top}{"".join(line("td", row) for row in rows)}</table></div>'


def _chart(
    names: Sequence[str],
    series: Sequence[Sequence[float | None]],
    words: Callable[[float], str],
    most: float = 0.0,
) -> str:
    """Returns a chart with a bar for each name and series; None has no bar.

    Args:
        names: of the bars.
        series: their values.
        words: returns a value in words.
        most: the top of the axis; 0 for the greatest value.
    """
    numbers = [value for values in series for value in values if value is not None]
    low = min(0.0, *numbers)
    top = most or max(0.0, *numbers) or (0.0 if low else 1.0)
    high, step = HEIGHT - TOP - BOTTOM, (WIDTH - LEFT) / len(names)
    width = min(60.0, 0.8 * step / len(series))

    def place_of(value: float) -> float:
        return TOP + high * (top - value) / (top - low)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="group">']
    for value in dict.fromkeys((low, 0.0 if low else top / 2, top)):
        y = place_of(value)
        parts.append(f'<path class="line" d="M{LEFT} {y:g}H{WIDTH}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:g}" text-anchor="end">{_text(words(value))}</text>')
    every = math.ceil(len(names) / LABELS)
    for place, name in enumerate(names):
        middle = LEFT + step * (place + 0.5)
        for number, values in enumerate(series):
            shown = values[place]
            if shown is None:
                continue
            x, (upper, lower) = (
                middle + width * (number - len(series) / 2),
                sorted(map(place_of, (0.0, min(top, shown)))),
            )
            parts.append(
                f'<rect class="bar{number}" x="{x:.2f}" y="{upper:.2f}" width="{width:.2f}"'
                f' height="{lower - upper:.2f}"><title>{_text(f"{name}: {words(shown)}")}</title></rect>'
            )
        if place % every == 0:
            label = _text(cut(one_line(name), 12))
            also = ' class="also"' if len(names) > FEW and place // every % 2 else ""
            parts.append(f'<text{also} x="{middle:.2f}" y="{HEIGHT - 5}" text-anchor="middle">{label}</text>')
    return "\n".join([*parts, "</svg>"])


def _reward(value: float) -> str:
    return f"{value:.2g}"


def _percent(value: float) -> str:
    return f"{value:.0f} %"


def _text(text: str) -> str:
    return html.escape(one_line(text))
