"""Where the screens read the tree: the graph of a data directory, or that of a server."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from tvsnap.graph import Edge, Graph, Outlined, RolloutRecord, RootInfo, TreeNode, served
from tvsnap.model.errors import NotFound

from ..text import call_text

if TYPE_CHECKING:
    from tvsnap.protocols import AnyGraph


class Reading(NamedTuple):
    """What was read of a graph at one time.

    Attributes:
        calls: all recorded calls, each after those that led to its state.
        roots: the roots, by state.
        rollouts: the rollouts, oldest first.
    """

    calls: list[Outlined]
    roots: dict[str, RootInfo]
    rollouts: list[RolloutRecord]


class Source:
    """A graph that is read as a whole without texts, and whose texts are read as they are looked at."""

    def __init__(self, graph: AnyGraph) -> None:
        self.graph = graph
        self._listed: dict[int, Edge] = {}

    def read(self) -> Reading:
        """Returns the tree as it is now."""
        if isinstance(self.graph, Graph):
            calls = self.graph.outline()
        else:
            nodes = self.graph.tree()
            made = [(call, node) for node in nodes for call in (node.made_by, *node.unchanging) if call is not None]
            made.sort(key=lambda one: one[0].id)
            calls = [_outlined(call, node) for call, node in made]
            self._listed = {call.id: call for call, _ in made}
        return Reading(calls, {root.hash: root for root in self.graph.roots()}, self.graph.rollouts())

    def listed(self, ids: Collection[int]) -> list[Edge]:
        """Returns calls without their outputs.

        Args:
            ids: of their edges.
        """
        if isinstance(self.graph, Graph):
            return self.graph.listed(ids)
        return [self._listed[id] for id in ids if id in self._listed]

    def call(self, outlined: Outlined) -> Edge:
        """Returns a call with its output.

        Raises:
            NotFound: it is not in the graph any more.
        """
        if isinstance(self.graph, Graph):
            return self.graph.edge(outlined.id)
        for edge in self.graph.out_edges(outlined.state):
            if edge.id == outlined.id:
                return edge
        raise NotFound(f"call {outlined.id} is not in the graph (any more)")

    def matching(self, *, task: str | None, tool: str | None, text: str | None) -> set[int]:
        """Returns the ids of the calls that fit; of a server, outputs are not searched. See `Graph.matching`."""
        if isinstance(self.graph, Graph):
            return self.graph.matching(task=task, tool=tool, text=text)
        found = set(self._listed)
        if task is not None:
            nodes = self.graph.tree(task=task)
            found &= {call.id for node in nodes for call in (node.made_by, *node.unchanging) if call is not None}
        calls = [self._listed[id] for id in found]
        return {
            call.id
            for call in calls
            if tool in (None, call.call.name) and (text is None or text.lower() in call_text(call.call).lower())
        }


def _outlined(call: Edge, node: TreeNode) -> Outlined:
    """Returns what an outline has of a call that led to a state, or was made in it."""
    return Outlined(
        call.id,
        call.state,
        call.next_state if call.changed else None,
        call.result.exit_code,
        call.result.timed_out,
        call.result.duration,
        call.hits,
        served(call),
        call.proven,
        bool(node.state.private),
        bool(node.snapshots),
    )
