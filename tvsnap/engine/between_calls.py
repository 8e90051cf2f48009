"""Work with a rollout's own sandbox between two calls: it is given out, snapshotted and forked."""

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
from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.engine.lookup.cursor import Cursor
from tvsnap.engine.services import Services
from tvsnap.engine.supply.companions import PATIENCE
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.engine.transcript import Transcript
from tvsnap.environments.tools import Tool
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import InfrastructureError, NotCheckpointable, SandboxDied, StateLost, UsageError
from tvsnap.sandboxes.protocol import Sandbox

OUTSIDE = "(outside)"
"""The tool name, in the graph, of work in a sandbox that `Rollout.sandbox` gave out."""
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
        """Snapshots the sandbox that was given out, with all that was done in it; see `Rollout.keep`."""
        live = self._own.live if self._own.exposed else None
        if live is None:
            raise UsageError("no sandbox was given out since the last call; ask for one with Rollout.sandbox")
        before = self._cursor.at
        self.notice_changes(label, output)
        if self._own.live is None:
            raise InfrastructureError("the sandbox has ended, and all work in it is lost")
        if self._cursor.at != before:
            with self._looking_again(live):
                self._services.snapshotter.take(live, pinned=True)
        return self._cursor.at.state

    def notice_changes(self, label: str | None = None, output: str = "") -> None:
        """Goes on in a private branch if a sandbox that was given out has changed.

        `label` and `output` describe, for people, the work that was done in it.
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
            aftermath = Aftermath(False, quiet_s=observation.quiet_s, active=observation.active)
            result = ToolResult.of_text(output, None, 0.0)
            step = self._transcript.step(result, "executed", 0.0, reason)
            execution = Execution(_OUTSIDE, call, math.inf, result, self._cursor.at, None, None, ended=time.monotonic())
            self._cursor.stand_at(self._recorder.branch_off(execution, aftermath, reason, step))
            live.state, live.observation, live.since = self._cursor.at.state, observation, self._cursor.at.since
        live.sandbox.note()  # from here on, changes count as new ones

    def keep_fleeting(self) -> None:
        """Snapshots the present state if the sandbox was given out, and something runs by itself in it.

        Nothing else would lead there: the next look finds a change, and names another state, because who has made the
        change cannot be told. If no snapshot can be taken, who asks for that state gets the reason.

        Raises:
            InfrastructureError: the snapshot failed.
        """
        live = self._own.live if self._own.exposed else None
        if live is not None and live.observation is not None and live.observation.active:
            with contextlib.suppress(NotCheckpointable):
                self.snapshot()

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
        """Returns forks of the sandbox, without keeping a snapshot; none if it is not at the rollout's state.

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
            forks = self._services.acquirer.fork_beside(live, self._recipe, n)
            for fork in forks:
                self._look_at_fork(fork, live)
            return forks

    def _look_at_fork(self, fork: LiveSandbox, live: LiveSandbox) -> None:
        """Determines with which observation the next call in a fork is compared, if something runs by itself.

        It must be one from before anything happened in the state, so that the next call leads to another one otherwise.
        """
        on_arrival = live.observation
        if on_arrival is None or not on_arrival.active:
            return
        fork.observation = on_arrival
        with contextlib.suppress(InfrastructureError):  # the next call raises it
            if live.age() < on_arrival.quiet_s:
                observation = self._environment.observe(fork.sandbox)
                if live.age() < on_arrival.quiet_s:  # processes of a fork never look like those that it was made of
                    fork.observation = observation

    def fork_unlike_others(self, n: int = 1) -> list[LiveSandbox]:
        """Returns forks of the sandbox if no other sandbox would do for the position; none if another would."""
        at = self._cursor.at
        if not at.recorded:
            self._own.acquire(at)
            return self.fork(n)
        if at.waited:  # the sandbox has run for that time, and a fork of a snapshot would still have to
            with contextlib.suppress(StateLost):
                return self.fork(n)
        return []

    def fork_aside(self) -> LiveSandbox | None:
        """Returns a fork of the sandbox for a grade; None if a fork of the state's snapshot would do as well.

        If something runs by itself, the sandbox is made first if the rollout has none: each fork of the snapshot would
        have to run for as long as the rollout has waited.
        """
        if self._cursor.at.waited > PATIENCE and self._own.absent and self._services.pool.has_room:
            self.reach()
        forks = self.fork_unlike_others()
        return forks[0] if forks else None

    def fork_in_time(self, n: int) -> list[LiveSandbox]:
        """Returns forks of the sandbox if a fork of the state's snapshot would still have to run for as long.

        A program that ran by itself meanwhile, such as a server that started, may end differently if it runs again. A
        short wait in which nothing happened is cheaper than a snapshot.

        Returns:
            `n` forks; fewer if there is no room for all, or if they are not worth it.
        """
        at = self._cursor.at
        if not n or at.waited <= min(at.quiet_s, PATIENCE) or not self._services.pool.has_room:
            return []
        return self.fork_unlike_others(n)

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
        """Determines how time counts in a state of a private branch; such a state is observed only if it is to be kept.

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
