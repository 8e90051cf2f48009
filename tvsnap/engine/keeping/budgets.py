"""Keeps the snapshots of a cache within its limits: the least useful ones make room for better ones.

Several processes may use one data directory. The process that takes a snapshot evicts others, and a snapshot for which
there is no room is never added to the graph, whatever other processes do at the same moment. A fork whose snapshot is
deleted meanwhile is begun again without it.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tvsnap.engine.keeping.holds import Holds
from tvsnap.engine.keeping.policy.eviction import Kept, SnapshotLimits, choose_evicted, parts_of
from tvsnap.engine.keeping.policy.snapshotting import CALL_OVERHEAD
from tvsnap.engine.meter import Meter
from tvsnap.graph import Graph, Snapshot, SnapshotWay
from tvsnap.host.disk import DiskSpace
from tvsnap.model.errors import TvsnapError
from tvsnap.model.limits import MIB, Budget
from tvsnap.model.shares import OTHERS, Shares
from tvsnap.sandboxes.protocol import Backend, Occupying

SPARE = 0.1  # this part of the room is freed at once, so that not every new snapshot needs a look at all others
SERVICE_START = 1.0  # seconds that the start of a service is taken to last: only roots with services have snapshots
LEFT_FREE, MOST_LEFT = 10, 8192 * MIB  # a tenth of a disk is left free of snapshots, but at most this many bytes
MEASURED_EVERY = 5.0  # seconds between two measurements of the space that snapshots really take
LEAST_PART = 0.02  # the least part of the sum of their sizes that snapshots are taken to occupy
REFUSING = 5.0  # seconds after a refusal in which snapshots worth no more are refused without a look at the others


def snapshot_limits(budget: Budget) -> SnapshotLimits:
    """Returns the part of a budget that applies to snapshots."""
    return SnapshotLimits(budget.disk, budget.snapshots)


def part_taken(backend: Backend, sizes: int) -> float:
    """Returns the part of the sum of the snapshots' `sizes`, in bytes, that all of them really take on the disk.

    A size includes data that a snapshot shares with others, and is that of data before compression.
    """
    occupied = backend.occupied() if isinstance(backend, Occupying) and sizes else None
    return 1.0 if occupied is None else min(1.0, max(occupied / sizes, LEAST_PART))


def taken(backend: Backend, graph: Graph) -> int:
    """Returns the bytes that all snapshots of a backend take on the disk."""
    sizes = graph.snapshot_usage(backend.name)[1]
    return int(sizes * part_taken(backend, sizes))


def fitted(budget: Budget, home: Path, used: int) -> Budget:
    """Returns a budget with a limit for snapshots on the disk: half of the free space if it has none.

    Existing snapshots, of `used` bytes, count as free, so that the limit is the same each time.
    """
    return budget if budget.disk is not None else replace(budget, disk=(DiskSpace.on(home, home).free + used) // 2)


def free_and_reserve(budget: Budget, home: Path) -> tuple[int, int]:
    """Returns the bytes that are free on the file system of a data directory, and those that must be left free."""
    disk = DiskSpace.on(home, home)
    return disk.free, min(disk.total // LEFT_FREE, MOST_LEFT) if budget.reserve is None else budget.reserve


def shortage(budget: Budget, home: Path) -> str | None:
    """Returns the reason why the file system of a data directory has no room for snapshots; None if it has room."""
    free, reserve = free_and_reserve(budget, home)
    if free >= reserve:
        return None
    return (
        f"{free // MIB} MiB are free on the disk of {home}, and {reserve // MIB} MiB are to be left: no snapshots "
        "are taken; free some (tvsnap gc --keep-bytes), or lower Budget.reserve"
    )


class Ledger:
    """The snapshots of one backend, and their worth according to the graph. Thread-safe."""

    def __init__(self, graph: Graph, backend: str, holds: Holds, shares: Shares | None = None) -> None:
        self._graph = graph
        self._backend = backend
        self._holds = holds
        self._shares = shares or Shares()

    def read(self) -> dict[str, tuple[Kept, Snapshot]]:
        """Returns all snapshots, by state; those that rollouts depend on are marked as pinned."""
        self._graph.flush()  # so that the forks of this process count
        used = self.in_use(self._holds.held())
        ways = self._graph.snapshot_ways(self._backend)
        return {way.snapshot.state: (_evaluated(way, used, self._shares.owner(way.salt)), way.snapshot) for way in ways}

    def owner(self, state: str) -> str:
        """Returns the owner of a state, of those who share the room."""
        if not self._shares:
            return OTHERS
        with contextlib.suppress(TvsnapError):  # forgotten
            return self._shares.owner(self._graph.root_of(state).salt)
        return OTHERS

    def in_use(self, states: Iterable[str]) -> set[str]:
        """Returns the states whose snapshots keep the states of rollouts: the nearest snapshots above these."""
        in_use = set()
        for state in states:
            with contextlib.suppress(TvsnapError):  # forgotten
                snapshot = self._graph.distance(state, self._backend).snapshot
                if snapshot is not None:
                    in_use.add(snapshot.state)
        return in_use

    def evict(self, chosen: Iterable[Snapshot]) -> list[Snapshot]:
        """Deletes the rows of snapshots, except those that rollouts have come to depend on since they were read.

        Returns:
            The snapshots whose files are to be deleted.
        """
        with self._holds.evicting() as states:
            used = self.in_use(states)
            return self._graph.drop_snapshots(snapshot for snapshot in chosen if snapshot.state not in used)


def _evaluated(way: SnapshotWay, used: Collection[str], owner: str) -> Kept:
    snapshot = way.snapshot
    return Kept(
        snapshot.state,
        way.above,
        snapshot.size,
        way.seconds + way.calls * CALL_OVERHEAD if way.calls else SERVICE_START,
        snapshot.forks,
        snapshot.created,
        reached=way.answered,
        pinned=snapshot.pinned or snapshot.state in used,
        proven=way.proven,
        owner=owner,
    )


class SnapshotBudget:
    """Keeps the snapshots of one backend within a budget. Thread-safe."""

    def __init__(
        self,
        home: Path,
        graph: Graph,
        backend: Backend,
        holds: Holds,
        budget: Budget,
        meter: Meter,
        shares: Shares | None = None,
    ) -> None:
        self._home = home
        self._graph = graph
        self._backend = backend
        self._budget = budget
        self._limits = snapshot_limits(budget)
        self._shared, self._shared_at = 1.0, -math.inf  # see `_room`
        self._meter = meter
        self._parts = parts_of(self._limits, shares or Shares())
        self._ledger = Ledger(graph, backend.name, holds, shares)
        self._lock = threading.Lock()
        self._bars: dict[str, tuple[float, float]] = {}  # of each owner: the worth that was refused, and until when
        self._deleter = ThreadPoolExecutor(1, thread_name_prefix="tvsnap-evict")

    @property
    def _room(self) -> SnapshotLimits:
        """The limit of the sum of the snapshots' sizes, each of which includes data shared with others.

        It exceeds the limit of the disk by the factor by which that sum exceeds the space that all of them really take.
        """
        if self._limits.size is None:
            return self._limits
        if time.monotonic() - self._shared_at > MEASURED_EVERY:
            self._shared_at = time.monotonic()
            self._shared = part_taken(self._backend, self._graph.snapshot_usage(self._backend.name)[1])
        return replace(self._limits, size=int(self._limits.size / self._shared))

    def evict_excess(self) -> None:
        """Evicts the snapshots that exceed the budget."""
        count, size = self._graph.snapshot_usage(self._backend.name)
        if not self._room.holds(size, count):
            with self._lock:
                snapshots = self._ledger.read()
                self._evict(snapshots, self._chosen(_all(snapshots), self._room, time.time()))

    def find_room(self, new: Kept) -> str | None:
        """Makes room for a snapshot by evicting others that are worth less; returns why there is no room, or None.

        If `new` is pinned, others are evicted even if they are worth more.
        """
        reason = shortage(self._budget, self._home) or self._find_room(new)
        if reason:
            self._meter.add(snapshots_refused=1)
        return reason

    def add(self, snapshot: Snapshot, new: Kept) -> bool:
        """Adds a snapshot if there is room now that its size is known; returns whether it was added.

        If it was not, its files are to be deleted.
        """
        while not self._graph.add_snapshot(snapshot, size=self._room.size, count=self._room.count):
            if self._graph.snapshot(snapshot.state, snapshot.backend) is not None or not self._is_known(snapshot.state):
                return False
            if self.find_room(new._replace(size=snapshot.size)):
                return False
        return True

    def close(self) -> None:
        """Waits until the files of evicted snapshots are deleted; safe to repeat."""
        self._deleter.shutdown()

    def _find_room(self, new: Kept) -> str | None:
        room, backend = self._room, self._backend.name
        if not room.holds(new.size, 1):
            return f"a snapshot of {new.size / MIB:.1f} MiB is more than the budget ({self._words}); raise that"
        count, size = self._graph.snapshot_usage(backend)
        if room.holds(size + new.size, count + 1):
            return None
        now = time.time()
        worth = new.worth(room, now)
        new = new._replace(owner=self._ledger.owner(new.state))
        with self._lock:
            bar, until = self._bars.get(new.owner, (0.0, 0.0))
            if not new.pinned and worth <= bar and time.monotonic() < until:
                return self._refusal()
            snapshots = self._ledger.read()  # another thread or process may have made room meanwhile
            snapshots.pop(new.state, None)
            present = _all(snapshots)
            if not new.pinned and new in self._chosen([*present, new], room, now, new.owner):
                self._bars[new.owner] = worth, time.monotonic() + REFUSING
                return self._refusal()
            if not room.holds(sum(each.size for each in present) + new.size, len(present) + 1):
                newest = new._replace(pinned=True)
                spared = room.part(1 - SPARE)
                chosen = self._chosen([*present, newest], spared, now, new.owner)
                self._evict(snapshots, chosen)
                gone = {each.state for each in chosen}
                others = [each for each in present if each.state not in gone]
                if not room.holds(sum(each.size for each in others) + new.size, len(others) + 1):
                    shares = ", and by those that others have within their shares" if self._parts else ""
                    return (
                        f"the budget ({self._words}) is taken up by snapshots kept by hand, and by those of rollouts' "
                        f"states{shares}; raise it, forget some, or run fewer rollouts at once"
                    )
        return None

    def _chosen(
        self, snapshots: Sequence[Kept], room: SnapshotLimits, now: float, asking: str | None = None
    ) -> list[Kept]:
        return choose_evicted(snapshots, room, now, self._parts, asking)

    @property
    def _words(self) -> str:
        """The limits in words."""
        words = [] if self._limits.size is None else [f"{self._limits.size / MIB:.1f} MiB"]
        words += [] if self._limits.count is None else [f"{self._limits.count} snapshots"]
        return ", ".join(words)

    def _refusal(self) -> str:
        return (
            f"the snapshots take all of the budget ({self._words}), and each saves more time for what it takes "
            "than a new one would; raise the budget for more"
        )

    def _evict(self, snapshots: Mapping[str, tuple[Kept, Snapshot]], chosen: Sequence[Kept]) -> None:
        """Deletes snapshots: their rows now, their files in the background."""
        dropped = self._ledger.evict(snapshots[each.state][1] for each in chosen)
        self._meter.add(evicted=len(dropped), evicted_bytes=sum(snapshot.size for snapshot in dropped))
        for snapshot in dropped:
            self._deleter.submit(self._delete, snapshot)

    def _delete(self, snapshot: Snapshot) -> None:
        with contextlib.suppress(TvsnapError, OSError):  # files without a row are swept when the directory is opened
            self._backend.delete_snapshot(snapshot.id)

    def _is_known(self, state: str) -> bool:
        try:
            self._graph.state(state)
        except TvsnapError:
            return False
        return True


def _all(snapshots: dict[str, tuple[Kept, Snapshot]]) -> list[Kept]:
    return [each for each, _ in snapshots.values()]
