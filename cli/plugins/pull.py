"""`tvsnap pull`: fetches calls, images and snapshots from an object store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from typer import Argument, Option

from tvsnap.model.errors import NotFound

from .. import context, options
from ..text import count, one_line, size
from .store_view import reporting, store_of

if TYPE_CHECKING:
    from tvsnap.plugins.object_store import ObjectStore, Pulled


@options.verb("01235", begins=True, backend=True)
def pull(
    what: str = Argument(metavar="TASK|STATE", help="What was pushed."),
    store: str = Argument(metavar="URL", help="The store: a folder, or s3://BUCKET/FOLDER, ..."),
    snapshots: bool = Option(True, "--snapshots/--no-snapshots", help="Fetch snapshots, too."),
    as_json: options.AsJson = False,
) -> None:
    """Bring what was pushed to an object store.

    Missing images and unknown calls are added, and snapshots that fit this machine: they then answer rollouts here like
    records made here. Records that are here already do not change. A snapshot fits if architecture, Linux series, CRIU,
    tvsnap and the processor's features do; other states are rebuilt from the image by their calls.

    \b
    Examples:
      tvsnap pull fix-git s3://bucket/tvsnap
      tvsnap pull fix-git /mnt/shared/tvsnap --no-snapshots
    """
    from tvsnap.images import ImageStore
    from tvsnap.plugins.object_store import pull as fetch

    opened = store_of(store)
    task, state = _named(opened, what)
    with context.open_parts() as parts, reporting() as progress:
        brought = fetch(
            opened,
            parts.graph,
            ImageStore(parts.home),
            parts.backend,
            task=task,
            state=state,
            snapshots=snapshots,
            progress=progress,
        )
    context.answer(asdict(brought), as_json=as_json, show=lambda: _print(brought))


def _named(store: ObjectStore, what: str) -> tuple[str | None, str | None]:
    """Returns the task or the state that a person names."""
    from tvsnap.plugins.object_store.subject import STATE, TASK, quoted

    if quoted(what) in store.names(TASK):
        return what, None
    states = [name.removeprefix("_") for name in store.names(STATE)]
    fitting = [state for state in states if what and state.startswith(what.lower())]
    if len(fitting) == 1:
        return None, fitting[0]
    reason = "several states that begin so" if fitting else "neither a task nor a state of that name"
    raise NotFound(f"the store at {store.url} has {reason}: {one_line(what)}")


def _print(brought: Pulled) -> None:
    console = context.console()
    words = [count(brought.calls, "new call"), count(brought.images, "new image")]
    words.append(count(brought.snapshots, "new snapshot"))
    present = f"; {count(brought.known, 'call')} known already" if brought.known else ""
    console.print(f"{', '.join(words)}{present} ({size(brought.fetched_bytes)} fetched)", style="green")
    if brought.conflicting:
        console.print(
            f"{count(brought.conflicting, 'call')} left out: calls before them led elsewhere here", style="dim"
        )
    for reason, number in brought.left_out.items():
        console.print(f"{count(number, 'snapshot')} not used: {one_line(reason)}", style="dim")
