"""Counts which call followed which, and says from that which call is likely next, without any model."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from tvsnap import ToolCall
from tvsnap.protocols import AnyGraph

CONTEXTS = 100_000
"""The most contexts, and the most calls, that are remembered; those not seen for longest are forgotten first."""
FOLLOWERS = 64
"""The most calls that are remembered of one context; the rarest is forgotten first."""
PAST_ROLLOUTS = 200

_Context = tuple[str | None, ...]
"""What kind of context it is, the task, and calls as canonical JSON."""


class Guess(NamedTuple):
    """A call that may be made next.

    Attributes:
        call: the call.
        chance: the share of such moments in which it followed, from 0 to 1; a call never seen counts as one of them.
        seconds: how long it took on average when it was executed.
    """

    call: ToolCall
    chance: float
    seconds: float


@dataclass(slots=True)
class _Followers:
    """Which calls followed in one context, as canonical JSON."""

    counts: Counter[str] = field(default_factory=Counter)
    total: int = 0

    def add(self, call: str) -> None:
        self.counts[call] += 1
        self.total += 1
        if len(self.counts) > FOLLOWERS:
            del self.counts[min((one for one in self.counts if one != call), key=self.counts.__getitem__)]


class NextCalls:
    """Learns from rollouts which calls follow which. Thread-safe.

    A call is expected after the last two calls of the same task, else after the last one, else after those in any
    task, else at the same place of the task's rollouts, else anywhere in them: the most specific context that was seen
    comes first (Katz's back-off of 1987, without its discounts).
    """

    def __init__(self) -> None:
        self._contexts: OrderedDict[_Context, _Followers] = OrderedDict()
        self._seconds: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = Lock()

    def learn(self, task: str, before: Sequence[ToolCall], call: ToolCall, seconds: float) -> None:
        """Notes a call.

        Args:
            task: the task of its rollout.
            before: all calls before it.
            call: the call.
            seconds: how long it took when it was executed.
        """
        made = call.canonical
        with self._lock:
            for context in _contexts(task, before):
                self._contexts.setdefault(context, _Followers()).add(made)
                self._contexts.move_to_end(context)
            while len(self._contexts) > CONTEXTS:
                self._contexts.popitem(last=False)
            times, mean = self._seconds.pop(made, (0, 0.0))
            self._seconds[made] = times + 1, mean + (seconds - mean) / (times + 1)
            while len(self._seconds) > CONTEXTS:
                self._seconds.popitem(last=False)

    def learn_past(self, graph: AnyGraph, task: str, most: int = PAST_ROLLOUTS) -> int:
        """Notes the calls of a task's recorded rollouts from a root, the `most` latest; returns how many these were."""
        learned = 0
        past = [rollout for rollout in graph.rollouts(task) if rollout.start == rollout.root]
        for rollout in sorted(past, key=lambda one: one.started)[-most:]:
            before: list[ToolCall] = []
            for step in graph.steps(rollout.id):
                if step.call is not None:
                    self.learn(task, before, step.call, step.duration)
                    before.append(step.call)
            learned += len(before)
        return learned

    def likely(
        self, task: str, before: Sequence[ToolCall], most: int, answered: Collection[ToolCall] = ()
    ) -> list[Guess]:
        """Returns the calls that are likely to come next, the likeliest first.

        Args:
            task, before: as in `learn`.
            most: how many.
            answered: calls to leave out, as the graph has their answers.
        """
        known = {call.canonical for call in answered}
        found: dict[str, float] = {}
        with self._lock:
            for context in _contexts(task, before):
                followers = self._contexts.get(context)
                if followers is not None:
                    for call, count in followers.counts.most_common(most + len(known)):
                        if call not in known:
                            found.setdefault(call, count / (followers.total + 1))
                if len(found) >= most:
                    break
            seconds = {call: self._seconds.get(call, (0, 0.0))[1] for call in found}
        return [Guess(ToolCall(**json.loads(call)), found[call], seconds[call]) for call in list(found)[:most]]


def _contexts(task: str, before: Sequence[ToolCall]) -> Iterator[_Context]:
    """Yields what a call comes after, the most specific first."""
    last, one_before = (before[-at].canonical if len(before) >= at else None for at in (1, 2))
    yield "task and two calls", task, one_before, last
    yield "task and call", task, last
    if last is not None:
        yield "two calls", one_before, last
        yield "call", last
    yield "task and place", task, str(len(before))
    yield "task", task
