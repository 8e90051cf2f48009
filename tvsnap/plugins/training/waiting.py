"""How long rollouts that are played side by side are waited for."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from tvsnap import UsageError


@dataclass(frozen=True)
class Stragglers:
    """When the rollouts of a group that are late are cancelled, and what becomes of them.

    Attributes:
        share: of the group's rollouts that are to have ended, from 0 to 1; then the others' time begins.
        seconds: that the others have from then on.
        grade: whether those that were cancelled are graded as they stand; otherwise they are left out of their group.
            Those that had written nothing are left out in any case, and have no reward.
    """

    share: float = 0.75
    seconds: float = 60.0
    grade: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"share must be larger than 0 and at most 1, not {self.share!r}")
        if not 0 <= self.seconds < math.inf:
            raise UsageError(f"seconds must be a finite number from 0 on, not {self.seconds!r}")


async def together(parts: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Returns the results of all; if one fails or this is cancelled, the others are cancelled and waited for.

    Args:
        parts: coroutines.
    """
    running = [asyncio.ensure_future(part) for part in parts]
    try:
        return list(await asyncio.gather(*running))
    finally:
        await end(running)


async def until_then(parts: Sequence[Coroutine[Any, Any, None]], moment: float) -> list[bool]:
    """Waits for all, but not beyond a moment, by time.monotonic(): then the others are cancelled and waited for.

    Returns whether each was in time; raises what one of them raised.
    """
    running = [asyncio.ensure_future(part) for part in parts]
    if not running:
        return []
    left = None if moment == math.inf else max(0.0, moment - time.monotonic())
    try:
        over, _ = await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
        for each in over:
            each.result()
        return [each in over for each in running]
    finally:
        await end(running)


async def end(running: Sequence[asyncio.Future[Any]]) -> None:
    """Cancels what is not over, and waits for it."""
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def late(running: Sequence[asyncio.Future[Any]], stragglers: Stragglers) -> list[int]:
    """Returns the numbers of those that are not over, once enough of them are and the others' time is up."""
    open_ = set(running)
    while open_ and len(running) - len(open_) < math.ceil(stragglers.share * len(running)):
        over, open_ = await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
        for each in over:
            each.result()  # raises what it raised
    if open_:
        _, open_ = await asyncio.wait(open_, timeout=stragglers.seconds)
    return [number for number, each in enumerate(running) if each in open_]
