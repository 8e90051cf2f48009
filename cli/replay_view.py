"""The display of `tvsnap replay`: progress while it runs, and the figures at the end."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.progress import MofNCompleteColumn, ProgressColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from tvsnap.upkeep.figures import reasons

from . import context
from .check_view import print_findings
from .text import count, cut, one_line, percent, seconds

if TYPE_CHECKING:
    from rich.console import Console

    from tvsnap.model.stats import Stats
    from tvsnap.upkeep.replay import CallRecord, Listener, ReplayReport, RolloutRun

REASONS_SHOWN = 12
FAILURES_SHOWN = 8


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed is not None else "", "dim")


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        remaining = task.time_remaining
        return Text(f"{seconds(remaining)} left" if remaining is not None and not task.finished else "", "cyan")


class _Shown:
    """A listener that shows the progress of a replay."""

    def __init__(self, update: Callable[..., None]) -> None:
        self._update = update
        self._lock = threading.Lock()
        self._calls = self._answered = self._failed = 0

    def called(self, record: CallRecord) -> None:
        self._count(1, answered=record.result.source != "executed")

    def ended(self, run: RolloutRun) -> None:
        self._count(len(run.planned.calls) - len(run.calls) if run.error else 0, failed=bool(run.error))

    def _count(self, more: int, *, answered: bool = False, failed: bool = False) -> None:
        with self._lock:
            self._calls, self._answered, self._failed = (
                self._calls + more,
                self._answered + answered,
                self._failed + failed,
            )
            words = f"{percent(self._answered, self._calls)} hits" + (
                f", {self._failed} failed" if self._failed else ""
            )
            self._update(completed=self._calls, words=words)


@contextlib.contextmanager
def progress(total: int) -> Iterator[Listener | None]:
    """Shows a progress bar on standard error during the block, if that is a terminal."""
    words = TextColumn("{task.fields[words]}", style="green")
    with context.progress(total, MofNCompleteColumn(), TextColumn("calls"), _Rate(), words, _TimeLeft()) as update:
        yield None if update is None else _Shown(update)


def print_report(report: ReplayReport, console: Console, *, cached: bool) -> None:
    """Prints the figures of a replay; `cached` is whether the cache was used."""
    data = report.data()
    if report.interrupted:
        console.print("interrupted: this is what was done so far\n", style="yellow")
    rate = data["calls"] / report.wall_s if report.wall_s else 0.0
    console.print(
        f"{count(data['rollouts'], 'rollout')}, {count(data['calls'], 'call')} in {seconds(report.wall_s)}"
        f" ({rate:,.0f} calls/s)",
        style="bold",
    )
    latencies = context.table("latency", "n", "p50", "p99")
    latencies.columns[0].style = "dim"
    for kind, latency in data["latency_ms"].items():
        if latency["n"]:
            latencies.add_row(kind, f"{latency['n']:,}", *(seconds(latency[p] / 1000) for p in ("p50", "p99")))
    for part in (_figures(report, cached=cached), latencies):
        console.print()
        console.print(part)
    if len(report.passes_s) > 1:
        console.print()
        console.print(_passes(report))
    _print_not_shared(report, console)
    _print_failures(report, console)
    _print_audit(report, console)


def _figures(report: ReplayReport, *, cached: bool) -> Table:
    data, stats = report.data(), report.stats
    calls = data["calls"]
    words = f"{stats.prefix_hits:,} where a sandbox or a snapshot was at hand" if stats and stats.prefix_hits else ""
    executed = ("executed", f"{data['executed']:,}", percent(data["executed"], calls), words)
    wall_time = ("wall time", seconds(data["wall_s"]))
    if not cached:
        return context.grid([executed, wall_time, ("tool time", seconds(data["tool_time_s"]))], 4)
    rows: list[tuple[str, ...]] = [("hits", f"{data['hits']:,}", percent(data["hits"], calls), _hit_words(data))]
    if data["coalesced"]:
        words = "waited for a rollout that was executing the same"
        rows.append(("coalesced", f"{data['coalesced']:,}", percent(data["coalesced"], calls), words))
    rows.append(executed)
    if stats is not None:
        rows += [("", f"{one['count']:,}", "", one["reason"]) for one in reasons(stats.reasons)]
    rows += [] if stats is None else _counted_rows(stats)
    rows += [
        ("hit rate", f"{100 * data['hit_rate']:.1f} %"),
        wall_time,
        ("tool time", seconds(data["tool_time_s"]), "", f"of which {seconds(data['executed_time_s'])} were executed"),
    ]
    if stats is not None:
        rows.append(("saved", seconds(stats.saved_s), "", "net of waiting, forks, replays and checkpoints"))
    return context.grid(rows, 4)


def _counted_rows(stats: Stats) -> list[tuple[str, ...]]:
    """Returns the counts of the cache."""
    rows: list[tuple[str, ...]] = []
    ways = ", ".join(f"{number:,} {way}" for way, number in stats.arrivals.items() if number)
    if ways:
        rows.append(("sandboxes", f"{sum(stats.arrivals.values()):,}", "", f"to execute these in: {ways}"))
    rows += [
        ("replayed", f"{stats.replayed:,}", "", "recorded calls run again to rebuild a state"),
        ("forks", f"{stats.forks:,}", "", f"and {count(stats.starts, 'fresh start')}"),
    ]
    if stats.preforks:
        words = f"{stats.preforks_used:,} used, {stats.preforks_wasted:,} in vain"
        rows.append(("preforks", f"{stats.preforks:,}", "", f"forks and starts ahead of time: {words}"))
    rows.append(("checkpoints", f"{stats.checkpoints:,}"))
    if stats.evicted or stats.snapshots_refused:
        words = f"to make room; {count(stats.snapshots_refused, 'state')} got no snapshot for want of it"
        rows.append(("evicted", f"{stats.evicted:,}", "", words))
    if stats.trouble:
        rows.append(("trouble", "", "", one_line(stats.trouble)))
    return rows


def _hit_words(data: dict[str, float]) -> str:
    if not data["hits"] or not data["hit_time_s"]:
        return ""
    return (
        f"{seconds(data['hit_time_s'])} instead of {seconds(data['hit_tool_time_s'])}"
        f": {data['hit_tool_time_s'] / data['hit_time_s']:,.0f} times less"
    )


def _passes(report: ReplayReport) -> Table:
    table = context.table("pass", "calls", "hit rate", "wall time", "executed", left=0)
    for entry in report.data()["passes"]:
        rate, wall = f"{100 * entry['hit_rate']:.1f} %", seconds(entry["wall_s"])
        table.add_row(str(entry["repeat"] + 1), f"{entry['calls']:,}", rate, wall, f"{entry['executed']:,}")
    return table


def _print_not_shared(report: ReplayReport, console: Console) -> None:
    calls = report.not_shared
    if not calls:
        return
    firsts: dict[str, CallRecord] = {}
    for call in calls:
        firsts.setdefault(call.not_shared or "", call)
    counts = Counter(call.not_shared or "" for call in calls).most_common()
    console.print(
        f"\n{count(len(calls), 'call')} not shared with later rollouts, and why (with the state of the first):",
        style="magenta",
    )
    for reason, number in counts[:REASONS_SHOWN]:
        line = Text.assemble(f"{number:5,}  ", (firsts[reason].state[:8] + "  ", "yellow"))
        line.append(cut(one_line(reason), console.width - line.cell_len))
        console.print(line)
    if len(counts) > REASONS_SHOWN:
        rest = sum(number for _, number in counts[REASONS_SHOWN:])
        console.print(f"{rest:5,}  for {len(counts) - REASONS_SHOWN} more reasons (--report has them all)", style="dim")


def _print_audit(report: ReplayReport, console: Console) -> None:
    audit = report.audit
    if not (audit.checked or audit.failures):
        return
    words = f"{count(audit.checked, 'answer')} audited: {audit.same:,} came to the same when made again"
    if audit.by_chance:
        words += f", {len(audit.by_chance):,} returned the same and left something else behind"
    if audit.differences:
        words += f", {len(audit.differences):,} came to something else and will not be given again"
    console.print("\n" + words, style="red" if audit.differences else "green")
    print_findings(audit, console)


def _print_failures(report: ReplayReport, console: Console) -> None:
    failed = report.failed
    if not failed:
        return
    console.print(f"\n{count(len(failed), 'rollout')} failed by tvsnap itself:", style="red")
    for run in failed[:FAILURES_SHOWN]:
        where = f"{run.planned.task} {run.planned.rollout} call {len(run.calls)}"
        console.print(f"  {one_line(where)}: {one_line(run.error)}")
    if len(failed) > FAILURES_SHOWN:
        console.print(f"  ... and {len(failed) - FAILURES_SHOWN} more (--report has them all)", style="dim")
