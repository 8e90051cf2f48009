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


def redate(sandbox: Sandbox, recipe: Recipe, edge: Edge, began: int, earlier: Edge | None) -> None:
    """Moves the times of what a call has just written to when the call was recorded.

    Nothing is done where processes live, whose view of files would change, or where the recorded time is not earlier.
    `began` is the `file_time` of when the execution began, `earlier` the record of the call before it, None after a
    root.

    Raises:
        InfrastructureError: it could not be done.
    """
    if edge.digest is None or recipe.environment.serves:
        return
    to = recorded_span(edge.created, edge.result.duration, 0 if earlier is None else int(earlier.created * NS))
    span = Span(began, time.time_ns())
    if to.until < span.until:
        sandbox.redate(span, to)
