"""Cleans a data directory up when it is opened: removes remains of dead processes, and incomplete snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tvsnap.engine.keeping.holds import Holds
from tvsnap.graph import Graph, Snapshot
from tvsnap.host import owners
from tvsnap.images import ImageStore
from tvsnap.sandboxes.protocol import Backend


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Differences between the rows and the files of snapshots."""

    rows: tuple[Snapshot, ...]  # snapshots whose files are missing
    files: tuple[str, ...]  # ids of snapshots that are not in the graph, and that no live process is about to add to it


def tidy(home: Path, graph: Graph, backend: Backend) -> None:
    """Cleans up after owners that have died, and makes the rows and the files of snapshots agree."""
    dead = owners.dead_owners(home)
    backend.reap()
    if dead:
        graph.sweep_leases(lambda owner: owners.is_alive(home, owner))
    for id in dead:
        owners.remove(home, id)
    Holds(home).sweep()
    ImageStore(home).sweep()
    make_agree(graph, backend, find_mismatch(home, graph, backend))


def make_agree(graph: Graph, backend: Backend, mismatch: Mismatch) -> None:
    """Drops rows of snapshots without files, and deletes files without a row."""
    for snapshot in mismatch.rows:
        graph.drop_snapshot(snapshot.state, snapshot.backend, snapshot.id)
    for id in mismatch.files:
        backend.delete_snapshot(id)


def find_mismatch(home: Path, graph: Graph, backend: Backend) -> Mismatch:
    """Finds rows of snapshots without files, and files without a row; changes nothing.

    Other processes may be at work: a process that takes a snapshot writes its files and then adds its row, one that
    deletes a snapshot deletes the row first. So files are known to be abandoned only if there is still no row after the
    process that wrote them is seen to be dead.
    """
    rows = graph.snapshots(backend.name)
    on_disk = set(backend.snapshots())
    abandoned = {id for id in on_disk.difference(row.id for row in rows) if not owners.has_live_owner(home, id)}
    if abandoned:
        abandoned.difference_update(row.id for row in graph.snapshots(backend.name))
    return Mismatch(tuple(row for row in rows if row.id not in on_disk), tuple(sorted(abandoned)))
