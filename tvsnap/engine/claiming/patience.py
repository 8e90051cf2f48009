"""How long a call may wait for another rollout that executes the same call already.

A wait is in vain where the state that the call leads to turns out not to be kept: the call must then be executed all
the same. So nobody waits longer than this:

- Not at all where it is known to be in vain: when the call, or what led to the state, was last executed, it led to what
  could not be kept or shared; or another execution that was waited for just did.
- Else for half of what the call takes at least, or for `FREE` seconds where that is more. These do not count where a
  sandbox in which the call can be executed stands ready, and what a short call leads to is not kept: to wait for it
  would be in vain. What the call takes at least is what the other execution has taken by now, or what the call took
  when it was last recorded. Where more threads want to run than there are processors, `FREE` is as many times longer:
  each call takes that much longer, too, and more executions would make it worse.
- At most until the call, were it to take its whole timeout, would just be done by the rollout's deadline.

Who has waited so long executes the call beside the other, and still takes the other's result if that comes
first (`tvsnap.engine.claiming.hedge`). So a call that takes d seconds where it is executed has its result after 1.5 d,
or d + `FREE` where that is more, whatever the others come to: it waits w <= max(d / 2, `FREE`), and then takes d. No
rule can wait longer: of what was never executed before, who executes it knows no more than who came at the same time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from tvsnap.host.load import crowding

FREE = 0.25  # seconds that any call may wait on an idle machine; most take less, and are then executed once
UNTIL_ABLE = 0.05  # seconds between two looks at whether the call could be executed
SHARE = 0.5  # of what a call takes at least


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the graph knows of a call before it is executed.

    Attributes:
        lost: why nobody is answered by what it comes to; None where that is not known.
        duration: seconds that it took when it was last recorded; 0 where it never was.
        cheap: it can be executed at once, and were it a short one, what it led to would not be kept.
    """

    lost: str | None = None
    duration: float = 0.0
    cheap: bool = False


UNKNOWN = Forecast()


class Patience:
    """How long one call may still wait. Used by one thread at a time."""

    def __init__(
        self,
        forecast: Callable[[], Forecast],
        until: float = math.inf,
        *,
        bounded: bool = True,
        able: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            forecast: tells what is known of the call; asked once, when there is somebody to wait for.
            until: when waiting must end because of a deadline, by `clock`.
            bounded: False where the call leads to no state, so that what it comes to can be shared.
            able: whether the call could be executed at once; until then it waits on.
            clock: tells the time, seconds.
        """
        self._forecast = forecast
        self._known: Forecast | None = None
        self._until = until
        self._bounded = bounded
        self._able = able
        self._clock = clock
        self._free = FREE
        self._since = clock()
        self._waited: float | None = None

    def give_up(self) -> None:
        """Says that another execution of the call came to nothing that could be shared: it is not waited for again."""
        if self._bounded:
            self._known = Forecast("another execution of it came to nothing that could be shared")

    def left(self, began: float | None, ended: float | None = None) -> float:
        """Returns for how many seconds the call may still wait.

        Args:
            began: when the other execution began, by the clock; None if it has not begun.
            ended: when it ended; None while it goes on.
        """
        now = self._clock()
        waited, running = now - self._since, 0.0
        if began is not None:
            running = (now if ended is None else ended) - began
        left = self._left(waited, running)
        if began is not None and ended is None and left > -math.inf:
            # While the other execution goes on, what the call takes at least grows by as much as is waited.
            left = max(left, (SHARE * running - waited) / (1 - SHARE))
        left = min(left, self._until - now)
        return left if left > 0 or self._able() else UNTIL_ABLE

    def execute(self) -> None:
        """Says that the call is executed now, and no longer waits."""
        self._waited = self._clock() - self._since

    def left_after(self, ended: float, duration: float) -> float:
        """Returns for how many seconds a call that was executed may wait for another that ended a little earlier.

        Half as long as before: it has a result, and waits only so that both go on from one state.

        Args:
            ended: when its own execution ended, by the clock.
            duration: seconds that it took.
        """
        now = self._clock()
        return min(self._left((self._waited or 0.0) + now - ended, duration / 2), self._until - now)

    def _left(self, waited: float, least: float) -> float:
        """Returns for how long a call may wait on that takes so many seconds at least; without end below 0 if not."""
        if not self._bounded:
            return math.inf
        if self._known is None:
            self._known = self._forecast()
            self._free = 0.0 if self._known.cheap else FREE * crowding()
        if self._known.lost is not None:
            return -math.inf
        return max(self._free, SHARE * max(least, self._known.duration)) - waited
