"""Pulls what was pushed: images that are missing, calls that are not known, snapshots that fit this machine."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvsnap.graph import Graph, Snapshot, root_from_json
from tvsnap.images import ImageNotFound, ImageStore
from tvsnap.model.errors import InfrastructureError, NotFound, TvsnapError
from tvsnap.model.observations import SnapshotInfo
from tvsnap.plugins.object_store.store import ObjectStore
from tvsnap.plugins.object_store.subject import Meter, Progress, Subject, image_part
from tvsnap.plugins.object_store.trees import unpack_tree
from tvsnap.sandboxes.protocol import Backend, Exchanging

_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of a pull.

    Attributes:
        images: the number of images that are new here.
        calls: the number of calls that are new here.
        known: the number of calls that were here already.
        conflicting: the number of calls that are left out, because they led elsewhere here, or lie behind such
            calls.
        snapshots: the number of snapshots that are new here.
        left_out: the number of other snapshots by the reason for which they are not used.
        fetched_bytes: bytes that were fetched, compressed.
    """

    images: int
    calls: int
    known: int
    conflicting: int
    snapshots: int
    left_out: Mapping[str, int]
    fetched_bytes: int


def pull(
    store: ObjectStore,
    graph: Graph,
    images: ImageStore,
    backend: Backend,
    *,
    task: str | None = None,
    state: str | None = None,
    snapshots: bool = True,
    progress: Progress = lambda _what, _done, _all: None,
) -> Pulled:
    """Pulls what was pushed of a task, or of a state, by any data directory.

    It may be ended at any moment, and begun again. What is known here stays as it is. A snapshot that does not fit this
    machine is left out: its state is rebuilt from the image by its calls.

    Args:
        store: the store.
        graph: the graph of the data directory.
        images: its images.
        backend: the backend that will fork the snapshots.
        task: the task; or
        state: the state's full hash, as it was pushed.
        snapshots: False to pull calls and images only.
        progress: is told how far it is.

    Raises:
        NotFound: the store has nothing of it.
        UsageError: neither or both of task and state are given.
        InfrastructureError: the store cannot be read, or something in it is missing or damaged.
    """
    subject = Subject(task, state)
    described = list(store.descriptions(subject.folder))
    if not described:
        raise NotFound(f"the store at {store.url} has nothing of {subject}")
    counts: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    try:
        for one in described:
            counts["images"] += _Images(store, images, progress).pull(one["image"])
            adopted = graph.adopt(root_from_json(one["root"]), _rows(store, one["calls"]), task=one["task"])
            counts.update(calls=adopted.added, known=adopted.known, conflicting=adopted.conflicting)
            for number, snapshot in enumerate(one["snapshots"] if snapshots else ()):
                progress("snapshots", number, len(one["snapshots"]))
                if reason := _keep(store, graph, backend, snapshot):
                    left_out[reason] += 1
                else:
                    counts["snapshots"] += 1
    except (KeyError, TypeError, AttributeError) as error:
        raise InfrastructureError(f"what was pushed to {store.url} makes no sense: {error!r}") from None
    of_graph = {name: counts[name] for name in ("images", "calls", "known", "conflicting", "snapshots")}
    return Pulled(**of_graph, left_out=dict(left_out), fetched_bytes=store.fetched_bytes)


def _rows(store: ObjectStore, names: Sequence[str]) -> Iterator[list[Any]]:
    for piece in store.get_all(names):
        yield from map(json.loads, piece.splitlines())


class _Images:
    """Pulls an image, with those that it starts from."""

    def __init__(self, store: ObjectStore, images: ImageStore, progress: Progress) -> None:
        self._store, self._images, self._progress = store, images, progress

    def pull(self, description: Mapping[str, Any], depth: int = 0) -> int:
        """Makes an image unless it is here; returns how many were made."""
        try:
            self._images.get(description["digest"])
        except ImageNotFound:
            pass
        else:
            return 0
        if depth > _DEEPEST:
            raise InfrastructureError("an image in the store starts from itself")
        images_below = sum(self.pull(tree["image"], depth + 1) for tree in description["trees"] if "image" in tree)
        trees = {tree["id"]: tree for tree in description["trees"] if "tree" in tree}
        part = image_part(description["name"], description["digest"])
        meter = Meter(self._progress, part, int(description["image.json"]["size"]))

        def fill(id: str, root: Path) -> str:
            unpack_tree(self._store, trees[id]["tree"], root, meter.add)
            return str(trees[id]["digest"])

        self._images.adopt(description["digest"], description["image.json"], fill, description["name"])
        return images_below + 1


def _keep(store: ObjectStore, graph: Graph, backend: Backend, description: Mapping[str, Any]) -> str | None:
    """Makes a snapshot of a state, unless it has one; returns why it is not used, None if it is."""
    state = description["state"]
    if graph.snapshot(state, backend.name) is not None:
        return "the state has a snapshot here"
    try:
        graph.state(state)
    except TvsnapError:
        return "calls led elsewhere here"
    if description["backend"] != backend.name or not isinstance(backend, Exchanging):
        return f"it is of the backend {description['backend']}"
    if reason := backend.unfit(description["needs"]):
        return reason

    def fill(name: str, root: Path) -> None:
        unpack_tree(store, description["trees"][name], root)

    info = backend.adopt(description["said"], fill)
    if graph.add_snapshot(_row(description, info, backend.name)):
        return None
    backend.delete_snapshot(info.id)
    return "the state has a snapshot here"


def _row(description: Mapping[str, Any], info: SnapshotInfo, backend: str) -> Snapshot:
    now = time.time()
    return Snapshot(
        description["state"],
        info.id,
        backend,
        info.size,
        info.captures,
        float(description["checkpoint_s"]),
        None if description["fork_s"] is None else float(description["fork_s"]),
        tuple(map(str, description["processes"])),
        now,
        now,
        age_s=float(description["age_s"]),
    )
