"""`tvsnap forget`: deletes a branch of the graph, or what one task did."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from tvsnap.model.errors import NotFound, UsageError

from . import completion, context, options
from .text import count, size

if TYPE_CHECKING:
    from tvsnap.graph import Forgotten, Graph


@options.verb("0235", backend=True, s1="failed, or not confirmed")
def forget(
    state: str | None = Argument(
        None, metavar="STATE", help="The topmost state to delete.", show_default=False, autocompletion=completion.states
    ),
    task: options.Task = None,
    image: options.Image = None,
    dry_run: bool = Option(False, "--dry-run", "-n", help="Only tell what would be deleted."),
    yes: bool = Option(False, "--yes", "-y", help="Do not ask."),
    as_json: options.AsJson = False,
) -> None:
    """Delete a branch, or what a task did: calls, states, snapshots.

    At a terminal it asks first, unless --yes or --json is given; elsewhere it does not.

    STATE goes with all that came of it. What other tasks did as well stays with --task. Rollouts that are running go
    on: the states that they stand on stay until you forget once more, but answer nothing.

    \b
    Examples:
      tvsnap forget 3fa9c1 --dry-run
      tvsnap forget --task fix-git --yes
    """
    from tvsnap.engine.keeping.holds import Holds
    from tvsnap.upkeep.maintenance import delete_files

    if sum(given is not None for given in (state, task, image)) != 1:
        raise UsageError("give one of STATE, --task and --image")
    # The backend is opened first: without it, files would be left behind.
    with context.open_parts() as parts:
        graph = parts.graph
        holds = Holds(parts.home)
        planned = _forget(graph, state, task, image, holds.held(), dry_run=True)
        freed = sum(snapshot.size for snapshot in planned.snapshots)
        if not dry_run:
            if not yes and not as_json and _person():
                typer.confirm(f"delete {describe(planned, freed)}?", abort=True)
            with holds.evicting() as held:
                planned = _forget(graph, state, task, image, held, dry_run=False)
            with context.waiting("deleting"):
                freed = delete_files(parts.backend, planned)
    data = {
        "dry_run": dry_run,
        "states": planned.states,
        "calls": planned.edges,
        "rollouts": planned.rollouts,
        "snapshots": [snapshot.id for snapshot in planned.snapshots],
        "bytes": freed,
        "spared": planned.spared,
    }
    context.answer(data, as_json=as_json, show=lambda: _print(planned, freed, dry_run=dry_run))


def _print(planned: Forgotten, freed: int, *, dry_run: bool) -> None:
    typer.echo(f"{'would delete' if dry_run else 'deleted'} {describe(planned, freed)}")
    if planned.spared:
        stay = count(planned.spared, "state")
        typer.echo(f"{stay} that running rollouts stand on answer nothing any more; forget again to delete them")


def _person() -> bool:
    """Returns whether a person can be asked."""
    return sys.stdin.isatty()


def _forget(
    graph: Graph, state: str | None, task: str | None, image: str | None, in_use: Collection[str], *, dry_run: bool
) -> Forgotten:
    if state is not None:
        return graph.forget(graph.resolve(state).hash, in_use=in_use, dry_run=dry_run)
    if task is not None:
        return graph.forget_task(task, in_use=in_use, dry_run=dry_run)
    roots = [root for root in graph.roots() if root.image_name == image or root.image_digest == image]
    if not roots:
        raise NotFound(f'nothing was run on image "{image}" (tvsnap tree)')
    return functools.reduce(operator.add, (graph.forget(root.hash, in_use=in_use, dry_run=dry_run) for root in roots))


def describe(forgotten: Forgotten, size_of_snapshots: int) -> str:
    """Returns a description of what is deleted."""
    words = [count(forgotten.states, "state"), count(forgotten.edges, "call")]
    words += [count(forgotten.rollouts, "rollout")] if forgotten.rollouts else []
    if forgotten.snapshots:
        words.append(f"{count(len(forgotten.snapshots), 'snapshot')} of {size(size_of_snapshots)}")
    return ", ".join(words)
