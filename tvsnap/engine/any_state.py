"""Sandboxes in any state of the graph: for graders, forks and audits, and for rollouts that begin there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.engine.rollout import RolloutEngine
from tvsnap.engine.services import Services
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.model.errors import NotFound, TvsnapError
from tvsnap.model.network import NetworkLike
from tvsnap.sandboxes.network import files as network_files

_NOTHING_THERE = (
    "no open rollout stands at state {}, and without the cache (use_cache=False) nothing else leads there: ask before "
    "the rollout's next call, and before it is closed"
)


class AnyState:
    """Makes sandboxes in any state, from snapshots or beside the rollouts of one cache. Thread-safe."""

    def __init__(self, services: Services, rollouts: Callable[[], Sequence[RolloutEngine]]) -> None:
        """`rollouts` returns the open rollouts."""
        self._services = services
        self._rollouts = rollouts

    def make(self, state: str, network: NetworkLike = None) -> tuple[LiveSandbox, Recipe]:
        """Returns a sandbox that stands at a state, and the recipe of the sandboxes of rollouts there.

        `network` is what it may reach; None for what those of rollouts there may.

        Raises:
            UsageError: no sandbox can be in that state, or `network` makes no sense.
            NotFound: there is no such state, or its image was removed.
            StateLost: the state is no longer kept, and nothing else leads to it.
            InfrastructureError: the sandbox could not be made.
        """
        rollout = None if self._services.settings.use_cache else self._uncached_at(state)
        if rollout is None:
            recipe, wanted = self._services.recipes.of_state(state), self._services.recipes.of_state(state, network)
            live = self._standing_at(state, recipe)
        else:
            recipe = rollout.recipe
            wanted = recipe if network is None else self._services.recipes.with_network(recipe, network, rollout.salt)
            fork = rollout.fork_uncached(state)
            if fork is None:
                raise NotFound(_NOTHING_THERE.format(state[:12]))
            live = fork
        if wanted.image.network != recipe.image.network:
            live = self._with_other_network(live, wanted)
        return live, recipe

    def _uncached_at(self, state: str) -> RolloutEngine | None:
        """Returns an open rollout without the cache that stands at a state, or began there; None if the graph has it.

        Raises NotFound if nothing leads there.
        """
        for rollout in self._rollouts():
            if state in (rollout.where().state, rollout.root):
                return rollout
        try:
            self._services.recipes.root_of(state)
        except NotFound:
            raise NotFound(_NOTHING_THERE.format(state[:12])) from None
        return None

    def _standing_at(self, state: str, recipe: Recipe) -> LiveSandbox:
        """Returns a sandbox that stands at a state of the graph, which rollouts need not have come to be kept at."""
        hold = self._services.holds.add()
        try:
            hold.stand(state)
            self._services.holds.wait_for_evictions()  # one that began before may not have seen it
            standing = self.keep_live(state)
            return (standing and standing.fork_if_idle(state)) or self._services.acquirer.acquire(state, recipe).live
        finally:
            self._services.holds.remove(hold)

    def _with_other_network(self, live: LiveSandbox, recipe: Recipe) -> LiveSandbox:
        """Returns a fork of a sandbox that may reach something else; nothing in that belongs to the state."""
        try:
            [fork] = self._services.acquirer.fork_beside(live, recipe)
        finally:
            self._services.pool.discard(live)
        try:
            if recipe.image.network.attached:
                network_files.prepare(fork.sandbox, self._services.settings.network_settings)
                fork.sandbox.lend(network_files.variables(self._services.settings.network_settings))
        except BaseException:
            self._services.pool.discard(fork)
            raise
        return fork

    def keep_live(self, state: str) -> RolloutEngine | None:
        """Snapshots a state that nothing but the live sandbox of a rollout of this cache keeps, if there is one.

        Returns:
            That rollout, if no snapshot of its state could be kept: there is no room, say.
        """
        if self._services.acquirer.is_sure(state):
            return None
        standing = None
        for rollout in self._rollouts():
            if rollout.may_stand_at(state):
                try:
                    if rollout.where().state == state and rollout.snapshot_if_idle():
                        return None
                except TvsnapError:
                    standing = rollout
        return standing
