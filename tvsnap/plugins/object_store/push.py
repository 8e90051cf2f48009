"""Pushes what a task did, or a branch of the tree, to an object store.

What was pushed is described by one file for each data directory, root and task (or state), which the next push
replaces: the root, blobs with the calls, the image with its trees, and the snapshots with what each needs of a machine.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvsnap.graph import Graph, Snapshot, root_to_json, states_of
from tvsnap.images import ImageNotFound, ImageStore
from tvsnap.model.errors import InfrastructureError, NotFound, TvsnapError
from tvsnap.model.images import MANIFEST, Image
from tvsnap.plugins.object_store.store import PIECE, ObjectStore, StoreFailed
from tvsnap.plugins.object_store.subject import Meter, Progress, Subject, image_part
from tvsnap.plugins.object_store.trees import pack_tree, size_of
from tvsnap.sandboxes.protocol import Backend, Exchanging

NAME_FILE = "registry-name"
"""The file with the name by which a data directory is known in stores."""
CALLS_TOGETHER = 500
"""Calls of a blob: what was pushed before keeps its blobs."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push.

    Attributes:
        roots: the number of roots.
        calls: the number of calls.
        images: the number of images.
        snapshots: the number of snapshots.
        left_out: reasons for which snapshots were left out, by state.
        sent_bytes: bytes that the store did not have, compressed.
    """

    roots: int
    calls: int
    images: int
    snapshots: int
    left_out: Mapping[str, str]
    sent_bytes: int


def push(
    store: ObjectStore,
    home: Path,
    graph: Graph,
    images: ImageStore,
    backend: Backend,
    *,
    task: str | None = None,
    state: str | None = None,
    snapshots: bool = True,
    progress: Progress = lambda _what, _done, _all: None,
) -> Pushed:
    """Pushes the calls of a task, or those that lead to a state and lie behind it, with their image and snapshots.

    It may be ended at any moment, and begun again: what is there already is not sent again.

    Args:
        store: the store.
        home: the data directory.
        graph: its graph.
        images: its images.
        backend: whose snapshots are pushed.
        task: the task; or
        state: the state's full hash.
        snapshots: False to push calls and images only.
        progress: is told how far it is.

    Raises:
        NotFound: the task has made no calls, or there is no such state.
        UsageError: neither or both of task and state are given.
        InfrastructureError: the store cannot be written, or the image is gone.
    """
    subject = Subject(task, state)
    sender = _Snapshots(store, graph, backend, progress) if snapshots else None
    descriptions: dict[str, dict[str, Any]] = {}
    calls = 0
    calls_below = _calls(graph, subject)
    for root, rows in calls_below.items():
        info = graph.root_of(root)
        described = {
            "root": root_to_json(info),
            "task": task or "",
            "calls": store.put_all(_pieces(rows)),
            "image": _image(store, images, info.image_digest, descriptions, progress),
            "snapshots": [] if sender is None else sender.send({root, *states_of(rows)}),
        }
        calls += len(rows)
        store.describe(f"{subject.folder}/{root}.{_name(home)}.json", described)
    return Pushed(
        len(calls_below),
        calls,
        len(descriptions),
        0 if sender is None else sender.count,
        {} if sender is None else sender.left_out,
        store.sent_bytes,
    )


def _calls(graph: Graph, subject: Subject) -> dict[str, list[list[Any]]]:
    """Returns the calls of a subject, by root; raises NotFound if there is no such task or state."""
    if subject.task is not None and subject.task not in graph.tasks():
        raise NotFound(f"no rollouts of {subject} are known (tvsnap tree)")
    root = None if subject.state is None else graph.state(subject.state).root
    calls = graph.portable(task=subject.task, state=subject.state)
    return calls if calls or root is None else {root: []}


def _name(home: Path) -> str:
    """Returns the name by which a data directory is known in stores, so that its own descriptions are replaced."""
    file = home / NAME_FILE
    with contextlib.suppress(FileNotFoundError):
        return file.read_text(encoding="ascii").strip()
    with contextlib.suppress(FileExistsError), open(file, "x", encoding="ascii") as writer:
        writer.write(secrets.token_hex(8) + "\n")
    return file.read_text(encoding="ascii").strip()


def _pieces(rows: list[list[Any]]) -> list[bytes]:
    """Returns the calls as blobs, each with some of them, and no longer than a blob may be."""
    pieces: list[bytes] = []
    lines: list[bytes] = []
    size = 0
    for row in rows:
        line = json.dumps(row).encode() + b"\n"
        if len(line) > PIECE:  # a result of megabytes is executed again there
            continue
        if lines and (len(lines) >= CALLS_TOGETHER or size + len(line) > PIECE):
            pieces.append(b"".join(lines))
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    return [*pieces, b"".join(lines)] if lines else pieces


def _image(
    store: ObjectStore, images: ImageStore, digest: str, descriptions: dict[str, dict[str, Any]], progress: Progress
) -> dict[str, Any]:
    """Sends an image, those that it starts from, and those of its other services; returns what describes them."""
    if digest not in descriptions:
        try:
            image = images.get(digest)
        except ImageNotFound as error:
            raise InfrastructureError(f"its image is gone ({error}); build it again before it is pushed") from None
        descriptions[digest] = {}
        descriptions[digest] = _sent(store, images, image, descriptions, progress)
    return descriptions[digest]


def _sent(
    store: ObjectStore, images: ImageStore, image: Image, descriptions: dict[str, dict[str, Any]], progress: Progress
) -> dict[str, Any]:
    trees = []
    for id, (root, digest) in images.trees(image).items():
        if id != image.digest and not digest:  # an image that this one starts from
            trees.append({"id": id, "image": _image(store, images, id, descriptions, progress)})
            continue
        meter = Meter(progress, image_part(image.name, image.digest), size_of(root))
        trees.append({"id": id, "digest": digest, "tree": pack_tree(store, root, meter.add)})
    manifest = json.loads((image.rootfs.parent / MANIFEST).read_text(encoding="utf-8"))
    manifest["source"] = ""  # a path of this machine
    return {"digest": image.digest, "name": image.name, "image.json": manifest, "trees": trees}


class _Snapshots:
    """Sends the snapshots of states.

    Attributes:
        count: the number of snapshots that were sent.
        left_out: reasons for which others were not, by state.
    """

    def __init__(self, store: ObjectStore, graph: Graph, backend: Backend, progress: Progress) -> None:
        self.count = 0
        self.left_out: dict[str, str] = {}
        self._store, self._backend, self._progress = store, backend, progress
        self._snapshots = {one.state: one for one in graph.snapshots(backend.name)}

    def send(self, states: set[str]) -> list[dict[str, Any]]:
        """Sends the snapshots of some states; returns what describes them."""
        chosen = [self._snapshots[state] for state in sorted(states & self._snapshots.keys())]
        descriptions = []
        for number, snapshot in enumerate(chosen):
            self._progress("snapshots", number, len(chosen))
            if not isinstance(self._backend, Exchanging):
                self.left_out[snapshot.state] = f"the backend {self._backend.name} cannot give them away"
                continue
            try:
                descriptions.append(self._sent(self._backend, snapshot))
            except StoreFailed:
                raise
            except TvsnapError as error:
                self.left_out[snapshot.state] = str(error)  # deleted meanwhile, or damaged
        self._progress("snapshots", len(chosen), len(chosen))
        return descriptions

    def _sent(self, backend: Exchanging, snapshot: Snapshot) -> dict[str, Any]:
        needs = backend.requirements(snapshot.id)
        facts, trees = backend.trees(snapshot.id)
        packed = {name: pack_tree(self._store, root) for name, root in trees.items()}
        backend.requirements(snapshot.id)  # it is still as it was
        self.count += 1
        return {
            "state": snapshot.state,
            "backend": snapshot.backend,
            "needs": dict(needs),
            "said": dict(facts),
            "trees": packed,
            "checkpoint_s": snapshot.checkpoint_s,
            "fork_s": snapshot.fork_s,
            "processes": list(snapshot.processes),
            "age_s": snapshot.age_s,
        }
