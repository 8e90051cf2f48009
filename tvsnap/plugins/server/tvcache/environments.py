"""The environments that TVCache's clients keep: at which state each stands, and who is using it. Nothing is written.

An environment lives at its client. The server names it to whoever may fork or extend it, and names it once more when it
is not needed, as clients end environments that the server has given up.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tvsnap.plugins.server.places import Places

MOST = 100_000
"""How many environments, and how many leases, there may be in all tasks together."""
MOST_USES = 1000
"""How many uses of an environment are counted; beyond that, the oldest end."""
KEPT_SHARE = 0.7
"""Of the environments that a task may have, what stays when there are more."""


@dataclass
class Environment:
    """An environment of a client.

    Attributes:
        id: its name, which its client has chosen.
        task: the task.
        state: the state at which it stands.
        since: when it was put there, seconds of `time.monotonic`.
        extended: somebody else than its maker has executed calls in it.
        leased: somebody is executing calls in it: it does not stand at `state` now.
        given: how often it was named to somebody who may fork it.
        holds: until when each use of it lasts, oldest first, seconds of `time.monotonic`.
    """

    id: str
    task: str
    state: str
    since: float
    extended: bool = False
    leased: bool = False
    given: int = 0
    holds: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to execute the calls that lead to a state.

    Attributes:
        environment: in which that is done; None for a fresh one.
        until: when whoever has it is taken for dead, seconds of `time.monotonic`.
    """

    environment: Environment | None
    until: float


class Environments:
    """All environments. Thread-safe."""

    def __init__(
        self, most: int, patience: float, children: Callable[[str], int], places: Places | None = None
    ) -> None:
        """
        Args:
            most: how many environments a task may have.
            patience: seconds for which a use or a lease lasts that nobody gives back.
            children: returns how many calls follow from a state; an environment is kept the longer the more they are.
            places: where other processes read at which states they stand; None where there are none.
        """
        self._places = places
        if places is not None:
            places.clear()
        self._most = most
        self._patience = patience
        self._children = children
        self._lock = threading.RLock()
        self._by_id: dict[str, Environment] = {}
        self._by_state: dict[str, Environment] = {}
        self._of_task: dict[str, dict[str, Environment]] = {}
        self._leases: dict[str, Lease] = {}
        self._ended: dict[str, list[str]] = defaultdict(list)
        self._dropped: dict[str, None] = {}
        self._left: dict[str, float] = {}

    def put(self, task: str, state: str, id: str) -> None:
        """Notes that an environment stands at a state. What need not be kept then is in `take_ended`.

        Args:
            task: the task.
            state: the state.
            id: the environment; if it is one that stands elsewhere, it has moved.
        """
        with self._lock:
            known = self._by_id.get(id)
            there = self._by_state.get(state)
            lease = self._leases.get(state)
            if lease is not None and (lease.environment is None or lease.environment is known):
                del self._leases[state]
            if known is not None and known is there:
                known.leased = False
                self._show(state)
            elif id in self._dropped or there is not None or (known is None and len(self._by_id) >= MOST):
                self.give_up(task, id)
            elif known is not None and known.task == task:
                self._leave_place(known)
                known.state, known.since, known.extended, known.leased = state, time.monotonic(), True, False
                self._by_state[state] = known
                self._show(state)
            else:
                if known is not None:
                    self._forget(known)
                environment = Environment(id, task, state, time.monotonic())
                self._by_id[id] = self._by_state[state] = environment
                self._of_task.setdefault(task, {})[id] = environment
                self._show(state)
                self._make_room(task)

    def give_up(self, task: str, id: str) -> None:
        """Notes that an environment is not to be used any more, and that the clients of a task may end it."""
        with self._lock:
            known = self._by_id.get(id)
            if known is not None:
                self._forget(known)
            self._ended[task].append(id)
            self._dropped[id] = None
            while len(self._dropped) > MOST:
                del self._dropped[next(iter(self._dropped))]

    def leave(self, states: Iterable[str]) -> None:
        """Gives up the environments at states that are not there any more."""
        with self._lock:
            for state in states:
                environment = self._by_state.get(state)
                if environment is not None:
                    self.give_up(environment.task, environment.id)

    def take_ended(self, task: str) -> list[str]:
        """Returns the environments of a task that its clients may end; each is returned once."""
        with self._lock:
            return self._ended.pop(task, [])

    def candidates(self, states: Sequence[str]) -> list[tuple[int, Environment]]:
        """Returns the environments on a path that can be forked, each with its number on the path, the last first."""
        with self._lock:
            environments = [(number, self._by_state.get(state)) for number, state in enumerate(states)]
            return [(number, one) for number, one in reversed(environments) if one is not None and not one.leased]

    def hold(self, environment: Environment) -> bool:
        """Begins a use of an environment, during which it is not given up; returns whether it is still there."""
        with self._lock:
            if environment.leased or self._by_id.get(environment.id) is not environment:
                return False
            environment.given += 1
            self._prune(environment)
            del environment.holds[: max(0, len(environment.holds) - MOST_USES + 1)]
            environment.holds.append(time.monotonic() + self._patience)
            return True

    def standing(self, state: str) -> str | None:
        """Returns the environment that stands at a state, and in which nobody is executing calls; None if none does."""
        with self._lock:
            there = self._by_state.get(state)
            return None if there is None or there.leased else there.id

    def at(self, state: str) -> Environment | None:
        """Returns the environment that stands at a state."""
        with self._lock:
            return self._by_state.get(state)

    def to_fork(self, state: str) -> str | None:
        """Returns the environment at a state, to be forked; None if there is none that can be.

        A client asks this after it has found the environment by its prefix, and gives back one use for both.
        """
        with self._lock:
            environment = self._by_state.get(state)
            if environment is None or environment.leased:
                return None
            self._renew(environment)
            return environment.id

    def release(self, id: str) -> None:
        """Ends a use of an environment; nothing happens if there is none."""
        with self._lock:
            known = self._by_id.get(id)
            if known is not None and known.holds:
                del known.holds[0]

    def hold_all(self, task: str) -> list[str]:
        """Begins a use of each environment of a task that can be forked; returns them, oldest first."""
        with self._lock:
            return [one.id for one in list(self._of_task.get(task, {}).values()) if self.hold(one)]

    def is_leased(self, target: str) -> bool:
        """Returns whether somebody is executing the calls that lead to a state."""
        with self._lock:
            lease = self._leases.get(target)
            if lease is None or time.monotonic() < lease.until:
                return lease is not None
            self.end_lease(target)
            return False

    def lease(self, state: str | None, target: str) -> bool:
        """Gives the right to execute calls in the environment at a state, unless it is not there or is being changed.

        Args:
            state: the state; None for a fresh environment.
            target: the state to which the calls lead.
        """
        with self._lock:
            environment = None if state is None else self._by_state.get(state)
            if state is not None and (
                environment is None or environment.leased or self._left.get(state, 0.0) > time.monotonic()
            ):
                return False
            if environment is not None:
                environment.leased = True
                self._show(environment.state)
                self._renew(environment)
            self._leases[target] = Lease(environment, time.monotonic() + self._patience)
            while (oldest := next(iter(self._leases))) != target and (
                len(self._leases) > MOST or not self.is_leased(oldest)
            ):
                self.end_lease(oldest)
            return True

    def end_lease(self, target: str) -> None:
        """Ends a lease without an environment at its end: what was done in the leased one, nobody knows."""
        with self._lock:
            lease = self._leases.pop(target, None)
            if lease is not None and lease.environment is not None and lease.environment.leased:
                self.give_up(lease.environment.task, lease.environment.id)

    def is_as_left(self, id: str) -> bool:
        """Returns whether an environment stands where its maker left it.

        If somebody else has changed it, it is given up: its maker, who asks, will end it or never use it again.
        """
        with self._lock:
            known = self._by_id.get(id)
            if known is not None and (known.extended or known.leased):
                self.give_up(known.task, id)
                return False
            return known is not None

    def _show(self, state: str) -> None:
        """Tells other processes what stands at a state."""
        if self._places is not None:
            self._places.show(state, self.standing(state))

    def _renew(self, environment: Environment) -> None:
        self._prune(environment)
        if environment.holds:
            del environment.holds[0]
        environment.holds.append(time.monotonic() + self._patience)

    def _prune(self, environment: Environment) -> None:
        now = time.monotonic()
        environment.holds = [until for until in environment.holds if until > now]

    def _make_room(self, task: str) -> None:
        """Gives up environments of a task that has more than it may: first those from which the fewest calls follow."""
        mine = self._of_task[task]
        if len(mine) <= self._most:
            return
        for one in mine.values():
            self._prune(one)
        free = [one for one in mine.values() if not one.holds and not one.leased]
        free.sort(key=lambda one: (self._children(one.state), one.since))
        for one in free[: len(mine) - max(1, int(KEPT_SHARE * self._most))]:
            self.give_up(task, one.id)

    def _forget(self, environment: Environment) -> None:
        del self._by_id[environment.id]
        self._leave_place(environment)
        mine = self._of_task[environment.task]
        del mine[environment.id]
        if not mine:
            del self._of_task[environment.task]

    def _leave_place(self, environment: Environment) -> None:
        """Takes an environment from its state.

        A client that was told of it there may still ask to go on in it, without saying which it means: then no other
        one at that state is given to anybody to go on in, as long as that client's use may last.
        """
        del self._by_state[environment.state]
        self._show(environment.state)
        self._prune(environment)
        of_others = environment.holds[:-1] if environment.leased else environment.holds
        if of_others:
            self._left.pop(environment.state, None)
            self._left[environment.state] = of_others[-1]
            while len(self._left) > MOST:
                del self._left[next(iter(self._left))]
