"""A rate limit, so that the requests of one sandbox do not starve those of others at the relay."""

from __future__ import annotations

import time


class Pace:
    """Limits a rate to `per_second` in the long run, with bursts of up to `at_once` (a token bucket)."""

    def __init__(self, per_second: float, at_once: int) -> None:
        """See the class."""
        self._per_second = per_second
        self._at_once = at_once
        self._tokens = float(at_once)
        self._counted = time.monotonic()

    def take(self) -> float:
        """Counts one event; returns the seconds to wait before the next one, 0 if it may follow immediately."""
        now = time.monotonic()
        self._tokens = min(self._at_once, self._tokens + (now - self._counted) * self._per_second) - 1
        self._counted = now
        return max(0.0, (1 - self._tokens) / self._per_second)
