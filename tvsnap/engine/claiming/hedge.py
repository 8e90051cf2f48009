"""A call that is executed although another rollout executes it already: what comes first answers it."""

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

    If the other comes to an answer first, it ends this thread's execution. The rollout is then shown what the other
    execution printed, and goes on from the state that this led to; its own sandbox, where the call was cut short, is
    not used any more.
    """

    def __init__(self, claims: Claims, claim: Claim, keeps: Callable[[Edge], bool], cancellation: Cancellation) -> None:
        """
        Args:
            claims: the calls that are being executed.
            claim: the right to execute the call beside the other.
            keeps: whether the rollout can do without its sandbox once it is answered so.
            cancellation: of the call.
        """
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
        """Says that this thread's execution has ended.

        Returns:
            The answer, if the other execution has come to one: this thread's may have been cut short.
        """
        self._executed.set()
        self._stopped = True
        self._news.set()
        self._thread.join()
        return self._edge

    def outlast(self) -> Edge | None:
        """Waits, where this thread's execution failed, for what the other comes to.

        Returns:
            The answer; None if the other comes to none, either.
        """
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
