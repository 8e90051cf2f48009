"""The limit of a call's wait for another rollout that executes the same call already.

A wait is in vain if the state that the call leads to turns out not to be kept: the call must then be executed
anyway. So these rules limit each wait:

- No wait if it is known to be in vain: when the call, or those that led to the state, were last executed, the result
  could not be kept or shared; or another execution that was waited for just had such a result.
- Otherwise half of the least time that the call takes, or `FREE` seconds if that is more. The least time is the
  time that the other execution has taken so far, or that of the last recorded one. If more threads are runnable than
  there are processors, `FREE` is longer by that factor: each call takes that much longer, too, and more executions
  would make it worse.
- If a sandbox in which the call can be executed is ready, and the result of a short call is not kept, a wait for a
  short call would be in vain. So it ends when the other execution ends, if that took less than `SHORT` seconds.
- At most until the latest moment at which the call, if it took its whole timeout, would meet the rollout's deadline.

After such a wait, the call is executed although the other execution goes on, and still takes the other's result if that
comes first (`tvsnap.engine.claiming.hedge`). So a call whose execution takes d seconds has its result after 1.5 d, or
d + `FREE` if that is more, whatever the others do: it waits w <= max(d / 2, `FREE`), and then takes d. No rule can
allow a longer wait: while a call is executed for the first time, its duration is unknown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from tvsnap.host.load import crowding

FREE = 0.25  # seconds that any call may wait on an idle machine; most take less, and are then executed once
SHORT = 0.05  # seconds of a call whose state is not kept while processors are short
UNTIL_ABLE = 0.05  # seconds between two checks whether the call could be executed
SHARE = 0.5  # of the least time that a call takes
SPARE = 0.01  # of the time until a deadline, which no caller sets more exactly


@dataclass(frozen=True, slots=True)
class Forecast:
    """The facts that the graph has about a call before it is executed.

    Attributes:
        lost: the reason why its result will answer nobody; None if none is known.
        duration: seconds that it took when it was last recorded; 0 if it never was.
        cheap: it can be executed at once, and if it is short, the state that it leads to will not be kept.
    """

    lost: str | None = None
    duration: float = 0.0
    cheap: bool = False


UNKNOWN = Forecast()


class Patience:
    """The time for which one call may still wait. Used by one thread at a time."""

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
            forecast: returns the facts about the call; called once, when there is another execution to wait for.
            until: the time at which waiting must end because of a deadline, by `clock`.
            bounded: False if the call changes no state, so that its result can be shared.
            able: returns whether the call could be executed at once; until it can, it goes on waiting.
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
        """Notes that another execution of the call had a result that cannot be shared: none is waited for again."""
        if self._bounded:
            self._known = Forecast("another execution of it came to nothing that could be shared")

    def left(self, began: float | None, ended: float | None = None) -> float:
        """Returns for how many seconds the call may still wait for an execution that began and ended at these times.

        The times are by the clock; None for an event that has not happened yet.
        """
        now = self._clock()
        waited, running = now - self._since, 0.0
        if began is not None:
            running = (now if ended is None else ended) - began
        wait_s = self._left(waited, running, is_over=ended is not None)
        if began is not None and ended is None and wait_s > -math.inf:
            # While the other execution goes on, the least time that the call takes grows as much as the wait.
            wait_s = max(wait_s, (SHARE * running - waited) / (1 - SHARE))
        wait_s = min(wait_s, self._until - now)
        return wait_s if wait_s > 0 or self._able() else UNTIL_ABLE

    def execute(self) -> None:
        """Notes that the call is executed now, and no longer waits."""
        self._waited = self._clock() - self._since

    def left_after(self, ended: float, duration: float) -> float:
        """Returns for how many seconds a call, after its own execution, may wait for one that ended a little earlier.

        That is half as long as before its execution: it has a result, and waits only so that both go on from one state.
        """
        now = self._clock()
        waited = (self._waited or 0.0) + now - ended
        return min(self._left(waited, duration / 2, is_over=duration < SHORT), self._until - now)

    def _left(self, waited: float, least: float, *, is_over: bool) -> float:
        """Returns for how long a call that takes at least `least` seconds may wait on; negative infinity if not at all.

        `is_over`: it takes no longer than that.
        """
        if not self._bounded:
            return math.inf
        if self._known is None:
            self._known = self._forecast()
            self._free = FREE * crowding()
        if self._known.lost is not None:
            return -math.inf
        least = max(least, self._known.duration)
        if self._known.cheap and is_over and least < SHORT:
            return SHARE * least - waited
        return max(self._free, SHARE * least) - waited


def latest_start(timeout: float, deadline: float, within: float) -> float:
    """Returns the latest time at which a call can begin and meet its deadlines, by time.monotonic().

    A call whose timeout would end after a deadline may still wait for a small part of the time that is left, because
    most calls take far less than their timeouts.

    Args:
        timeout: seconds that the call may take.
        deadline: the end of the rollout's time, by time.monotonic().
        within: seconds in which the caller needs the result.
    """
    now = time.monotonic()
    ahead = [end for end in (deadline, now + within) if end > now]  # deadlines that have passed are ignored
    end = min(ahead, default=math.inf)
    return max(end - timeout, now + SPARE * (end - now))
