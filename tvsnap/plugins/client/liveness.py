"""Detects dead servers: while a request waits for an answer, another connection asks whether the server lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tvsnap.plugins.client.wire.errors import Unreachable

LOOK_S = 5.0
"""Seconds without an answer before a check whether the server lives, and between two such checks."""
CALL_S = 60.0
"""Seconds without a sign of life after which a call is given up: a machine may be overloaded for some time."""
SHORT_S = 10.0
"""The same for requests that execute nothing, such as those that read, or begin or end a rollout."""
ANSWER_S = 5.0
"""Seconds for each step of a check."""
LOST_S = 2.0
"""Seconds for a check of a server that was lost, before the next request."""


class Silent(Unreachable):
    """The server neither answers a request nor shows another sign of life."""


class Life:
    """The signs of life of one server, for all requests to it. Thread-safe."""

    def __init__(self, place: str, look: Callable[[float], object]) -> None:
        """
        Args:
            place: the server's address, for people.
            look: makes a request, with a number of seconds for each step; raises OSError or `Unreachable`.
        """
        self._place, self._look = place, look
        self._lock = threading.Lock()
        self._alive_at = self._looked = -CALL_S  # by time.monotonic()
        self._looking = False
        self._lost: str | None = None
        self._checking = threading.Lock()
        self._checked = 0.0

    def check(self, since: float, limit: float) -> None:
        """Has a thread check whether the server lives; does not wait for that.

        Args:
            since: the time since which nothing has come, by time.monotonic().
            limit: seconds without a sign of life after which a server is given up.

        Raises:
            Silent: there was no sign of life for that time.
        """
        now = time.monotonic()
        if now - max(since, self._alive_at) >= limit:
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
            self._alive_at = time.monotonic()
        except (OSError, Unreachable):
            pass
        finally:
            self._looking = False

    def lose(self, error: Unreachable) -> None:
        """Notes that a request was given up, so that others do not wait as long."""
        self._lost = str(error)

    @property
    def lost(self) -> bool:
        """Whether a request was given up, and no later one has found that the server lives again."""
        return self._lost is not None

    def check_lost(self) -> None:
        """Raises `Unreachable` at once, or within seconds, if the server was lost and does not answer yet."""
        if self._lost is None:
            return
        came = time.monotonic()
        with self._checking:  # one checks for all that wait meanwhile
            lost = self._lost
            if lost is None:
                return
            if self._checked > came:
                raise Unreachable(lost)
            try:
                self._look(LOST_S)
            except (OSError, Unreachable):
                self._checked = time.monotonic()
                raise Unreachable(lost) from None
            self._lost = None
