"""Concludes a call once its caller has the result: observes the sandbox, records the call, maybe takes a snapshot."""

from __future__ import annotations

import contextlib
import math
import time
from concurrent.futures import Future
from typing import NamedTuple

from tvsnap.engine.conclusion.recorder import Aftermath, Recorder
from tvsnap.engine.execution.execution import Execution
from tvsnap.engine.keeping.holds import Hold
from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.engine.position import Position
from tvsnap.engine.services import Services
from tvsnap.engine.supply.file_times import agree_on_times
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.graph import Edge, StepRow
from tvsnap.host import load
from tvsnap.model.errors import InfrastructureError, TvsnapError
from tvsnap.model.observations import Observation

LONG = 0.1  # seconds: the result of a call that changed nothing and took longer is worth keeping the state for
THINKING = 0.05  # seconds: between two calls that are further apart, the agent thinks


class Concluding(NamedTuple):
    """A conclusion that is under way.

    Attributes:
        outcome: becomes the position to which the call led.
        freed: becomes the sandbox once nothing is left to be done in it; None if it must not be used any more.
    """

    outcome: Future[Position]
    freed: Future[LiveSandbox | None]


class Conclusions:
    """Concludes the calls of one rollout, in worker threads, while its caller thinks."""

    def __init__(self, services: Services, recipe: Recipe, recorder: Recorder, hold: Hold | None) -> None:
        """`hold` shows other processes the rollout's state; None if nothing is recorded."""
        self._services = services
        self._recipe = recipe
        self._recorder = recorder
        self._hold = hold

    def begin(self, live: LiveSandbox, execution: Execution, step: StepRow | None, *, exposed: bool) -> Concluding:
        """Has a worker observe the sandbox, record the call, and take a snapshot if the policy wants one.

        The call is the `step` of the rollout. A sandbox that was given out (`exposed`) is not closed to make room for
        others, and changes in it are noticed from now on.

        Raises:
            InfrastructureError: the cache is closed.
        """
        concluding = Concluding(Future(), Future())
        for future in concluding:
            future.set_running_or_notify_cancel()  # so that nobody who waits for it can cancel it
        try:
            self._services.workers.submit(self._conclude, concluding, live, execution, step, exposed)
        except RuntimeError:
            raise InfrastructureError("the cache is closed") from None
        return concluding

    def look_again(self, live: LiveSandbox, *, note: bool = True) -> bool:
        """Observes a sandbox again after a snapshot, and notes its condition; returns whether it is alive.

        Without `note`, the next call that needs the note makes it.
        """
        try:
            live.look_again(self._recipe.environment.observe)
            if note:
                live.sandbox.note()
        except InfrastructureError:
            return False
        return True

    def _conclude(
        self, concluding: Concluding, live: LiveSandbox, execution: Execution, step: StepRow | None, exposed: bool
    ) -> None:
        """Does the work of `begin`, in a worker."""
        outcome, freed = concluding
        usable = False
        try:
            self._services.snapshotter.executed(execution.result.duration, execution.result.processor_s)
            if self._recorder.answers_nobody(execution):
                self._release(execution)  # a caller that waits for the result need not wait for the observation
            looked = time.monotonic()
            observation = self._observe_after(live, execution)
            usable = observation is not None or _left_alone(execution)
            aftermath = Aftermath(unchanged=False)
            if usable:
                aftermath = self._aftermath(live, execution, observation, looked - execution.ended)
            position, edge = self._recorder.record(execution, aftermath, step)
            changed = position.state != execution.at.state
            if changed:
                live.state, live.since = position.state, execution.ended
            live.observation, live.disturbed = observation, False
            live.expendable = not changed and live.expendable
            shared = usable and not position.private
            reachable = shared and changed
            if reachable:
                self._services.snapshotter.expect(position.state)
            if self._hold is not None:
                self._hold.approach(position.state)
            outcome.set_result(position)
            if reachable and edge is not None and edge.times:
                self._agree_on_times(live, aftermath, edge)
            if reachable or (shared and execution.result.duration >= LONG):
                usable = self._snapshot(live, position, exposed, 0.0 if changed else execution.result.duration)
            # Rollouts that wait for the call are answered only if the state that it led to is kept.
            self._release(execution)
            # Many calls need no note, and a note takes longer than they do: it is made now if the caller need not wait
            # for it, or if somebody else may change something.
            note = exposed or live.disturbed or load.is_idle() or self._services.snapshotter.pause_s > THINKING
            usable = usable and self.look_again(live, note=note)
        except BaseException as error:  # a mistake of ours: the next call raises it
            usable = False
            self._release(execution)
            if not outcome.done():
                outcome.set_exception(error)
        finally:
            if usable:
                self._services.pool.rest(live)
            else:
                self._services.pool.discard(live)
            freed.set_result(live if usable else None)

    def _agree_on_times(self, live: LiveSandbox, aftermath: Aftermath, edge: Edge) -> None:
        """Gives the files that a call has changed the times that its record has, if another execution was recorded.

        If that fails, the files keep their times, as in a run without the cache.

        Raises:
            InfrastructureError: the sandbox ended.
        """
        changed = True
        with contextlib.suppress(InfrastructureError):
            changed = agree_on_times(live.sandbox, edge.times, aftermath.times)
        if changed:
            live.observation = self._recipe.environment.observe(live.sandbox)

    def _observe_after(self, live: LiveSandbox, execution: Execution) -> Observation | None:
        """Observes the sandbox after a call; returns None if it has ended."""
        if _left_alone(execution):
            return live.observation
        try:
            with self._services.home.in_place():
                return self._recipe.environment.observe(live.sandbox)
        except InfrastructureError:
            return None

    def _aftermath(
        self, live: LiveSandbox, execution: Execution, after: Observation | None, seconds: float
    ) -> Aftermath:
        """Returns the aftermath of a call, from an observation `seconds` after its end.

        Raises:
            InfrastructureError: the sandbox ended.
        """
        if _left_alone(execution):
            return Aftermath(unchanged=True)
        if execution.before is None or after is None:
            return Aftermath(unchanged=False)
        # An event that is still to come by itself after a call, such as the end of a port's TIME_WAIT, is a change,
        # even if all else is equal.
        stirred = bool(after.active) and execution.at.quiet_s == math.inf
        unchanged = not stirred and self._recipe.environment.unchanged(execution.call, execution.before, after)
        if unchanged and live.sandbox.go_back():
            return Aftermath(unchanged=True, chance=after.chance)
        live.sandbox.settle(changed=True)
        quiet_s = seconds + after.quiet_s if after.quiet_s else 0.0
        digest = times = None
        with contextlib.suppress(InfrastructureError):  # the next call raises it
            computed = live.sandbox.digest()
            if computed and execution.before.files != after.files and not self._recipe.environment.serves:
                times = live.sandbox.file_times(execution.began)
            digest = computed
        reproducible = after.reproducible and not after.chance
        return Aftermath(False, digest, times, quiet_s, after.active, after.chance, reproducible)

    def _release(self, execution: Execution) -> None:
        """Wakes those who wait for a call. If they do not find it in the graph now, they should execute it at once."""
        if execution.claim is not None:
            self._services.claims.release(execution.claim, unshareable=True)

    def _snapshot(self, live: LiveSandbox, at: Position, exposed: bool, answered_s: float) -> bool:
        """Takes a snapshot of the state of a sandbox if the policy wants one; see `Snapshotter.consider`.

        Returns whether the sandbox is still alive.
        """
        snapshotter, task = self._services.snapshotter, self._recorder.task
        try:
            live.expendable = snapshotter.consider(live, at.course, task, answered_s=answered_s) and not exposed
        except TvsnapError:
            return False
        finally:
            self._services.snapshotter.has_decided(live.state)
        return True


def _left_alone(execution: Execution) -> bool:
    """Returns whether a call surely changed nothing: its tool is read-only, and no other process was there.

    Processes that wait for a file to be opened (a FIFO, a watch, a lease) wake up when it is read.
    """
    alone = execution.before is None or execution.before.alone
    return execution.tool.read_only and alone and execution.at.quiet_s == math.inf
