"""Makes recorded calls again."""

from __future__ import annotations

from tvsnap.engine.supply.recipe import Recipe
from tvsnap.environments.files import UnknownContent
from tvsnap.graph import Edge
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import InfrastructureError, StateLost, UsageError
from tvsnap.sandboxes.protocol import Sandbox

REBUILD_TIMEOUT = 60.0  # seconds, the least timeout of a call that once ended by itself
SLOWER = 10.0  # times its recorded duration, if that is more


WAY_OUT = "a rollout that is begun anew makes its calls afresh"
"""The remedy for a lost state, for the messages of errors."""


class RebuildDiffered(StateLost):
    """A call that was made again did not lead to the recorded state.

    Attributes:
        edge: the call.
        seen: its result now.
    """

    def __init__(self, state: str, edge: Edge, result: ToolResult, what: str) -> None:
        super().__init__(
            f"state {state[:12]} can no longer be reached: it has no snapshot, and, made again, "
            f"{edge.call.brief} {what}; {WAY_OUT}"
        )
        self.edge = edge
        self.seen = result


def refuse_the_incomparable(state: str, edge: Edge) -> None:
    """Raises StateLost if a call may lead to different states, and the record has no digest that would show it."""
    if not (edge.proven or edge.digest):
        raise StateLost(
            f"state {state[:12]} can no longer be reached: it has no snapshot, and whether "
            f"{edge.call.brief} would leave the same behind again cannot be told; {WAY_OUT}"
        )


def make_again(sandbox: Sandbox, edge: Edge, recipe: Recipe) -> ToolResult:
    """Makes a recorded call in a sandbox in the state of the call; returns the new result.

    Raises:
        StateLost: a content that was put into the sandbox is no longer in the data directory.
        InfrastructureError: the record is no call of a tool, or the sandbox failed.
    """
    try:
        recipe.environment.tool(edge.call)
    except UnknownContent as error:
        raise StateLost(f"state {edge.next_state[:12]} can no longer be reached: {error}; {WAY_OUT}") from None
    except UsageError as error:
        raise InfrastructureError(
            f"state {edge.next_state[:12]} cannot be rebuilt: the step that led to it is no call of a tool ({error})"
        ) from None
    timeout = edge.timeout or max(REBUILD_TIMEOUT, SLOWER * edge.result.duration)
    result = recipe.environment.execute(sandbox, edge.call, timeout, recipe.limits)
    if result.timed_out and not edge.result.timed_out:
        raise InfrastructureError(f"a call that took {edge.result.duration:.1f} s did not end within {timeout:.0f} s")
    trouble = sandbox.machine_fault(result.output)
    if trouble and not result.same_value(edge.result):
        raise InfrastructureError(f"a call could not be made again as it was recorded: {trouble}")
    return result
