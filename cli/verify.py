"""`tvsnap verify`: makes recorded calls again, and compares."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from . import context, options
from .check_view import check_data, print_findings

if TYPE_CHECKING:
    from rich.console import Console

    from tvsnap.upkeep.checking import CheckReport

HELP = options.help_text(
    """Make recorded calls again, and compare.

Each is made in a fork of its state, and what it leaves behind is compared as well. A call that returns something else
is not deterministic: it is listed, marked in the graph, and answers nothing from then on. One that returns the same and
leaves something else behind, as what draws a key does, is listed: its snapshot answers for it.

\b
Examples:
  tvsnap verify                       a random sample of 50
  tvsnap verify --task fix-git --all
""",
    s0="all that were made again returned the same",
    s1="some could not be made again",
    s2="",
    s3="no such task",
    s4="some returned something else",
    s5="",
)


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("verify", help=HELP)(verify)


def verify(
    sample: Annotated[
        int, typer.Option("--sample", metavar="N", min=1, help="How many calls.", show_default=True)
    ] = 50,
    everything: Annotated[bool, typer.Option("--all", help="Every call.")] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Decides which calls are in the sample.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Mark nothing in the graph.")] = False,
    task: options.Task = None,
    parallel: Annotated[
        int | None, typer.Option("--parallel", metavar="N", min=1, help="Sandboxes at once; else one a processor.")
    ] = None,
    as_json: options.AsJson = False,
    home: options.Home = None,
    backend: options.Backend = options.DEFAULT_BACKEND,
) -> None:
    """Makes the calls again and prints which differ."""
    from tvsnap.model.errors import NotFound
    from tvsnap.upkeep.verify import candidates, choose
    from tvsnap.upkeep.verify import verify as run

    with context.open_cache(home, backend) as cache:
        if task is not None and task not in cache.graph.tasks():
            raise NotFound(f'no rollouts of task "{task}" are known (tvsnap tree)')
        known = candidates(cache, task)
        ids = choose(known, None if everything else sample, seed)
        with _progress(len(ids)) as progress:
            report = run(cache, ids, parallel=parallel or os.cpu_count() or 1, mark=not dry_run, progress=progress)
    if as_json:
        context.print_json({"candidates": len(known), **check_data(report)})
    else:
        _print(report, len(known), context.console())
    if report.interrupted:
        raise typer.Exit(options.INTERRUPTED)
    if report.differences:
        raise typer.Exit(options.DIFFERS)
    if report.failures:
        raise typer.Exit(options.FAILED)


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[], None] | None]:
    console = context.messages()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("calls"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


def _print(report: CheckReport, known: int, console: Console) -> None:
    from .text import count

    print_findings(report, console)
    words = [f"{count(report.checked, 'call')} of {known:,} made again", f"{report.same:,} came to the same"]
    words += [f"{len(report.by_chance):,} returned the same and left something else"] if report.by_chance else []
    words += [f"{len(report.differences):,} came to something else"] if report.differences else []
    words += [f"{len(report.failures):,} could not be made"] if report.failures else []
    console.print(", ".join(words), style="red" if report.differences else "green")
