"""`tvsnap verify`: executes recorded calls again and compares the results."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

import typer
from typer import Option

from tvsnap.model.errors import NotFound

from . import context, options
from .check_view import check_data, print_findings
from .text import count

if TYPE_CHECKING:
    from rich.console import Console

    from tvsnap.engine.auditing.checking import CheckReport


@options.verb(
    "25",
    backend=True,
    url=True,
    s0="all that were made again returned the same",
    s1="some could not be made again",
    s3="no such task",
    s4="some returned something else",
)
def verify(
    sample: int = Option(50, metavar="N", min=1, help="How many calls.", show_default=True),
    everything: bool = Option(False, "--all", help="Every call."),
    seed: int = Option(0, metavar="N", help="Decides which calls are in the sample."),
    dry_run: bool = Option(False, "--dry-run", "-n", help="Mark nothing in the graph."),
    task: options.Task = None,
    parallel: int | None = Option(None, metavar="N", min=1, help="Sandboxes at once; else one a processor."),
    as_json: options.AsJson = False,
) -> None:
    """Make recorded calls again, and compare.

    Each is made in a fork of its state, and the state after it is compared as well. A call that returns something else
    is not deterministic: it is listed, marked in the graph, and answers nothing from then on. One that returns the same
    and leads to another state, such as the creation of a key, is listed: its snapshot answers for it.

    With --url, the server makes them, --parallel of them at once.

    \b
    Examples:
      tvsnap verify                       a random sample of 50
      tvsnap verify --task fix-git --all
    """
    from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from tvsnap.upkeep.verify import candidates, choose
    from tvsnap.upkeep.verify import verify as run

    columns = (MofNCompleteColumn(), TextColumn("calls"), TimeRemainingColumn())
    with context.any_cache() as cache:
        if task is not None and task not in cache.graph.tasks():
            raise NotFound(f'no rollouts of task "{task}" are known (tvsnap tree)')
        ids_known = candidates(cache.graph.tree(task=task))
        ids = choose(ids_known, None if everything else sample, seed)
        with context.progress(len(ids), *columns) as update:
            advance = functools.partial(update, advance=1) if update else None
            report = run(cache, ids, parallel=parallel or os.cpu_count() or 1, mark=not dry_run, progress=advance)
    data = {"candidates": len(ids_known), **check_data(report)}
    context.answer(data, as_json=as_json, show=lambda: _print(report, len(ids_known), context.console()))
    if report.interrupted:
        raise typer.Exit(options.INTERRUPTED)
    if report.differences:
        raise typer.Exit(options.DIFFERS)
    if report.failures:
        raise typer.Exit(options.FAILED)


def _print(report: CheckReport, total: int, console: Console) -> None:
    print_findings(report, console)
    words = [f"{count(report.checked, 'call')} of {total:,} made again", f"{report.same:,} came to the same"]
    words += [f"{len(report.by_chance):,} returned the same and left something else"] if report.by_chance else []
    words += [f"{len(report.differences):,} came to something else"] if report.differences else []
    words += [f"{len(report.failures):,} could not be made"] if report.failures else []
    console.print(", ".join(words), style="red" if report.differences else "green")
