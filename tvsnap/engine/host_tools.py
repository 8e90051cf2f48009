"""Calls of tools that run on the host, as a rollout makes them: no sandbox is needed, and none changes."""

from __future__ import annotations

import time
from dataclasses import replace

from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.events import AnswerSource, CallEvents
from tvsnap.engine.host_calls import HostAnswer, HostCalls
from tvsnap.engine.lookup.cursor import Cursor
from tvsnap.engine.transcript import Transcript
from tvsnap.environments.base import Environment
from tvsnap.model.calls import ToolCall, ToolResult


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
            self._events.answered(edge, source, cursor.at, seconds, without_sandbox=False)  # it needed none, either
        return result
