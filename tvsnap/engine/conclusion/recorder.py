"""Records the results of calls, and decides whether a rollout goes on in the shared graph or in a private branch."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvsnap.engine.execution.execution import LONGEST_WAIT, SHORTEST_WAIT, Execution
from tvsnap.engine.position import Position
from tvsnap.graph import Edge, Graph, NewEdge, StepRow
from tvsnap.host.waiting import NO_LAG
from tvsnap.model.calls import next_state
from tvsnap.model.errors import TvsnapError


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The traces that a call left behind.

    Attributes:
        unchanged: the state is the same as before.
        digest: that of the sandbox; None if there is none, or it is not needed.
        times: the modification times of the files that the call changed, see `Sandbox.file_times`; None if it changed
            none, or if there is no digest.
        quiet_s: seconds after the call's end during which nothing changes by itself.
        active: the reason why something may change by itself; None if it may not.
        chance, reproducible: see `Observation`, of services.
    """

    unchanged: bool
    digest: str | None = None
    times: Mapping[str, int] | None = None
    quiet_s: float = math.inf
    active: str | None = None
    chance: bool = False
    reproducible: bool = False


class Recorder:
    """Writes calls of one task into the graph. Thread-safe.

    Attributes:
        task: the task's name; empty if it has none.
    """

    def __init__(self, graph: Graph, backend: str, task: str, *, timeouts: bool = False) -> None:
        """`backend` keeps the states by its snapshots.

        With `timeouts`, calls that timed out while they worked are shared, too.
        """
        self._graph = graph
        self._backend = backend
        self.task = task
        self._timeouts = timeouts

    def record(
        self, execution: Execution, aftermath: Aftermath, step: StepRow | None = None
    ) -> tuple[Position, Edge | None]:
        """Records a call that was executed, a step of a rollout.

        If the graph cannot record it (its state was forgotten, the disk is full), it leads into a private branch.

        Returns:
            The position that it led to, and the record that answers others, which may be an earlier one; None if none
            does.
        """
        tool, at = execution.tool, execution.at
        if aftermath.unchanged and not (tool.cacheable or tool.read_only or tool.on_host):
            aftermath = replace(aftermath, unchanged=False)
        try:
            reason = at.private or _unshareable(execution, aftermath, timeouts=self._timeouts)
            reason = reason or self._ungraded(execution)
            if not reason:
                position, reason, edge = self._share(execution, aftermath, step)
                if position is not None:
                    return position, edge
            return self._keep(execution, aftermath, reason, step), None
        except TvsnapError as error:
            return self._unrecorded(execution, aftermath, str(error), step), None

    def answers_nobody(self, execution: Execution) -> bool:
        """Returns whether a call's result is sure not to be shared, independently of its aftermath."""
        return _unshareable(execution, Aftermath(unchanged=False), timeouts=self._timeouts) is not None

    def branch_off(self, execution: Execution, aftermath: Aftermath, reason: str, step: StepRow | None) -> Position:
        """Records a call that led into a private branch, or further along one; returns the new position.

        `reason`: why its result is not shared.
        """
        try:
            return self._keep(execution, aftermath, reason, step)
        except TvsnapError as error:
            return self._unrecorded(execution, aftermath, str(error), step)

    def _ungraded(self, execution: Execution) -> str | None:
        """Returns why the grade that a call gave cannot be shared; None if it can, or if the call does not grade."""
        grading, grade, state, call = execution.grading, execution.grade, execution.at.state, execution.call
        if grading is None or grade is None or (grading.executions <= 1 and execution.held_up is None):
            return None
        reason = grading.not_yet(self._graph.grades(state, call.key), grade, execution.held_up)
        if reason is None and grading.executions > 1 and self._graph.recorded(state, call) is not None:
            return "another execution has given this grade, and answers others"
        return reason

    def _share(
        self, execution: Execution, aftermath: Aftermath, step: StepRow | None
    ) -> tuple[Position | None, str | None, Edge]:
        """Records a call for all.

        Returns:
            The new position, or None and the reason why the call cannot be shared; and the record that counts.
        """
        at, call, result = execution.at, execution.call, execution.result
        timeout = execution.timeout if result.timed_out else None
        by_nature = execution.tool.reproducible or aftermath.reproducible
        identity = aftermath.digest or ("" if by_nature else secrets.token_hex(16))
        if aftermath.times is not None:  # the result may show them
            identity = f"{identity} {result.fingerprint}"
        waited, still = _waits(execution, aftermath)
        if waited:
            identity = f"{identity} after {waited!r} s"
        after = at.state if aftermath.unchanged else next_state(at.state, call, timeout=timeout, identity=identity)
        edge = self._graph.record(
            NewEdge(
                at.state,
                call,
                result,
                next_state=after,
                task=self.task,
                timeout=timeout,
                digest=None if aftermath.unchanged else aftermath.digest,
                times=aftermath.times,
                active=None if aftermath.unchanged else aftermath.active,
                proven=by_nature and not execution.asked,
                comparable=bool(aftermath.digest) and not execution.asked,
                asked=execution.asked,
                grade=execution.grade,
                waited=waited,
                still=still,
                on_host=execution.tool.on_host,
                quiet_s=math.inf if aftermath.unchanged else aftermath.quiet_s,
                backend=self._backend,
                is_late=execution.claim is not None and execution.claim.is_late,
                ended=_wall_clock(execution.ended),
                step=step,
            )
        )
        if aftermath.unchanged:
            if edge.deterministic and (edge.changed or edge.result.same_value(result)):
                return replace(at, unshared=None), None, edge
            return None, edge.reason or "another rollout that made this call at the same time got another result", edge
        if edge.next_state != after or not edge.deterministic:
            return (
                None,
                edge.reason or "another rollout that made this call at the same time came to another state",
                edge,
            )
        due = still[1] - waited if still else 0.0
        course, lag = at.course_after(call), replace(at.lag, due=due) if _goes_on(execution, aftermath) else NO_LAG
        return (
            Position(after, at.depth + 1, quiet_s=aftermath.quiet_s, since=execution.ended, course=course, lag=lag),
            None,
            edge,
        )

    def _keep(self, execution: Execution, aftermath: Aftermath, reason: str | None, step: StepRow | None) -> Position:
        """Records a call that is only shown to people; returns the new position."""
        at, call, result = execution.at, execution.call, execution.result
        if not at.recorded:
            return self._unrecorded(execution, aftermath, reason, step)
        after = _private_state(at, aftermath)
        new = NewEdge(
            at.state,
            call,
            result,
            after,
            task=self.task,
            timeout=execution.timeout if result.timed_out else None,
            shared=False,
            reason=reason,
            private=None if aftermath.unchanged else reason,
            digest=None if aftermath.unchanged else aftermath.digest,
            active=None if aftermath.unchanged else aftermath.active,
            quiet_s=math.inf if aftermath.unchanged else aftermath.quiet_s,
            on_host=execution.tool.on_host,
            asked=execution.asked,
            grade=execution.grade,
            ended=_wall_clock(execution.ended),
            step=step,
        )
        if at.private:
            self._graph.record_later(new)
        else:
            self._graph.record(new)
        return _private_position(execution, aftermath, after, reason, recorded=True)

    def _unrecorded(
        self, execution: Execution, aftermath: Aftermath, reason: str | None, step: StepRow | None
    ) -> Position:
        """Returns the position after a call that is not in the graph; its step still is."""
        if step is not None:
            self._graph.note_step(step._replace(call=execution.call.canonical))
        at = execution.at
        reason = at.private or f"could not be recorded: {reason}"
        return _private_position(execution, aftermath, _private_state(at, aftermath), reason, recorded=False)


def _goes_on(execution: Execution, aftermath: Aftermath) -> bool:
    """Returns whether what runs by itself where a call was made may still do so in another state that it led to."""
    return not aftermath.unchanged and max(execution.at.quiet_s, aftermath.quiet_s) < math.inf


def _waits(execution: Execution, aftermath: Aftermath) -> tuple[float, tuple[float, float] | None]:
    """Returns the wait on which a record depends, 0 if on none, and the shortest and the longest that are as good."""
    if execution.waited or not _goes_on(execution, aftermath):
        return execution.waited, execution.alike
    waited = max(execution.age, SHORTEST_WAIT)
    return waited, (SHORTEST_WAIT, max(waited, min(execution.at.quiet_s - execution.result.duration, LONGEST_WAIT)))


def _wall_clock(moment: float) -> float:
    """Converts a time by time.monotonic() into seconds since the epoch."""
    return time.time() - (time.monotonic() - moment)


def _unshareable(execution: Execution, aftermath: Aftermath, *, timeouts: bool) -> str | None:
    """Returns why a call's result cannot be shared; None if it can."""
    tool, result = execution.tool, execution.result
    if not tool.cacheable:
        return f"the tool {tool.name} acts on what is not in the sandbox"
    if tool.stochastic or (aftermath.chance and aftermath.unchanged):
        return f"the value of the tool {tool.name} is left to chance"
    if execution.asked and execution.lasts == 0:
        return f"asked the network for {execution.asked[0]}"
    if execution.trouble:
        return f"may have failed by no fault of its own: {execution.trouble}"
    if execution.cancelled and result.timed_out:
        return f"was cancelled after {result.duration:.3g} s"
    if result.timed_out and execution.held_up and not timeouts:
        return f"timed out after {execution.timeout:g} s on a busy machine"
    return None


def _private_position(
    execution: Execution, aftermath: Aftermath, after: str, reason: str | None, *, recorded: bool
) -> Position:
    """Returns the position after a call whose result is not shared."""
    at = execution.at
    if aftermath.unchanged:
        return replace(at, unshared=reason)
    course, private = at.course_after(execution.call), at.private or reason
    return Position(after, at.depth + 1, private, recorded, reason, aftermath.quiet_s, execution.ended, course)


def _private_state(at: Position, aftermath: Aftermath) -> str:
    """Returns a name for a state that no other execution shares."""
    return at.state if aftermath.unchanged else secrets.token_hex(32)
