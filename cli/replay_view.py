"""What `tvsnap replay` shows: progress while it runs, and the figures at its end."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from . import context
from .check_view import print_findings
from .text import count, cut, one_line, percent, seconds

if TYPE_CHECKING:
    from rich.console import Console

    from tvsnap.upkeep.replay import CallRecord, Listener, ReplayReport, RolloutRun

REASONS_SHOWN = 12
FAILURES_SHOWN = 8


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed is not None else "", "dim")


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        left = task.time_remaining
        return Text(f"{seconds(left)} left" if left is not None and not task.finished else "", "cyan")


class _ProgressBar:
    """A listener that draws how far a replay is."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task
        self._lock = threading.Lock()
        self._done = self._answered = self._failed = 0

    def called(self, record: CallRecord) -> None:
        with self._lock:
            self._done += 1
            self._answered += record.result.source != "executed"
            self._show()

    def ended(self, run: RolloutRun) -> None:
        with self._lock:
            if run.error:
                self._failed += 1
                self._done += len(run.planned.calls) - len(run.calls)
            self._show()

    def _show(self) -> None:
        words = f"{percent(self._answered, self._done)} hits" + (f", {self._failed} failed" if self._failed else "")
        self._bar.update(self._task, completed=self._done, words=words)


@contextlib.contextmanager
def progress(total: int) -> Iterator[Listener | None]:
    """A block with a progress bar on standard error, if that is a terminal."""
    console = context.messages()
    if not console.is_terminal:
        yield None
        return
    columns = (
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("calls"),
        _Rate(),
        TextColumn("{task.fields[words]}", style="green"),
        _TimeLeft(),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        yield _ProgressBar(bar, bar.add_task("", total=total, words=""))


def print_report(report: ReplayReport, console: Console, *, cached: bool) -> None:
    """Prints the figures of a replay.

    Args:
        report: the figures.
        console: where to.
        cached: whether the cache was used.
    """
    data = report.data()
    if report.interrupted:
        console.print("interrupted: this is what was done so far\n", style="yellow")
    rate = data["calls"] / report.wall_s if report.wall_s else 0.0
    console.print(
        f"{count(data['rollouts'], 'rollout')}, {count(data['calls'], 'call')} in {seconds(report.wall_s)}"
        f" ({rate:,.0f} calls/s)",
        style="bold",
    )
    console.print()
    console.print(_figures(report, cached=cached))
    console.print()
    console.print(_latencies(report))
    if len(report.passes_s) > 1:
        console.print()
        console.print(_passes(report))
    _print_not_shared(report, console)
    _print_failures(report, console)
    _print_audit(report, console)


def _figures(report: ReplayReport, *, cached: bool) -> Table:
    data, stats = report.data(), report.stats
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column(overflow="fold")

    def row(label: str, number: str, share: str = "", words: str = "") -> None:
        table.add_row(label, number, share, Text(words, "dim"))

    if cached:
        row("hits", f"{data['hits']:,}", percent(data["hits"], data["calls"]), _hit_words(data))
        if data["coalesced"]:
            words = "waited for a rollout that was executing the same"
            row("coalesced", f"{data['coalesced']:,}", percent(data["coalesced"], data["calls"]), words)
    words = f"{stats.prefix_hits:,} where a sandbox or a snapshot was at hand" if stats.prefix_hits else ""
    row("executed", f"{data['executed']:,}", percent(data["executed"], data["calls"]), words)
    if cached:
        ways = ", ".join(f"{number:,} {way}" for way, number in stats.arrivals.items() if number)
        if ways:
            row("sandboxes", f"{sum(stats.arrivals.values()):,}", "", f"to execute these in: {ways}")
        row("replayed", f"{data['replayed']:,}", "", "recorded calls run again to rebuild a state")
        row("forks", f"{data['forks']:,}", "", f"and {count(data['starts'], 'fresh start')}")
        if stats.preforks:
            words = f"{stats.preforks_used:,} used, {stats.preforks_wasted:,} in vain"
            row("preforks", f"{stats.preforks:,}", "", f"forks and starts ahead of time: {words}")
        row("checkpoints", f"{data['checkpoints']:,}")
        if stats.evicted or stats.snapshots_refused:
            words = f"to make room; {count(stats.snapshots_refused, 'state')} got no snapshot for want of it"
            row("evicted", f"{stats.evicted:,}", "", words)
        if stats.trouble:
            row("trouble", "", "", one_line(stats.trouble))
        row("hit rate", f"{100 * data['hit_rate']:.1f} %")
    row("wall time", seconds(data["wall_s"]))
    words = f"of which {seconds(data['executed_time_s'])} were executed" if cached else ""
    row("tool time", seconds(data["tool_time_s"]), "", words)
    if cached:
        row("saved", seconds(data["saved_s"]), "", "net of waiting, forks, replays and checkpoints")
    return table


def _hit_words(data: dict[str, float]) -> str:
    if not data["hits"] or not data["hit_time_s"]:
        return ""
    return (
        f"{seconds(data['hit_time_s'])} instead of {seconds(data['hit_tool_time_s'])}"
        f": {data['hit_tool_time_s'] / data['hit_time_s']:,.0f} times less"
    )


def _latencies(report: ReplayReport) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("latency", style="dim")
    for name in ("n", "p50", "p99"):
        table.add_column(name, justify="right")
    for kind, latency in report.data()["latency_ms"].items():
        if latency["n"]:
            table.add_row(kind, f"{latency['n']:,}", *(seconds(latency[p] / 1000) for p in ("p50", "p99")))
    return table


def _passes(report: ReplayReport) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("pass", "calls", "hit rate", "wall time", "executed"):
        table.add_column(name, justify="right")
    for entry in report.data()["passes"]:
        table.add_row(
            str(entry["repeat"] + 1),
            f"{entry['calls']:,}",
            f"{100 * entry['hit_rate']:.1f} %",
            seconds(entry["wall_s"]),
            f"{entry['executed']:,}",
        )
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
        line = Text(f"{number:5,}  ")
        line.append(firsts[reason].state[:8] + "  ", "yellow")
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
