"""Garbage collection: a plan that can be shown first, then its execution in a crash-safe order.

Rows are deleted before files: a crash in between leaves files without a row, which the next run finds.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvsnap.engine.keeping.budgets import Ledger, part_taken
from tvsnap.engine.keeping.holds import Holds
from tvsnap.engine.keeping.housekeeping import Mismatch, find_mismatch, make_agree
from tvsnap.engine.keeping.policy.eviction import SnapshotLimits, choose_evicted
from tvsnap.environments.files import contents_named
from tvsnap.graph import Forgotten, Graph, Snapshot
from tvsnap.host import owners
from tvsnap.host.contents import Contents
from tvsnap.host.memory import proportional
from tvsnap.images import ImageStore
from tvsnap.model.observations import ReapReport
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.protocol import Backend, Occupying


@dataclass(frozen=True, slots=True)
class GcPlan:
    """The parts of a data directory that nothing needs."""

    # Processes that ended without cleaning up; their sandboxes and unfinished snapshots are deleted with them
    dead_owners: tuple[str, ...]
    rows_without_files: tuple[Snapshot, ...]  # snapshots whose files are missing
    files_without_row: tuple[str, ...]  # snapshots that the graph does not know, and whose owners are dead
    # Snapshots to delete to keep within a number of bytes, least useful first; never those kept by hand
    evicted: tuple[Snapshot, ...]
    keep_bytes: int | None  # that number
    kept_bytes: int  # bytes of the remaining snapshots, each with the data that it shares with others
    contents: int  # files and folders, put or fetched, that no recorded call names any more
    contents_bytes: int  # bytes of these
    images_bytes: int  # bytes of images, which are not deleted
    packages: bool  # whether downloaded packages are deleted, too
    packages_bytes: int  # bytes of these


@dataclass(frozen=True, slots=True)
class GcReport:
    """The results of a garbage collection."""

    plan: GcPlan  # its plan
    evicted: tuple[Snapshot, ...]  # more than planned if those share much with the rest
    kept_bytes: int  # bytes of the remaining snapshots, each with the data that it shares with others
    taken_bytes: int | None  # bytes on the disk of snapshots and sandboxes; None if that is not known
    reaped: ReapReport  # the remains of dead processes
    leases: int  # leases of dead processes
    returned_bytes: int  # bytes that the disk got back from the pool, also for earlier deletions


def plan_gc(
    home: Path, graph: Graph, backend: Backend, *, keep_bytes: int | None = None, packages: bool = False
) -> GcPlan:
    """Returns the plan for a backend's snapshots and sandboxes; changes nothing.

    `keep_bytes` is the limit of snapshots, None for no limit; with `packages`, packages that builds of images have
    downloaded are deleted, too.
    """
    mismatch = find_mismatch(home, graph, backend)
    gone = {row.id for row in mismatch.rows}
    whole = [row for row in graph.snapshots(backend.name) if row.id not in gone]
    evicted = _choose_evicted(home, graph, backend, whole, keep_bytes) if keep_bytes is not None else ()
    contents, contents_bytes = Contents(home).sweep(lambda: contents_named(graph), dry_run=True)
    return GcPlan(
        dead_owners=tuple(owners.dead_owners(home)),
        rows_without_files=mismatch.rows,
        files_without_row=mismatch.files,
        evicted=evicted,
        keep_bytes=keep_bytes,
        kept_bytes=sum(row.size for row in whole) - sum(row.size for row in evicted),
        contents=contents,
        contents_bytes=contents_bytes,
        images_bytes=disk_usage(home / "images"),
        packages=packages,
        packages_bytes=disk_usage(ImageStore(home).packages),
    )


def run_gc(home: Path, graph: Graph, backend: Backend, plan: GcPlan) -> GcReport:
    """Carries out a plan, deletes remains of images, and returns the space to the disk."""
    reaped = backend.reap()
    leases = graph.sweep_leases(lambda owner: owners.is_alive(home, owner))
    for owner in plan.dead_owners:
        owners.remove(home, owner)
    make_agree(graph, backend, Mismatch(plan.rows_without_files, plan.files_without_row))
    holds = Holds(home)
    holds.sweep()
    evicted, returned = _evict(home, graph, backend, plan, holds)
    Contents(home).sweep(lambda: contents_named(graph))
    ImageStore(home).sweep()
    if plan.packages:
        ImageStore(home).drop_packages()
    kept_bytes = plan.kept_bytes + sum(row.size for row in plan.evicted) - sum(row.size for row in evicted)
    occupied = backend.occupied() if isinstance(backend, Occupying) else None
    return GcReport(plan, evicted, kept_bytes, occupied, reaped, leases, returned)


def _evict(home: Path, graph: Graph, backend: Backend, plan: GcPlan, holds: Holds) -> tuple[tuple[Snapshot, ...], int]:
    """Deletes the snapshots in a plan, and further ones while the others turn out to take too much.

    Returns:
        Those that were deleted, and the bytes that the disk got back.
    """
    evicted: list[Snapshot] = []
    returned, chosen, limit = 0, plan.evicted, plan.keep_bytes
    while True:
        gone = Ledger(graph, backend.name, holds).evict(chosen)
        evicted += gone
        for row in gone:
            backend.delete_snapshot(row.id)
        returned += backend.reclaim()
        if not gone or limit is None:
            return tuple(evicted), returned
        chosen = _choose_evicted(home, graph, backend, graph.snapshots(backend.name), limit)
        if not chosen:
            return tuple(evicted), returned


def _choose_evicted(
    home: Path, graph: Graph, backend: Backend, whole: Sequence[Snapshot], keep_bytes: int
) -> tuple[Snapshot, ...]:
    """Returns the snapshots to delete so that the others take about `keep_bytes`, if the pinned ones allow that.

    It assumes that those to delete share as much with others as the rest.

    Those that were kept by hand and those that rollouts depend on are pinned; those of states that nothing else leads
    to are deleted last.
    """
    snapshots = Ledger(graph, backend.name, Holds(home)).read()
    present = [snapshots[snapshot.state][0] for snapshot in whole if snapshot.state in snapshots]
    room = SnapshotLimits(int(keep_bytes / part_taken(backend, sum(each.size for each in present))))
    now = time.time()
    chosen = choose_evicted([each._replace(pinned=each.pinned or not each.proven) for each in present], room, now)
    gone = {each.state for each in chosen}
    chosen += choose_evicted([each for each in present if each.state not in gone], room, now)
    return tuple(snapshots[each.state][1] for each in chosen)


def delete_files(backend: Backend, forgotten: Forgotten) -> int:
    """Deletes the files of snapshots whose rows are deleted; returns the bytes that this frees."""
    mine = [snapshot for snapshot in forgotten.snapshots if snapshot.backend == backend.name]
    for snapshot in mine:
        backend.delete_snapshot(snapshot.id)
    if mine:
        backend.reclaim()
    return sum(snapshot.size for snapshot in mine)


@dataclass(frozen=True, slots=True)
class InUse:
    """The live sandboxes of a data directory, in all processes."""

    processes: int  # tvsnap processes that use the data directory
    sandboxes: int  # live sandboxes
    memory: int  # their proportional memory, bytes


def in_use(home: Path) -> InUse:
    """Measures the live sandboxes by the control groups of processes, which are named for their owners."""
    living = owners.live_owners(home)
    sandboxes: set[str] = set()
    memory = 0
    if living:
        named = re.compile(rf"((?:{'|'.join(map(re.escape, living))})\.\d+)")
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if match := named.search((process / "cgroup").read_text()):
                    sandboxes.add(match[1])
                    memory += proportional(int(process.name))
    return InUse(len(living), len(sandboxes), memory)


def disk_usage(path: Path) -> int:
    """Returns the bytes on disk of all files below a directory, on its file system only."""
    with contextlib.suppress(FileNotFoundError), paths.directory(path) as root:
        device = os.fstat(root).st_dev
        return sum(status.st_blocks * 512 for _, status in paths.scan(root, "/") if status.st_dev == device)
    return 0
