"""Deletes a branch of the graph, or the calls of a task or on an image, with the files of snapshots."""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection
from pathlib import Path

from tvsnap.engine.keeping.holds import Holds
from tvsnap.graph import Forgotten, Graph
from tvsnap.model.errors import NotFound, UsageError
from tvsnap.sandboxes.protocol import Backend
from tvsnap.upkeep.maintenance import delete_files


def forget(
    home: Path,
    graph: Graph,
    backend: Backend,
    *,
    state: str | None = None,
    task: str | None = None,
    image: str | None = None,
    dry_run: bool = False,
) -> tuple[Forgotten, int]:
    """Deletes a state with all states below it, or the calls of one task alone, or all calls on an image.

    Args:
        home, graph, backend: those of the data directory.
        state: the topmost state to delete: its hash or a prefix of it. One of this, `task` and `image` is given.
        task: the task's name.
        image: the image's name or digest.
        dry_run: delete nothing, only count.

    Returns:
        The deleted rows, and the bytes that their deletion frees.

    Raises:
        UsageError: not one of `state`, `task` and `image` is given.
        NotFound: there is no such state or task, or no rollout used such an image.
    """
    if sum(argument is not None for argument in (state, task, image)) != 1:
        raise UsageError("give one of state, task and image")
    holds = Holds(home)
    if dry_run:
        planned = _forget(graph, state, task, image, holds.held(), dry_run=True)
        return planned, sum(snapshot.size for snapshot in planned.snapshots)
    with holds.evicting() as states:
        forgotten = _forget(graph, state, task, image, states, dry_run=False)
    return forgotten, delete_files(backend, forgotten)


def _forget(
    graph: Graph, state: str | None, task: str | None, image: str | None, in_use: Collection[str], *, dry_run: bool
) -> Forgotten:
    if state is not None:
        return graph.forget(graph.resolve(state).hash, in_use=in_use, dry_run=dry_run)
    if task is not None:
        return graph.forget_task(task, in_use=in_use, dry_run=dry_run)
    assert image is not None
    return _forget_image(graph, image, in_use, dry_run=dry_run)


def done_on(graph: Graph, image: str) -> Forgotten | None:
    """Returns the rows of an image, by its name or digest, that `forget` would delete; None if there are none."""
    try:
        return _forget_image(graph, image, (), dry_run=True)
    except NotFound:
        return None


def _forget_image(graph: Graph, image: str, in_use: Collection[str], *, dry_run: bool) -> Forgotten:
    roots = [root for root in graph.roots() if root.image_name == image or root.image_digest == image]
    if not roots:
        raise NotFound(f'nothing was run on image "{image}" (tvsnap tree)')
    return functools.reduce(operator.add, (graph.forget(root.hash, in_use=in_use, dry_run=dry_run) for root in roots))
