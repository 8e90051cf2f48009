"""Runs the benchmarks: `python -m benchmarks`, or `make bench`."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import (
    beside,
    calls,
    engines,
    footprint,
    forks,
    heaps,
    hits,
    machine,
    observations,
    passes,
    served,
    sql,
    starts,
)
from benchmarks.figures import Figure
from benchmarks.workspace import Workspace, workspace
from tvsnap.model.errors import TvsnapError

GROUPS: Mapping[str, Callable[[Workspace], Iterator[Figure]]] = {
    "starts": starts.run,
    "forks": forks.run,
    "heaps": heaps.run,
    "footprint": footprint.run,
    "calls": calls.run,
    "observations": observations.run,
    "hits": hits.run,
    "graph": hits.scale,
    "served": served.run,
    "cold": passes.cold,
    "fan-out": passes.fan_out,
    "engines": engines.run,
    "sql": sql.measure,
}
WIDTH = 80


def main() -> int:
    """Runs what was asked for; returns the exit status: 0 done, be the targets met or not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures tvsnap on this machine.")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON; - for standard output")
    parser.add_argument("--only", metavar="GROUP", action="append", choices=GROUPS, help=f"{', '.join(GROUPS)}")
    text = "run those of another commit, too, by turns, and show the ratios"
    parser.add_argument("--beside", metavar="COMMIT", help=text)
    parser.add_argument("--quick", action="store_true", help="fewer samples, and no graph of a million edges")
    options = parser.parse_args()
    to_stdout = options.json == "-"
    console = Console(stderr=to_stdout, width=WIDTH, highlight=False)
    progress = Console(stderr=True, highlight=False)
    described = machine.describe()
    console.print(machine.in_words(described))
    if options.beside:
        return _beside(options, console, progress, described)
    began = time.perf_counter()
    groups: dict[str, list[Figure]] = {}
    try:
        with workspace(quick=options.quick, console=progress) as space:
            for name in options.only or GROUPS:
                groups[name] = list(GROUPS[name](space))
    except TvsnapError as error:
        progress.print(f"[red]error:[/] {error}", highlight=False)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    seconds = time.perf_counter() - began
    console.print(_table(groups))
    for figures in groups.values():
        if any(figure.subject for figure in figures):
            console.print(_side_by_side(figures))
    missed = [figure.name for figures in groups.values() for figure in figures if figure.met is False]
    console.print(f"{seconds:.0f} s; " + (f"missed: {', '.join(missed)}" if missed else "all targets met"))
    _write(options.json, _report(described, groups, seconds))
    return 0


def _beside(options: argparse.Namespace, console: Console, progress: Console, described: Mapping[str, Any]) -> int:
    """Compares this working tree with another commit; returns the exit status."""
    chosen = [word for name in options.only or () for word in ("--only", name)] + ["--quick"] * options.quick
    try:
        rows = beside.compare(options.beside, chosen, lambda text: progress.print(f"[dim]{text} ...[/]"))
    except TvsnapError as error:
        progress.print(f"[red]error:[/] {error}", highlight=False)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    table = Table(width=WIDTH, box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("medians")
    for title in ("this tree", options.beside, "ratio", "lowest to highest"):
        table.add_column(title, justify="right", overflow="fold")
    for group in dict.fromkeys(row.group for row in rows):
        table.add_section()
        table.add_row(f"[bold]{group}[/]")
        for row in (row for row in rows if row.group == group):
            medians = [f"{_number(statistics.median(found))} {row.unit:<2}" for found in (row.here, row.there)]
            ratios = row.ratios
            spread = [f"{statistics.median(ratios):.2f}", f"{ratios[0]:.2f} to {ratios[-1]:.2f}"] if ratios else []
            table.add_row(row.what, *medians, *spread)
    console.print(table)
    report = {"machine": described, "beside": options.beside, "figures": [row.as_json() for row in rows]}
    _write(options.json, report)
    return 0


def _write(target: str | None, report: Mapping[str, Any]) -> None:
    """Writes a report as JSON to a file, or to standard output (`-`); nowhere if none is asked for."""
    if not target:
        return
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text, encoding="utf-8")


def _table(groups: Mapping[str, Sequence[Figure]]) -> Table:
    """Returns the figures as a table; the rows of the raw floor are dim."""
    table = Table(width=WIDTH, box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("")
    for title in ("median", "p90", "p99", "n", "target"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for name, figures in groups.items():
        table.add_section()
        table.add_row(f"[bold]{name}[/]")
        for figure in figures:
            if figure.subject:
                continue
            verdict = {True: "[green]✓[/]", False: "[red]✗[/]", None: ""}[figure.met]
            spread = [_number(figure.p90), _number(figure.p99)] if figure.n > 1 else ["", ""]
            table.add_row(
                figure.what,
                f"{_number(figure.median)} {figure.unit:<2}",
                *spread,
                str(figure.n),
                figure.target,
                verdict,
                style="dim" if figure.floor else "",
            )
    return table


def _side_by_side(figures: Sequence[Figure]) -> Table:
    """Returns figures of several subjects as a table: a row for what was measured, a column for whom."""
    subjects = list(dict.fromkeys(figure.subject for figure in figures if figure.subject))
    rows: dict[tuple[str, str], dict[str, Figure]] = {}
    for figure in figures:
        if figure.subject:
            rows.setdefault((figure.what, figure.unit), {})[figure.subject] = figure
    table = Table(width=WIDTH, box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("medians", max_width=WIDTH - 10 * len(subjects))
    for subject in subjects:
        table.add_column(subject, justify="right", width=9, overflow="fold")
    for (what, unit), found in rows.items():
        cells = [f"{_number(found[name].median)} {unit:<2}" if name in found else "-  " for name in subjects]
        table.add_row(what, *cells)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _report(described: Mapping[str, Any], groups: Mapping[str, Sequence[Figure]], seconds: float) -> dict[str, Any]:
    figures = {name: [figure.as_json() for figure in found] for name, found in groups.items()}
    return {"machine": described, "seconds": round(seconds, 1), "figures": figures}


if __name__ == "__main__":
    sys.exit(main())
