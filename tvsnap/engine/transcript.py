"""The calls of a rollout in order, for people: in the graph, and in the log."""

from __future__ import annotations

import logging
import time

from tvsnap.engine.events import Answered, Executed
from tvsnap.graph import Graph, StepRow, StepSource
from tvsnap.model.calls import ToolCall, ToolResult

_LOG = logging.getLogger("tvsnap.calls")
"""One line at level DEBUG for each call: the record that answered it, or why none did."""


class Transcript:
    """Numbers the calls of one rollout, and notes the outcome of each. Used by one thread at a time."""

    def __init__(self, graph: Graph, rollout: str | None, task: str) -> None:
        """`rollout` is its name in the graph; None if nothing of it is recorded."""
        self._graph = graph
        self._rollout = rollout
        self._task = task
        self._place = 0

    def answered(self, event: Answered) -> None:
        """Notes that a record has answered a call."""
        edge, source, seconds = event.edge, event.source, event.seconds
        step, result = None, edge.result
        if self._rollout is not None:
            self._place += 1
            step = StepRow(
                *(self._rollout, self._place, edge.id, source, time.time(), seconds),
                *(result.duration, result.processor_s, result.exit_code, result.timed_out, None, None),
            )
        self._graph.touch_hit(edge, self._task, step)
        if _LOG.isEnabledFor(logging.DEBUG):
            self._log(edge.call, f"answered ({source}) by call {edge.id} of the graph", seconds)

    def step(self, result: ToolResult, source: StepSource, seconds: float, why: str) -> StepRow | None:
        """Returns the step of a call that was executed, to be recorded with it; None if nothing is recorded.

        Its caller waited `seconds`; `why`: why it was not answered.
        """
        if self._rollout is None:
            return None
        self._place += 1
        return StepRow(
            *(self._rollout, self._place, None, source, time.time(), seconds),
            *(result.duration, result.processor_s, result.exit_code, result.timed_out, why, None),
        )

    def executed(self, event: Executed) -> None:
        """Notes in the log that a call was executed; its step was recorded with it."""
        if event.why is not None and _LOG.isEnabledFor(logging.DEBUG):
            sandbox = "the rollout's sandbox" if event.way is None else f"a sandbox that was {event.way}"
            self._log(event.call, f"executed in {sandbox}, because {event.why.words}", event.seconds)

    def failed(self, call: ToolCall, seconds: float, error: Exception) -> None:
        """Notes a call that came to an error and to no result."""
        if self._rollout is not None:
            self._place += 1
            words = f"{type(error).__name__}: {error}"
            self._graph.note_step(
                StepRow(
                    *(self._rollout, self._place, None, "failed", time.time(), seconds),
                    *(0.0, None, None, False, words, call.canonical),
                )
            )

    def _log(self, call: ToolCall, words: str, seconds: float) -> None:
        _LOG.debug("%s %s: %s (%.1f ms)", self._rollout or "-", call.brief, words, seconds * 1e3)
