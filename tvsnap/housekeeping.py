"""Putting a data directory in order when it is opened: what the dead left behind, and snapshots that are half there."""

from __future__ import annotations

from pathlib import Path

from tvsnap import owners
from tvsnap.backends.base import Backend
from tvsnap.graph import Graph


def tidy(home: Path, graph: Graph, backend: Backend, owner: str) -> None:
    """Cleans up after owners that have died, and makes the rows and the files of snapshots agree.

    Args:
        home: the data directory.
        graph, backend: what is in it.
        owner: the id of who asks.
    """
    dead = owners.dead_owners(home)
    backend.reap()
    if dead:
        graph.sweep_leases(lambda owner: owners.is_alive(home, owner))
    for id in dead:
        owners.remove(home, id)
    _match_snapshots(home, graph, backend, owner)


def _match_snapshots(home: Path, graph: Graph, backend: Backend, owner: str) -> None:
    """Drops rows without files; deletes files without a row, unless a live process may be about to add it."""
    # Rows first: whoever takes a snapshot meanwhile writes its files before its row.
    rows = {snapshot.id: snapshot for snapshot in graph.snapshots(backend.name)}
    on_disk = set(backend.snapshots())
    for snapshot in rows.values():
        if snapshot.id not in on_disk:
            graph.drop_snapshot(snapshot.state, snapshot.backend, snapshot.id)
    strays = on_disk - set(rows)
    if strays and not _has_others(home, owner):
        for id in strays:
            backend.delete_snapshot(id)


def _has_others(home: Path, owner: str) -> bool:
    """Whether other live owners use the data directory."""
    ids = (path.stem for path in (home / "run" / "owners").glob("*.lock"))
    return any(id != owner and owners.is_alive(home, id) for id in ids)
