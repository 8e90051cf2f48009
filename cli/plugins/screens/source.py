"""The source of the tree: the graph of a data directory, or that of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tvsnap.graph import Outlined, RolloutRecord, RootInfo

if TYPE_CHECKING:
    from tvsnap.protocols import AnyGraph


class Reading(NamedTuple):
    """The contents of a graph at one time.

    Attributes:
        calls: the recorded calls, each after those that led to its state.
        roots: the roots, by state.
        rollouts: the rollouts, oldest first.
    """

    calls: list[Outlined]
    roots: dict[str, RootInfo]
    rollouts: list[RolloutRecord]


def read(graph: AnyGraph, task: str | None = None) -> Reading:
    """Returns the tree as it is now, without texts.

    Args:
        graph: of a data directory or of a server.
        task: the only task with rollouts and calls to read; None for all.
    """
    calls, rollouts = graph.outline(task=task), graph.rollouts(task)
    hashes = {*(call.state for call in calls), *(rollout.root for rollout in rollouts)}
    roots = {root.hash: root for root in graph.roots() if task is None or root.hash in hashes}
    return Reading(calls, roots, rollouts)
