"""`tvsnap forget`: deletes a branch of the graph, or the work of one task."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from tvsnap.model.errors import UsageError

from . import completion, context, options
from .text import count, size

if TYPE_CHECKING:
    from tvsnap.graph import Forgotten


@options.verb("0235", backend=True, url=True, s1="failed, or not confirmed")
def forget(
    state: str | None = Argument(
        None, metavar="STATE", help="The topmost state to delete.", show_default=False, autocompletion=completion.states
    ),
    task: options.Task = None,
    image: options.Image = None,
    dry_run: bool = Option(False, "--dry-run", "-n", help="Only tell what would be deleted."),
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Delete a branch, or what a task did: calls, states, snapshots.

    At a terminal it asks first, unless --yes is given. Elsewhere --yes is needed: without it, nothing is deleted, and
    the list is only printed.

    STATE goes with all its descendants. With --task, calls that other tasks made, too, stay. Running rollouts go on:
    their present states stay until you forget once more, but answer nothing.

    \b
    Examples:
      tvsnap forget 3fa9c1 --dry-run
      tvsnap forget --task fix-git --yes
    """
    if sum(one is not None for one in (state, task, image)) != 1:
        raise UsageError("give one of STATE, --task and --image")
    with _forgetting(state=state, task=task, image=image) as delete:
        planned, freed = delete(True)
        if not dry_run:
            context.confirm(f"delete {describe(planned, freed)}", yes=yes)
            with context.waiting("deleting"):
                planned, freed = delete(False)
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


@contextlib.contextmanager
def _forgetting(**what: str | None) -> Iterator[Callable[[bool], tuple[Forgotten, int]]]:
    """Gives a function to the block that deletes, or only counts, on the chosen server or in the data directory."""
    client = context.connected()
    if client is not None:
        with client:
            yield lambda dry_run: client.forget(**what, dry_run=dry_run)
        return
    from tvsnap.upkeep.forgetting import forget

    # The backend is opened first: without it, files would be left behind.
    with context.open_parts() as parts:
        yield lambda dry_run: forget(parts.home, parts.graph, parts.backend, **what, dry_run=dry_run)


def describe(forgotten: Forgotten, size_of_snapshots: int) -> str:
    """Returns a description of the deleted records."""
    words = [count(forgotten.states, "state"), count(forgotten.edges, "call")]
    words += [count(forgotten.rollouts, "rollout")] if forgotten.rollouts else []
    if forgotten.snapshots:
        words.append(f"{count(len(forgotten.snapshots), 'snapshot')} of {size(size_of_snapshots)}")
    return ", ".join(words)
