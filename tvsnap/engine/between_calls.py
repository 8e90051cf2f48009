"""What is done with a rollout's own sandbox between two calls."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import replace

from tvsnap.engine.conclusion.conclusion import Conclusions
from tvsnap.engine.conclusion.recorder import Aftermath, Recorder
from tvsnap.engine.execution.execution import Execution
from tvsnap.engine.execution.own_sandbox import OwnSandbox
from tvsnap.engine.live import LiveSandbox
from tvsnap.engine.lookup.cursor import Cursor
from tvsnap.engine.services import Services
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.engine.transcript import Transcript
from tvsnap.environments.tools import Tool
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import InfrastructureError, SandboxDied, StateLost, UsageError
from tvsnap.sandboxes.protocol import Sandbox

OUTSIDE = "(outside)"
"""Stands in the graph in place of a tool, for what was done in a sandbox that `Rollout.sandbox` gave out."""
_OUTSIDE = Tool(OUTSIDE, "", {})


class BetweenCalls:
    """Gives out, snapshots and forks the sandbox of one rollout. Used by one thread at a time.

    The cursor must have caught up with the last call.
    """

    def __init__(
        self,
        services: Services,
        recipe: Recipe,
        own: OwnSandbox,
        cursor: Cursor,
        recorder: Recorder,
        transcript: Transcript,
        conclusions: Conclusions,
    ) -> None:
        self._services = services
        self._environment = recipe.environment
        self._recipe = recipe
        self._own = own
        self._cursor = cursor
        self._recorder = recorder
        self._transcript = transcript
        self._conclusions = conclusions

    def reach(self) -> LiveSandbox:
        """Returns the sandbox, ready for a call; it is made if the rollout has none.

        Raises:
            StateLost: the state cannot be reached.
            InfrastructureError: no sandbox could be made.
        """
        live, _ = self._own.acquire(self._cursor.at)
        if live.observation is None:
            live.observation = self._environment.observe(live.sandbox)
        self._cursor.make_up_time(live)
        live.sandbox.note()
        return live

    def give_out(self) -> Sandbox:
        """Returns the sandbox, which is made if the rollout has none; see `Rollout.sandbox`."""
        live = self.reach()
        live.expendable = False
        self._own.exposed = True
        return live.sandbox

    def keep(self, label: str, output: str) -> str:
        """Snapshots what was done in the sandbox that was given out; see `Rollout.keep`."""
        live = self._own.live if self._own.exposed else None
        if live is None:
            raise UsageError("no sandbox was given out since the last call; ask for one with Rollout.sandbox")
        before = self._cursor.at
        self.notice_changes(label, output)
        if self._own.live is None:
            raise InfrastructureError("the sandbox has ended: what was done in it is lost")
        if self._cursor.at != before:
            with self._looking_again(live):
                self._services.snapshotter.take(live, pinned=True)
        return self._cursor.at.state

    def notice_changes(self, label: str | None = None, output: str = "") -> None:
        """Goes on in a private branch if a sandbox that was given out has changed.

        `label` and `output` say, for people, what was done in it.
        """
        live = self._own.standing_at(self._cursor.at.state)
        if live is None:
            return
        try:
            observation = self._environment.observe(live.sandbox)
        except SandboxDied:
            self._own.drop()
            return
        if observation != live.observation or not live.sandbox.go_back():
            live.sandbox.settle(changed=True)
            call = ToolCall(OUTSIDE, {"what": label} if label else {})
            reason = label or "changed from outside, in the sandbox that was given out"
            left = Aftermath(False, quiet_s=observation.quiet_s, active=observation.active)
            result = ToolResult.of_text(output, None, 0.0)
            step = self._transcript.step(result, "executed", 0.0, reason)
            done = Execution(_OUTSIDE, call, math.inf, result, self._cursor.at, None, None, ended=time.monotonic())
            self._cursor.stand_at(self._recorder.branch_off(done, left, reason, step))
            live.state, live.observation, live.since = self._cursor.at.state, observation, self._cursor.at.since
        live.sandbox.note()  # from here on, changes count as new ones

    def snapshot(self) -> bool:
        """Snapshots the present state; returns whether a sandbox of the rollout's own stands there."""
        live = self._own.standing_at(self._cursor.at.state)
        if live is None:
            return False
        with self._looking_again(live):
            self._services.snapshotter.take(live)
        live.expendable = not self._own.exposed
        return True

    def fork(self, n: int = 1) -> list[LiveSandbox]:
        """Returns forks of the sandbox, without keeping a snapshot; none if it does not stand at the rollout's state.

        Returns:
            `n` forks; fewer if there is no room for all.

        Raises:
            StateLost: no snapshot can be taken of it, with the reason in words.
            InfrastructureError: the snapshot, or the fork of it, failed.
        """
        live = self._own.standing_at(self._cursor.at.state)
        if live is None:
            return []
        with self._looking_again(live):
            return self._services.acquirer.fork_beside(live, self._recipe, n)

    def fork_unlike_others(self, n: int = 1) -> list[LiveSandbox]:
        """Returns forks of the sandbox if no other sandbox would do for the position; none if another would."""
        at = self._cursor.at
        if not at.recorded:
            self._own.acquire(at)
            return self.fork(n)
        if at.waited:  # it has run for as long, and a fork of the state's snapshot would yet have to
            with contextlib.suppress(StateLost):
                return self.fork(n)
        return []

    def rest(self) -> None:
        """Lets the sandbox, if the rollout has it at hand, make room for others again."""
        if self._own.live is not None:
            self._services.pool.rest(self._own.live)

    @contextlib.contextmanager
    def _looking_again(self, live: LiveSandbox) -> Iterator[None]:
        """A block in which a snapshot of the sandbox is taken; it is observed again at the end."""
        self._look_at_private(live)
        try:
            yield
        finally:
            if not self._conclusions.look_again(live):
                self._own.drop()

    def _look_at_private(self, live: LiveSandbox) -> None:
        """Finds out how time counts in a state of a private branch; such a state is observed only if it is to be kept.

        Raises:
            InfrastructureError: the sandbox has ended.
        """
        at = self._cursor.at
        if at.private is None or live.observation is not None:
            return
        age = live.age()
        observation = self._environment.observe(live.sandbox)
        quiet_s = age + observation.quiet_s if observation.quiet_s else 0.0
        live.observation = replace(observation, quiet_s=quiet_s)  # as if it had been observed on arrival
        self._services.graph.note_activity(at.state, quiet_s, observation.active)
        self._cursor.at = replace(at, quiet_s=quiet_s)
