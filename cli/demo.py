"""`tvsnap demo`: six rollouts of a small task, without and then with the cache."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from tvsnap.model.errors import InfrastructureError, NotFound

from . import context, options
from .check_view import short_diff
from .demo_rollouts import COMMON, demo_rollouts
from .text import count, cut, seconds, size, visible

if TYPE_CHECKING:
    from rich.console import Console

    from tvsnap.upkeep.replay import ReplayReport

IMAGE = "terminal"
PARALLEL = 3
SALT = "demo-"
"""The prefix of the salts of demonstrations."""
LABELS = ("without the cache", "with the cache", "the next epoch")


@options.verb("05", begins=True, backend=True, s1="failed, or a cached rollout saw something else than an uncached one")
def demo(as_json: options.AsJson = False) -> None:
    """Show on a small task what the cache does.

    Builds the image `terminal` if it is missing, runs six scripted rollouts of one task side by side, first without and
    then with the cache, and shows the hits, the time saved, and the tree of states. The states stay in the data
    directory until another demonstration has ended; nothing else in it is touched. An interrupted one leaves no
    states.
    """
    console = context.console(stderr=as_json)
    ensure_image(console)
    salt = f"{SALT}{time.time_ns():x}"  # a new salt, so that the cache starts empty
    is_complete = False
    try:
        same = _demonstrate(console, salt, as_json=as_json)
        is_complete = True
    finally:
        with context.uninterrupted():
            forget_demonstrations(lambda other: (other == salt) != is_complete)
    if not same:
        raise typer.Exit(options.FAILED)


def _demonstrate(console: Console, salt: str, *, as_json: bool) -> bool:
    """Runs the rollouts and shows the results; returns whether all outputs are the same."""
    rollouts = demo_rollouts()
    console.print("six agents, one task", style="bold")
    console.print(_INTRODUCTION, style="dim")
    reports: list[ReplayReport] = []
    for number, label in enumerate(LABELS):
        console.print(f"\n{number + 1}. {label}", style="bold")
        console.print(_STEPS[number], style="dim")
        reports.append(_run(rollouts, salt, cached=number > 0))
        console.print(_sentence(reports[-1]))
        if reports[-1].interrupted:
            raise typer.Exit(options.INTERRUPTED)
        if reports[-1].failed:
            raise InfrastructureError(f"a rollout failed: {reports[-1].failed[0].error}")
    same = all(_outputs(report) == _outputs(reports[0]) for report in reports[1:])
    labelled = dict(zip(("uncached", "cached", "again"), reports, strict=True))
    data = {"same": same, **{name: report.data() for name, report in labelled.items()}}
    context.answer(data, as_json=as_json, show=lambda: _print_summary(reports, console, same=same))
    return same


_INTRODUCTION = (
    "A shop's little Python project has a failing test. Six scripted agents mend it, three at a time. All begin alike: "
    "check out, install, build (sleeps stand for what installing and compiling take), test, start the shop's server in "
    "the background. Then each goes its own way: edits, builds, tests, restarts the server."
)
_STEPS = (
    "Every call is executed, in one fresh container a rollout.",
    "A call that was made before in the same state is answered from the graph. A new one runs in a fork of its state: "
    "the same files, the same shell, the same server, still running.",
    "The same rollouts once more, as training visits a task again and again.",
)


def ensure_image(console: Console) -> None:
    """Builds the image unless it exists."""
    try:
        context.open_images().get(IMAGE)
    except NotFound:
        from .image_build import build

        console.print(f"The image `{IMAGE}` is not there yet; building it takes a minute or two, once.\n", style="dim")
        with contextlib.redirect_stdout(sys.stderr if console.stderr else sys.stdout):
            build(IMAGE)


def forget_demonstrations(which: Callable[[str], bool]) -> None:
    """Deletes the states of demonstrations, by their salts."""
    from tvsnap.upkeep.maintenance import delete_files

    with context.open_parts() as parts:
        for root in parts.graph.roots():
            if root.salt.startswith(SALT) and which(root.salt):
                delete_files(parts.backend, parts.graph.forget(root.hash))


def _run(rollouts: list[Any], salt: str, *, cached: bool) -> ReplayReport:
    from tvsnap.upkeep.replay import Replay, ReplayOptions

    from .replay_view import progress

    with (
        context.open_cache(policy="eager", use_cache=cached) as cache,  # shows every state, however short its call
        progress(sum(len(rollout.calls) for rollout in rollouts)) as listener,
    ):
        return Replay(cache, rollouts, ReplayOptions(IMAGE, PARALLEL, salt=salt), listener).run()


def _sentence(report: ReplayReport) -> str:
    data = report.data()
    words = [f"{data['executed']} executed"] if data["executed"] else []
    words += [f"{data['hits']} hits"] if data["hits"] else []
    words += [f"{data['coalesced']} waited for a rollout at the same call"] if data["coalesced"] else []
    return f"{count(data['calls'], 'call')} in {seconds(report.wall_s)}: {', '.join(words)}"


def _outputs(report: ReplayReport) -> list[tuple[str, int | None]]:
    return [(call.result.output, call.result.exit_code) for call in report.calls]


def _print_summary(reports: list[ReplayReport], console: Console, *, same: bool) -> None:
    table = context.table("", "time", "executed", "hits", "forks", "snapshots", "tool time", padding=(0, 3, 0, 0))
    for label, report in zip(LABELS, reports, strict=True):
        data = report.data()
        counts = (data["executed"], data["hits"] + data["coalesced"], data["forks"], data["checkpoints"])
        table.add_row(label, seconds(report.wall_s), *map(str, counts), seconds(data["executed_time_s"]))
    console.print()
    console.print(table)
    console.print()
    fresh, cached = (report.data() for report in reports[:2])
    console.print(
        f"With the cache, tools ran for {seconds(cached['executed_time_s'])} instead of "
        f"{seconds(fresh['executed_time_s'])}, and not at all the second time."
    )
    number = sum(len(report.calls) for report in reports[1:])
    if same:
        console.print(f"All {number} outputs with the cache equal those without it.", style="green")
    else:
        console.print("Some outputs with the cache differ from those without it:", style="red")
        _print_differences(reports, console)
    _print_tree(reports[-1], console)


def _print_differences(reports: list[ReplayReport], console: Console) -> None:
    for report in reports[1:]:
        for fresh, cached in zip(reports[0].calls, report.calls, strict=True):
            if (fresh.result.output, fresh.result.exit_code) != (cached.result.output, cached.result.exit_code):
                console.print(
                    f"  {cached.rollout}, call {cached.index}, state {cached.state[:8]} ({cached.result.source})"
                )
                for line in short_diff(fresh.result.output, cached.result.output):
                    console.print("    " + cut(visible(line), console.width - 4), soft_wrap=True)


def _print_tree(report: ReplayReport, console: Console) -> None:
    from . import tree_view

    with context.open_graph() as graph:
        root = graph.state(report.calls[0].state).root
        nodes = graph.tree(root=root)
        roots = {info.hash: info for info in graph.roots()}
        rollouts = [rollout for rollout in graph.rollouts() if rollout.root == root]
    snapshots = [snapshot for node in nodes for snapshot in node.snapshots]
    console.print("\nthe tree of states", style="bold")
    tree_view.print_trees(nodes, roots, rollouts, console)
    console.print(
        f"\n{len(nodes)} states, {len(snapshots)} snapshots of {size(sum(s.size for s in snapshots))} together.",
    )
    last = {run.planned.rollout: run.calls[-1].state[:8] for run in report.runs}
    console.print("\ngo on from here", style="bold")
    started = report.runs[0].calls[len(COMMON) - 1].state[:8]
    for command, words in (
        (f"tvsnap shell {started}", "walk in: the server runs, the test fails"),
        (f"tvsnap diff {started} {last['rounds']} -p", "what `rounds` changed since then"),
        (f"tvsnap show {last['ceils-first']}", "how another rollout ended"),
        ("tvsnap forget --task demo", "delete all this"),
    ):
        console.print(f"  {command:<34} {words}", soft_wrap=True)
