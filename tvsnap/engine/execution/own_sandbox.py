"""The sandbox of one rollout."""

from __future__ import annotations

import math
import time
from concurrent.futures import Future

from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.engine.position import Position
from tvsnap.engine.services import Services
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.environments.tools import Tool
from tvsnap.model.stats import Way


class OwnSandbox:
    """The sandbox of one rollout, if it has one. Used by one thread at a time.

    Attributes:
        exposed: it was given out by `Rollout.sandbox`, so that others may change it.
    """

    def __init__(self, services: Services, recipe: Recipe, root: str) -> None:
        """`root` is the state of fresh sandboxes."""
        self.exposed = False
        self._services = services
        self._recipe = recipe
        self._root = root
        self._live: LiveSandbox | None = None
        self._freed: Future[LiveSandbox | None] | None = None  # until it is taken into _live
        self._ahead: LiveSandbox | None = None  # a sandbox that was made before a call needed it

    @property
    def live(self) -> LiveSandbox | None:
        """The sandbox; None if the rollout has none, or while it is busy with the rest of the last call."""
        return self._live

    @property
    def absent(self) -> bool:
        """Whether the rollout has none, not even one that is busy with the rest of its last call."""
        return self._live is None and self._freed is None

    @property
    def busy(self) -> bool:
        """Whether it may be busy with the rest of the last call."""
        return self._freed is not None

    def take(self, live: LiveSandbox | None) -> None:
        """Gives the rollout a sandbox that stands where the rollout stands."""
        self._live = live

    def free_later(self, freed: Future[LiveSandbox | None]) -> None:
        """Leaves the sandbox to the thread that does the rest of a call.

        `freed` becomes the sandbox once nothing is left to be done in it, and None if it must not be used any more.
        """
        self._live, self._freed = None, freed

    def await_one(self) -> Future[LiveSandbox | None]:
        """Makes the rollout's next call wait for a sandbox that `make_ahead` is going to make."""
        coming: Future[LiveSandbox | None] = Future()
        coming.set_running_or_notify_cancel()
        self.free_later(coming)
        return coming

    def make_ahead(self, at: Position, coming: Future[LiveSandbox | None]) -> None:
        """Makes a sandbox before a call needs it, and prepares it as it would be after another call.

        `coming` comes from `await_one`.

        Raises:
            TvsnapError: it could not be made. The call that needs one tries again.
        """
        live, began, services = None, time.perf_counter(), self._services
        try:
            acquired = services.acquirer.acquire(at.state, self._recipe)
            live = self._ahead = acquired.live
            live.expendable = bool(acquired.sure)
            live.observation = self._recipe.environment.observe(live.sandbox)
            live.sandbox.note()
            services.pool.rest(live)
        except BaseException:
            if live is not None:
                services.pool.discard(live)
            live = None
            raise
        finally:
            services.meter.prefork(time.perf_counter() - began)
            coming.set_result(live)

    def standing_at(self, state: str) -> LiveSandbox | None:
        """Returns the sandbox if it stands at a state, once the last call is done in it; otherwise gives it up."""
        live = self._await_own()
        if live is not None and self._services.acquirer.take_back(live, state):
            return live
        self._live, self.exposed = None, False
        return None

    def acquire(self, at: Position) -> tuple[LiveSandbox, Way | None]:
        """Returns a sandbox in a state, and the way in which it was acquired (None: the rollout had it).

        Raises:
            StateLost: the state cannot be reached.
            InfrastructureError: no sandbox could be made.
        """
        own, self._live = self._await_own(), None
        recorded = at.recorded or at.state != self._root
        acquired = self._services.acquirer.acquire(at.state, self._recipe, own=own, recorded=recorded)
        live = self._live = acquired.live
        ahead, self._ahead = self._ahead, None
        if acquired.sure is not None:
            live.expendable = acquired.sure and not at.private
            self.exposed = False
        elif live is ahead:
            self._services.meter.add(preforks_used=1)
            return live, "ready"
        return live, acquired.way

    def leave(self, *, shared: bool) -> None:
        """Gives the sandbox up once the last call is done in it: parks it for others if `shared`, or ends it."""
        freed, self._freed = self._freed, None
        live, self._live = self._live, None
        shared = shared and not self.exposed
        self.exposed = False
        if freed is not None:
            freed.add_done_callback(lambda future: self._give_away(future.result(), shared))
        else:
            self._give_away(live, shared)

    def spare(self, tool: Tool, at: Position) -> bool:
        """Keeps the sandbox after a call that failed for a reason outside of it, if the call surely changed nothing.

        Args:
            tool: the call's.
            at: the position of the rollout.

        Returns:
            Whether it is kept.
        """
        live = self._live
        if live is None or not tool.read_only:
            return False
        if not at.private and not (
            live.alone and at.quiet_s == math.inf
        ):  # others may see the effects of programs that ran on meanwhile
            return False
        live.sandbox.settle(changed=False)
        self._services.pool.rest(live)
        return True

    def drop(self) -> None:
        """Ends the sandbox."""
        live, self._live = self._live, None
        self.exposed = False
        if live is not None:
            self._services.pool.discard(live)

    def _await_own(self) -> LiveSandbox | None:
        if self._freed is not None:
            self._live = self._freed.result()
            self._freed = None
        return self._live

    def _give_away(self, live: LiveSandbox | None, shared: bool) -> None:
        if live is None:
            return
        if shared and not (live.observation is not None and live.observation.active):
            self._services.pool.park(live)
        else:
            self._services.pool.discard(live)
