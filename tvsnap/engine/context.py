"""What a cache and its rollouts have in common."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

from tvsnap.engine.auditing.audit import Auditor
from tvsnap.engine.claiming.claims import Claims
from tvsnap.engine.keeping.holds import Holds
from tvsnap.engine.keeping.snapshotter import Snapshotter
from tvsnap.engine.keeping.worth import Worth
from tvsnap.engine.supply.acquire import Acquirer
from tvsnap.engine.supply.companions import Companions
from tvsnap.engine.supply.pool import SandboxPool
from tvsnap.graph import Graph
from tvsnap.host.contents import Contents
from tvsnap.host.home import HomeInUse
from tvsnap.model.images import Image
from tvsnap.model.stats import Meter
from tvsnap.sandboxes.fixed import is_fixed
from tvsnap.sandboxes.protocol import Backend


@dataclass(frozen=True, slots=True)
class Context:
    """What the calls of all rollouts of a cache need.

    Attributes:
        home: the data directory.
        use_cache: False to execute every call, for comparison.
        same_ids: processes then have the ids that they would have with the cache.
        graph: recorded states and calls.
        backend: makes sandboxes.
        pool: those that live.
        holds: which states rollouts stand at, for other processes to know.
        meter: counts what is done.
        claims: calls that are being executed.
        snapshotter: takes snapshots where they pay.
        worth: tells whether it pays to record a call.
        acquirer: has sandboxes that stand at states.
        companions: sandboxes for rollouts that wait in states that change by themselves.
        audit: is told of answers.
        workers: does what nobody waits for.
        contents: what rollouts put into sandboxes, and fetched out of them.
        network_answers: seconds for which what was asked of the network answers others; None for ever.
        shares_timeouts: whether what timed out while it was working answers others.
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
    worth: Worth
    acquirer: Acquirer
    companions: Companions
    audit: Auditor
    workers: Executor
    contents: Contents
    network_answers: float | None
    shares_timeouts: bool
    grade_executions: int

    def counts_changes(self, image: Image) -> bool:
        """Whether it must be known of each call if it changed anything, even where nothing is shared.

        The ids of processes go by that. So a comparison that is to be exact to them needs it, and chance in an image
        with a seed, which goes by them.
        """
        return self.same_ids or is_fixed(image)
