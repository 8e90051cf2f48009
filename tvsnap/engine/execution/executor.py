"""Executes a rollout's calls in sandboxes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.claiming.claims import Claim
from tvsnap.engine.claiming.hedge import Hedge
from tvsnap.engine.execution.execution import Execution
from tvsnap.engine.execution.own_sandbox import OwnSandbox
from tvsnap.engine.execution.strain import held_up, near_limit
from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.engine.lookup.cursor import Cursor
from tvsnap.engine.lookup.grades import Grading
from tvsnap.engine.services import Services
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.environments.tools import Tool
from tvsnap.graph import Edge
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import InfrastructureError, SandboxDied, TvsnapError
from tvsnap.model.stats import Way
from tvsnap.sandboxes.file_times import file_time

Made = tuple[LiveSandbox, Execution, Way | None]
"""A sandbox, a call that was executed in it, and the way in which it was acquired; None if the rollout had it."""


def _still(live: LiveSandbox, quiet_s: float) -> tuple[float, float] | None:
    """Returns the shortest and the longest wait in which a sandbox stands still now; None if that is not known.

    `quiet_s`: seconds after its arrival in its state for which no wait counts.
    """
    if live.age() <= quiet_s:
        return None
    stillness = live.sandbox.stillness()
    age = live.age()
    return None if stillness is None else (max(0.0, age - stillness.since_s), age + stillness.until_s)


class Executor:
    """Executes calls at the position of a cursor, in the rollout's own sandbox. Used by one thread at a time."""

    def __init__(self, services: Services, recipe: Recipe, own: OwnSandbox, cursor: Cursor, root: str) -> None:
        """`root` is the state of fresh sandboxes."""
        self._services = services
        self._recipe = recipe
        self._own = own
        self._cursor = cursor
        self._root = root

    def is_able(self) -> bool:
        """Returns whether the rollout has a sandbox, or there is room for one."""
        return not self._own.absent or self._services.pool.has_room

    def answers_by(self, edge: Edge) -> bool:
        """Returns whether a call is to be answered by its record, an edge, and not to be executed.

        It is executed if all of this holds: processors are short, the rollout has a sandbox or stands where it can
        start one, the call is proven to lead to the same state each time, and executing it, and those that usually
        follow, takes less than the fork that the answer would soon make necessary. A call that has written files and
        printed something may have printed their times, so another execution might lead to another state.
        """
        if not (edge.changed and edge.proven) or (self._own.absent and self._cursor.at.state != self._root):
            return True
        fork_s, seconds = self._services.acquirer.fork_s, edge.result.duration
        if seconds >= fork_s or not self._services.processors.short:
            return True
        graph = self._services.graph
        if seconds + graph.seconds_ahead(edge.next_state, fork_s - seconds) >= fork_s:
            return True
        return bool(edge.result.output) and graph.file_times(edge) is not None

    def execute(
        self,
        tool: Tool,
        call: ToolCall,
        timeout: float,
        claim: Claim | None,
        cancellation: Cancellation,
        grading: Grading | None,
    ) -> Edge | Made:
        """Executes a call in a sandbox in the present state, unless another rollout's execution of it ends first.

        Args:
            tool, call, timeout, cancellation: the call.
            claim: the right to execute it; None if nobody waits for the result.
            grading: the way in which it grades; None if it does not.

        Returns:
            The sandbox, the executed call, and the way in which the sandbox was acquired (None: the rollout had it); or
            the record of the other execution. The rollout has no sandbox then.

        Raises:
            StateLost: the state cannot be reached.
            InfrastructureError: no sandbox could be made, or two sandboxes died during the call.
            CallCancelled: the call was cancelled before it was executed.
        """
        attempt = partial(self._attempt, tool, call, timeout, claim, cancellation, grading)
        if claim is None:
            return self._persist(attempt, call, cancellation)
        claims, edge = self._services.claims, None
        claim.wanted.patience.execute()
        hedge = Hedge(claims, claim, self._cursor.keeps, cancellation) if claim.beside else None
        try:
            outcome = self._persist(attempt, call, cancellation)
        except TvsnapError:
            edge = None if hedge is None else hedge.outlast()
            if edge is None:
                raise
        except BaseException:
            if hedge is not None:
                hedge.end()
            raise
        else:
            edge = None if hedge is None else hedge.end()
            if edge is None and not cancellation.wanted:
                edge = claims.end(claim, outcome[1].result.duration)
                edge = edge if edge is not None and self._cursor.keeps(edge) else None
            if edge is None:
                return outcome
        self._own.drop()
        claims.release(claim)
        return edge

    def _persist(self, attempt: Callable[[], Made], call: ToolCall, cancellation: Cancellation) -> Made:
        """Executes a call in a sandbox; if the sandbox dies, once more in another one."""
        try:
            return attempt()
        except SandboxDied:
            self._own.drop()
        cancellation.check()
        try:
            return attempt()
        except SandboxDied as death:
            self._own.drop()
            raise InfrastructureError(f"the sandbox died twice over {call.brief}: {death}") from death

    def _attempt(
        self,
        tool: Tool,
        call: ToolCall,
        timeout: float,
        claim: Claim | None,
        cancellation: Cancellation,
        grading: Grading | None,
    ) -> Made:
        live, way = self._own.acquire(self._cursor.at)
        environment = self._recipe.environment
        # If something runs by itself, or may wake up, the sandbox is compared with an observation from before the call.
        if live.observation is None and not (tool.read_only and live.alone and self._cursor.at.quiet_s == math.inf):
            live.observation = environment.observe(live.sandbox)
        self._cursor.make_up_time(live, cancellation.pause)
        at = self._cursor.at
        still = _still(live, at.quiet_s)
        if not tool.read_only and not environment.surely_changes(call, live.observation):
            live.sandbox.note()
        if claim is not None:
            claim.begin()
        # Checked before the call, too: a disk that was full may have room again when the call ends.
        trouble = live.sandbox.machine_fault("")
        load, age, wrote_since = live.sandbox.load(), live.age(), file_time()
        with cancellation.executing(live.sandbox):
            result = environment.execute(live.sandbox, call, timeout, self._recipe.limits)
        ended = self._cursor.end_call()
        load = live.sandbox.load() - load
        delay = result.strain or held_up(result, load)
        strain = delay or near_limit(call, result, timeout)
        result = replace(result, strain=strain, processor_s=load.used or None)
        trouble = live.sandbox.machine_fault(result.output) or trouble
        grade = None if grading is None else grading.read(live.sandbox, result)
        requests = live.sandbox.traffic().asked if self._recipe.image.network.attached else ()
        before, cancelled, lasts = live.observation, cancellation.wanted, self._cursor.lasts(tool)
        execution = Execution(
            tool,
            call,
            timeout,
            result,
            at,
            before,
            claim,
            trouble,
            age,
            wrote_since,
            ended,
            cancelled,
            requests,
            lasts,
            grading,
            grade,
            delay,
            still,
        )
        return live, execution, way
