"""Keeps sandboxes ready for states that will soon be needed: its own threads make them before they are requested.

A ready sandbox must equal a fork made on demand, so it is identified by the very snapshot or image from which it was
made. A fork is stopped until it is used (`Staging.stage`); its clocks and timers go on meanwhile, so none is made of a
state in which something happens by itself. A sandbox that cannot be stopped, such as a fresh one, is kept only if
nothing but its idle shell runs in it, and used only if its observation is still the same.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping

from tvsnap.engine.keeping.policy import Costs
from tvsnap.engine.live_sandbox import LiveSandbox, Origin
from tvsnap.engine.meter import Meter
from tvsnap.engine.supply.pool import QUIET, Check, SandboxPool
from tvsnap.engine.supply.prefork_policy import Demand, Needs, plan
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.graph import Graph
from tvsnap.host.load import running
from tvsnap.model.errors import InfrastructureError, NotRestorable, SnapshotUnusable, TvsnapError
from tvsnap.sandboxes.protocol import Backend

USUAL = 4  # sandboxes that are kept ready if no number was given
SLOW = 0.1  # seconds: without a given number, sandboxes that take less time to make are not kept ready
TRIAL = 8  # sandboxes after which their use is checked, if no number was given
LEAST_USE = 0.25  # the share of these that must be used; if fewer are, no more are made for some time
WORKERS = min(4, os.cpu_count() or 1)  # threads: several sandboxes are made faster at once than one after the other
LOOK_AGAIN = 0.5  # seconds between two checks of room, demand and snapshots, if no event happens
SHORTEST_PAUSE = 1.0  # seconds without preforks after one failed, or was not kept for lack of memory; doubles each time
LONGEST_PAUSE = 60.0  # seconds
MISTAKES = 3  # changed sandboxes of an origin in a row, after which no more are made of it for `FORGIVEN`
FORGIVEN = 600.0  # seconds; also the pause after a trial with too little use
REMEMBERED = 10_000  # origins with mistakes
LAST_FORK = 30.0  # seconds that closing waits for a sandbox that is being made


class Preforker:
    """Makes sandboxes ahead of time and hands them out. Thread-safe."""

    def __init__(
        self, graph: Graph, backend: Backend, pool: SandboxPool, costs: Costs, meter: Meter, count: int | None
    ) -> None:
        """`count`: sandboxes to keep ready in all; None for `USUAL`, of those that take long to make."""
        self._graph = graph
        self._backend = backend
        self._pool = pool
        self._costs = costs
        self._meter = meter
        self._budget = USUAL if count is None else count
        self._worth_s = SLOW if count is None else 0.0
        self._asked_for = count is not None
        self._enabled = count != 0
        self._announced: dict[Origin, int] = {}  # announced sandboxes that have not been needed yet
        self._announced_at: dict[str, Origin] = {}  # their roots
        self._processors = len(os.sched_getaffinity(0))
        self._trial = self._used = 0  # sandboxes made in the present trial, and used of these
        self._needs: Needs[Origin] = Needs()
        self._recipes: dict[Origin, Recipe] = {}
        self._mistakes: dict[Origin, tuple[int, float]] = {}  # the number in a row, and the time of the last
        self._pause = 0.0  # seconds of the latest pause
        self._paused_until = 0.0
        self._lock = threading.RLock()  # guards all of this; not created by the Condition, see SandboxPool
        self._changed = threading.Condition(self._lock)
        self._news = 0  # the number of events that the workers have to check
        self._making: Counter[Origin] = Counter()
        self._planning = threading.Lock()
        self._closed = False
        self._workers: list[threading.Thread] = []

    @property
    def enabled(self) -> bool:
        """Whether any sandboxes are kept ready."""
        return self._enabled

    def wants(self, recipe: Recipe) -> bool:
        """Returns whether sandboxes of this recipe may be kept ready."""
        of_use = self._cost(recipe) >= self._worth_s or recipe.origin in self._announced
        return self._enabled and of_use and self._mistaken(recipe.origin) < MISTAKES

    def take(self, recipe: Recipe) -> LiveSandbox | None:
        """Takes a ready sandbox of a recipe into use, and has it replaced; None if there is none.

        The caller must set its `state`: a fresh sandbox may stand at the root of any salt.
        """
        if not self.wants(recipe):
            return None
        origin = recipe.origin
        with self._lock:  # else a thread that plans meanwhile could close it
            if not self._note_demand(recipe):
                return None
            self._needs.needed(origin, time.monotonic())
            announced = self._came(origin)
            live = self._pool.take_ready(origin)
        while live is not None:
            check = self._begin(live, recipe)
            if check == "same":
                self._mistakes.pop(origin, None)
                self._meter.add(preforks_used=1)
                with self._lock:
                    self._used += not announced
                    self._wake()  # a thread that looked before it was taken found none missing
                return live
            if check == "changed":  # although nobody used it
                self._note_mistake(origin)
            live = self._pool.take_ready(origin)
        return None

    def _begin(self, live: LiveSandbox, recipe: Recipe) -> Check:
        """Starts a ready sandbox; returns whether it is unchanged since it was made."""
        if live.staged is None:
            return self._pool.check(live, recipe.environment.observe)
        try:
            live.begin()
        except InfrastructureError:
            self._pool.discard(live)
            return "ended"
        live.begins_alone = recipe.snapshot is not None and not recipe.snapshot.processes
        return "same"

    def expect(self, recipe: Recipe) -> None:
        """Announces that a sandbox of this recipe will soon be needed."""
        if self.wants(recipe):
            with self._lock:
                if self._note_demand(recipe):
                    self._needs.expect(recipe.origin, time.monotonic())

    def announce(self, root: str, recipe: Recipe, count: int) -> None:
        """Notes that a caller of the cache announced `count` sandboxes; they are made even if they take little time."""
        if not self._enabled:
            return
        with self._lock:
            if self._note_demand(recipe):
                self._announced[recipe.origin] = self._announced.get(recipe.origin, 0) + count
                self._announced_at[root] = recipe.origin
                self._needs.expect(recipe.origin, time.monotonic(), count)

    def met(self, state: str) -> None:
        """Notes that a rollout at a state has another sandbox: one fewer of the announced ones is needed there."""
        if state not in self._announced_at:
            return
        with self._lock:
            origin = self._announced_at.get(state)
            if origin is not None and self._came(origin):
                self._needs.withdraw(origin)
                self._wake()

    def _came(self, origin: Origin) -> bool:
        """Notes that a sandbox of an origin was needed; returns whether it had been announced."""
        remaining = self._announced.pop(origin, 0) - 1
        if remaining > 0:
            self._announced[origin] = remaining
        return remaining >= 0

    def close(self) -> None:
        """Makes no more sandboxes; safe to repeat. The ready ones are closed by the pool."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + LAST_FORK
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))

    def _cost(self, recipe: Recipe) -> float:
        return self._costs.start_s if recipe.snapshot is None else self._costs.fork_s

    def _note_demand(self, recipe: Recipe) -> bool:
        """Wakes the workers for a recipe that is in demand; returns False once this is closed."""
        if self._closed:
            return False
        self._recipes[recipe.origin] = recipe
        while len(self._workers) < WORKERS:
            name = f"tvsnap-prefork-{len(self._workers)}"
            self._workers.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._workers[-1].start()
        self._wake()
        return True

    def _wake(self) -> None:
        self._news += 1
        self._changed.notify_all()

    def _note_mistake(self, origin: Origin, mistakes: int = 1) -> None:
        """Notes that a sandbox of an origin could not be used; after some in a row no more are made for a while."""
        with self._lock:
            mistakes += self._mistaken(origin)
            self._mistakes.pop(origin, None)
            self._mistakes[origin] = (mistakes, time.monotonic())
            while len(self._mistakes) > REMEMBERED:
                del self._mistakes[next(iter(self._mistakes))]
            if mistakes >= MISTAKES:
                self._needs.forget(origin)
                self._wake()

    def _mistaken(self, origin: Origin) -> int:
        """Returns the number of recent mistakes with an origin."""
        mistakes, latest = self._mistakes.get(origin, (0, 0.0))
        return mistakes if time.monotonic() - latest < FORGIVEN else 0

    def _work(self) -> None:
        news = 0
        while True:
            with self._lock:
                patience = LOOK_AGAIN if self._recipes or self._pool.ready else None
                while self._news == news and not self._closed and self._changed.wait(patience):
                    pass
                news = self._news
            while (recipe := self._next()) is not None:
                try:
                    more = self._make(recipe)
                finally:
                    with self._lock:
                        self._making -= Counter((recipe.origin,))
                if not more:
                    break
            if self._closed:
                return

    def _next(self) -> Recipe | None:
        """Closes sandboxes that are no longer needed; returns the recipe of one to make, if any."""
        with self._planning:
            with self._lock:
                there = self._making + Counter(self._pool.ready_by_origin())
                if not there and self._is_untimely():  # nothing to close, and nothing is to be made
                    return None
                refill_s = self._budget * max(self._costs.start_s, self._costs.fork_s)
                expected = self._needs.expected(time.monotonic(), refill_s)
                self._recipes = {origin: self._recipes[origin] for origin in expected}
                self._announced = {origin: count for origin, count in self._announced.items() if origin in expected}
                self._announced_at = {root: at for root, at in self._announced_at.items() if at in self._announced}
                recipes, announced = dict(self._recipes), dict(self._announced)
            costs = {origin: self._cost(recipe) for origin, recipe in recipes.items()}
            for origin in expected:
                if costs[origin] < self._worth_s:  # the announced ones are ready, and no more are worth it
                    expected[origin] = min(expected[origin], announced.get(origin, 0))
            demands = {origin: Demand(origin, count, costs[origin]) for origin, count in expected.items() if count >= 1}
            wanted = self._plan(demands, recipes, max(self._budget, sum(announced.values())), there)
            self._pool.keep_ready_at_most(wanted)
            if self._closed or time.monotonic() < self._paused_until:
                return None
            missing = next((origin for origin, count in wanted.items() if there[origin] < count), None)
            if missing is None or self._is_untimely() or not (missing in announced or self._is_of_use()):
                return None
            with self._lock:
                self._making[missing] += 1
                self._trial += missing not in announced
            return recipes[missing]

    def _plan(
        self,
        demands: dict[Origin, Demand[Origin]],
        recipes: Mapping[Origin, Recipe],
        budget: int,
        there: Counter[Origin],
    ) -> dict[Origin, int]:
        """Returns how many sandboxes of each origin to keep ready, of those that can be made; see `plan`."""
        checked: set[Origin] = set()
        while True:
            wanted = plan(demands.values(), budget, there)
            impossible = [at for at in wanted.keys() - checked if not self._can_be_made(recipes[at])]
            if not impossible:
                return wanted
            checked |= wanted.keys()
            for origin in impossible:
                del demands[origin]

    def _is_untimely(self) -> bool:
        """Returns whether no number was given, and making a sandbox now would slow down calls."""
        return not self._asked_for and running() > self._processors

    def _is_of_use(self) -> bool:
        """Returns whether enough of the sandboxes that were made were used; if not, begins a pause."""
        with self._lock:
            if self._asked_for or self._trial < TRIAL:
                return True
            of_use = self._used >= LEAST_USE * self._trial
            self._trial = self._used = 0
            if not of_use:
                self._paused_until = time.monotonic() + FORGIVEN
            return of_use

    def _can_be_made(self, recipe: Recipe) -> bool:
        """Returns whether the snapshot still exists, and time does not count in its state."""
        snapshot = recipe.snapshot
        if snapshot is None:
            return True
        try:
            present = self._graph.snapshot(snapshot.state, snapshot.backend)
            made_by = self._graph.edge_to(snapshot.state)
        except TvsnapError:
            return False
        quiet = made_by is None or made_by.quiet_s == math.inf
        return quiet and present is not None and present.id == snapshot.id

    def _make(self, recipe: Recipe) -> bool:
        """Makes one and keeps it ready; returns whether to go on at once."""

        def make() -> LiveSandbox:
            began = time.perf_counter()
            staged = recipe.stage(self._backend)
            live = LiveSandbox(None if staged else recipe.make(self._backend), "", staged=staged)
            seconds = time.perf_counter() - began
            self._costs.add("start" if recipe.snapshot is None else "fork", seconds)
            self._meter.prefork(seconds)
            return live

        try:
            live = self._pool.open_ahead(make)
            if live is None:
                return False
            is_kept = self._keep_if_fit(live, recipe)
        except (SnapshotUnusable, NotRestorable):  # a rollout that reaches its state will detect and handle that
            self._note_mistake(recipe.origin, MISTAKES)
            return True
        except (TvsnapError, OSError):
            is_kept = False
        with self._lock:
            if is_kept:
                self._pause = 0.0
            elif time.monotonic() >= self._paused_until:  # not while sandboxes that were begun earlier fail
                self._pause = min(max(2 * self._pause, SHORTEST_PAUSE), LONGEST_PAUSE)
                self._paused_until = time.monotonic() + self._pause
        return True

    def _keep_if_fit(self, live: LiveSandbox, recipe: Recipe) -> bool:
        """Checks a new sandbox and keeps it ready if it is suitable; returns whether more of them may be made.

        Raises:
            InfrastructureError: it has ended.
        """
        try:
            live.weigh()
            if live.staged is not None:
                return self._pool.keep_ready(live, recipe.origin)
            live.observation = recipe.environment.observe(live.sandbox)
            quiet = len(live.sandbox.processes()) <= QUIET + live.observation.serving
        except BaseException:
            self._pool.discard(live)
            raise
        if quiet:
            return self._pool.keep_ready(live, recipe.origin)
        self._pool.discard(live)
        self._note_mistake(recipe.origin, MISTAKES)
        return True
