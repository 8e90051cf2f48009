"""`tvsnap push`: sends the records of a task, or a branch of the tree, to an object store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from typer import Argument, Option

from tvsnap.model.errors import NotFound, UsageError

from .. import context, options
from ..text import count, one_line, size
from .store_view import reporting, store_of

if TYPE_CHECKING:
    from tvsnap.graph import Graph
    from tvsnap.plugins.object_store import Pushed


@options.verb("01235", backend=True)
def push(
    what: str = Argument(metavar="TASK|STATE", help="A task, or a state with all that leads to it and follows."),
    store: str = Argument(metavar="URL", help="A folder, or s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, ..."),
    snapshots: bool = Option(True, "--snapshots/--no-snapshots", help="Send snapshots, too."),
    as_json: options.AsJson = False,
) -> None:
    """Send what a task did to an object store.

    That is its calls, the image, and the snapshots, so that another machine, or the next run of a test, starts with
    them. Objects that the store has already, from here or from elsewhere, are not sent again; so an interrupted push
    can be continued. Any number of machines may push at once. Private branches are not sent.

    Everybody who can write to the store decides the answers of those who pull from it: protect it like images.

    \b
    Examples:
      tvsnap push fix-git /mnt/shared/tvsnap
      tvsnap push fix-git s3://bucket/tvsnap
      tvsnap push 3fa9c1 s3://bucket/tvsnap --no-snapshots
    """
    from tvsnap.images import ImageStore
    from tvsnap.plugins.object_store import push as send

    with context.open_parts() as parts:
        task = what if what in parts.graph.tasks() else None
        state = None if task is not None else _state(parts.graph, what)
        opened = store_of(store, writes=True)
        with reporting() as progress:
            report = send(
                opened,
                parts.home,
                parts.graph,
                ImageStore(parts.home),
                parts.backend,
                task=task,
                state=state,
                snapshots=snapshots,
                progress=progress,
            )
    context.answer(asdict(report), as_json=as_json, show=lambda: _print(report))


def _state(graph: Graph, what: str) -> str:
    """Returns the state with this name, if there is no such task."""
    try:
        return graph.resolve(what).hash
    except (NotFound, UsageError) as error:
        raise NotFound(f"there is no task {one_line(what)} (tvsnap tree), and no such state: {error}") from None


def _print(report: Pushed) -> None:
    console = context.console()
    words = [count(report.calls, "call"), count(report.images, "image"), count(report.snapshots, "snapshot")]
    console.print(f"{', '.join(words)}: {size(report.sent_bytes)} were not there yet", style="green")
    for state, reason in list(report.left_out.items())[:5]:
        console.print(f"without the snapshot of {state[:8]}: {one_line(reason)}", style="dim")
