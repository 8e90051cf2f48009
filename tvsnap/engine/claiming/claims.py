"""Calls that are being executed: of all rollouts that miss the same call in the same state, one executes it.

The others wait for its result: within this process on an event in memory, in other processes by asking the graph, which
keeps a lease of the call, now and then. `tvsnap.engine.claiming.patience` says for how long; then they execute it, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tvsnap.engine.claiming import patience
from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.claiming.patience import Patience
from tvsnap.graph import Edge, Graph, Lease
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import InfrastructureError, TvsnapError

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
        look: looks the call up in the graph, for just this rollout, and holds the state that an answer leads to.
        patience: how long it may wait for others.
    """

    state: str
    call: ToolCall
    timeout: float
    backend: str
    waited: float
    quiet_s: float
    look: Callable[[], Edge | None]
    patience: Patience

    @property
    def key(self) -> tuple[str, str]:
        """Names the call in its state."""
        return self.state, self.call.key


class Claim:
    """The right to execute one call in one state.

    Attributes:
        wanted: the call.
        leased: whether the graph's lease is held for it.
        other: the claim of a rollout of this process that executes the call already; None if there is none.
        elsewhere: another process executes it already.
        contested: another rollout of this process began to execute the call beside.
        unshareable: what the call came to answers nobody.
        began, ended: when its execution began and ended, by time.monotonic(); None where it did not yet. Of a claim
            that waits for another process, `began` tells when that began.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.leased = False
        self.other: Claim | None = None
        self.elsewhere = False
        self.contested = False
        self.unshareable = False
        self.began: float | None = None
        self.ended: float | None = None
        self._released = threading.Event()

    @property
    def key(self) -> tuple[str, str]:
        """Names the call in its state."""
        return self.wanted.key

    @property
    def beside(self) -> bool:
        """Whether another execution of the call, that began before, may still answer it."""
        return self.elsewhere or (self.other is not None and not self.other.released)

    @property
    def released(self) -> bool:
        """Whether nobody executes the call by it any more."""
        return self._released.is_set()

    def begin(self) -> None:
        """Says that the call is being executed from now on."""
        if not self.elsewhere:
            self.began = time.monotonic()

    def wait(self, wanted: Wanted, cancellation: Cancellation) -> bool:
        """Waits until it is released, as long as a waiter may.

        Args:
            wanted: what the waiter wants.
            cancellation: of the waiter's call.

        Returns:
            Whether it is.
        """
        while not self.released:
            cancellation.check()
            left = wanted.patience.left(self.began, self.ended)
            if self.began is not None:  # no use in waiting much longer than its own timeout
                left = min(left, self.began + wanted.timeout + GRACE - time.monotonic())
            if left <= 0:
                return False
            self._released.wait(min(left, LAST_LOOK))
        return True

    def wait_released(self, seconds: float) -> bool:
        """Waits until it is released, for so many seconds; returns whether it is."""
        return self._released.wait(seconds)

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
        self._concluding: dict[tuple[str, str], Claim] = {}
        self._watchers: dict[tuple[str, str], list[threading.Event]] = {}
        self._closed = False

    def claim(self, wanted: Wanted, cancellation: Cancellation) -> Edge | Claim | None:
        """Waits for the result of whoever executes a call already, or else gets the right to execute it.

        Args:
            wanted: the call.
            cancellation: of the call.

        Returns:
            The recorded answer; or the claim, to be given back with `release`. Where waiting is of no use (what came
            out cannot be shared, or it takes too long), that is a claim beside the other one. None where what comes of
            the call is shared with nobody.

        Raises:
            TvsnapError: if the graph fails.
            InfrastructureError: if `close` was called.
            CallCancelled: the call was cancelled meanwhile.
        """
        while True:
            self._check_open()
            claim = Claim(wanted)
            with self._lock:
                other = self._claims.setdefault(wanted.key, claim)
            if other is claim:
                return self._agree_with_others(claim, cancellation)
            claim.other = other
            if not other.wait(wanted, cancellation):
                return claim
            edge = wanted.look()
            if edge is not None:
                return edge
            if other.unshareable:
                return claim

    def follow(self, claim: Claim, news: threading.Event, stopped: Callable[[], bool]) -> Edge | None:
        """Waits, beside an execution of one's own, for what another execution of the call comes to.

        Args:
            claim: of one's own.
            news: set it for the wait to look around; it is set and cleared here, too.
            stopped: whether nobody wants to know any more.

        Returns:
            The recorded answer; None if the other that began first came to none, or nobody wants to know.
        """
        with self._lock:
            self._watchers.setdefault(claim.key, []).append(news)
        try:
            return self._follow(claim, news, stopped)
        finally:
            with self._lock:
                watchers = self._watchers[claim.key]
                watchers.remove(news)
                if not watchers:
                    del self._watchers[claim.key]

    def _follow(self, claim: Claim, news: threading.Event, stopped: Callable[[], bool]) -> Edge | None:
        pause = FIRST_POLL
        if claim.other is not None:
            claim.other.contested = True
        if not claim.beside:
            news.set()  # it was released just now
        while not stopped():
            news.wait(pause if claim.elsewhere else None)
            news.clear()
            pause = min(pause * BACKOFF, LAST_POLL)
            over = not (self._is_other(self._graph.holder(*claim.key)) if claim.elsewhere else claim.beside)
            if stopped() or self._closed:
                return None
            edge = claim.wanted.look()
            if edge is not None or over:
                return edge
        return None

    def end(self, claim: Claim, duration: float) -> Edge | None:
        """Says that the execution of a call has ended, and that what it came to is about to be recorded.

        Of those who execute a call side by side the first is recorded, and if that is shared, the others had better go
        on from there: they wait for it as far as they may.

        Args:
            claim: the right by which it was executed.
            duration: seconds that it took.

        Returns:
            What another execution came to, and answers the call; None if this one is to be recorded.
        """
        claim.ended = ended = time.monotonic()
        with self._lock:
            first = self._concluding.setdefault(claim.key, claim)
        if first is claim:  # another process may have executed it beside, which takes it some time to decide
            return claim.wanted.look() if claim.contested or duration > patience.FREE else None
        left = claim.wanted.patience.left_after(ended, duration)
        return claim.wanted.look() if first.wait_released(max(0.0, left)) else None

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
                for claims in (self._claims, self._concluding):
                    if claims.get(claim.key) is claim:
                        del claims[claim.key]
                watchers = list(self._watchers.get(claim.key, ()))
            claim.wake()
            for watcher in watchers:
                watcher.set()

    def close(self) -> None:
        """Ends all waits, and refuses claims from now on; a call that is being executed may still be released."""
        self._closed = True
        with self._lock:
            claims = list(self._claims.values())
            watchers = [watcher for watchers in self._watchers.values() for watcher in watchers]
        for claim in claims:
            claim.wake()
        for watcher in watchers:
            watcher.set()

    def _agree_with_others(self, claim: Claim, cancellation: Cancellation) -> Edge | Claim | None:
        """Agrees with other processes on who executes the call of a claim that nobody else in this one has."""
        try:
            settled = self._ask_graph(claim, cancellation)
        except BaseException:
            self.release(claim)
            raise
        if settled is not claim:
            self.release(claim, unshareable=settled is None)
        return settled

    def _ask_graph(self, claim: Claim, cancellation: Cancellation) -> Edge | Claim | None:
        wanted = claim.wanted
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
                edge = wanted.look()
                if edge is not None:
                    return edge
            elif found.owner == self._owner:
                claim.leased, claim.began = True, None
                return claim
            else:
                claim.began = _monotonic(found)
            while True:
                self._check_open()
                cancellation.check()
                left = wanted.patience.left(claim.began)
                if left <= 0 or time.monotonic() > deadline:
                    claim.elsewhere = True
                    return claim
                time.sleep(min(pause, left))
                pause = min(pause * BACKOFF, LAST_POLL)
                holder = self._graph.holder(*claim.key)
                edge = wanted.look()
                if edge is not None:
                    return edge
                if holder is None:
                    wanted.patience.give_up()
                if not self._is_other(holder):
                    break

    def _is_other(self, lease: Lease | None) -> bool:
        """Whether a lease is that of another process, which lives."""
        return lease is not None and lease.owner != self._owner and self._is_alive(lease.owner)

    def _check_open(self) -> None:
        if self._closed:
            raise InfrastructureError("the cache is closed")


def _monotonic(lease: Lease) -> float:
    """Returns when a lease was taken, by time.monotonic()."""
    now = time.monotonic()
    return now - max(0.0, time.time() - lease.taken)
