"""Recorded rollouts as a simulation needs them: what was called where, what it took, and where it led."""

from __future__ import annotations

import hashlib
import statistics
from dataclasses import dataclass, replace

from tvsnap.graph import Graph, Step

USUAL_SIZE = 1 << 20
"""Bytes of a snapshot where none is known."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of a recorded rollout.

    Attributes:
        key: identifies the call.
        seconds: that it took where it was executed.
        processor_s: of processor time that it took there.
        after: the state that it led to; None where it changed nothing.
        provable: making it again leads to the same state, as far as is known.
        size: bytes of a snapshot of the state that it led to.
        shared: whether rollouts go on from there in states that others may share; False after a call that timed out.
    """

    key: str
    seconds: float
    processor_s: float
    after: str | None
    provable: bool = True
    size: int = USUAL_SIZE
    shared: bool = True


@dataclass(frozen=True, slots=True)
class RecordedRollout:
    """The calls of one rollout, in order.

    Attributes:
        task: its task.
        root: the state at which it began.
        image: the image's name.
        calls: the calls.
    """

    task: str
    root: str
    image: str
    calls: tuple[RecordedCall, ...]


GUESS = "guess"
"""The label of what `tvsnap.guessing` executes ahead of time, which no model has asked for."""


def read_recorded(graph: Graph, *, most: int = 500) -> list[RecordedRollout]:
    """Reads the latest rollouts of a graph that made calls, oldest first.

    Rollouts that made the same call in the same state count as having come to the same state, also where the call left
    something else behind, or was executed in a private branch.

    Args:
        graph: the graph.
        most: how many rollouts are read at most.
    """
    sizes = {snapshot.state: snapshot.size for snapshot in graph.snapshots()}
    usual = int(statistics.median(sizes.values())) if sizes else USUAL_SIZE
    found: list[RecordedRollout] = []
    after: dict[tuple[str, str], str | None] = {}
    for rollout in reversed(graph.rollouts()):
        if len(found) >= most:
            break
        if rollout.label == GUESS:
            continue
        at, calls = rollout.start, []
        for step in graph.steps(rollout.id):
            call = _call(step, at, sizes, usual)
            if call is not None:
                call = replace(call, after=after.setdefault((at, call.key), call.after))
                calls.append(call)
                at = call.after or at
        if calls:
            found.append(RecordedRollout(rollout.task, rollout.start, rollout.image, tuple(calls)))
    return found[::-1]


def _call(step: Step, at: str, sizes: dict[str, int], usual: int) -> RecordedCall | None:
    """Returns a step as a call; None where it came to no result, or was made in no sandbox."""
    edge = step.edge
    if step.source == "failed" or step.call is None or (edge is not None and edge.on_host):
        return None
    if edge is None:
        after: str | None = hashlib.sha256(f"{at} {step.call.key}".encode()).hexdigest()
    else:
        after = edge.next_state if edge.changed else None
    took = step.duration if edge is None else edge.result.duration
    computed = min(took, step.processor_s) if step.processor_s is not None else took
    provable = edge is None or edge.proven or edge.deterministic
    shared = not step.timed_out and (edge is None or edge.deterministic)
    return RecordedCall(step.call.key, took, computed, after, provable, sizes.get(after or "", usual), shared)
