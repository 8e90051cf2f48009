"""What is left of a call once its caller has the result: where it led, its record, and a snapshot where that pays."""

from __future__ import annotations

import contextlib
import math
import time
from concurrent.futures import Future
from typing import NamedTuple

from tvsnap.engine.conclusion.recorder import Aftermath, Recorder
from tvsnap.engine.context import Context
from tvsnap.engine.execution.executed import Executed
from tvsnap.engine.keeping.holds import Hold
from tvsnap.engine.live import LiveSandbox
from tvsnap.engine.position import Position
from tvsnap.engine.supply.dating import redate
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.model.errors import InfrastructureError, TvsnapError
from tvsnap.model.observations import Observation


class Concluding(NamedTuple):
    """A conclusion under way.

    Attributes:
        outcome: comes to where the rollout stands.
        freed: comes to the sandbox, once nothing is left to be done in it; to None if it must not go on.
    """

    outcome: Future[Position]
    freed: Future[LiveSandbox | None]


class Conclusions:
    """Concludes the calls of one rollout, by workers, while its caller thinks."""

    def __init__(self, context: Context, recipe: Recipe, recorder: Recorder, hold: Hold | None) -> None:
        """
        Args:
            context: what the rollouts of a cache have in common.
            recipe: of the rollout's sandboxes.
            recorder: records its calls.
            hold: says to other processes where it stands; None if nothing is recorded.
        """
        self._context = context
        self._recipe = recipe
        self._recorder = recorder
        self._hold = hold

    def begin(self, live: LiveSandbox, executed: Executed, *, exposed: bool) -> Concluding:
        """Lets a worker find out where a call led, record it, and snapshot that if the policy says so.

        Args:
            live: where it was executed.
            executed: the call.
            exposed: the sandbox was given out, and must not make room for others.

        Raises:
            InfrastructureError: the cache is closed.
        """
        concluding = Concluding(Future(), Future())
        for future in concluding:
            future.set_running_or_notify_cancel()  # nobody who waits for it may cancel it
        if not executed.looked_at:  # it takes less than to wake a worker
            self._conclude(concluding, live, executed, exposed)
            return concluding
        try:
            self._context.workers.submit(self._conclude, concluding, live, executed, exposed)
        except RuntimeError:
            raise InfrastructureError("the cache is closed") from None
        return concluding

    def look_again(self, live: LiveSandbox) -> bool:
        """Sees to it that a sandbox is known as a snapshot left it; returns whether it lives."""
        try:
            live.look_again(self._recipe.environment.observe)
            live.sandbox.note()
        except InfrastructureError:
            return False
        return True

    def _conclude(self, concluding: Concluding, live: LiveSandbox, executed: Executed, exposed: bool) -> None:
        """What `begin` lets a worker do."""
        outcome, freed = concluding
        usable = False
        try:
            began = time.thread_time()
            self._context.snapshotter.worked(executed.result.duration)
            if self._recorder.answers_nobody(executed):
                self._release(executed)  # who waits need not wait for what is looked at now
            looked = time.monotonic()
            observation = self._observe_after(live, executed)
            usable = observation is not None or not executed.looked_at or _left_alone(executed)
            left = Aftermath(unchanged=False)
            if usable:
                left = self._aftermath(live, executed, observation, looked - executed.ended)
            position = self._recorder.record(executed, left)
            changed = position.state != executed.at.state
            if changed:
                live.state, live.since = position.state, executed.ended
            live.observation, live.disturbed = observation, False
            live.begins_alone = live.begins_alone and executed.looked_at
            live.expendable = not changed and live.expendable
            kept = usable and changed and not position.private
            if kept:
                self._context.snapshotter.expect(position.state)
            if self._hold is not None:
                self._hold.approach(position.state)
            outcome.set_result(position)
            if kept and left.digest is not None:
                self._agree_on_times(live, executed)
            self._account(executed, began)
            if kept:
                usable = self._snapshot(live, position, exposed)
            self._release(executed)  # who waits for the call is answered only if what it led to is kept
            usable = usable and (not executed.looked_at or self.look_again(live))
        except BaseException as error:  # a mistake of ours: the next call tells
            usable = False
            self._release(executed)
            if not outcome.done():
                outcome.set_exception(error)
        finally:
            if usable:
                self._context.pool.rest(live)
            else:
                self._context.pool.discard(live)
            freed.set_result(live if usable else None)

    def _account(self, executed: Executed, began: float) -> None:
        """Takes note of what a call took, and, from `began` by time.thread_time() on, what recording it did."""
        recording_s = time.thread_time() - began + executed.looking_s if executed.looked_at else 0.0
        image, executed_s = self._recipe.image.digest, executed.result.duration
        self._context.worth.add(image, executed_s=executed_s, recording_s=recording_s)

    def _agree_on_times(self, live: LiveSandbox, executed: Executed) -> None:
        """Gives what a call has written the age that it has where the call was recorded before, if it was.

        Where that fails, it keeps the age that it has, which is what a run without the cache would show.

        Raises:
            InfrastructureError: the sandbox ended.
        """
        graph = self._context.graph
        edge = graph.edge_to(live.state)
        seconds = time.monotonic() - executed.ended + executed.result.duration
        if edge is not None and edge.created < time.time() - seconds:
            with contextlib.suppress(InfrastructureError):
                redate(live.sandbox, self._recipe, edge, seconds, graph.edge_to(executed.at.state))
            live.observation = self._recipe.environment.observe(live.sandbox)

    def _observe_after(self, live: LiveSandbox, executed: Executed) -> Observation | None:
        """Returns how the sandbox looks after a call; None if it did not survive that, or is not to be looked at."""
        if not executed.looked_at:
            return None
        if _left_alone(executed):
            return live.observation
        try:
            with self._context.home.in_place():
                return self._recipe.environment.observe(live.sandbox)
        except InfrastructureError:
            return None

    def _aftermath(self, live: LiveSandbox, executed: Executed, after: Observation | None, seconds: float) -> Aftermath:
        """Returns what a call left behind, as it was seen so many seconds after its end.

        Raises:
            InfrastructureError: the sandbox ended.
        """
        if not executed.looked_at:
            live.sandbox.settle(changed=not executed.tool.read_only)
            return Aftermath(unchanged=executed.tool.read_only, quiet_s=0.0)
        if _left_alone(executed):
            return Aftermath(unchanged=True)
        if executed.before is None or after is None:
            return Aftermath(unchanged=False)
        # What a call leaves to happen by itself, such as a port in TIME_WAIT, is a change, whatever else is as it was.
        stirred = bool(after.active) and executed.at.quiet_s == math.inf
        unchanged = not stirred and self._recipe.environment.unchanged(executed.call, executed.before, after)
        if unchanged and live.sandbox.go_back():
            return Aftermath(unchanged=True, chance=after.chance)
        live.sandbox.settle(changed=True)
        quiet_s = seconds + after.quiet_s if after.quiet_s else 0.0
        digest = None
        with contextlib.suppress(InfrastructureError):  # it is told of when the next call is made
            digest = live.sandbox.digest()
        return Aftermath(False, digest, quiet_s, after.active, after.chance, after.reproducible and not after.chance)

    def _release(self, executed: Executed) -> None:
        """Wakes who waits for a call. Who does not find it in the graph now had better execute it without waiting."""
        if executed.claim is not None:
            self._context.claims.release(executed.claim, unshareable=True)

    def _snapshot(self, live: LiveSandbox, at: Position, exposed: bool) -> bool:
        """Snapshots the state that a sandbox came to, if the policy says so; returns whether the sandbox lives on."""
        try:
            live.expendable = self._context.snapshotter.consider(live, at.course, self._recorder.task) and not exposed
        except TvsnapError:
            return False
        finally:
            self._context.snapshotter.has_decided(live.state)
        return True


def _left_alone(executed: Executed) -> bool:
    """Whether a call is known to have changed nothing: its tool changes nothing, and nobody else was there.

    Who waits for a file to be opened (a FIFO, a watch, a lease) wakes when it is read.
    """
    alone = executed.before is None or executed.before.alone
    return executed.tool.read_only and alone and executed.at.quiet_s == math.inf
