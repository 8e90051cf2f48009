"""What a soak comes to: how much there was of everything by tenths of it, and whether that is within bounds."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from rich.table import Table

MB = 1e6
TENTHS = 10
START, END = 1, 9  # the tenths that are compared; in the first, number 0, caches and pools of threads fill
SLOWER = 0.10  # the part of the throughput that may be lost
WIDTH = 128


@dataclass(frozen=True, slots=True)
class Window:
    """Some rollouts, one after another, and how things stood after them.

    Attributes:
        rollouts: how many had been made by then.
        seconds: that they took.
        processor_s: processor time of this process and of all that it started, seconds.
        calls: by source; also `wrong`, those that did not return what they should, and `failed`, rollouts that failed.
        levels, tables: see `Gauges`.
    """

    rollouts: int
    seconds: float
    processor_s: float
    calls: Counter[str]
    levels: Mapping[str, float]
    tables: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Quantity:
    """What is looked at.

    Attributes:
        name: of the level.
        what: in words.
        grows: by how much the most of the end may exceed the most of the start; None for no bound.
        scale: what the numbers are divided by to be shown.
    """

    name: str
    what: str
    grows: float | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row of the report.

    Attributes:
        name: of the quantity; unique.
        what: in words.
        by_tenth: how much there was at the end of each tenth, or in it; only one number, for the end, if it is known
            for that alone.
        bound: in words; empty if there is none.
        holds: whether the bound does; None if there is none.
    """

    name: str
    what: str
    by_tenth: Sequence[float]
    bound: str = ""
    holds: bool | None = None


LEVELS = (
    Quantity("own memory", "own memory but the graph's, MB", 16 * MB, MB),
    Quantity("allocated", "... of which given out by the C library, MB", 4 * MB, MB),
    Quantity("graph memory", "memory of the graph's connections, MB", None, MB),
    Quantity("resident", "resident memory, MB", None, MB),
    Quantity("proportional", "proportional memory, MB", None, MB),
    Quantity("raw resident", "... resident, before what is free goes, MB", None, MB),
    Quantity("blocks", "Python objects but measured times, thousands", 40_000, 1000),
    Quantity("descriptors", "descriptors but the graph's", 0),
    Quantity("connections", "connections to the graph"),
    Quantity("threads", "threads but those of pools", 0),
    Quantity("pooled threads", "threads of pools"),
    Quantity("processes", "processes", 0),
    Quantity("mounts", "mounts", 0),
    Quantity("control groups", "control groups", 0),
    Quantity("loop devices", "loop devices", 0),
    Quantity("rollouts", "rollouts not ended", 0),
    Quantity("leases", "leases not given back", 0),
    Quantity("left in pool", "live or unfinished layers", 0),
    Quantity("strays", "snapshots without row, or rows without", 0),
    Quantity("quota groups", "accounts of layers that are gone"),
    Quantity("files", "files that tell of processes", 0),
    Quantity("snapshots", "snapshots"),
    Quantity("snapshot bytes", "... their room on the disk, MB", None, MB),
    Quantity("pool", "in use in the pool, MB", None, MB),
    Quantity("pool file", "the pool's file, MB", None, MB),
    Quantity("log", "the graph's log, MB", 32 * MB, MB),
    Quantity("database", "the graph, MB", None, MB),
)


def tenths(windows: Sequence[Window]) -> list[list[Window]]:
    """Returns the windows of each tenth of a run; there are at least ten."""
    last = windows[-1].rollouts
    found: list[list[Window]] = [[] for _ in range(TENTHS)]
    for window in windows:
        found[math.ceil(window.rollouts * TENTHS / last) - 1].append(window)
    return found


def judge(windows: Sequence[Window], ceilings: Mapping[str, float]) -> list[Verdict]:
    """Returns what the run came to.

    Args:
        windows: all of it, at least one in each tenth.
        ceilings: how much there may be at most, by the name of the level.
    """
    parts = tenths(windows)
    verdicts = [_throughput(parts), _effort(parts), *_mistakes(parts)]
    for quantity in LEVELS:
        name, scale = quantity.name, quantity.scale
        start, end = (max(window.levels[name] for window in parts[number]) for number in (START, END))
        most = max(window.levels[name] for window in windows)
        shown = [part[-1].levels[name] / scale for part in parts]
        if name in ceilings:
            ceiling = ceilings[name]
            verdicts.append(Verdict(name, quantity.what, shown, f"≤ {ceiling / scale:,.0f}", most <= ceiling))
        elif quantity.grows is not None:
            bound = f"+{quantity.grows / scale:g}" if quantity.grows else "+0"
            verdicts.append(Verdict(name, quantity.what, shown, bound, end - start <= quantity.grows))
        else:
            verdicts.append(Verdict(name, quantity.what, shown))
    return [*verdicts, _row_size(parts)]


def growth_of_tables(windows: Sequence[Window]) -> list[str]:
    """Returns in words which tables in memory have grown most, for whoever looks for what takes the memory."""
    parts = tenths(windows)
    before, after = parts[START][-1].tables, parts[END][-1].tables
    grown = sorted(((count - before.get(name, 0), name) for name, count in after.items()), reverse=True)
    return [f"{name}: {after[name] - more:,} entries, then {after[name]:,}" for more, name in grown[:5] if more > 0]


def _throughput(parts: Sequence[Sequence[Window]]) -> Verdict:
    """Compares the ends of the line through all samples: one tenth against another would tell of other work as well."""
    rates = [_made(part) / sum(window.seconds for window in part) for part in parts]
    start, end = _line([_made([window]) / window.seconds for part in parts[START:] for window in part])
    return Verdict(
        "throughput",
        f"calls a second; their line from {_number(start)} to {_number(end)}",
        rates,
        f"-{SLOWER:.0%}",
        end >= (1 - SLOWER) * start,
    )


def _line(values: Sequence[float]) -> tuple[float, float]:
    """Returns the first and the last value of the line through values, by Theil and Sen: outliers do not move it."""
    pairs = combinations(enumerate(values), 2)
    slope = statistics.median((later - earlier) / (j - i) for (i, earlier), (j, later) in pairs)
    first = statistics.median(value - slope * index for index, value in enumerate(values))
    return first, first + slope * (len(values) - 1)


def _effort(parts: Sequence[Sequence[Window]]) -> Verdict:
    """What other work on the machine changes less than the throughput."""
    efforts = [1000 * sum(window.processor_s for window in part) / _made(part) for part in parts]
    return Verdict("effort", "processor time of a call, ms", efforts)


def _mistakes(parts: Sequence[Sequence[Window]]) -> list[Verdict]:
    verdicts = []
    hits = [100 * sum(w.calls["hit"] + w.calls["coalesced"] for w in part) / _made(part) for part in parts]
    verdicts.append(Verdict("hit rate", "calls answered by the graph, %", hits))
    for name, what in (("wrong", "calls answered wrongly"), ("failed", "rollouts that failed")):
        counts = [float(sum(window.calls[name] for window in part)) for part in parts]
        verdicts.append(Verdict(name, what, counts, "none", not any(counts)))
    return verdicts


def _row_size(parts: Sequence[Sequence[Window]]) -> Verdict:
    sizes = [part[-1].levels["database"] / max(part[-1].levels["recorded"], 1) for part in parts]
    return Verdict("row size", "bytes of the graph by recorded call", sizes)


def _made(part: Sequence[Window]) -> int:
    """Returns how many calls were made."""
    return sum(window.calls[source] for window in part for source in ("hit", "coalesced", "executed"))


def to_table(verdicts: Sequence[Verdict]) -> Table:
    """Returns the report as a table: a column for each tenth of the run."""
    table = Table(width=WIDTH, box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("at the end of each tenth of the rollouts", no_wrap=True)
    for number in range(TENTHS):
        table.add_column(f"{number + 1}", justify="right", no_wrap=True)
    table.add_column("bound", justify="right", no_wrap=True, min_width=6)
    table.add_column("")
    for verdict in verdicts:
        mark = {True: "[green]✓[/]", False: "[red]✗[/]", None: ""}[verdict.holds]
        style = "dim" if verdict.holds is None else ""
        numbers = [*[""] * (TENTHS - len(verdict.by_tenth)), *map(_number, verdict.by_tenth)]
        table.add_row(verdict.what, *numbers, verdict.bound, mark, style=style)
    return table


def as_json(verdicts: Sequence[Verdict], windows: Sequence[Window]) -> dict[str, Any]:
    """Returns what the JSON report holds: the verdicts, and every sample."""
    return {
        "verdicts": [
            {
                "name": verdict.name,
                "what": verdict.what,
                "by_tenth": [round(value, 4) for value in verdict.by_tenth],
                "bound": verdict.bound or None,
                "holds": verdict.holds,
            }
            for verdict in verdicts
        ],
        "samples": [
            {
                "rollouts": window.rollouts,
                "seconds": round(window.seconds, 3),
                "processor_s": round(window.processor_s, 3),
                "calls": dict(window.calls),
                "levels": dict(window.levels),
                "tables": dict(window.tables),
            }
            for window in windows
        ],
    }


def _number(value: float) -> str:
    whole = abs(value) >= 100 or value == int(value)
    return f"{value:,.0f}" if whole else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
