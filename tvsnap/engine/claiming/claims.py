"""Calls that are being executed: of all rollouts that miss the same call in the same state, one executes it.

The others wait for its result: within this process on an event in memory, in other processes, and on other hosts that
share a graph, by polling the graph, which stores a lease of the call. `tvsnap.engine.claiming.patience` limits the
wait; after it they execute the call, too.
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
from tvsnap.host.waiting import Wait
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import InfrastructureError, TvsnapError

FIRST_POLL = 0.002  # seconds
LAST_POLL = 0.050
BACKOFF = 1.5
LAST_LOOK = 0.1  # seconds between two checks whether the waiting call was cancelled
GRACE = 1.0  # seconds beyond its own timeout that a call waits for another one that this process executes
REMOTE_GRACE = 10.0  # the same for another process, because it is not known when that execution began


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call, with the conditions under which one rollout makes it.

    Attributes:
        state: the state in which it is to be made.
        backend: the backend whose snapshots keep the states that answers lead to.
        wait, quiet_s: see `Graph.lookup`; they are those of the moment at which the call is made.
        look: looks the call up in the graph for this rollout, and holds the state that an answer leads to.
        patience: the limit of its wait for others.
        task: the task of the rollout.
    """

    state: str
    call: ToolCall
    timeout: float
    backend: str
    wait: Wait
    quiet_s: float
    look: Callable[[], Edge | None]
    patience: Patience
    task: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the call in its state."""
        return self.state, self.call.key

    def serves(self, other: Wanted) -> bool:
        """Returns whether the result of this call, if it is executed now, may answer another rollout's same call."""
        least, most = other.wait.serving
        return other.wait.passed <= other.quiet_s or least <= self.wait.seconds <= most


class Claim:
    """The right to execute one call in one state.

    Attributes:
        leased: whether this process has the graph's lease for it.
        other: the claim of another rollout of this process that executes the call already; None if there is none.
        elsewhere: another process executes it already.
        contested: another rollout of this process began to execute the call at the same time.
        unshareable: the result of the call answers nobody.
        first: the claim of this process whose execution of the call ended earlier; None if there is none.
        began, ended: the times at which its execution began and ended, by time.monotonic(); None until then. While the
            claim waits for another process, `began` is the time at which that one began.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.leased = False
        self.other: Claim | None = None
        self.elsewhere = False
        self.contested = False
        self.unshareable = False
        self.first: Claim | None = None
        self.began: float | None = None
        self.ended: float | None = None
        self._released = False
        self._changed = threading.Condition()

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the call in its state."""
        return self.wanted.key

    @property
    def beside(self) -> bool:
        """Whether another execution of the call, which began earlier, may still answer it."""
        return self.elsewhere or (self.other is not None and not self.other.released)

    @property
    def is_late(self) -> bool:
        """Whether the result of an execution that ended earlier is still being recorded, and its state kept."""
        return self.first is not None and not self.first.released

    @property
    def released(self) -> bool:
        """Whether the claim was given up, so that nobody executes the call by it."""
        return self._released

    def begin(self) -> None:
        """Notes that the execution of the call begins now."""
        if not self.elsewhere:
            self.began = time.monotonic()

    def end(self) -> None:
        """Notes that the execution of the call has ended: its result is going to be recorded."""
        with self._changed:
            self.ended = time.monotonic()
            self._changed.notify_all()

    def wait(self, wanted: Wanted, cancellation: Cancellation) -> bool:
        """Waits until it is released, for as long as the waiting call may; returns whether it was released."""
        while not self.released:
            cancellation.check()
            with self._changed:
                wait_s = wanted.patience.left(self.began, self.ended)
                if self.began is not None:  # much longer than its own timeout is of no use
                    wait_s = min(wait_s, self.began + wanted.timeout + GRACE - time.monotonic())
                if wait_s <= 0:
                    return self.released
                if not self.released:
                    self._changed.wait(min(wait_s, LAST_LOOK))
        return True

    def wait_released(self, seconds: float) -> bool:
        """Waits until it is released, for at most `seconds`; returns whether it was."""
        with self._changed:
            return self._changed.wait_for(lambda: self._released, seconds)

    def wake(self) -> None:
        """Wakes all who wait for it, because it is released."""
        with self._changed:
            self._released = True
            self._changed.notify_all()


class Claims:
    """All calls that this process executes. Thread-safe."""

    def __init__(self, graph: Graph, owner: str, is_alive: Callable[[str], bool]) -> None:
        """`owner` is the id of this process's `Owner`; `is_alive` returns whether the owner with an id is alive."""
        self._graph = graph
        self._owner = owner
        self._is_alive = is_alive
        self._lock = threading.Lock()
        self._claims: dict[tuple[str, str], Claim] = {}
        self._concluding: dict[tuple[str, str], Claim] = {}
        self._watchers: dict[tuple[str, str], list[threading.Event]] = {}
        self._closed = False

    def claim(self, wanted: Wanted, cancellation: Cancellation) -> Edge | Claim | None:
        """Waits for the result of a rollout that executes a call already, or else gets the right to execute it.

        Returns:
            The recorded answer, or the claim, which must be given back with `release`. If waiting is of no use (the
            result cannot be shared, or it takes too long), this is a claim beside the other one. None if the result of
            the call is shared with nobody.

        Raises:
            TvsnapError: the graph failed.
            InfrastructureError: `close` was called.
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
            if not (other.wanted.serves(wanted) and other.wait(wanted, cancellation)):
                return claim
            edge = wanted.look()
            if edge is not None:
                return edge
            if other.unshareable:
                return claim

    def follow(self, claim: Claim, news: threading.Event, stopped: Callable[[], bool]) -> Edge | None:
        """Waits for the result of another execution of the call, while the caller's own execution goes on.

        Args:
            claim: the caller's own.
            news: an event that the caller sets to have `stopped` checked; it is also set and cleared here.
            stopped: returns whether the result is no longer needed.

        Returns:
            The recorded answer; None if the other execution gave none, or if it is no longer needed.
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
        """Notes that the execution of a call has ended, after `duration` seconds, and that its result will be recorded.

        Of several executions of one call the first is recorded. If its result is shared, the other rollouts should go
        on from there, so they wait for it as far as they may.

        Returns:
            The answer that another execution gave; None if this one is to be recorded.
        """
        claim.end()
        ended = time.monotonic()
        with self._lock:
            first = self._concluding.setdefault(claim.key, claim)
        if first is claim:  # another process may have executed it, too; the graph is asked only when it is recorded
            return claim.wanted.look() if claim.contested or duration > patience.FREE else None
        claim.first = first
        wait_s = claim.wanted.patience.left_after(ended, duration)
        return claim.wanted.look() if first.wait_released(max(0.0, wait_s)) else None

    def release(self, claim: Claim, *, unshareable: bool = False) -> None:
        """Gives a claim and its lease back, and wakes all who wait for it; safe to repeat.

        If the result is `unshareable`, all who wait should execute the call themselves at once.
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
        """Agrees with other processes on who executes a call that nobody else in this process has claimed."""
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
                answer = self._graph.claim(
                    wanted.state,
                    wanted.call,
                    wanted.timeout,
                    wanted.backend,
                    owner=self._owner,
                    is_alive=self._is_alive,
                    wait=wanted.wait,
                    quiet_s=wanted.quiet_s,
                    task=wanted.task,
                )
            except InfrastructureError:
                return claim  # the disk is full: the result of the call will not be recorded either
            if answer is None:
                return None
            if isinstance(answer, Edge):  # recorded since the caller looked
                edge = wanted.look()
                if edge is not None:
                    return edge
            elif answer.owner == self._owner:
                claim.leased, claim.began = True, None
                return claim
            else:
                claim.began = _monotonic(answer)
            while True:
                self._check_open()
                cancellation.check()
                wait_s = wanted.patience.left(claim.began)
                if wait_s <= 0 or time.monotonic() > deadline:
                    claim.elsewhere = True
                    return claim
                time.sleep(min(pause, wait_s))
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
        """Returns whether a lease belongs to another process that is alive."""
        if lease is None or lease.elsewhere:
            return lease is not None
        return lease.owner != self._owner and self._is_alive(lease.owner)

    def _check_open(self) -> None:
        if self._closed:
            raise InfrastructureError("the cache is closed")


def _monotonic(lease: Lease) -> float:
    """Returns when a lease was taken, by time.monotonic()."""
    now = time.monotonic()
    return now - max(0.0, time.time() - lease.taken)
