"""Gives what a call has written the age that it has where the call was recorded.

States are named without times. So where a call that was recorded is executed once more and comes to the same state,
what it has written would be younger than what others who stand there have, and have been told of: answers about times
would not agree. And calls that are made again to rebuild a state follow one another at once, so that what one of them
has written is no older than what the next one writes (`tvsnap.sandboxes.redating`).
"""

from __future__ import annotations

import time

from tvsnap.engine.supply.recipe import Recipe
from tvsnap.graph import Edge
from tvsnap.sandboxes.protocol import Sandbox
from tvsnap.sandboxes.redating import NS, Span, recorded_span


def redate(sandbox: Sandbox, recipe: Recipe, edge: Edge, seconds: float, earlier: Edge | None) -> None:
    """Moves the times of what a call has just written to when the call was recorded.

    Nothing is done where processes live, whose view of files would change under them, or where that lies ahead.

    Args:
        sandbox: where it was executed.
        recipe: of the sandbox.
        edge: its record.
        seconds: how long ago its execution began.
        earlier: the record of the call that made the state before it; None if that is a root.

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
