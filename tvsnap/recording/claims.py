"""Calls that are being executed: of all rollouts that miss the same call in the same state, one executes it.

The others wait for its result: within this process on an event in memory, in other processes by asking the graph, which
keeps a lease of the call, now and then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tvsnap.graph import Edge, Graph
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import InfrastructureError, TvsnapError
from tvsnap.recording.cancellation import Cancellation

FIRST_POLL = 0.002  # seconds
LAST_POLL = 0.050
BACKOFF = 1.5
LAST_LOOK = 0.1  # between two looks at whether the waiter's own call was cancelled
GRACE = 1.0  # seconds beyond a waiter's own timeout that it gives to a call that this process executes
REMOTE_GRACE = 10.0  # likewise for another process, of which it is not known when the execution began


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call as one rollout wants it.

    Attributes:
        state: where it is to be made.
        call: the call.
        timeout: seconds that the rollout gives it.
        backend: whose snapshots keep the states that answers lead to.
        waited, quiet_s: see `Graph.lookup`.
    """

    state: str
    call: ToolCall
    timeout: float
    backend: str
    waited: float
    quiet_s: float

    @property
    def key(self) -> tuple[str, str]:
        """Names the call in its state."""
        return self.state, self.call.key


class Claim:
    """The right to execute one call in one state.

    Attributes:
        key: which.
        leased: whether the graph's lease is held for it.
    """

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.leased = False
        self.unshareable = False
        self._released = threading.Event()
        self._began: float | None = None

    def begin(self) -> None:
        """Says that the call is being executed from now on."""
        self._began = time.monotonic()

    def wait(self, timeout: float, cancellation: Cancellation) -> bool:
        """Waits until it is released.

        Args:
            timeout: the waiter's own timeout for the call, seconds: no use in waiting much longer than that.
            cancellation: of the waiter's call.

        Returns:
            Whether it is.
        """
        while True:
            cancellation.check()
            began = self._began
            left = LAST_LOOK if began is None else began + timeout + GRACE - time.monotonic()
            if self._released.wait(max(0.0, min(left, LAST_LOOK))):
                return True
            if began is not None and left <= LAST_LOOK:
                return False

    def wake(self) -> None:
        """Lets all who wait for it go on."""
        self._released.set()


class Claims:
    """All calls that this process executes. Thread-safe."""

    def __init__(self, graph: Graph, owner: str, is_alive: Callable[[str], bool]) -> None:
        """
        Args:
            graph: where leases are kept.
            owner: the id of this process's `Owner`.
            is_alive: tells whether the owner with an id still lives.
        """
        self._graph = graph
        self._owner = owner
        self._is_alive = is_alive
        self._lock = threading.Lock()
        self._claims: dict[tuple[str, str], Claim] = {}
        self._closed = False

    def claim(self, wanted: Wanted, look: Callable[[], Edge | None], cancellation: Cancellation) -> Edge | Claim | None:
        """Waits for the result of whoever executes a call already, or else gets the right to execute it.

        Args:
            wanted: the call.
            look: looks the call up in the graph, for just this caller, and holds the state that an answer leads to.
            cancellation: of the call.

        Returns:
            The recorded answer; or the claim, to be given back with `release`. Where waiting is of no use (what came
            out cannot be shared, or it takes longer than the timeout), that is a claim beside the other one. None where
            what comes of the call is shared with nobody.

        Raises:
            TvsnapError: if the graph fails.
            InfrastructureError: if `close` was called.
            CallCancelled: the call was cancelled meanwhile.
        """
        while True:
            self._check_open()
            claim = Claim(wanted.key)
            with self._lock:
                other = self._claims.setdefault(wanted.key, claim)
            if other is claim:
                return self._settle(claim, wanted, look, cancellation)
            if not other.wait(wanted.timeout, cancellation):
                return claim
            edge = look()
            if edge is not None:
                return edge
            if other.unshareable:
                return claim

    def release(self, claim: Claim, *, unshareable: bool = False) -> None:
        """Gives a claim back, and its lease if that is still held, and wakes who waits; safe to repeat.

        Args:
            claim: the claim.
            unshareable: the call led to something that cannot be shared, so that all who wait had better execute it
                themselves, at once.
        """
        claim.unshareable = claim.unshareable or unshareable
        try:
            if claim.leased:
                self._graph.release(*claim.key, self._owner)
                claim.leased = False
        except TvsnapError:
            pass  # nothing is lost: this process may take it again, and others may once this one has ended
        finally:
            with self._lock:
                if self._claims.get(claim.key) is claim:
                    del self._claims[claim.key]
            claim.wake()

    def close(self) -> None:
        """Lets whoever waits, or comes from now on, fail; who executes a call may release it."""
        self._closed = True
        with self._lock:
            claims = list(self._claims.values())
        for claim in claims:
            claim.wake()

    def _settle(
        self, claim: Claim, wanted: Wanted, look: Callable[[], Edge | None], cancellation: Cancellation
    ) -> Edge | Claim | None:
        """Settles with other processes who executes the call of a claim that nobody else in this one has."""
        try:
            settled = self._ask_graph(claim, wanted, look, cancellation)
        except BaseException:
            self.release(claim)
            raise
        if settled is not claim:
            self.release(claim, unshareable=settled is None)
        return settled

    def _ask_graph(
        self, claim: Claim, wanted: Wanted, look: Callable[[], Edge | None], cancellation: Cancellation
    ) -> Edge | Claim | None:
        deadline = time.monotonic() + wanted.timeout + REMOTE_GRACE
        pause = FIRST_POLL
        while True:
            try:
                found = self._graph.claim(
                    wanted.state,
                    wanted.call,
                    wanted.timeout,
                    wanted.backend,
                    owner=self._owner,
                    is_alive=self._is_alive,
                    waited=wanted.waited,
                    quiet_s=wanted.quiet_s,
                )
            except InfrastructureError:
                return claim  # the disk is full: what comes of the call will not be recorded either
            if found is None:
                return None
            if isinstance(found, Edge):  # recorded since the caller looked
                edge = look()
                if edge is not None:
                    return edge
            elif found.owner == self._owner:
                claim.leased = True
                return claim
            while True:
                self._check_open()
                cancellation.check()
                time.sleep(pause)
                pause = min(pause * BACKOFF, LAST_POLL)
                edge = look()
                if edge is not None:
                    return edge
                if time.monotonic() > deadline:
                    return claim
                if not self._is_held(claim.key):
                    break

    def _is_held(self, key: tuple[str, str]) -> bool:
        """Whether another process that lives has the lease of a call."""
        lease = self._graph.holder(*key)
        return lease is not None and lease.owner != self._owner and self._is_alive(lease.owner)

    def _check_open(self) -> None:
        if self._closed:
            raise InfrastructureError("the cache is closed")
