"""The graphs and images of all servers of a fleet, looked at as those of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from tvsnap import Client, Image
from tvsnap.errors import NotFound
from tvsnap.graph.model import (
    Edge,
    Listing,
    Outlined,
    RolloutRecord,
    RolloutSummary,
    RootInfo,
    Snapshot,
    State,
    Step,
    TreeNode,
)
from tvsnap.plugins.fleet.nodes import Node, Nodes

SPAN = 1 << 40
"""Ids of a server's calls are below this; what a fleet calls a call is the server's number times this, and that id."""


class FleetGraph:
    """The graphs of all servers that can be reached, to be looked at; see `Graph`.

    A state that several servers know is shown as the first of them has it.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def resolve(self, name: str) -> State:
        """Returns a state by its hash or a prefix of it; see `Graph.resolve`."""
        return self._nodes.first(lambda client: client.graph.resolve(name))[1]

    def lineage(self, state: str) -> list[Edge]:
        """Returns the calls that lead to a state; see `Graph.lineage`."""
        node, edges = self._nodes.first(lambda client: client.graph.lineage(state))
        return [_of(node, edge) for edge in edges]

    def out_edges(self, state: str) -> list[Edge]:
        """Returns the calls made in a state, by all servers; see `Graph.out_edges`."""
        calls: list[Edge] = []
        missing: NotFound | None = None

        def look(client: Client) -> list[Edge]:
            nonlocal missing
            try:
                return client.graph.out_edges(state)
            except NotFound as error:
                missing = error
                return []

        answers = self._nodes.each(look)
        for node, edges in answers:
            calls += [_of(node, edge) for edge in edges]
        if missing is not None and not calls:
            self.resolve(state)  # raises if no server knows it
        return calls

    def edge(self, id: int) -> Edge:
        """Returns a call by its id; see `Graph.edge`."""
        node, own = self.split(id)
        return _of(node, self._nodes.client(node).graph.edge(own))

    def outline(self, *, root: str | None = None, task: str | None = None) -> list[Outlined]:
        """Returns recorded calls without their texts; see `Graph.outline`."""
        answers = self._nodes.each(lambda client: client.graph.outline(root=root, task=task))
        return [one._replace(id=_id(node, one.id)) for node, outline in answers for one in outline]

    def listed(self, ids: Collection[int]) -> list[Edge]:
        """Returns calls without their outputs; see `Graph.listed`."""
        wanted: defaultdict[int, list[int]] = defaultdict(list)
        for id in ids:
            wanted[id // SPAN].append(id % SPAN)
        edges: list[Edge] = []
        for number, own in wanted.items():
            try:
                node = self._nodes.numbered(number)
            except NotFound:
                continue
            edges += [_of(node, edge) for edge in self._nodes.client(node).graph.listed(own)]
        return edges

    def matching(self, *, task: str | None = None, tool: str | None = None, text: str | None = None) -> set[int]:
        """Returns the ids of the calls that fit; see `Graph.matching`."""
        answers = self._nodes.each(lambda client: client.graph.matching(task=task, tool=tool, text=text))
        return {_id(node, id) for node, ids in answers for id in ids}

    def snapshots_of(self, state: str) -> list[Snapshot]:
        """Returns the snapshots of a state at the first server that knows it."""
        return self._nodes.first(lambda client: client.graph.snapshots_of(state))[1]

    def root_of(self, state: str) -> RootInfo:
        """Returns the root of a state; see `Graph.root_of`."""
        return self._nodes.first(lambda client: client.graph.root_of(state))[1]

    def tasks(self) -> list[str]:
        """Returns the tasks of which there were rollouts; see `Graph.tasks`."""
        answers = self._nodes.each(lambda client: client.graph.tasks())
        return sorted({task for _, names in answers for task in names})

    def tree(
        self, *, root: str | None = None, task: str | None = None, image: str | None = None, depth: int | None = None
    ) -> Listing:
        """Returns the states; see `Graph.tree`."""
        nodes: dict[str, TreeNode] = {}
        for node, listing in self._nodes.each(
            lambda client: client.graph.tree(root=root, task=task, image=image, depth=depth)
        ):
            for one in listing:
                made_by = None if one.made_by is None else _of(node, one.made_by)
                unchanging = tuple(_of(node, edge) for edge in one.unchanging)
                nodes.setdefault(one.state.hash, replace(one, made_by=made_by, unchanging=unchanging))
        return Listing(nodes.values())

    def roots(self) -> list[RootInfo]:
        """Returns the roots; see `Graph.roots`."""
        answers = self._nodes.each(lambda client: client.graph.roots())
        return list({root.hash: root for _, roots in answers for root in roots}.values())

    def rollouts(self, task: str | None = None) -> list[RolloutRecord]:
        """Returns the rollouts there ever were; see `Graph.rollouts`."""
        answers = self._nodes.each(lambda client: client.graph.rollouts(task))
        return sorted((one for _, records in answers for one in records), key=lambda one: one.started)

    def summaries(self, *, limit: int | None = None, **which: Any) -> list[RolloutSummary]:
        """Returns rollouts, newest first, with what their calls came to; see `Graph.summaries`."""
        answers = self._nodes.each(lambda client: client.graph.summaries(limit=limit, **which))
        summaries = sorted((one for _, of_node in answers for one in of_node), key=lambda one: -one.rollout.started)
        return summaries[:limit]

    def find_rollout(self, name: str) -> RolloutRecord | None:
        """Returns the rollout that a person names, or None; see `Graph.find_rollout`."""
        answers = self._nodes.each(lambda client: client.graph.find_rollout(name))
        return next((record for _, record in answers if record is not None), None)

    def steps(self, rollout: str) -> list[Step]:
        """Returns the calls of a rollout in order; see `Graph.steps`."""
        node, steps = max(self._nodes.each(lambda client: client.graph.steps(rollout)), key=lambda one: len(one[1]))
        return [step if step.edge is None else replace(step, edge=_of(node, step.edge)) for step in steps]

    def split(self, id: int) -> tuple[Node, int]:
        """Returns the server that has a call, and the call's id there."""
        return self._nodes.numbered(id // SPAN), id % SPAN


class FleetImages:
    """The images of the servers. Each builds its own, or pulls them from an object store; see the guide of fleets."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def get(self, name: str) -> Image:
        """Returns an image by name or digest, as the first server has it that has it; raises `NotFound`."""
        return self._nodes.first(lambda client: client.images.get(name))[1]

    def list(self) -> list[Image]:
        """Returns the images that any server has, each once."""
        answers = self._nodes.each(lambda client: client.images.list())
        return list({(image.name, image.digest): image for _, images in answers for image in images}.values())


def _id(node: Node, id: int) -> int:
    return node.number * SPAN + id


def _of(node: Node, edge: Edge) -> Edge:
    """Returns a server's call as the fleet calls it."""
    return replace(edge, id=_id(node, edge.id))
