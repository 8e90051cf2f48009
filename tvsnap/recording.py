"""Recording what a call came to, which tells where its rollout goes on: on the shared graph, or in a private branch."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

from tvsnap.backends.base import Observation
from tvsnap.calls import ToolCall, ToolResult, next_state
from tvsnap.environments.base import Tool
from tvsnap.errors import TvsnapError
from tvsnap.flights import Flight
from tvsnap.graph import Graph


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rollout stands.

    Attributes:
        state: the state.
        depth: how many calls that changed the state it is away from its root.
        private: why nothing is shared from here on; empty if it is.
        recorded: whether the graph knows the state.
        unshared: why the result of the last call is not shared; empty if it is.
    """

    state: str
    depth: int = 0
    private: str = ""
    recorded: bool = True
    unshared: str = ""


@dataclass(frozen=True, slots=True)
class Executed:
    """A call that has just been executed.

    Attributes:
        tool, call: what was called.
        timeout: seconds that it was given.
        result: what it returned.
        at: where it was called.
        before: how the sandbox looked before; None if nobody needed to know.
        flight: others wait for the result; None if nobody does.
        trouble: why the result may be this machine's doing and not the call's; empty if it is not.
    """

    tool: Tool
    call: ToolCall
    timeout: float
    result: ToolResult
    at: Position
    before: Observation | None
    flight: Flight | None
    trouble: str = ""

    def judged(self, after: Observation | None, *, unchanged: bool) -> Executed:
        """Returns the same call, its tool as it applies to it by what was observed afterwards.

        Args:
            after: how the sandbox looked.
            unchanged: whether the call left the state as it was.
        """
        if self.tool.read_only or after is None or not after.chance:
            return self
        return replace(self, tool=replace(self.tool, stochastic=self.tool.stochastic or unchanged, volatile=True))


class Recorder:
    """Writes calls of one task into the graph. Thread-safe."""

    def __init__(self, graph: Graph, owner: str, task: str) -> None:
        """
        Args:
            graph: the graph.
            owner: who holds the leases of flights.
            task: the task.
        """
        self._graph = graph
        self._owner = owner
        self._task = task

    def record(self, executed: Executed, *, unchanged: bool) -> Position:
        """Records a call that was executed.

        Args:
            executed: the call.
            unchanged: whether it left the state as it was.

        Returns:
            Where it led. If the graph cannot take it (it was forgotten, the disk is full), that is a private branch.
        """
        tool, result, at = executed.tool, executed.result, executed.at
        unchanged = unchanged and (tool.cacheable or tool.read_only)
        try:
            reason = at.private or _unshareable(executed)
            if not reason:
                position, reason = self._share(executed, unchanged=unchanged)
                if position is not None:
                    return position
            timeout = executed.timeout if result.timed_out else None
            return self._keep(at, executed.call, result, reason, timeout, unchanged=unchanged, flight=executed.flight)
        except TvsnapError as error:
            return _unrecorded(at, executed.call, str(error), unchanged=unchanged)

    def branch_off(
        self, at: Position, call: ToolCall, result: ToolResult, reason: str, timeout: float | None = None
    ) -> Position:
        """Records a call that led into a private branch, or on in it.

        Args:
            at: where it was made.
            call, result: the call.
            reason: why what comes of it is not shared.
            timeout: seconds, if it ended by it.

        Returns:
            Where it led.
        """
        try:
            return self._keep(at, call, result, reason, timeout, unchanged=False, flight=None)
        except TvsnapError as error:
            return _unrecorded(at, call, str(error))

    def _share(self, executed: Executed, *, unchanged: bool) -> tuple[Position | None, str]:
        """Records a call for all; returns where it led, or None and the reason why it cannot be shared after all."""
        at, call, result, flight = executed.at, executed.call, executed.result, executed.flight
        timeout = executed.timeout if result.timed_out else None
        after = at.state if unchanged else next_state(at.state, call, timeout=timeout)
        edge = self._graph.record(
            at.state,
            call,
            result,
            next_state=after,
            task=self._task,
            timeout=timeout,
            lease_owner=self._owner if flight is not None and flight.leased else "",
        )
        if flight is not None:
            flight.leased = False
        if not edge.deterministic:
            return None, edge.reason
        if not edge.result.same_value(result):
            return None, "another rollout that made this call at the same time got another result"
        if edge.next_state != after and not unchanged:
            return None, "another rollout that made this call at the same time saw it change nothing"
        return Position(after, at.depth + (not unchanged)), ""

    def _keep(
        self,
        at: Position,
        call: ToolCall,
        result: ToolResult,
        reason: str,
        timeout: float | None,
        *,
        unchanged: bool,
        flight: Flight | None,
    ) -> Position:
        """Records a call for people only; returns where it led."""
        if not at.recorded:
            return _unrecorded(at, call, reason, unchanged=unchanged)
        after = at.state if unchanged else next_state(at.state, call, timeout=timeout, nonce=secrets.token_hex(16))
        self._graph.record(
            at.state,
            call,
            result,
            next_state=after,
            task=self._task,
            timeout=timeout,
            shared=False,
            reason=reason,
            private="" if unchanged else reason,
            lease_owner=self._owner if flight is not None and flight.leased else "",
        )
        if flight is not None:
            flight.leased = False
        if unchanged:
            return replace(at, unshared=reason)
        return Position(after, at.depth + 1, at.private or reason, unshared=reason)


def _unshareable(executed: Executed) -> str:
    """Returns why a call's result is not to be shared; empty if it is."""
    tool, result = executed.tool, executed.result
    if not tool.cacheable:
        return f"the tool {tool.name} acts on what is not in the sandbox"
    if tool.stochastic:
        return f"the value of the tool {tool.name} is left to chance"
    if executed.trouble:
        return f"may have failed by no fault of its own: {executed.trouble}"
    if result.timed_out and not result.blocked:
        return f"timed out after {executed.timeout:g} s while it was working"
    return ""


def _unrecorded(at: Position, call: ToolCall, reason: str, *, unchanged: bool = False) -> Position:
    """Returns where a call led that the graph does not know of."""
    reason = at.private or f"could not be recorded: {reason}"
    if unchanged:
        return replace(at, unshared=reason)
    after = next_state(at.state, call, nonce=secrets.token_hex(16))
    return Position(after, at.depth + 1, reason, recorded=False, unshared=reason)
