"""A call that is executed although another rollout executes it already: the faster execution answers it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.claiming.claims import LAST_LOOK, Claim, Claims
from tvsnap.graph import Edge
from tvsnap.model.errors import TvsnapError


class Hedge:
    """Waits for the other execution of a call while this thread executes it in a sandbox of its own.

    If the other execution gives an answer first, this thread's execution is ended. The rollout then gets the result of
    the other execution, and goes on from the state that it led to; its own sandbox, in which the call was cut short, is
    not used any more.
    """

    def __init__(self, claims: Claims, claim: Claim, keeps: Callable[[Edge], bool], cancellation: Cancellation) -> None:
        """`keeps` returns whether the rollout can do without its sandbox once an edge has answered the call."""
        self._claims = claims
        self._claim = claim
        self._keeps = keeps
        self._cancellation = cancellation
        self._news = threading.Event()
        self._stopped = False
        self._executed = threading.Event()
        self._edge: Edge | None = None
        self._thread = threading.Thread(target=self._follow, name="tvsnap-hedge", daemon=True)
        self._thread.start()

    def end(self) -> Edge | None:
        """Notes that this thread's execution has ended; returns the other execution's answer, if there is one.

        This thread's execution may have been cut short then.
        """
        self._executed.set()
        self._stopped = True
        self._news.set()
        self._thread.join()
        return self._edge

    def outlast(self) -> Edge | None:
        """Waits, after this thread's execution failed, for the other's answer; returns None if that fails, too."""
        self._executed.set()
        while self._thread.is_alive() and not self._cancellation.wanted:
            self._thread.join(LAST_LOOK)
        return self.end()

    def _follow(self) -> None:
        with contextlib.suppress(TvsnapError):  # the graph cannot be read
            edge = self._claims.follow(self._claim, self._news, lambda: self._stopped)
            if edge is not None and self._keeps(edge):
                self._edge = edge
                self._cancellation.supersede(self._executed)
