"""Chooses the snapshots to evict at a limit: those that save least time for their size, computed anew each time.

A snapshot saves the replay from the nearest snapshot above, each time that its state is needed. If it is evicted, the
one above is needed instead, and the replay to the states below gets longer: both the one above and those below become
worth more. So the least useful one is determined again after each eviction. Nothing here touches a disk or a graph.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tvsnap.model.shares import OTHERS, Shares

UNPROVEN_S = 1.0  # seconds of replay that are added to the worth of a snapshot that is the only way to its state
YOUTH_S = 600.0  # seconds of age: a younger snapshot does not count as seldom used


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """The limits of all snapshots together; None for no limit.

    Attributes:
        size: bytes.
        count: snapshots.
    """

    size: int | None = None
    count: int | None = None

    def holds(self, size: int, count: int) -> bool:
        """Returns whether `size` bytes in `count` snapshots fit."""
        return (self.size is None or size <= self.size) and (self.count is None or count <= self.count)

    def price(self, size: int) -> float:
        """Returns the price of a snapshot of `size` bytes: its share of the bytes, plus its share of the count."""
        parts = [] if self.size is None else [max(size, 1) / max(self.size, 1)]
        parts += [] if self.count is None else [1 / max(self.count, 1)]
        return sum(parts) or 1.0

    def part(self, fraction: float) -> SnapshotLimits:
        """Returns a fraction of these limits, 0 to 1; the count is rounded up."""
        size = None if self.size is None else int(self.size * fraction)
        return SnapshotLimits(size, None if self.count is None else math.ceil(self.count * fraction))


class Kept(NamedTuple):
    """A snapshot, with the facts that determine its worth.

    Attributes:
        state: its state.
        above: the nearest state above that has a snapshot; None if the replay would begin in a fresh sandbox.
        size: bytes.
        rebuild_s: seconds that the replay from `above` takes.
        forks: the number of its forks.
        created: the time at which it was taken, seconds since the epoch.
        reached: False if rollouts do not come here any more, because a call above is no longer answered.
        pinned: it is never evicted.
        proven: the calls from `above` are known to lead to the state each time. If not, no call below the state is
            answered without the snapshot, which counts as some more seconds.
        owner: its owner, of those who share the room.
    """

    state: str
    above: str | None
    size: int
    rebuild_s: float
    forks: int
    created: float
    reached: bool = True
    pinned: bool = False
    proven: bool = True
    owner: str = OTHERS

    @property
    def way_s(self) -> float:
        """Returns the seconds that it costs to reach its state without it."""
        return self.rebuild_s + (0.0 if self.proven else UNPROVEN_S)

    def demand(self, now: float) -> float:
        """Returns the rate at which it is likely to be needed, in forks per second.

        That is the rate since it was taken, with one fork to its credit (hyperbolic caching: Blankstein et al., USENIX
        ATC 2017). So no time has to be chosen after which forks are forgotten, and a snapshot that is used each hour is
        not evicted in favour of one that was used a minute ago.
        """
        return (self.forks + 1) / (max(now - self.created, 0.0) + YOUTH_S) if self.reached else 0.0

    def worth(self, room: SnapshotLimits, now: float) -> float:
        """Returns the time that it saves while all others stay, in seconds per second, per share of the room."""
        return self.demand(now) * self.way_s / room.price(self.size)


def parts_of(room: SnapshotLimits, shares: Shares) -> Mapping[str, SnapshotLimits]:
    """Returns the parts of limits that several owners have; none if nothing is shared."""
    if not shares:
        return {}
    sizes = {} if room.size is None else shares.sizes(room.size)
    return {owner: SnapshotLimits(sizes.get(owner), room.part(part).count) for owner, part in shares.parts().items()}


def choose_evicted(
    snapshots: Iterable[Kept],
    room: SnapshotLimits,
    now: float,
    parts: Mapping[str, SnapshotLimits] | None = None,
    asking: str | None = None,
) -> list[Kept]:
    """Returns the snapshots to evict so that the others fit, the least useful first.

    If several owners share the room, those who take more than their parts lose theirs first, and then the one for
    whom room is made: nobody else does, even if the others do not fit then.

    A snapshot's worth is its likely demand (for itself, or for an evicted one below), times the seconds that it saves,
    divided by its share of the room. Of equals, the one whose state's name comes first is evicted.

    Args:
        snapshots: all snapshots.
        room: the limits; if the pinned ones alone exceed them, all others are evicted.
        now: seconds since the epoch.
        parts: the part of each owner, which others may not take; None or empty if nothing is shared.
        asking: the owner for whom room is made; None for all owners.
    """
    shelf = _Shelf(snapshots, room, now)
    queues: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for state, snapshot in shelf.kept.items():
        if not snapshot.pinned:
            queues[snapshot.owner if parts else OTHERS].append((shelf.worth(state), state))
    for queue in queues.values():
        heapq.heapify(queue)
    sizes = Counter[str]()
    for snapshot in shelf.kept.values():
        sizes[snapshot.owner] += snapshot.size
    counts = Counter(snapshot.owner for snapshot in shelf.kept.values())
    chosen: list[Kept] = []
    while not room.holds(sizes.total(), counts.total()):
        losing = [queue for owner, queue in queues.items() if queue and _exceeds(owner, sizes, counts, parts)]
        if not losing:
            losing = [queue for owner, queue in queues.items() if queue and (not parts or asking in (None, owner))]
        if not losing:
            break
        queue = min(losing)
        queued_worth, state = heapq.heappop(queue)
        now_worth = shelf.worth(state)
        if now_worth > queued_worth:  # a worth never falls, so this may no longer be the least
            heapq.heappush(queue, (now_worth, state))
            continue
        shelf.remove(state)
        gone = shelf.kept[state]
        chosen.append(gone)
        sizes[gone.owner] -= gone.size
        counts[gone.owner] -= 1
    return chosen


def _exceeds(owner: str, sizes: Counter[str], counts: Counter[str], parts: Mapping[str, SnapshotLimits] | None) -> bool:
    part = (parts or {}).get(owner)
    return part is not None and not part.holds(sizes[owner], counts[owner])


class _Shelf:
    """Snapshots, and the worth of each while some of them are evicted.

    Attributes:
        kept: all, by state.
    """

    def __init__(self, snapshots: Iterable[Kept], room: SnapshotLimits, now: float) -> None:
        self.kept = {each.state: each for each in snapshots}
        self._room = room
        self._above = {state: each.above for state, each in self.kept.items()}
        self._way_s = {state: each.way_s for state, each in self.kept.items()}
        self._demand = {state: each.demand(now) for state, each in self.kept.items()}
        self._gone: set[str] = set()

    def worth(self, state: str) -> float:
        """Returns the present worth of a snapshot; see `Kept.worth`."""
        self._climb(state)
        return self._demand[state] * self._way_s[state] / self._room.price(self.kept[state].size)

    def remove(self, state: str) -> None:
        """Removes a snapshot; its demand goes to the one above."""
        above = self._climb(state)
        self._gone.add(state)
        if above is not None and above in self._demand:
            self._demand[above] += self._demand[state]

    def _climb(self, state: str) -> str | None:
        """Links a state to the nearest one above that is left, and returns that.

        Links across removed states are shortened for later calls, as in a union-find forest.
        """
        trail = [state]
        while (above := self._above[trail[-1]]) in self._gone:
            assert above is not None
            trail.append(above)
        for lower, upper in zip(trail[-2::-1], trail[:0:-1], strict=True):
            self._way_s[lower] += self._way_s[upper]
            self._above[lower] = above
        return above
