"""Events of a rollout's calls, one of each call, for listeners that record, count, audit, or prepare the next call."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from tvsnap.engine.position import Position
from tvsnap.graph import Edge
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.reasons import Why
from tvsnap.model.stats import Way

AnswerSource = Literal["hit", "coalesced"]


class Accompanied(Protocol):
    """The part of a rollout that listeners use."""

    def lacks_sandbox(self, state: str) -> bool:
        """Returns whether it stands at a state and has no sandbox. Any thread may call it; the answer may change."""

    def make_companion(self, state: str) -> bool:
        """Makes a sandbox that runs beside it in a state, unless it has gone on; False if this is to be tried again."""


@dataclass(slots=True)  # frozen, it would take six times as long to make, with each hit
class Answered:
    """A call that a record has answered.

    Attributes:
        rollout: the rollout that made it.
        edge: the record.
        source: `hit` if the record was there, `coalesced` if it was waited for.
        at: the rollout's position now.
        without_sandbox: the rollout has no sandbox now in which its next call could be executed.
        index: the number of the call among those of its rollout that came to a result, from 1 on.
        seconds: the time that the answer took.
    """

    rollout: weakref.ref[Accompanied]
    edge: Edge
    source: AnswerSource
    at: Position
    without_sandbox: bool
    index: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Executed:
    """A call that was executed.

    Attributes:
        call: the call.
        result: its result.
        index: see `Answered`.
        seconds: the time for which its caller waited.
        way: the way in which its sandbox was acquired; None for the rollout's own, and if there is none.
        why: the reason why it was not answered; None if nothing could have answered it.
    """

    call: ToolCall
    result: ToolResult
    index: int
    seconds: float
    way: Way | None = None
    why: Why | None = None


class CallEvents:
    """Tells listeners of the calls of one rollout, in the thread that makes them. Used by one thread at a time.

    Attributes:
        calls: the number of calls that came to a result.
    """

    def __init__(
        self,
        rollout: Accompanied,
        on_answered: Iterable[Callable[[Answered], None]],
        on_executed: Iterable[Callable[[Executed], None]],
    ) -> None:
        """The listeners are called in their order."""
        self.calls = 0
        self._rollout = weakref.ref(rollout)
        self._on_answered = tuple(on_answered)
        self._on_executed = tuple(on_executed)

    def answered(
        self, edge: Edge, source: AnswerSource, at: Position, seconds: float, *, without_sandbox: bool
    ) -> None:
        """Tells that a record has answered a call; see `Answered` for the arguments."""
        self.calls += 1
        event = Answered(self._rollout, edge, source, at, without_sandbox, self.calls, seconds)
        for tell in self._on_answered:
            tell(event)

    def executed(
        self, call: ToolCall, result: ToolResult, seconds: float, way: Way | None = None, why: Why | None = None
    ) -> None:
        """Tells that a call was executed; see `Executed` for the arguments."""
        self.calls += 1
        event = Executed(call, result, self.calls, seconds, way, why)
        for tell in self._on_executed:
            tell(event)
