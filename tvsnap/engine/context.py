"""The services that all rollouts of a cache share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from tvsnap.engine.claiming.claims import Claims
from tvsnap.engine.events import Answered, Executed
from tvsnap.engine.keeping.holds import Holds
from tvsnap.engine.keeping.snapshotter import Snapshotter
from tvsnap.engine.meter import Meter
from tvsnap.engine.supply.acquire import Acquirer
from tvsnap.engine.supply.pool import SandboxPool
from tvsnap.graph import Graph
from tvsnap.host.contents import Contents
from tvsnap.host.home import HomeInUse
from tvsnap.host.load import Processors
from tvsnap.model.images import Image
from tvsnap.sandboxes.fixed import is_fixed
from tvsnap.sandboxes.protocol import Backend


@dataclass(frozen=True, slots=True)
class Context:
    """The services and settings that all rollouts of a cache share.

    Attributes:
        home: the data directory.
        use_cache: False to execute every call, for comparison.
        same_ids: processes then have the ids that they would have with the cache.
        pool: the live sandboxes.
        holds: tells other processes which states rollouts stand at.
        processors: tells whether they are short.
        on_answered, on_executed: what is told of each call; see `CallEvents`.
        workers: run background work.
        contents: what rollouts put into sandboxes and fetched from them.
        network_answers: seconds for which a call that used the network answers others; None for ever.
        shares_timeouts: whether a call that timed out on a busy machine answers others.
        grade_executions: how often a call that grades is executed before it answers others.
    """

    home: HomeInUse
    use_cache: bool
    same_ids: bool
    graph: Graph
    backend: Backend
    pool: SandboxPool
    holds: Holds
    meter: Meter
    claims: Claims
    snapshotter: Snapshotter
    processors: Processors
    acquirer: Acquirer
    on_answered: Sequence[Callable[[Answered], None]]
    on_executed: Sequence[Callable[[Executed], None]]
    workers: Executor
    contents: Contents
    network_answers: float | None
    shares_timeouts: bool
    grade_executions: int

    def counts_changes(self, image: Image) -> bool:
        """Returns whether every call must be checked for changes, even where nothing is shared.

        Process ids depend on it: a comparison that is exact to process ids needs it, and an image with a seed, whose
        random numbers depend on process ids.
        """
        return self.same_ids or is_fixed(image)
