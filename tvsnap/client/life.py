"""Whether a server lives for which a request has waited for some time: it is asked on a connection of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tvsnap.wire.errors import Unreachable

LOOK_S = 5.0
"""Seconds without an answer after which a request has the server asked whether it lives, and between two such looks."""
CALL_S = 60.0
"""Seconds without a sign of life after which a call is given up: a machine may be overloaded for some time."""
SHORT_S = 10.0
"""The same for requests that execute nothing, such as those that look at something, or begin or end a rollout."""
ANSWER_S = 5.0
"""Seconds for each step of such a look."""
LOST_S = 2.0
"""Seconds for a look at a server that was lost, before anything else is asked of it."""


class Silent(Unreachable):
    """The server neither answers a request nor shows otherwise that it lives."""


class Life:
    """What requests for one server know together of whether it lives. Thread-safe."""

    def __init__(self, place: str, look: Callable[[float], object]) -> None:
        """
        Args:
            place: the server's address, for people.
            look: asks the server for anything, with so many seconds for each step; raises OSError or `Unreachable`.
        """
        self._place, self._look = place, look
        self._lock = threading.Lock()
        self._seen = self._looked = -CALL_S  # by time.monotonic()
        self._looking = False
        self._lost: str | None = None

    def check(self, since: float, limit: float) -> None:
        """Has the server asked, by a thread, whether it lives; does not wait for that.

        Args:
            since: since when nothing has come, by time.monotonic().
            limit: seconds after which a server that shows no life is given up.

        Raises:
            Silent: it has shown none for so long.
        """
        now = time.monotonic()
        if now - max(since, self._seen) >= limit:
            raise Silent(
                f"the server at {self._place} has shown no life for {limit:.0f} s: it takes connections, and answers "
                "neither this request nor /healthz; see whether its processes are stopped or its machine is overloaded"
            )
        with self._lock:
            if self._looking or now - self._looked < LOOK_S / 2:  # for another request
                return
            self._looking, self._looked = True, now
        threading.Thread(target=self._look_once, name="tvsnap-life", daemon=True).start()

    def _look_once(self) -> None:
        try:
            self._look(ANSWER_S)
            self._seen = time.monotonic()
        except (OSError, Unreachable):
            pass
        finally:
            self._looking = False

    def lose(self, error: Unreachable) -> None:
        """Notes that a request was given up, so that others do not wait for the same."""
        self._lost = str(error)

    @property
    def lost(self) -> bool:
        """Whether a request was given up, and none of those after it has found that the server lives again."""
        return self._lost is not None

    def check_lost(self) -> None:
        """Raises `Unreachable` at once, or within seconds, if the server was lost and does not answer yet."""
        lost = self._lost
        if lost is None:
            return
        try:
            self._look(LOST_S)
        except (OSError, Unreachable):
            raise Unreachable(lost) from None
        self._lost = None
