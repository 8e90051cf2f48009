"""`tvsnap tree`: prints the tree of states, with calls, hits, forks, durations and snapshots."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from tvsnap.model.errors import NotFound

from . import context, options

if TYPE_CHECKING:
    from tvsnap.graph import Edge, RolloutRecord, RootInfo, TreeNode


@options.verb("0235", url=True)
def tree(
    state: str | None = Argument(
        None, metavar="STATE", help="Only this state and what came of it.", show_default=False
    ),
    task: options.Task = None,
    image: options.Image = None,
    depth: int | None = Option(None, metavar="N", min=0, help="Only so many steps down."),
    everything: bool = Option(False, "--all", help="Fold nothing."),
    as_json: options.AsJson = False,
) -> None:
    """Show the tree of states, with calls, hits, forks and snapshots.

    Each line is a state and the call that led to it: how long that takes, how many calls it answered, how often the
    state was forked, and its snapshot. A state with several children moves them to the right; a chain goes straight
    down.

    Long chains, rarely used branches and calls that changed nothing are folded; --all shows everything.

    \b
    Examples:
      tvsnap tree --task fix-git        what one task's rollouts did
      tvsnap tree 3fa9 --depth 3        three steps down from a state
      tvsnap tree --json | jq '.nodes[] | select(.call.hits > 5)'
    """
    with context.any_graph() as graph:
        top = graph.resolve(state) if state is not None else None
        deepest = None if depth is None else depth + (top.depth if top else 0)
        nodes = graph.tree(root=top.root if top else None, task=task, image=image, depth=deepest)
        if top is not None:
            nodes = _below(nodes, top.hash)
        if not nodes and task is not None and task not in graph.tasks():
            raise NotFound(f'no rollouts of task "{task}" are known; have: {some(graph.tasks())}')
        if not nodes and image is not None and image not in (names := sorted({r.image_name for r in graph.roots()})):
            raise NotFound(f'nothing was run on image "{image}"; have: {some(names)} (tvsnap image ls)')
        roots = {root.hash: root for root in graph.roots()}
        rollouts = graph.rollouts(task)
    if as_json:
        context.print_json({"nodes": [node_data(node) for node in nodes]})
    else:
        _print(nodes, roots, rollouts, everything=everything)


def _print(
    nodes: list[TreeNode], roots: dict[str, RootInfo], rollouts: list[RolloutRecord], *, everything: bool
) -> None:
    console = context.console()
    if not nodes:
        console.print("nothing was recorded yet; try: tvsnap run terminal -c 'ls /'")
        return
    from . import tree_view

    tree_view.print_trees(nodes, roots, rollouts, console, everything=everything)


def _below(nodes: list[TreeNode], top: str) -> list[TreeNode]:
    """Returns those of `nodes` (parents before children) that are `top` or its descendants."""
    kept = {top}
    below = []
    for node in nodes:
        if node.state.hash in kept or node.state.parent in kept:
            kept.add(node.state.hash)
            below.append(node)
    return below


def some(names: list[str]) -> str:
    """Returns the first of some names, for an error."""
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "none"


def node_data(node: TreeNode) -> dict[str, Any]:
    """Returns a state as plain JSON."""
    state = asdict(node.state)
    return {
        "state": state.pop("hash"),
        **state,
        "call": call_data(node.made_by) if node.made_by else None,
        "unchanging": [call_data(call) for call in node.unchanging],
        "snapshots": [asdict(snapshot) for snapshot in node.snapshots],
    }


def call_data(call: Edge) -> dict[str, Any]:
    """Returns a recorded call, without its output, as plain JSON."""
    of_call = ("timeout", "deterministic", "proven", "waited", "active", "asked", "shared", "reason", "grade", "hits")
    of_result = ("exit_code", "duration", "timed_out", "truncated", "strain")
    return {
        "id": call.id,
        "name": call.call.name,
        "arguments": dict(call.call.arguments),
        "created": call.created,
        **{name: getattr(call, name) for name in of_call},
        **{name: getattr(call.result, name) for name in of_result},
    }
