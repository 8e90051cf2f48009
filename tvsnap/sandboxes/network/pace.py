"""How often something may happen, so that what one sandbox asks of the relay leaves room for what others do."""

from __future__ import annotations

import time


class Pace:
    """Lets so many things happen at once, and after that so many a second."""

    def __init__(self, per_second: float, at_once: int) -> None:
        """
        Args:
            per_second: how many may happen in a second, in the long run.
            at_once: how many may happen at any time if none has for long.
        """
        self._per_second = per_second
        self._at_once = at_once
        self._left = float(at_once)
        self._counted = time.monotonic()

    def take(self) -> float:
        """Counts one more; returns the seconds to wait before the next, 0 if it may come at once."""
        now = time.monotonic()
        self._left = min(self._at_once, self._left + (now - self._counted) * self._per_second) - 1
        self._counted = now
        return max(0.0, (1 - self._left) / self._per_second)
