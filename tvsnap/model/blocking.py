"""Work that is written once, as a coroutine, for those that wait in threads and for those that await."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Returns what a coroutine returns that awaits only what is finished at once, as whatever it asks blocks.

    Args:
        work: the coroutine.
    """
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("a coroutine that was to be finished at once waits for an event loop")
