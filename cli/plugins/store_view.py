"""The parts that `push` and `pull` share: the store, and the progress bar."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .. import context

if TYPE_CHECKING:
    from tvsnap.plugins.object_store import ObjectStore


def store_of(url: str, *, writes: bool = False) -> ObjectStore:
    """Opens a store; raises the errors of `ObjectStore`."""
    from tvsnap.plugins.object_store import ObjectStore

    return ObjectStore(url, writes=writes)


@contextlib.contextmanager
def reporting() -> Iterator[Callable[[str, int, int], object]]:
    """Shows a bar during the block, and yields a receiver of progress."""
    from rich.progress import TextColumn

    with context.progress(1, TextColumn("{task.fields[words]}")) as update:
        if update is None:
            yield lambda _what, _done, _all: None
        else:
            shown = update
            yield lambda what, size_so_far, whole: shown(completed=size_so_far, total=max(whole, 1), words=what)
