"""Calls of tools that run on the host, outside any sandbox: answered from the graph, or made and recorded.

They change no state. Their results are stored under the state in which they are called. The results of stateless tools
are stored under a root of their own, which all rollouts with the same environment and salt share.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial

from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.claiming.claims import Claim, Claims, Wanted
from tvsnap.engine.claiming.patience import UNKNOWN, Patience
from tvsnap.engine.conclusion.recorder import Aftermath, Recorder
from tvsnap.engine.events import AnswerSource, CallEvents
from tvsnap.engine.execution.execution import Execution
from tvsnap.engine.lookup.cursor import Cursor
from tvsnap.engine.lookup.grades import Grading
from tvsnap.engine.position import Position
from tvsnap.engine.transcript import Transcript
from tvsnap.environments.base import Environment
from tvsnap.environments.tools import CallContext, Tool
from tvsnap.environments.toolset import run_tool
from tvsnap.graph import Edge, Graph, RootInfo
from tvsnap.host.waiting import NO_WAIT
from tvsnap.model.calls import ToolCall, ToolResult, stateless_root
from tvsnap.model.errors import TvsnapError
from tvsnap.model.limits import Limits

ANY_IMAGE = "(any image)"
"""The image name of the root of stateless tools."""


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """The result of a call of a tool on the host.

    Attributes:
        edge: the record that answered the call; None if the call was made.
        unshared: the reason why the result will answer no other call; None if it may.
    """

    result: ToolResult
    edge: Edge | None
    unshared: str | None = None


class HostCalls:
    """Makes calls of tools on the host for one rollout, one at a time."""

    def __init__(
        self,
        graph: Graph,
        claims: Claims | None,
        recorder: Recorder,
        environment: Environment,
        limits: Limits,
        salt: str,
    ) -> None:
        """`claims` is None if nothing is to be looked up or recorded."""
        self._graph = graph
        self._claims = claims
        self._recorder = recorder
        self._limits = limits
        root = stateless_root(environment.name, environment.version, salt)
        self._root = RootInfo(root, ANY_IMAGE, "", environment.name, "{}", salt, time.time())
        self._known = False

    @property
    def shares(self) -> bool:
        """Whether calls are looked up and recorded."""
        return self._claims is not None

    def look_up(
        self, tool: Tool, call: ToolCall, timeout: float, at: Position, grading: Grading | None = None
    ) -> HostAnswer | None:
        """Returns the recorded answer to a call, if there is one that may be used; `grading`: how the call grades."""
        place = self._place(tool, at)
        edge = None if self._claims is None else self._look(tool, call, timeout, place)
        if edge is not None and grading is not None and grading.executions > 1:
            counts = self._graph.grades(place.state, call.key)
            edge = edge if grading.is_settled(counts, edge.grade) else None
        return None if edge is None else HostAnswer(edge.result.from_source("hit"), edge)

    def make(
        self,
        tool: Tool,
        call: ToolCall,
        timeout: float,
        at: Position,
        cancellation: Cancellation,
        until: float = math.inf,
        grading: Grading | None = None,
        transcript: Transcript | None = None,
    ) -> HostAnswer:
        """Waits for another rollout that is making the call already, or else makes the call and records its result.

        Cancelling ends a wait for others, but not the tool's function. `until`, by time.monotonic(), ends the wait,
        too. Of a call that grades, the first part of the result is the grade. `transcript` is that of the rollout, in
        which the call is noted if it is made.

        Raises:
            CallCancelled: the call was cancelled before it was made.
            Exception: the tool's function raised it; nothing is recorded then.
        """
        place = self._place(tool, at)
        claim: Edge | Claim | None = None
        if grading is None or grading.executions <= 1:  # otherwise each rollout makes it
            claim = self._claim(tool, call, timeout, place, until, cancellation)
        if isinstance(claim, Edge):
            return HostAnswer(claim.result.from_source("coalesced"), claim)
        try:
            cancellation.check()
            if claim is not None:
                claim.begin()
            result = run_tool(tool, CallContext(call, timeout, self._limits, None))
            if self._claims is None:
                return HostAnswer(result, None)
            grade = None if grading is None else str(result.parts[0].data)
            ended = time.monotonic()
            execution = Execution(
                tool,
                call,
                timeout,
                result,
                place,
                None,
                claim,
                ended=ended,
                grading=grading,
                grade=grade,
                held_up=result.strain,
            )
            why = _why_made(tool, at)
            step = None if transcript is None else transcript.step(result, "executed", result.duration, why)
            unshared = self._recorder.record(execution, Aftermath(unchanged=True), step)[0].unshared
        finally:
            if claim is not None and self._claims is not None:
                self._claims.release(claim, unshareable=True)
        return HostAnswer(result, None, unshared)

    def _claim(
        self, tool: Tool, call: ToolCall, timeout: float, place: Position, until: float, cancellation: Cancellation
    ) -> Edge | Claim | None:
        """Returns another rollout's result, or the right to make a call; None if its result is shared with nobody."""
        shared = not (place.private or tool.stochastic) and tool.cacheable
        if self._claims is None or not shared or not self._is_writable(tool, call, timeout, place):
            return None
        look = partial(self._look_for_maker, tool, call, timeout, place)
        patience = Patience(lambda: UNKNOWN, until, bounded=False)
        wanted = Wanted(place.state, call, timeout, "", NO_WAIT, math.inf, look, patience, self._recorder.task)
        return self._claims.claim(wanted, cancellation)

    def _place(self, tool: Tool, at: Position) -> Position:
        """Returns the position under which a tool's results are stored; time does not count there."""
        return Position(self._root.hash) if tool.stateless else replace(at, quiet_s=math.inf)

    def _look(self, tool: Tool, call: ToolCall, timeout: float, place: Position) -> Edge | None:
        """Returns the recorded answer, if it may be used; writes nothing."""
        edge = None if place.private else self._graph.lookup(place.state, call, timeout)
        return None if edge is None or _is_too_old(tool, edge) else edge

    def _look_for_maker(self, tool: Tool, call: ToolCall, timeout: float, place: Position) -> Edge | None:
        """Returns the recorded answer, if it may be used; retires one that is too old."""
        edge = self._graph.lookup(place.state, call, timeout)
        if edge is not None and _is_too_old(tool, edge):
            self._graph.retire(edge, f"is older than {tool.time_to_live:g} s, its time to live")
            return None
        return edge

    def _is_writable(self, tool: Tool, call: ToolCall, timeout: float, place: Position) -> bool:
        """Makes the graph ready to record a call; returns False if it cannot: a full disk must not fail a rollout."""
        try:
            if tool.stateless and not self._known:
                self._graph.ensure_root(self._root)
                self._known = True
            self._look_for_maker(tool, call, timeout, place)
        except TvsnapError:
            return False
        return True


class HostTools:
    """Makes the calls of one rollout to tools on the host. Used by one thread at a time.

    The cursor must have caught up with the last call.

    Attributes:
        tools: those tools, by name.
    """

    def __init__(
        self,
        environment: Environment,
        calls: HostCalls,
        cursor: Cursor,
        transcript: Transcript,
        events: CallEvents,
    ) -> None:
        self.tools = {name: tool for name, tool in environment.tools.items() if tool.on_host}
        self._environment = environment
        self._calls = calls
        self._cursor = cursor
        self._transcript = transcript
        self._events = events

    def look_up(self, call: ToolCall, timeout: float, began: float) -> ToolResult | None:
        """Returns the recorded answer to a call, if there is one; it began at `began`, by time.perf_counter()."""
        answer = self._calls.look_up(self.tools[call.name], call, timeout, self._cursor.at)
        return None if answer is None else self._end(call, answer, began)

    def call(
        self, call: ToolCall, timeout: float, after: float, until: float, cancellation: Cancellation, began: float
    ) -> ToolResult:
        """Makes a call, unless it is answered; `until` ends a wait for others, by time.monotonic()."""
        if self._calls.shares:
            self._cursor.advance_time(after)
            result = self.look_up(call, timeout, began)
            if result is not None:
                return result
        else:
            cancellation.pause(self._cursor.missing(after))
        tool, at, transcript = self._environment.tool(call), self._cursor.at, self._transcript
        answer = self._calls.make(tool, call, timeout, at, cancellation, until, transcript=transcript)
        return self._end(call, answer, began)

    def _end(self, call: ToolCall, answer: HostAnswer, began: float) -> ToolResult:
        """Tells of a call, and adds its duration to the rollout's time; returns its result."""
        result, edge, cursor = answer.result, answer.edge, self._cursor
        cursor.end_call()
        seconds = time.perf_counter() - began
        if edge is None:
            cursor.at = replace(cursor.at, unshared=answer.unshared)
            self._events.executed(call, result, seconds)
        else:
            cursor.at = replace(cursor.at.pass_time(result.duration), unshared=None)
            source: AnswerSource = "hit" if result.source == "hit" else "coalesced"
            self._events.answered(edge, source, cursor.at, seconds, without_sandbox=False)  # the call needed none
        return result


def _why_made(tool: Tool, at: Position) -> str:
    """Returns, for people, why a call of a tool on the host is not answered."""
    if at.private and not tool.stateless:
        return f"the rollout is private: {at.private}"
    if tool.stochastic or not tool.cacheable:
        return f"calls of {tool.name} are never answered"
    return "no result of it is recorded that may be used"


def _is_too_old(tool: Tool, edge: Edge) -> bool:
    return tool.time_to_live is not None and not edge.is_newer_than(tool.time_to_live)
