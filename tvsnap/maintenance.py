"""Freeing what nothing needs: a plan that can be shown first, then its execution in an order that a crash cannot hurt.

Rows go before files: a crash in between leaves files without a row, which the next run finds.
"""

from __future__ import annotations

import functools
import heapq
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvsnap import owners
from tvsnap.backends.base import Backend, ReapReport
from tvsnap.graph import Forgotten, Graph, Snapshot
from tvsnap.images import ImageStore
from tvsnap.policy import looks_volatile


@dataclass(frozen=True, slots=True)
class GcPlan:
    """What a data directory holds that nothing needs.

    Attributes:
        dead_owners: processes that ended without cleaning up; their sandboxes and unfinished snapshots go with them.
        rows_without_files: snapshots that are gone from the disk.
        files_without_row: snapshots that the graph does not know; empty while another process lives that may be about
            to add theirs.
        evicted: snapshots that go to keep within a number of bytes, least useful first.
        kept_bytes: what the remaining snapshots take.
    """

    dead_owners: tuple[str, ...]
    rows_without_files: tuple[Snapshot, ...]
    files_without_row: tuple[str, ...]
    evicted: tuple[Snapshot, ...]
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class GcReport:
    """What was freed.

    Attributes:
        plan: what was to go.
        reaped: what dead processes had left.
        leases: leases of dead processes.
        freed_bytes: what snapshots took that are gone.
    """

    plan: GcPlan
    reaped: ReapReport
    leases: int
    freed_bytes: int


def plan_gc(home: Path, graph: Graph, backend: Backend, *, keep_bytes: int | None = None) -> GcPlan:
    """Finds what nothing needs; changes nothing.

    Args:
        home: the data directory.
        graph: its graph.
        backend: whose snapshots and sandboxes to look at.
        keep_bytes: let snapshots take at most so much; None for no limit.
    """
    on_disk = set(backend.snapshots())
    rows = graph.snapshots(backend.name)
    known = {row.id for row in rows}
    whole = [row for row in rows if row.id in on_disk]
    evicted = choose_evicted(graph, whole, keep_bytes) if keep_bytes is not None else ()
    return GcPlan(
        dead_owners=tuple(owners.dead_owners(home)),
        rows_without_files=tuple(row for row in rows if row.id not in on_disk),
        files_without_row=() if live_owners(home, but=graph.owner) else tuple(sorted(on_disk - known)),
        evicted=tuple(evicted),
        kept_bytes=sum(row.size for row in whole) - sum(row.size for row in evicted),
    )


def run_gc(home: Path, graph: Graph, backend: Backend, plan: GcPlan) -> GcReport:
    """Deletes what a plan names, and litter of images.

    Args:
        home, graph, backend: see `plan_gc`.
        plan: what is to go.
    """
    reaped = backend.reap()
    leases = graph.sweep_leases(lambda owner: owners.is_alive(home, owner))
    for owner in plan.dead_owners:
        owners.remove(home, owner)
    for row in plan.rows_without_files:
        graph.drop_snapshot(row.state, row.backend, row.id)
    freed = 0
    for row in plan.evicted:
        if graph.drop_snapshot(row.state, row.backend, row.id):
            backend.delete_snapshot(row.id)
            freed += row.size
    for id in plan.files_without_row:
        backend.delete_snapshot(id)
    ImageStore(home).sweep()
    return GcReport(plan, reaped, leases, freed)


def choose_evicted(graph: Graph, snapshots: Sequence[Snapshot], keep_bytes: int) -> list[Snapshot]:
    """Returns the snapshots to delete so that the others take at most `keep_bytes`, least useful first.

    A snapshot is worth the time that rebuilding its state by replay would take, times how often it was forked (and
    once more), per byte; and more than any other if a call on that way would hardly return the same again, as the
    replay would then end elsewhere. What it would take is counted anew for the states below one that is chosen.
    """
    above = {
        node.state.hash: (node.state.parent, node.made_by.duration if node.made_by else 0.0) for node in graph.tree()
    }
    left = {snapshot.state for snapshot in snapshots}

    @functools.cache
    def volatile(state: str) -> bool:
        edge = graph.edge_to(state)
        return edge is not None and (not edge.deterministic or looks_volatile(edge.result.output))

    def worth(snapshot: Snapshot) -> tuple[bool, float]:
        lost, rebuild_s, state = False, 0.0, snapshot.state
        while True:
            parent, duration = above.get(state, (None, 0.0))
            lost = lost or volatile(state)
            rebuild_s += duration
            if parent is None or parent in left:
                return lost, rebuild_s * (snapshot.forks + 1) / max(snapshot.size, 1)
            state = parent

    queue = [(worth(snapshot), snapshot.last_used, snapshot.state, snapshot) for snapshot in snapshots]
    heapq.heapify(queue)
    excess = sum(snapshot.size for snapshot in snapshots) - keep_bytes
    chosen: list[Snapshot] = []
    while excess > 0 and queue:
        known, used, state, snapshot = heapq.heappop(queue)
        now = worth(snapshot)
        if now > known:  # one above it has gone meanwhile; a worth never falls
            heapq.heappush(queue, (now, used, state, snapshot))
            continue
        left.discard(state)
        chosen.append(snapshot)
        excess -= snapshot.size
    return chosen


def delete_files(backend: Backend, forgotten: Forgotten) -> int:
    """Deletes the files of snapshots whose rows are gone.

    Returns:
        The bytes that they took.
    """
    mine = [snapshot for snapshot in forgotten.snapshots if snapshot.backend == backend.name]
    for snapshot in mine:
        backend.delete_snapshot(snapshot.id)
    return sum(snapshot.size for snapshot in mine)


def live_owners(home: Path, *, but: str = "") -> list[str]:
    """Returns the ids of the live processes that use a data directory, sorted.

    Args:
        home: the data directory.
        but: one to leave out.
    """
    names = sorted(path.stem for path in (home / "run" / "owners").glob("*.lock"))
    return [name for name in names if name != but and owners.is_alive(home, name)]


@dataclass(frozen=True, slots=True)
class InUse:
    """What the live sandboxes of a data directory take, in all processes.

    Attributes:
        processes: how many tvsnap processes use the data directory.
        sandboxes: how many sandboxes live.
        memory: their proportional memory, bytes.
    """

    processes: int
    sandboxes: int
    memory: int


def in_use(home: Path, *, but: str = "") -> InUse:
    """Looks at what lives now, by the control groups of processes, which are named for their owners.

    Args:
        home: the data directory.
        but: an owner to leave out.
    """
    living = live_owners(home, but=but)
    sandboxes: set[str] = set()
    memory = 0
    if living:
        named = re.compile(rf"((?:{'|'.join(map(re.escape, living))})\.\d+)")
        for process in Path("/proc").glob("[0-9]*"):
            match = named.search(_read(process / "cgroup"))
            if match is not None:
                sandboxes.add(match[1])
                weighed = re.search(r"^Pss: +(\d+) kB", _read(process / "smaps_rollup"), re.MULTILINE)
                memory += int(weighed[1]) * 1024 if weighed else 0
    return InUse(len(living), len(sandboxes), memory)


def _read(path: Path) -> str:
    """Returns what a file of /proc holds; nothing if its process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


def disk_usage(path: Path) -> int:
    """Returns the bytes on disk of all files below a directory, on its file system only."""
    total = 0
    try:
        device = path.lstat().st_dev
    except FileNotFoundError:
        return 0
    for parent, folders, files in os.walk(path):
        for name in (*folders, *files):
            try:
                found = os.lstat(os.path.join(parent, name))
            except OSError:
                continue
            if found.st_dev == device:
                total += found.st_blocks * 512
        folders[:] = [name for name in folders if not os.path.ismount(os.path.join(parent, name))]
    return total
