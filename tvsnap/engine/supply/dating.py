"""Redates the files that a call has written to when the call was recorded.

The names of states do not depend on times. So where a recorded call is executed once more and comes to the same state,
the files that it has written would be younger than those of other rollouts in that state, and than what answers have
shown: answers about times would not agree. And calls that are replayed to rebuild a state follow one another at once,
so that what one of them has written is no older than what the next one writes (`tvsnap.sandboxes.redating`).
"""

from __future__ import annotations

import time

from tvsnap.engine.supply.recipe import Recipe
from tvsnap.graph import Edge
from tvsnap.sandboxes.protocol import Sandbox
from tvsnap.sandboxes.redating import NS, Span, recorded_span


def redate(sandbox: Sandbox, recipe: Recipe, edge: Edge, seconds: float, earlier: Edge | None) -> None:
    """Moves the times of what a call has just written to when the call was recorded.

    Nothing is done where processes live, whose view of files would change, or where the recorded time is not earlier.
    `seconds` is how long ago the execution began; `earlier` is the record of the call before it, None after a root.

    Raises:
        InfrastructureError: it could not be done.
    """
    if edge.digest is None or recipe.environment.serves:
        return
    now = time.time_ns()
    to = recorded_span(edge.created, edge.result.duration, 0 if earlier is None else int(earlier.created * NS))
    span = Span(now - int(seconds * NS), now)
    if to.until < span.since:
        sandbox.redate(span, to)
