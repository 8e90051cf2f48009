"""`tvsnap forget`: deletes a branch of the graph, or what one task did."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from . import completion, context, options

if TYPE_CHECKING:
    from tvsnap.graph import Forgotten, Graph

HELP = options.help_text(
    """Delete a branch, or what a task did: calls, states, snapshots.

At a terminal it asks first, unless --yes or --json is given; elsewhere it does not.

STATE goes with all that came of it. What other tasks did as well stays with --task. Rollouts that are running go
on: the states that they stand on stay until you forget once more, but answer nothing.

\b
Examples:
  tvsnap forget 3fa9c1 --dry-run
  tvsnap forget --task fix-git --yes
""",
    s0="",
    s1="failed, or not confirmed",
    s2="",
    s3="",
    s5="",
)


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("forget", help=HELP)(forget)


def forget(
    state: Annotated[
        str | None,
        typer.Argument(
            metavar="STATE",
            help="The topmost state to delete.",
            show_default=False,
            autocompletion=completion.states,
        ),
    ] = None,
    task: options.Task = None,
    image: options.Image = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only tell what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: options.AsJson = False,
    home: options.Home = None,
    backend: options.Backend = options.DEFAULT_BACKEND,
) -> None:
    """Deletes, and prints what."""
    from tvsnap.model.errors import UsageError
    from tvsnap.recording.holds import Holds
    from tvsnap.upkeep.maintenance import delete_files

    if sum(given is not None for given in (state, task, image)) != 1:
        raise UsageError("give one of STATE, --task and --image")
    # The backend is opened first: without it, files would be left behind.
    with context.open_parts(home, backend) as parts:
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
    if as_json:
        context.print_json(
            {
                "dry_run": dry_run,
                "states": planned.states,
                "calls": planned.edges,
                "rollouts": planned.rollouts,
                "snapshots": [snapshot.id for snapshot in planned.snapshots],
                "bytes": freed,
                "spared": planned.spared,
            }
        )
    else:
        typer.echo(f"{'would delete' if dry_run else 'deleted'} {describe(planned, freed)}")
        if planned.spared:
            from .text import count

            stay = count(planned.spared, "state")
            typer.echo(f"{stay} that running rollouts stand on answer nothing any more; forget again to delete them")


def _person() -> bool:
    """Whether there is a person to ask."""
    return sys.stdin.isatty()


def _forget(
    graph: Graph, state: str | None, task: str | None, image: str | None, in_use: Collection[str], *, dry_run: bool
) -> Forgotten:
    from tvsnap.graph import Forgotten
    from tvsnap.model.errors import NotFound

    if state is not None:
        return graph.forget(graph.resolve(state).hash, in_use=in_use, dry_run=dry_run)
    if task is not None:
        return graph.forget_task(task, in_use=in_use, dry_run=dry_run)
    roots = [root for root in graph.roots() if root.image_name == image or root.image_digest == image]
    if not roots:
        raise NotFound(f'nothing was run on image "{image}" (tvsnap tree)')
    total = Forgotten(0, 0, 0, 0, ())
    for root in roots:
        part = graph.forget(root.hash, in_use=in_use, dry_run=dry_run)
        total = replace(
            total,
            states=total.states + part.states,
            edges=total.edges + part.edges,
            leases=total.leases + part.leases,
            rollouts=total.rollouts + part.rollouts,
            snapshots=total.snapshots + part.snapshots,
            spared=total.spared + part.spared,
        )
    return total


def describe(forgotten: Forgotten, size_of_snapshots: int) -> str:
    """Returns what is deleted, in words."""
    from .text import count, size

    words = [count(forgotten.states, "state"), count(forgotten.edges, "call")]
    words += [count(forgotten.rollouts, "rollout")] if forgotten.rollouts else []
    if forgotten.snapshots:
        words.append(f"{count(len(forgotten.snapshots), 'snapshot')} of {size(size_of_snapshots)}")
    return ", ".join(words)
