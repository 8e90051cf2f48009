"""What a cache and its rollouts have in common."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from tvsnap.acquisition.acquire import Acquirer
from tvsnap.acquisition.companions import Companions
from tvsnap.acquisition.pool import SandboxPool
from tvsnap.graph import Edge, Graph
from tvsnap.host.contents import Contents
from tvsnap.host.home import HomeInUse
from tvsnap.model.images import Image
from tvsnap.model.stats import Meter
from tvsnap.recording.claims import Claims
from tvsnap.recording.holds import Holds
from tvsnap.recording.recorder import Position
from tvsnap.recording.snapshotter import Snapshotter
from tvsnap.recording.worth import Worth
from tvsnap.sandboxes.fixed import is_fixed
from tvsnap.sandboxes.protocol import Backend

if TYPE_CHECKING:
    from tvsnap.rollout import Rollout


class Audit(Protocol):
    """Who is told of answers, to have some of them made again."""

    def answered(self, edge: Edge) -> None:
        """Notes that a recorded call has answered one."""
        ...


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
        dropped: takes rollouts that nobody holds any more.
        ended: is told which rollout has ended, and where it stood.
        contents: what rollouts put into sandboxes, and fetched out of them.
        network_answers: seconds for which what was asked of the network answers others; None for ever.
        shares_timeouts: whether what timed out while it was working answers others.
        grade_executions: how often a call that grades is executed before it answers others.
        resume: begins a rollout at a state, of a task; see `Cache.resume`.
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
    audit: Audit
    workers: Executor
    dropped: SimpleQueue[Rollout]
    ended: Callable[[Rollout, Position], None]
    contents: Contents
    network_answers: float | None
    shares_timeouts: bool
    grade_executions: int
    resume: Callable[[str, str], Rollout]

    def counts_changes(self, image: Image) -> bool:
        """Whether it must be known of each call if it changed anything, even where nothing is shared.

        The ids of processes go by that. So a comparison that is to be exact to them needs it, and chance in an image
        with a seed, which goes by them.
        """
        return self.same_ids or is_fixed(image)
