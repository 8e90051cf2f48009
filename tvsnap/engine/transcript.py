"""The calls of a rollout in order, for people."""

from __future__ import annotations

import time

from tvsnap.graph import Edge, Graph, StepRow, StepSource
from tvsnap.model.calls import ToolCall, ToolResult


class Transcript:
    """Numbers the calls of one rollout, and says of each what it came to. Used by one thread at a time."""

    def __init__(self, graph: Graph, rollout: str | None) -> None:
        """`rollout` is its name in the graph; None if nothing of it is recorded."""
        self._graph = graph
        self._rollout = rollout
        self._place = 0

    def answered(self, edge: Edge, source: StepSource, seconds: float) -> StepRow | None:
        """Returns the step of a call that a record answered in `seconds`; None if nothing is recorded."""
        if self._rollout is None:
            return None
        self._place += 1
        result = edge.result
        return StepRow(
            *(self._rollout, self._place, edge.id, source, time.time(), seconds, result.duration, result.processor_s),
            *(result.exit_code, result.timed_out, None, None),
        )

    def executed(self, result: ToolResult, source: StepSource, seconds: float, why: str) -> StepRow | None:
        """Returns the step of a call that was executed, for which its caller waited `seconds`; see `answered`.

        `why` says why it was not answered.
        """
        if self._rollout is None:
            return None
        self._place += 1
        return StepRow(
            *(self._rollout, self._place, None, source, time.time(), seconds, result.duration, result.processor_s),
            *(result.exit_code, result.timed_out, why, None),
        )

    def failed(self, call: ToolCall, seconds: float, error: Exception) -> None:
        """Notes a call that came to an error and to no result."""
        if self._rollout is not None:
            self._place += 1
            words = f"{type(error).__name__}: {error}"
            now = time.time()
            self._graph.note_step(
                StepRow(
                    self._rollout,
                    self._place,
                    None,
                    "failed",
                    now,
                    seconds,
                    0.0,
                    None,
                    None,
                    False,
                    words,
                    call.canonical,
                )
            )
