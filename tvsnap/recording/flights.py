"""Calls in flight: of all rollouts that miss the same call in the same state, one executes it and the others wait.

Within this process they wait on an event in memory; other processes are told by a lease in the graph, and looked after
by asking the graph now and then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tvsnap.graph import Edge, Graph
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import InfrastructureError, TvsnapError

FIRST_POLL = 0.002  # seconds
LAST_POLL = 0.050
BACKOFF = 1.5
GRACE = 1.0  # seconds beyond a waiter's own timeout that it gives to a call under way in this process
REMOTE_GRACE = 10.0  # likewise for another process, of which it is not known when the execution began


class Flight:
    """The right to execute one call in one state.

    Attributes:
        state, call: which.
        leased: whether the graph's lease is held for it.
    """

    def __init__(self, state: str, call: ToolCall) -> None:
        self.state = state
        self.call = call
        self.leased = False
        self._landed = threading.Event()
        self._took_off: float | None = None
        self._unshareable = False

    def take_off(self) -> None:
        """Says that the call is being executed from now on."""
        self._took_off = time.monotonic()

    def wait(self, timeout: float) -> bool:
        """Waits until it is over.

        Args:
            timeout: the waiter's own timeout for the call, seconds: no use in waiting much longer than that.

        Returns:
            Whether it is over.
        """
        while True:
            took_off = self._took_off
            left = 0.5 if took_off is None else took_off + timeout + GRACE - time.monotonic()
            if self._landed.wait(max(0.0, left)):
                return True
            if took_off is not None:
                return False


class Flights:
    """All calls in flight in this process. Thread-safe."""

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
        self._flights: dict[tuple[str, str], Flight] = {}
        self._closed = False

    def board(self, state: str, call: ToolCall, timeout: float, look: Callable[[], Edge | None]) -> Edge | Flight:
        """Waits for the result of whoever executes the call already, or else gets the right to execute it.

        Args:
            state: where the call is to be made.
            call: the call.
            timeout: seconds that the caller gives it.
            look: looks the call up in the graph, for just this caller.

        Returns:
            The recorded answer; or the flight, to be ended with `end`. Where waiting is of no use (what came out cannot
            be shared, or it takes longer than `timeout`), that is a flight beside the other one.

        Raises:
            TvsnapError: if the graph fails.
            InfrastructureError: if `close` was called.
        """
        while True:
            if self._closed:
                raise InfrastructureError("the cache is closed")
            flight = Flight(state, call)
            with self._lock:
                other = self._flights.setdefault((state, call.key), flight)
            if other is flight:
                return self._lease(flight, timeout, look)
            if not other.wait(timeout):
                return flight
            edge = look()
            if edge is not None:
                return edge
            if other._unshareable:
                return flight

    def end(self, flight: Flight, *, unshareable: bool = False) -> None:
        """Ends a flight: gives back its lease, if that is still held, and wakes who waits; safe to repeat.

        Args:
            flight: the flight.
            unshareable: it led to something that cannot be shared, so that all who wait had better execute the call
                themselves, at once.
        """
        flight._unshareable = flight._unshareable or unshareable
        try:
            if flight.leased:
                self._graph.release(flight.state, flight.call.key, self._owner)
                flight.leased = False
        except TvsnapError:
            pass  # nothing is lost: this process may take it again, and others may once this one has ended
        finally:
            with self._lock:
                if self._flights.get((flight.state, flight.call.key)) is flight:
                    del self._flights[flight.state, flight.call.key]
            flight._landed.set()

    def close(self) -> None:
        """Lets whoever waits, or comes from now on, fail; who executes a call may end it."""
        self._closed = True
        with self._lock:
            flights = list(self._flights.values())
        for flight in flights:
            flight._landed.set()

    def _lease(self, flight: Flight, timeout: float, look: Callable[[], Edge | None]) -> Edge | Flight:
        """Takes the graph's lease for a flight, waiting for another process that has it."""
        try:
            edge = self._wait_for_lease(flight, timeout, look)
        except BaseException:
            self.end(flight)
            raise
        if edge is None:
            return flight
        self.end(flight)
        return edge

    def _wait_for_lease(self, flight: Flight, timeout: float, look: Callable[[], Edge | None]) -> Edge | None:
        deadline = time.monotonic() + timeout + REMOTE_GRACE
        pause = FIRST_POLL
        while not self._leased(flight):
            if self._closed:
                raise InfrastructureError("the cache is closed")
            time.sleep(pause)
            pause = min(pause * BACKOFF, LAST_POLL)
            edge = look()
            if edge is not None:
                return edge
            if time.monotonic() > deadline:
                return None
        # The previous holder may have recorded it just before.
        return look()

    def _leased(self, flight: Flight) -> bool:
        """Takes the graph's lease for a flight; returns whether nobody else has it."""
        state, key = flight.state, flight.call.key
        lease = self._graph.holder(state, key)
        if lease is not None and self._holds(lease.owner):
            return False
        try:
            flight.leased = self._graph.acquire(state, key, self._owner, self._holds)
        except InfrastructureError:
            return True  # the disk is full: what comes of the call will not be recorded either
        return flight.leased

    def _holds(self, owner: str) -> bool:
        """Whether a lease of `owner` is to be respected: one of our own that is in no flight is left over."""
        return owner != self._owner and self._is_alive(owner)
