"""Coroutines that also serve callers which block: they await nothing that is not finished at once."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that never has to wait, because all that it calls blocks.

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
