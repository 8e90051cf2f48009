"""Calls of tools that run on the host, in no sandbox: answered from the graph, or made and recorded.

They change no state. Their values are kept under the state that they are called in; those of stateless tools under a
root of their own, which rollouts of the same environment and salt share whatever their image and state.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial

from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.claiming.claims import Claim, Claims, Wanted
from tvsnap.engine.claiming.patience import UNKNOWN, Patience
from tvsnap.engine.conclusion.recorder import Aftermath, Recorder
from tvsnap.engine.execution.executed import Executed
from tvsnap.engine.position import Position
from tvsnap.environments.base import Environment
from tvsnap.environments.tools import CallContext, Tool
from tvsnap.environments.toolset import run_tool
from tvsnap.graph import Edge, Graph, RootInfo
from tvsnap.model.calls import ToolCall, ToolResult, stateless_root
from tvsnap.model.errors import TvsnapError
from tvsnap.model.limits import Limits

ANY_IMAGE = "(any image)"
"""The name that the root of stateless tools has in place of an image's."""


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """What a call of a tool on the host came to.

    Attributes:
        result: what it returned.
        edge: the record that answered it; None if it was made.
        unshared: why the result will answer no other call; None if it may.
    """

    result: ToolResult
    edge: Edge | None
    unshared: str | None = None


class HostCalls:
    """Makes calls of tools on the host for one rollout, one at a time."""

    def __init__(
        self,
        graph: Graph,
        claims: Claims | None,
        recorder: Recorder,
        environment: Environment,
        limits: Limits,
        salt: str,
    ) -> None:
        """
        Args:
            graph: where answers are looked up.
            claims: the calls that are being made; None if nothing is to be looked up or recorded.
            recorder: records what is made.
            environment: the rollout's.
            limits: of its sandboxes.
            salt: of its root.
        """
        self._graph = graph
        self._claims = claims
        self._recorder = recorder
        self._limits = limits
        root = stateless_root(environment.name, environment.version, salt)
        self._root = RootInfo(root, ANY_IMAGE, "", environment.name, "{}", salt, time.time())
        self._known = False

    def look_up(self, tool: Tool, call: ToolCall, timeout: float, at: Position) -> HostAnswer | None:
        """Returns the recorded answer to a call, if there is one that may be given.

        Args:
            tool: the call's tool.
            call: the call.
            timeout: seconds that the caller would wait.
            at: where the rollout stands.
        """
        edge = self._look(tool, call, timeout, self._place(tool, at))
        return None if edge is None else HostAnswer(edge.result, edge)

    def make(
        self,
        tool: Tool,
        call: ToolCall,
        timeout: float,
        at: Position,
        cancellation: Cancellation,
        until: float = math.inf,
    ) -> HostAnswer:
        """Waits for whoever makes a call already, or else makes it, and records what it returns.

        Args:
            tool, call, timeout, at: see `look_up`.
            cancellation: of the call; it ends a wait for others, but not the tool's function.
            until: when a wait for others must end, by time.monotonic().

        Raises:
            CallCancelled: the call was cancelled before it was made.
            Exception: what the tool's function raises; nothing is recorded then.
        """
        place = self._place(tool, at)
        claim: Claim | None = None
        shared = not (place.private or tool.stochastic) and tool.cacheable
        if self._claims is not None and shared and self._is_writable(tool, call, timeout, place):
            look = partial(self._look_for_maker, tool, call, timeout, place)
            patience = Patience(lambda: UNKNOWN, until, bounded=False)
            wanted = Wanted(place.state, call, timeout, "", 0.0, math.inf, look, patience)
            settled = self._claims.claim(wanted, cancellation)
            if isinstance(settled, Edge):
                return HostAnswer(settled.result.from_source("coalesced"), settled)
            claim = settled
        try:
            cancellation.check()
            if claim is not None:
                claim.begin()
            result = run_tool(tool, CallContext(call, timeout, self._limits, None))
            if self._claims is None:
                return HostAnswer(result, None)
            executed = Executed(tool, call, timeout, result, place, None, claim, ended=time.monotonic())
            unshared = self._recorder.record(executed, Aftermath(unchanged=True)).unshared
        finally:
            if claim is not None and self._claims is not None:
                self._claims.release(claim, unshareable=True)
        return HostAnswer(result, None, unshared)

    def _place(self, tool: Tool, at: Position) -> Position:
        """Returns the position that a tool's values are kept under; time does not count there."""
        return Position(self._root.hash) if tool.stateless else replace(at, quiet_s=math.inf)

    def _look(self, tool: Tool, call: ToolCall, timeout: float, place: Position) -> Edge | None:
        """Returns the recorded answer that may be given; writes nothing."""
        edge = None if place.private else self._graph.lookup(place.state, call, timeout)
        return None if edge is None or _is_too_old(tool, edge) else edge

    def _look_for_maker(self, tool: Tool, call: ToolCall, timeout: float, place: Position) -> Edge | None:
        """Returns the recorded answer that may be given; one that is too old answers nobody from now on."""
        edge = self._graph.lookup(place.state, call, timeout)
        if edge is not None and _is_too_old(tool, edge):
            self._graph.retire(edge, f"is older than {tool.time_to_live:g} s, its time to live")
            return None
        return edge

    def _is_writable(self, tool: Tool, call: ToolCall, timeout: float, place: Position) -> bool:
        """Makes the graph ready to record a call; returns whether it could be: a full disk must not fail a rollout."""
        try:
            if tool.stateless and not self._known:
                self._graph.ensure_root(self._root)
                self._known = True
            self._look_for_maker(tool, call, timeout, place)
        except TvsnapError:
            return False
        return True


def _is_too_old(tool: Tool, edge: Edge) -> bool:
    return tool.time_to_live is not None and not edge.is_newer_than(tool.time_to_live)
