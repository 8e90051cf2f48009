"""The live sandboxes of one process: their states, their limits, and the order in which they are closed."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from tvsnap.engine.live_sandbox import LiveSandbox, Origin
from tvsnap.model.errors import InfrastructureError, TvsnapError
from tvsnap.model.limits import Budget
from tvsnap.model.observations import Observation
from tvsnap.sandboxes.protocol import Sandbox

Check = Literal["same", "changed", "ended"]

AT_ONCE = 8  # sandboxes of one request that are made side by side
CLOSERS = 4  # threads that close sandboxes
MEMORY_PATIENCE = 60.0  # seconds to wait for memory; then a sandbox is made in excess of the budget
OPENING_PATIENCE = 30.0  # seconds that closing waits for sandboxes that are being made
LOOK_AGAIN = 0.2  # seconds between two looks at the memory, and at dropped rollouts, while someone waits
QUIET = 1  # processes of a sandbox in which nothing happens by itself: the shell alone


@dataclass(frozen=True, eq=False, slots=True)
class _Ticket:
    """A thread that waits for room, since `began`, by time.monotonic()."""

    began: float


class SandboxPool:
    """Live sandboxes by state. Thread-safe.

    A sandbox is in use by one rollout, resting (its rollout is idle), parked (free for any rollout that comes to its
    state), ready (made ahead of time, not used yet), or being closed. If room is needed, the parked ones are closed
    first, then the ready ones, then the resting ones. Threads of the pool close sandboxes, so that no rollout has to
    wait for that.

    A resting sandbox in which something runs by itself is closed last: another one would have to run for as long. Who
    needs its room waits first, for half of the time for which it has run, because others may end meanwhile.

    The memory that a sandbox takes is known only once it has worked, so the limit of memory can be exceeded: a caller
    that needs a sandbox waits while others work or are being closed, but not if waiting would free none.
    """

    def __init__(
        self, budget: Budget, while_waiting: Callable[[], None] = lambda: None, *, patience: float = 600.0
    ) -> None:
        """
        Args:
            budget: the limits of live sandboxes (callers that need one more wait in order of arrival), of their memory,
                and of the memory of parked ones.
            while_waiting: is called now and then while somebody waits for room; it must not wait itself.
            patience: seconds to wait for room.
        """
        self._while_waiting = while_waiting
        self._max = budget.sandboxes
        self._budget = budget
        self._memory = budget.memory
        self._patience = patience
        self._lock = threading.RLock()  # not created by the Condition: a signal could interrupt that
        self._changed = threading.Condition(self._lock)
        self._queue: deque[_Ticket] = deque()  # of the threads that wait for room
        self._opening: set[object] = set()  # tickets of the threads that are making a sandbox
        self._live: set[LiveSandbox] = set()
        self._closing: set[LiveSandbox] = set()  # a part of _live
        self._held: set[LiveSandbox] = set()  # likewise: their rollouts are idle, but they are not expendable
        self._resting: OrderedDict[LiveSandbox, None] = OrderedDict()  # a part of _live, least recently used first
        self._parked: OrderedDict[LiveSandbox, None] = OrderedDict()  # likewise
        self._by_state: dict[str, list[LiveSandbox]] = {}  # the parked ones
        self._ready: dict[LiveSandbox, Origin] = {}  # the ready ones, oldest first, each with its origin
        self._closed = False
        self._workers = ThreadPoolExecutor(CLOSERS, thread_name_prefix="tvsnap-pool")

    @property
    def live(self) -> int:
        """Sandboxes that are alive."""
        with self._lock:
            return len(self._live)

    @property
    def full(self) -> bool:
        """Whether another sandbox has to wait until one is closed."""
        with self._lock:
            return self._excess() > 0

    @property
    def has_room(self) -> bool:
        """Whether another sandbox can be made without waiting, and without making another rollout wait."""
        with self._lock:
            at_no_loss = sum(not _loss(live) for live in self._resting)
            spare = len(self._closing) + len(self._parked) + len(self._ready) + at_no_loss
            return not self._queue and self._excess() <= spare and not self._is_too_heavy()

    @property
    def in_use(self) -> int:
        """Sandboxes that cannot be closed to make room for others."""
        with self._lock:
            spare = len(self._closing) + len(self._parked) + len(self._ready) + len(self._resting)
            return len(self._live) - spare

    @property
    def memory(self) -> int:
        """The memory of the sandboxes when last measured, in bytes."""
        with self._lock:
            return self._weight()

    @property
    def parked(self) -> int:
        """Sandboxes that are parked."""
        with self._lock:
            return len(self._parked)

    @property
    def ready(self) -> int:
        """Sandboxes that are ready."""
        with self._lock:
            return len(self._ready)

    def open(self, make: Callable[[], Sandbox], state: str) -> LiveSandbox:
        """Makes a sandbox that stands at `state`, once there is room for it.

        Raises:
            InfrastructureError: there was no room for too long.
        """
        return self._open(self._enter(), lambda: LiveSandbox(make(), state))

    def open_several(self, make: Callable[[], Sandbox], state: str, n: int) -> list[LiveSandbox]:
        """Makes sandboxes that stand at `state` side by side, once there is room for the first.

        Returns:
            `n` sandboxes; fewer, but one at least, if there is no room for all.

        Raises:
            InfrastructureError: there was no room for too long, or one could not be made. None is left then.
        """
        tickets = [self._enter()]
        making: list[Future[LiveSandbox]] = []
        try:
            while len(tickets) < n and self.has_room:
                tickets.append(self._enter())
            with ThreadPoolExecutor(min(len(tickets), AT_ONCE)) as threads:
                while tickets:
                    making.append(threads.submit(self._open, tickets.pop(), lambda: LiveSandbox(make(), state)))
            return [one.result() for one in making]
        except BaseException:
            for ticket in tickets:
                self._leave(ticket)
            for one in making:
                one.add_done_callback(self._discard_made)
            raise

    def _discard_made(self, making: Future[LiveSandbox]) -> None:
        if making.exception() is None:
            self.discard(making.result())

    def open_ahead(self, make: Callable[[], LiveSandbox]) -> LiveSandbox | None:
        """Makes a sandbox before it is requested.

        Returns None if there is no room, or if someone waits for the room.
        """
        ticket = object()
        with self._lock:
            if self._closed or self._queue or self._excess() > 0 or self._is_too_heavy():
                return None
            self._opening.add(ticket)
        return self._open(ticket, make)

    def rest(self, live: LiveSandbox) -> None:
        """Notes that a sandbox's rollout is idle: the sandbox may be closed to make room, if it is expendable."""
        if self._memory is not None:
            with contextlib.suppress(TvsnapError, OSError):  # it has ended, which its next user will detect
                live.weigh()
        with self._lock:
            if live not in self._live or live in self._closing:
                return
            if live.expendable:
                self._resting[live] = None
            else:
                self._held.add(live)
            self._lighten()
            if self._queue:
                self._make_room()
                self._changed.notify_all()

    def claim(self, live: LiveSandbox) -> bool:
        """Takes a resting sandbox back into use; returns False if it was closed meanwhile."""
        with self._lock:
            self._resting.pop(live, None)
            self._held.discard(live)
            return live in self._live and live not in self._closing

    def park(self, live: LiveSandbox) -> None:
        """Parks a sandbox for rollouts that reach its state.

        Closes the least recently used ones if there are too many.
        """
        with self._lock:
            if live not in self._live or live in self._closing:
                return
            self._resting.pop(live, None)
            self._held.discard(live)
            if self._closed or self._queue or self._budget.parked < 1:
                self._start_closing(live)
                return
            self._put(live)
            self._trim()
            self._lighten()
        self._submit(self._weigh, live)

    def take(self, state: str) -> LiveSandbox | None:
        """Takes a parked sandbox that stands at `state`, the one used last, into use; None if there is none."""
        with self._lock:
            sandboxes = self._by_state.get(state)
            if not sandboxes:
                return None
            live = sandboxes[-1]
            self._pull(live)
            return live

    def check(self, live: LiveSandbox, look: Callable[[Sandbox], Observation]) -> Check:
        """Compares an idle sandbox with its last observation, if there is one, and closes it if they differ."""
        try:
            observation = look(live.sandbox)
        except InfrastructureError:
            self.discard(live)
            return "ended"
        except BaseException:
            self.discard(live)
            raise
        if live.observation is not None and live.observation != observation:
            self.discard(live)
            return "changed"
        live.observation = observation
        return "same"

    def keep_ready(self, live: LiveSandbox, origin: Origin) -> bool:
        """Keeps a sandbox that was made ahead for rollouts that need one of its origin; returns whether it is kept.

        The ready and the parked sandboxes share `Budget.parked_memory`. If there is no memory for it, or someone waits
        for its room, it is closed.
        """
        with self._lock:
            if live not in self._live or live in self._closing:
                return False
            memory = live.memory + sum(other.memory for other in self._ready)
            if self._closed or self._queue or memory > self._budget.parked_memory:
                self._start_closing(live)
                return False
            self._ready[live] = origin
            self._trim()
            self._lighten()
            return live in self._ready

    def take_ready(self, origin: Origin) -> LiveSandbox | None:
        """Takes the oldest ready sandbox of an origin into use; None if there is none."""
        with self._lock:
            for live, each in self._ready.items():
                if each == origin:
                    del self._ready[live]
                    return live
        return None

    def ready_by_origin(self) -> Mapping[Origin, int]:
        """Returns the number of ready sandboxes by origin."""
        with self._lock:
            return Counter(self._ready.values())

    def keep_ready_at_most(self, counts: Mapping[Origin, int]) -> None:
        """Closes the ready sandboxes that exceed the `counts` by origin, oldest first, and all of other origins."""
        with self._lock:
            excess = Counter(self._ready.values())
            excess.subtract(counts)
            for live, origin in list(self._ready.items()):
                if excess[origin] > 0:
                    excess[origin] -= 1
                    del self._ready[live]
                    self._start_closing(live)

    def discard(self, live: LiveSandbox) -> None:
        """Closes a sandbox, in the background; safe to repeat."""
        with self._lock:
            if live not in self._live or live in self._closing:
                return
            self._resting.pop(live, None)
            self._ready.pop(live, None)
            if live in self._parked:
                self._pull(live)
            self._start_closing(live)

    def close(self) -> None:
        """Closes all sandboxes and waits until they are gone; safe to repeat."""
        with self._lock:
            self._closed = True
            for live in list(self._live - self._closing):
                self._start_closing(live)
            self._parked.clear()
            self._resting.clear()
            self._ready.clear()
            self._by_state.clear()
            self._changed.notify_all()
            # The sandboxes that are being made are closed by the threads that make them, which need the pool for that.
            self._changed.wait_for(lambda: not self._opening, OPENING_PATIENCE)
        self._workers.shutdown(wait=True)

    def _enter(self) -> object:
        """Waits for room, in the order of arrival; returns the ticket for it."""
        ticket = _Ticket(time.monotonic())
        deadline = ticket.began + self._patience
        with self._lock:
            self._queue.append(ticket)
            try:
                while self._queue[0] is not ticket or not self._make_room(self._spare_memory(ticket.began)):
                    if self._closed:
                        raise self._is_closed()
                    # No event is set when the wait for memory has become too long, or when a rollout was dropped.
                    if self._changed.wait(max(0.0, min(LOOK_AGAIN, deadline - time.monotonic()))):
                        continue
                    self._while_waiting()
                    if time.monotonic() >= deadline:
                        raise InfrastructureError(
                            f"all {self._max} sandboxes have been in use for {self._patience:g} s; "
                            "run fewer rollouts at once, close them sooner, or raise Budget.sandboxes"
                        )
                if self._closed:
                    raise self._is_closed()
                self._opening.add(ticket)
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
        return ticket

    def _open(self, ticket: object, make: Callable[[], LiveSandbox]) -> LiveSandbox:
        """Makes a sandbox for which there is room."""
        try:
            live = make()
        except BaseException:
            self._leave(ticket)
            raise
        with self._lock:
            self._live.add(live)
            self._leave(ticket)
            if self._closed:
                self._start_closing(live)
                raise self._is_closed()
        return live

    def _leave(self, ticket: object) -> None:
        with self._lock:
            self._opening.discard(ticket)
            self._changed.notify_all()

    def _excess(self) -> int:
        """Returns the number of sandboxes that would exceed the limit if there were one more."""
        return len(self._live) + len(self._opening) + 1 - self._max

    def _weight(self) -> int:
        """Returns the bytes that all sandboxes take, except those that are being closed."""
        return sum(live.memory for live in self._live - self._closing)

    def _is_too_heavy(self) -> bool:
        """Returns whether one more sandbox of the usual memory would exceed the limit."""
        if self._memory is None:
            return False
        weights = [live.memory for live in self._live if live.memory]
        usual = sum(weights) // len(weights) if weights else 0
        unweighed = len(self._opening) + sum(not live.memory for live in self._live - self._closing)
        return self._weight() + usual * (unweighed + 1) > self._memory

    def _spare_memory(self, began: float) -> bool:
        """Returns whether to wait for memory: others will free some, and the wait, since `began`, has not been long."""
        if time.monotonic() - began > MEMORY_PATIENCE:
            return False
        idle = len(self._held) + len(self._parked) + len(self._ready)
        return len(self._live) + len(self._opening) > idle

    def _lighten(self) -> None:
        """Closes idle sandboxes while all together take too much memory; a single one may take any amount."""
        while self._memory is not None and self._weight() > self._memory and len(self._live - self._closing) > 1:
            if not self._close_one():
                return

    def _make_room(self, spare_memory: bool = True) -> bool:
        """Returns whether one more sandbox may live; if not, begins to close one that can be spared.

        `spare_memory`: whether to wait while there is too little memory.
        """
        excess = self._excess()
        heavy = self._is_too_heavy()
        if excess <= 0 and not heavy:
            return True
        if excess > len(self._closing) or heavy:
            closing = self._close_one(2 * (time.monotonic() - self._queue[0].began))
            return excess <= 0 and not closing and not self._closing and not spare_memory
        return False

    def _close_one(self, most_lost: float = math.inf) -> bool:
        """Begins to close the sandbox that can be spared best; returns whether there was one.

        Of those that cost as much, it is the least recently used. At most `most_lost` seconds of a run are given up.
        """
        if self._parked:
            live = next(iter(self._parked))
            self._pull(live)
        elif self._ready:
            live = next(iter(self._ready))
            del self._ready[live]
        elif self._resting:
            live = min(self._resting, key=_loss)
            if _loss(live) > most_lost:
                return False
            del self._resting[live]
        else:
            return False
        self._start_closing(live)
        return True

    def _put(self, live: LiveSandbox) -> None:
        self._parked[live] = None
        self._by_state.setdefault(live.state, []).append(live)

    def _pull(self, live: LiveSandbox) -> None:
        del self._parked[live]
        others = self._by_state[live.state]
        others.remove(live)
        if not others:
            del self._by_state[live.state]

    def _trim(self) -> None:
        """Closes parked sandboxes that exceed the limits, the least recently used first."""
        memory = sum(live.memory for live in (*self._parked, *self._ready))
        while len(self._parked) > self._budget.parked or (self._parked and memory > self._budget.parked_memory):
            live = next(iter(self._parked))
            memory -= live.memory
            self._pull(live)
            self._start_closing(live)

    def _weigh(self, live: LiveSandbox) -> None:
        """Measures the memory of a parked sandbox, and closes it if processes run in it.

        Nothing is done if a rollout has taken it, because only one thread at a time may use it.
        """
        with self._lock:
            if live not in self._parked:
                return
            self._pull(live)
        try:
            serving = live.observation.serving if live.observation is not None else 0
            quiet = len(live.sandbox.processes()) <= QUIET + serving
            live.weigh()
        except (TvsnapError, OSError):
            self.discard(live)
            return
        with self._lock:
            if live in self._closing:
                return
            if self._queue or not quiet:
                self._start_closing(live)
                return
            self._put(live)
            self._trim()
            self._lighten()

    def _start_closing(self, live: LiveSandbox) -> None:
        self._held.discard(live)
        self._closing.add(live)
        self._submit(self._end, live)

    def _submit(self, job: Callable[[LiveSandbox], None], live: LiveSandbox) -> None:
        try:
            self._workers.submit(job, live)
        except RuntimeError:  # the interpreter or the pool is shutting down
            job(live)

    def _end(self, live: LiveSandbox) -> None:
        try:
            live.close()
        finally:
            with self._lock:
                self._live.discard(live)
                self._closing.discard(live)
                self._changed.notify_all()

    def _is_closed(self) -> InfrastructureError:
        return InfrastructureError("the cache is closed")


def _loss(live: LiveSandbox) -> float:
    """Returns for how many seconds another sandbox would have to run in place of an idle one."""
    return live.age() if live.observation is not None and live.observation.active else 0.0
