"""`tvsnap tree`: the tree of states, with calls, hits, forks, durations and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import context, options

if TYPE_CHECKING:
    from tvsnap.graph import CallSummary, Snapshot, TreeNode

HELP = options.help_text(
    """Show the tree of states, with calls, hits, forks and snapshots.

Each line is a state and the call that led to it: how long that takes, how many calls it answered, how often the state
was forked, and its snapshot. A state with several children moves them to the right; a chain goes straight down.

Long chains, rarely used branches and calls that changed nothing are folded; --all shows everything.

\b
Examples:
  tvsnap tree --task fix-git        what one task's rollouts did
  tvsnap tree 3fa9 --depth 3        three steps down from a state
  tvsnap tree --json | jq '.nodes[] | select(.call.hits > 5)'
""",
    s0="",
    s2="",
    s3="",
    s5="",
)


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("tree", help=HELP)(tree)


def tree(
    state: Annotated[
        str | None,
        typer.Argument(metavar="STATE", help="Only this state and what came of it.", show_default=False),
    ] = None,
    task: options.Task = None,
    image: options.Image = None,
    depth: Annotated[int | None, typer.Option("--depth", metavar="N", min=0, help="Only so many steps down.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Fold nothing.")] = False,
    as_json: options.AsJson = False,
    home: options.Home = None,
) -> None:
    """Prints the tree."""
    from tvsnap.model.errors import NotFound

    with context.open_graph(home) as graph:
        top = graph.resolve(state) if state is not None else None
        deepest = None if depth is None else depth + (top.depth if top else 0)
        nodes = graph.tree(root=top.root if top else None, task=task, image=image, depth=deepest)
        if top is not None:
            nodes = _below(nodes, top.hash)
        if not nodes and task is not None and task not in graph.tasks():
            raise NotFound(f'no rollouts of task "{task}" are known; have: {_some(graph.tasks())}')
        if not nodes and image is not None and image not in (names := sorted({r.image_name for r in graph.roots()})):
            raise NotFound(f'nothing was run on image "{image}"; have: {_some(names)} (tvsnap image ls)')
        roots = {root.hash: root for root in graph.roots()}
        rollouts = graph.rollouts(task)
    if as_json:
        context.print_json({"nodes": [node_data(node) for node in nodes]})
        return
    console = context.console()
    if not nodes:
        console.print("nothing was recorded yet; try: tvsnap run terminal -c 'ls /'")
        return
    from . import tree_view

    branches = tree_view.build(nodes)
    started = tree_view.group_rollouts(rollouts)
    tops = [branch for branch in branches.values() if branch.node.state.parent not in branches]
    hashes = [branch.node.state.hash for branch in tops]
    tree_view.print_trees(
        [(branch, roots.get(hash), started.get(hash, [])) for branch, hash in zip(tops, hashes, strict=True)],
        console,
        everything=everything,
    )


def _below(nodes: list[TreeNode], top: str) -> list[TreeNode]:
    """Returns those of `nodes` (parents before children) that are `top` or descend from it."""
    kept = {top}
    below = []
    for node in nodes:
        if node.state.hash in kept or node.state.parent in kept:
            kept.add(node.state.hash)
            below.append(node)
    return below


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "none"


def node_data(node: TreeNode) -> dict[str, Any]:
    """Returns a state as plain JSON."""
    state = node.state
    return {
        "state": state.hash,
        "parent": state.parent,
        "root": state.root,
        "depth": state.depth,
        "private": state.private,
        "created": state.created,
        "call": call_data(node.made_by) if node.made_by else None,
        "unchanging": [call_data(call) for call in node.unchanging],
        "snapshots": [snapshot_data(snapshot) for snapshot in node.snapshots],
    }


def call_data(call: CallSummary) -> dict[str, Any]:
    """Returns a recorded call as plain JSON."""
    return {
        "id": call.id,
        "name": call.call.name,
        "arguments": dict(call.call.arguments),
        "timeout": call.timeout,
        "exit_code": call.exit_code,
        "duration": call.duration,
        "timed_out": call.timed_out,
        "truncated": call.truncated,
        "deterministic": call.deterministic,
        "proven": call.proven,
        "waited": call.waited,
        "active": call.active,
        "shared": call.shared,
        "reason": call.reason,
        "hits": call.hits,
        "created": call.created,
    }


def snapshot_data(snapshot: Snapshot) -> dict[str, Any]:
    """Returns a snapshot as plain JSON."""
    from dataclasses import asdict

    return asdict(snapshot)
