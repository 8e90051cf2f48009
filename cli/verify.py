"""`tvsnap verify`: makes recorded calls again, and compares."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import context, options

if TYPE_CHECKING:
    from rich.console import Console

    from tvsnap.verify import Difference, VerifyReport

HELP = options.help_text(
    """Make recorded calls again, and compare.

Each is made in a fork of its state. A call that returns something else is not deterministic: it is listed, marked in
the graph, and answers nothing from then on.

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
DIFF_LINES = 6


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
    from tvsnap.errors import NotFound
    from tvsnap.verify import candidates, choose
    from tvsnap.verify import verify as run

    with context.open_cache(home, backend) as cache:
        if task is not None and task not in cache.graph.tasks():
            raise NotFound(f'no rollouts of task "{task}" are known (tvsnap tree)')
        known = candidates(cache, task)
        ids = choose(known, None if everything else sample, seed)
        with _progress(len(ids)) as progress:
            report = run(cache, ids, parallel=parallel or os.cpu_count() or 1, mark=not dry_run, progress=progress)
    if as_json:
        context.print_json({"candidates": len(known), **_data(report)})
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


def _print(report: VerifyReport, known: int, console: Console) -> None:
    from .text import call_line, count, cut, one_line

    for difference in report.differences:
        _print_difference(difference, console)
    for edge, reason in report.failures:
        console.print(f"{edge.state[:8]}  {cut(call_line(edge.call), console.width - 10)}", soft_wrap=True)
        console.print(f"  could not be made again: {one_line(reason)}", style="yellow", soft_wrap=True)
    words = [f"{count(report.checked, 'call')} of {known:,} made again", f"{report.same:,} returned the same"]
    words += [f"{len(report.differences):,} did not"] if report.differences else []
    words += [f"{len(report.failures):,} could not be made"] if report.failures else []
    console.print(", ".join(words), style="red" if report.differences else "green")


def _print_difference(difference: Difference, console: Console) -> None:
    from rich.text import Text

    from .text import call_line, cut, visible

    edge = difference.edge
    line = Text(edge.state[:8] + "  ", "yellow")
    line.append(cut(call_line(edge.call), console.width - 10))
    console.print(line, soft_wrap=True)
    console.print(f"  {cut(visible(difference.words), console.width - 2)}", style="red", soft_wrap=True)
    for text in short_diff(edge.result.output, difference.seen.output):
        color = {"+": "green", "-": "red"}.get(text[:1], "dim")
        console.print(Text("    " + cut(visible(text), console.width - 4), color), soft_wrap=True)


def short_diff(recorded: str, seen: str) -> list[str]:
    """Returns the first lines that differ: `-` as recorded, `+` as seen now."""
    import difflib

    lines = difflib.unified_diff(recorded.splitlines(), seen.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    more = len(changed) - DIFF_LINES
    return changed if more <= 0 else [*changed[:DIFF_LINES], f"… {more} more"]


def _data(report: VerifyReport) -> dict[str, Any]:
    from .show import edge_data

    return {
        "checked": report.checked,
        "same": report.same,
        "interrupted": report.interrupted,
        "differences": [
            {
                **edge_data(difference.edge, output=True),
                "words": difference.words,
                "seen": {
                    "output": difference.seen.output,
                    "exit_code": difference.seen.exit_code,
                    "timed_out": difference.seen.timed_out,
                },
            }
            for difference in report.differences
        ],
        "failures": [{**edge_data(edge, output=False), "error": reason} for edge, reason in report.failures],
    }
