"""The position of a rollout in the graph, how long it has waited there, and the answers to its calls there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.claiming.claims import Claim, Wanted
from tvsnap.engine.claiming.patience import Forecast, Patience
from tvsnap.engine.keeping.holds import Hold
from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.engine.lookup.grades import Grading
from tvsnap.engine.position import Position
from tvsnap.engine.services import Services
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.environments.tools import Tool
from tvsnap.graph import Edge
from tvsnap.host.waiting import NO_LAG, NO_WAIT, Wait
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import TvsnapError
from tvsnap.model.reasons import Why


class Cursor:
    """A rollout's position. Used by one thread at a time, except for `where` and `pending`.

    Attributes:
        at: the position as of the last `catch_up`.
        hold: keeps the state from eviction; None if nothing is recorded, or after `let_go`.
    """

    def __init__(self, services: Services, recipe: Recipe, at: Position, task: str) -> None:
        """`task` is the task of the rollout."""
        self._services = services
        self._recipe = recipe
        self._task = task
        self.at = at
        self.hold: Hold | None = services.holds.add() if services.settings.use_cache else None
        if self.hold is not None:
            self.hold.stand(at.state)
        self._ended = time.monotonic()  # the last call
        self._asked = time.monotonic()  # the begin of what it is to do now; what passes meanwhile does not count
        self._not_before = 0.0  # the time at which real time will have caught up with `advance_time`
        self._outcome: Future[Position] | None = None  # of the last call, until it is taken into `at`

    # -- position -------------------------------------------------------------------------------------------------

    def where(self) -> Position:
        """Returns the position, once the last call's outcome is known. Any thread may call it."""
        outcome = self._outcome
        if outcome is None:
            return self.at
        self._services.home.check()
        return outcome.result()

    def pending(self) -> Future[Position] | None:
        """Returns a future that is done once the last call's outcome is known; None if it is known already."""
        outcome = self._outcome
        return None if outcome is None or outcome.done() else outcome

    @property
    def caught_up(self) -> bool:
        """Whether the outcome of the last call has been taken into `at`."""
        return self._outcome is None

    def lead_to(self, outcome: Future[Position]) -> None:
        """Takes over, at the next `catch_up`, the position to which an executed call led."""
        self._outcome = outcome

    def catch_up(self) -> None:
        """Moves to the position to which the last call led, once that is known: something new is to be done."""
        if self._outcome is not None:
            self.stand_at(self._outcome.result())
            self._outcome = None
        self._asked = time.monotonic()

    def stand_at(self, at: Position) -> None:
        """Moves to a position."""
        self.at = at
        if self.hold is not None:
            self.hold.stand(at.state)

    def go_on_from(self, other: Cursor) -> None:
        """Takes over the position, the last call and the waits of another one."""
        self.stand_at(other.at)
        self._ended, self._not_before = other._ended, other._not_before

    def leave_out(self, seconds: float) -> None:
        """Leaves out some of the time for which the rollout has waited: it does not count."""
        self.at = self.at.pass_time(-seconds)

    def let_go(self) -> None:
        """Stops holding a state."""
        if self.hold is not None:
            self._services.holds.remove(self.hold)
            self.hold = None

    # -- time -----------------------------------------------------------------------------------------------------

    def end_call(self) -> float:
        """Notes that a call has ended; returns when, by time.monotonic()."""
        self._ended = time.monotonic()
        return self._ended

    @property
    def idle(self) -> float:
        """Seconds since the last call."""
        return time.monotonic() - self._ended

    def missing(self, after: float) -> float:
        """Returns the seconds until `after` seconds have passed since the last call."""
        return max(0.0, after - self.idle)

    def advance_time(self, after: float) -> None:
        """Makes at least `after` seconds count as passed since the last call."""
        now = time.monotonic()
        missing = after - (now - self._ended)
        if missing > 0:
            self.at = self.at.pass_time(missing)
            self._ended -= missing
            self._not_before = max(self._not_before, now) + missing

    @property
    def waited(self) -> float:
        """The seconds for which it had waited when what it does now was asked for; 0 if that never counts."""
        return 0.0 if self.at.quiet_s == math.inf else max(0.0, self._asked - self.at.since)

    @property
    def _wait(self) -> Wait:
        at = self.at
        return NO_WAIT if at.quiet_s == math.inf else Wait(self.waited, at.lag, at.shown)

    def make_up_time(self, live: LiveSandbox, pause: Callable[[float], None] = time.sleep) -> None:
        """Waits until the rollout's own sandbox, and the clock that programs read, have caught up with the rollout.

        The rollout then counts as having waited for no longer than the sandbox has run.

        Args:
            live: the sandbox.
            pause: does the waiting, and may raise.
        """
        self.await_time(live, pause)
        self._let_pass(live.since - self.at.since)

    def await_time(self, live: LiveSandbox, pause: Callable[[float], None] = time.sleep) -> None:
        """Waits until another sandbox has caught up with the rollout; see `make_up_time`."""
        began = time.monotonic()
        missing = max(0.0, self._not_before - began)
        live.let_run(max(self.waited, self.at.shown, live.age() + missing), pause)
        self._not_before = 0.0
        self._let_pass(time.monotonic() - began)

    def _let_pass(self, seconds: float) -> None:
        """Leaves out time that has passed since the present call was made, for which `waited` stays as it is."""
        if seconds > 0.0 and self.at.quiet_s < math.inf:
            self._asked += seconds
            self.leave_out(seconds)

    # -- answers --------------------------------------------------------------------------------------------------

    def lookup(
        self, call: ToolCall, timeout: float, grading: Grading | None = None, *, patient: bool = True
    ) -> Edge | None:
        """Returns the recorded answer to a call, if there is one that may be used; then holds the state it leads to.

        If not `patient`, it does not wait for an eviction that is under way, and returns None.
        """
        at, holds = self.at, self._services.holds
        if at.private:
            return None
        evictions = holds.evictions
        edge = self._look_up(call, timeout, retire=patient)
        if edge is not None and grading is not None and grading.executions > 1:
            counts = self._services.graph.grades(at.state, call.key)
            edge = edge if grading.is_settled(counts, edge.grade) else None
        if edge is None or not edge.changed or self.hold is None:
            return edge
        self.hold.approach(edge.next_state)
        if evictions % 2 == 0 and holds.evictions == evictions:
            return edge
        if patient:
            holds.wait_for_evictions()
            again = self._look_up(call, timeout)
            if again is not None and again.id == edge.id:
                return again
        self.hold.stand(at.state)
        return None

    def why_executed(
        self, tool: Tool, call: ToolCall, timeout: float, edge: Edge | None, grading: Grading | None
    ) -> Why:
        """Returns why a call is not answered, not even by its record `edge` if there is one."""
        if edge is not None:
            return Why("cheap", "answering it would have taken longer than executing it")
        at, services = self.at, self._services
        if at.private:
            return Why("private", f"the rollout is private: {at.private}")
        if tool.stochastic or not tool.cacheable:
            return Why("unshared", f"calls of {call.name} are never answered")
        if grading is not None and grading.executions > 1:
            return Why("unshared", "its grade is not settled yet")
        return services.graph.why_unanswered(at.state, call.key, timeout, services.backend.name)

    def await_answer(self, call: ToolCall, timeout: float, pause: Callable[[float], None]) -> Edge | None:
        """Waits until an answer fits that was recorded after a longer wait, and returns it.

        Waits only if an execution would not end sooner; returns None otherwise. `pause` does the waiting, and may
        raise. Of use only if something runs by itself.
        """
        at, services = self.at, self._services
        if at.private:
            return None
        due_s = services.graph.due_in(at.state, call, timeout, services.backend.name, self._wait)
        if due_s is None:
            return None
        began = time.monotonic()
        pause(due_s)
        self._asked += time.monotonic() - began
        return self.lookup(call, timeout)

    def claim(
        self,
        tool: Tool,
        call: ToolCall,
        timeout: float,
        until: float,
        able: Callable[[], bool],
        cancellation: Cancellation,
        *,
        at_hand: bool,
    ) -> Edge | Claim | None:
        """Returns another rollout's result, or the right to execute a call; None if nothing is to be shared.

        Args:
            tool, call, timeout, cancellation: the call.
            until: the time at which a wait for others must end, by time.monotonic().
            able: returns whether there is a sandbox to execute it in, or room for one.
            at_hand: the rollout has a sandbox that stands here.
        """
        at = self.at
        if at.private or tool.stochastic or not tool.cacheable:
            return None
        patience = Patience(lambda: self._forecast(tool, call, at_hand=at_hand), until, able=able)
        look = partial(self.lookup, call, timeout)
        backend, task = self._services.backend.name, self._task
        wanted = Wanted(at.state, call, timeout, backend, self._wait, at.quiet_s, look, patience, task)
        return self._services.claims.claim(wanted, cancellation)

    def keeps(self, edge: Edge) -> bool:
        """Returns whether the rollout can do without its sandbox once an edge has answered a call."""
        try:
            return edge.changed or self._services.acquirer.is_sure(self.at.state)
        except TvsnapError:
            return False

    def _forecast(self, tool: Tool, call: ToolCall, *, at_hand: bool) -> Forecast:
        """Returns the facts about a call before it is executed."""
        at, graph, snapshotter = self.at, self._services.graph, self._services.snapshotter
        backend = self._services.backend.name
        lost = snapshotter.refusal(at.course_after(call))
        if lost is None and not tool.read_only:  # if a state cannot be kept before a call, it rarely can be after it
            lost = snapshotter.refusal(at.state)
            made_by = None if lost else graph.edge_to(at.state)
            lost = lost or (made_by.refusals.get(backend) if made_by else None)
        latest = graph.latest(at.state, call.key)
        cheap = at_hand and not snapshotter.keeps_all
        if latest is None:
            return Forecast(lost, cheap=cheap)
        duration, refusals, cut_short = latest
        return Forecast(lost or refusals.get(backend) or cut_short, duration, cheap)

    def lasts(self, tool: Tool) -> float | None:
        """Returns the seconds for which a result that depends on the network answers others; None for ever."""
        return self._services.settings.network_answers if tool.time_to_live is None else tool.time_to_live

    def follow(self, edge: Edge) -> None:
        """Moves along an edge whose result answers a call."""
        at, now = self.at, time.monotonic()
        if edge.changed:
            course = at.course_after(edge.call)
            self._not_before -= max(0.0, time.time() - edge.created)  # the age of the state
            goes_on = max(at.quiet_s, edge.quiet_s) < math.inf
            lag = at.lag.after(self.waited, edge.waited, edge.latest - edge.waited) if goes_on else NO_LAG
            self.stand_at(
                Position(edge.next_state, at.depth + 1, quiet_s=edge.quiet_s, since=now, course=course, lag=lag)
            )
        elif at.quiet_s < math.inf:
            # It has waited for the call's own time, too, and the next answer is of no earlier moment.
            lasted, shown = edge.result.duration, max(at.shown, edge.earliest)
            since = now - self.waited - lasted
            self.at = replace(at, unshared=None, since=since, shown=shown + lasted if shown else 0.0)
        elif at.unshared:
            self.at = replace(at, unshared=None)
        self._ended = now

    def _look_up(self, call: ToolCall, timeout: float, *, retire: bool = True) -> Edge | None:
        at, graph = self.at, self._services.graph
        backend = self._services.backend.name
        edge = graph.lookup(at.state, call, timeout, backend, wait=self._wait, quiet_s=at.quiet_s)
        if edge is None or not edge.asked:
            return edge
        tool = self._recipe.environment.tools.get(call.name)
        lasts = self._services.settings.network_answers if tool is None else self.lasts(tool)
        if lasts is None or edge.is_newer_than(lasts):
            return edge
        if retire:  # an event loop that looks an answer up must not wait for a writer
            graph.retire(edge, f"what it asked of the network is older than {lasts:g} s")
        return None
