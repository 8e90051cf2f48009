"""`tvsnap tree`: prints the tree of states, with calls, hits, forks, durations and snapshots, or draws it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Argument, Option

from tvsnap.model.errors import NotFound, UsageError

from . import context, options
from .results import write_result
from .text import count, cut, one_line

if TYPE_CHECKING:
    from tvsnap.graph import Edge, RolloutRecord, RootInfo, State, TreeNode
    from tvsnap.protocols import AnyGraph


@dataclass(frozen=True)
class PictureOptions:
    """Pictures of a tree."""

    svg: Annotated[
        Path | None, Option("--svg", metavar="FILE", help="Draw it into FILE, as SVG; - is standard output.")
    ] = None
    html: Annotated[
        Path | None,
        Option("--html", metavar="FILE", help="Draw it as a page in which one can search, and collapse branches."),
    ] = None
    dot: Annotated[Path | None, Option("--dot", metavar="FILE", help="Write it for Graphviz.")] = None
    colour: Annotated[
        str | None,
        Option(
            metavar="WHAT",
            help="What the colours of pictures tell: source, the share of calls that were answered, which is the "
            "default; or reward, the mean reward of the rollouts that ended below.",
        ),
    ] = None

    def pictures(self, *, as_json: bool) -> dict[str, Path]:
        """Returns the pictures to draw, by their kind; raises `UsageError` for options that do not go together."""
        files = {"svg": self.svg, "html": self.html, "dot": self.dot}
        pictures = {kind: path for kind, path in files.items() if path is not None}
        if self.colour not in (None, "source", "reward"):
            raise UsageError(f"--colour must be source or reward, not {self.colour}")
        if self.colour is not None and not pictures:
            raise UsageError("--colour is of pictures: add --svg, --html or --dot")
        if as_json and pictures:
            raise UsageError(f"--json does not go together with --{next(iter(pictures))}: leave out one of them")
        if len(set(pictures.values())) < len(pictures):
            raise UsageError(f"{' and '.join(f'--{kind}' for kind in pictures)} need files of their own")
        return pictures


@options.verb("0235", url=True)
def tree(
    state: str | None = Argument(
        None, metavar="STATE", help="Only this state and what came of it.", show_default=False
    ),
    task: options.Task = None,
    image: options.Image = None,
    depth: int | None = Option(None, metavar="N", min=0, help="Only so many steps down."),
    everything: bool = Option(False, "--all", help="Fold nothing."),
    *,
    drawing: PictureOptions,
    as_json: options.AsJson = False,
) -> None:
    """Show the tree of states, with calls, hits, forks and snapshots.

    Each line is a state and the call that led to it: how long that takes, how many calls it answered, how often the
    state was forked, and its snapshot. A state with several children moves them to the right; a chain goes straight
    down.

    At a terminal, a tree of more lines than it has goes through $PAGER, or less.

    Long chains, rarely used branches and calls that changed nothing are folded; so are the least used branches of a
    tree of more than 200 lines. --all shows everything.

    --svg, --html and --dot draw the tree instead. Each file is complete by itself. The more often a call was made, the
    wider is its line; the whole call is shown under the mouse.

    --json with --task also has the value of each state: the number of rollouts of the task that stood there and have a
    reward, and the mean and variance of their rewards (not with --url).

    \b
    Examples:
      tvsnap tree --task fix-git        what one task's rollouts did
      tvsnap tree 3fa9 --depth 3        three steps down from a state
      tvsnap tree --json | jq '.nodes[] | select(.call.hits > 5)'
      tvsnap tree --task fix-git --html fix-git.html --colour reward
      tvsnap tree --svg tree.svg --dot tree.dot
      tvsnap tree 3fa9 --all --dot - | dot -Tpdf > tree.pdf
    """
    pictures = drawing.pictures(as_json=as_json)
    with context.any_graph() as graph:
        top = graph.resolve(state) if state is not None else None
        deepest = None if depth is None else depth + (top.depth if top else 0)
        # The rewards of pictures are of all that ended below, too.
        listed = _listed(graph, top, task=task, image=image, depth=None if pictures else deepest)
        values = _values_of(graph, task) if as_json else {}
    if pictures:
        of = " ".join(filter(None, [f"state {top.hash[:12]}" if top else "", task and f"task {task}", image]))
        _draw(listed, pictures, of, reward=drawing.colour == "reward", everything=everything, deepest=deepest)
    elif as_json:
        data = [{**node_data(node), "value": values.get(node.state.hash)} for node in listed.nodes]
        context.print_json({"nodes": data})
    else:
        _print(listed, everything=everything)


class Listed(NamedTuple):
    """Some states, their roots, and the rollouts of their task, or of all tasks."""

    nodes: list[TreeNode]
    roots: dict[str, RootInfo]
    rollouts: list[RolloutRecord]


def _listed(graph: AnyGraph, top: State | None, *, task: str | None, image: str | None, depth: int | None) -> Listed:
    """Returns the states below `top`, or all, down to `depth`.

    Raises:
        NotFound: nothing is known of the task or the image.
    """
    nodes: list[TreeNode] = graph.tree(root=top.root if top else None, task=task, image=image, depth=depth)
    if top is not None:
        nodes = _below(nodes, top.hash)
    if not nodes and task is not None and task not in graph.tasks():
        raise NotFound(f'no rollouts of task "{task}" are known; have: {some(graph.tasks())}')
    roots = graph.roots()
    if not nodes and image is not None and image not in (names := sorted({root.image_name for root in roots})):
        raise NotFound(f'nothing was run on image "{image}"; have: {some(names)} (tvsnap image ls)')
    return Listed(nodes, {root.hash: root for root in roots}, graph.rollouts(task))


def _values_of(graph: AnyGraph, task: str | None) -> dict[str, dict[str, Any]]:
    """Returns the values of a task's states as plain JSON, by their hashes; nothing without a task, or of a server."""
    from tvsnap.graph import Graph

    if task is None or not isinstance(graph, Graph):
        return {}
    return {
        value.state: {"rollouts": value.rollouts, "mean": value.mean, "variance": value.variance}
        for value in graph.values(task).states
    }


def _print(listed: Listed, *, everything: bool) -> None:
    console = context.console()
    if not listed.nodes:
        console.print("nothing was recorded yet; try: tvsnap run terminal -c 'ls /'")
        return
    from . import tree_view

    if not context.is_terminal():
        tree_view.print_trees(*listed, console, everything=everything)
        return
    with console.capture() as printed:
        tree_view.print_trees(*listed, console, everything=everything)
    lines = printed.get()
    if lines.count("\n") < console.height:
        typer.echo(lines, nl=False)
    else:
        context.page(lines)


def _draw(
    listed: Listed,
    pictures: dict[str, Path],
    of: str,
    *,
    reward: bool,
    everything: bool,
    deepest: int | None,
) -> None:
    """Writes pictures of the states of a listing down to `deepest`; the listing itself is complete."""
    from . import tree_dot, tree_picture, tree_svg

    nodes, roots, rollouts = listed
    if not nodes:
        raise NotFound("nothing was recorded yet that could be drawn; try: tvsnap run terminal -c 'ls /'")
    rewards = tree_picture.rewards_by_state(nodes, rollouts)
    drawn = nodes if deepest is None else [node for node in nodes if node.state.depth <= deepest]
    picture = tree_picture.draw(
        drawn, roots, rollouts, rewards, colour="reward" if reward else "source", everything=everything
    )
    title = f"tvsnap tree {one_line(of)}".strip()
    writers = {"svg": tree_svg.svg, "html": tree_svg.page, "dot": tree_dot.dot}
    for kind, path in pictures.items():
        text = writers[kind](picture, title)
        write_result(path, text, count(picture.states, "state"))


def _below(nodes: list[TreeNode], top: str) -> list[TreeNode]:
    """Returns `top` and its descendants among `nodes` (parents before children)."""
    hashes = {top}
    below = []
    for node in nodes:
        if node.state.hash in hashes or node.state.parent in hashes:
            hashes.add(node.state.hash)
            below.append(node)
    return below


def some(names: list[str]) -> str:
    """Returns the first of some names, for an error; long ones are cut."""
    shown = [cut(one_line(name), 40) for name in names[:8]]
    return ", ".join([*shown, "..."] if len(names) > 8 else shown) or "none"


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
