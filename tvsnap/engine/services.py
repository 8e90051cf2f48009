"""The parts of a cache that its rollouts use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tvsnap.engine.auditing.audit import Auditor
from tvsnap.engine.auditing.checking import Reexecute
from tvsnap.engine.claiming.claims import Claims
from tvsnap.engine.keeping.budgets import SnapshotBudget, fitted, taken
from tvsnap.engine.keeping.holds import Holds
from tvsnap.engine.keeping.housekeeping import tidy
from tvsnap.engine.keeping.policy import Costs
from tvsnap.engine.keeping.snapshotter import Snapshotter
from tvsnap.engine.meter import Meter
from tvsnap.engine.settings import CacheSettings
from tvsnap.engine.supply.acquire import Acquirer
from tvsnap.engine.supply.companions import Companions
from tvsnap.engine.supply.pool import SandboxPool
from tvsnap.engine.supply.preforking import Preforker
from tvsnap.engine.supply.recipes import Recipes
from tvsnap.graph import Graph
from tvsnap.host import disk_reserve, owners, plugins
from tvsnap.host.contents import Contents
from tvsnap.host.home import GRAPH_FILE, HomeInUse
from tvsnap.host.load import Processors
from tvsnap.host.owners import Owner
from tvsnap.images import ImageStore
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.images import Image
from tvsnap.sandboxes import open_backend
from tvsnap.sandboxes.fixed_clock import is_fixed
from tvsnap.sandboxes.protocol import Backend

_FORKS_AT_ONCE = 32
"""Forks of one request that are made side by side: much of the time of each is waiting."""


class Services:
    """The parts of a cache that its rollouts use.

    Attributes:
        settings: those of the cache.
        home: the data directory.
        totals: the counters of the graph when it was opened.
        holds: shows other processes the states of rollouts.
        kept: the budget of snapshots.
        budget: the budget of the cache, reduced if the disk has less room.
        processors: tells whether they are short.
        companions: sandboxes for rollouts that wait in states that change by themselves.
        workers: run background work.
        forkers: make the forks of one request.
        contents: files that rollouts put into sandboxes and fetched from them.
        on_answered, on_executed: the listeners to each call; see `CallEvents`.
    """

    def __init__(
        self, settings: CacheSettings, path: Path, *, reexecute: Reexecute, make_room: Callable[[], None]
    ) -> None:
        """Opens a data directory, and removes the remains of processes that have died.

        Args:
            settings: those of the cache.
            path: the data directory.
            reexecute: makes a recorded call once more, for audits.
            make_room: is called while sandboxes wait for room.

        Raises:
            MachineLacks: this machine lacks something that is needed.
            TvsnapError: the graph cannot be opened.
        """
        self.settings, self.home, self.contents = settings, HomeInUse(path), Contents(path)
        self.pool, self.meter, self.processors = SandboxPool(settings.budget, make_room), Meter(), Processors()
        meter, processors = self.meter, self.processors
        disk_reserve.keep(path)
        with contextlib.ExitStack() as undo:
            self.owner = Owner(path)
            undo.callback(self.owner.close)
            self.graph = graph = _open_graph(settings, path, self.owner.id)
            undo.callback(graph.close)
            self.backend = backend = _open_backend(settings, path, self.owner.id)
            undo.callback(backend.close)
            self.holds = Holds(path, self.owner.id)
            undo.callback(self.holds.close)
            tidy(path, graph, backend)
            self.budget = fitted(settings.budget, path, taken(backend, graph))
            self.totals = graph.counters()
            undo.pop_all()
        self.costs = costs = Costs(backend.name, self.totals, short=lambda: processors.short)
        if settings.use_cache:
            graph.count_by(lambda: {**costs.take_unsaved(), **meter.take_unsaved()})
        self.images, shares = settings.images or ImageStore(path), settings.parts()
        self.recipes = Recipes(
            *(graph, self.images, settings.environments, settings.limits, backend.platform),
            *(settings.network_settings, self.contents, shares),
        )
        self.kept = SnapshotBudget(path, graph, backend, self.holds, self.budget, meter, shares)
        with contextlib.suppress(InfrastructureError):  # a full disk must not keep anyone out
            self.kept.evict_excess()
        self.snapshotter = Snapshotter(graph, backend, settings.snapshot_policy(), self.kept, costs, meter)
        ahead = settings.prefork if settings.use_cache else 0
        self.preforker = Preforker(graph, backend, self.pool, costs, meter, ahead)
        self.acquirer = Acquirer(graph, backend, self.pool, self.snapshotter, self.preforker, costs, meter)
        self.claims = Claims(graph, self.owner.id, partial(owners.is_alive, path))
        self.companions = Companions(graph, ahead=settings.prefork != 0)
        self.audit = Auditor(settings.audit, graph, reexecute, meter)
        # Work while callers think: a thread for each sandbox that may live, because one may be slow on purpose.
        self.workers = ThreadPoolExecutor(self.budget.sandboxes, thread_name_prefix="tvsnap-work")
        self.forkers = ThreadPoolExecutor(_FORKS_AT_ONCE, thread_name_prefix="tvsnap-fork")
        self.on_answered = (self.companions.answered, self.audit.answered, self.meter.answered)
        self.on_executed = (self.meter.executed,)

    def counts_changes(self, image: Image) -> bool:
        """Returns whether every call must be checked for changes, even if nothing is shared.

        Process ids depend on it: a comparison that is exact to process ids needs it, and so does an image with a seed,
        because its random numbers depend on process ids.
        """
        return self.settings.same_ids or is_fixed(image)


def _open_graph(settings: CacheSettings, path: Path, owner: str) -> Graph:
    """Opens the graph of a data directory; if the settings name a shared graph, records are exchanged with that."""
    file, gives_timeouts = path / GRAPH_FILE, settings.shares_timeouts
    if settings.graph is None:
        return Graph(file, owner, gives_timeouts=gives_timeouts)
    shared: Graph = plugins.find("graph", "shared")(file, owner, settings.graph, gives_timeouts=gives_timeouts)
    return shared


def _open_backend(settings: CacheSettings, path: Path, owner: str) -> Backend:
    if isinstance(settings.backend, str):
        return open_backend(settings.backend, path, owner, settings.network_settings)
    return settings.backend
