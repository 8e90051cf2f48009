"""The images and the graph of a server, uploads and downloads, with blocking methods."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvsnap.graph.model import (
    Edge,
    Listing,
    Outlined,
    RolloutRecord,
    RolloutSummary,
    RootInfo,
    Snapshot,
    State,
    Step,
    Tally,
    TreeNode,
)
from tvsnap.host.trees import TreeItem, Upload, items_of, serialised, store, stored
from tvsnap.model.images import Image, Manifest
from tvsnap.plugins.client.http import Ask, target
from tvsnap.plugins.client.transport import Transport
from tvsnap.plugins.client.wire.errors import error_of
from tvsnap.plugins.client.wire.values import from_data

if TYPE_CHECKING:
    from tvsnap.images import BuildProgress

LISTED = 500
"""Calls fetched in one request."""


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool of a server's rollout; see `Tool`.

    Attributes:
        name: its name.
        description: its description for models.
        parameters: the JSON schema of its arguments.
        read_only: whether it changes nothing itself.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    read_only: bool


class RemoteImages:
    """The images of a server; see `ImageStore`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, name: str) -> Image:
        """Returns an image; see `ImageStore.get`."""
        return from_data(Image, self._transport.get(target("images", name))["image"])

    def manifest(self, image: Image) -> Manifest:
        """Returns the manifest of an image; see `ImageStore.manifest`."""
        return from_data(Manifest, self._transport.get(target("images", image.digest))["manifest"])

    def list(self) -> list[Image]:
        """Returns all images; see `ImageStore.list`."""
        return [from_data(Image, one) for one in self._transport.get(target("images"))["images"]]

    def remove(self, name: str) -> Image:
        """Removes a name of an image, or the image; see `ImageStore.remove`."""
        return from_data(Image, self._transport.ask(Ask("DELETE", target("images", name)))["image"])

    def build(
        self,
        source: Path | str,
        *,
        name: str | None = None,
        progress: BuildProgress | None = None,
        force: bool = False,
        keep_layers: bool = False,
        from_dockerfile: bool = False,
        docker_image: str | None = None,
        task_user: bool = True,
    ) -> Image:
        """Builds an image on the server; see `ImageStore.build`.

        Args:
            source: the name of an image that comes with tvsnap; or the path of a folder of this machine, or of a
                description in it, which is uploaded.
            name, progress, force, keep_layers, from_dockerfile, docker_image, task_user: see `ImageStore.build`.

        Raises:
            TvsnapError: see `ImageStore.build`.
            ConnectionError: the connection broke before the image was built; the server goes on with it.
        """
        of: dict[str, Any] = {"source": source}
        if isinstance(source, Path):
            path = source.expanduser().absolute()
            of = {"file": path.name} if path.is_file() else {}
            folder = path.parent if of else path
            of |= {"folder": folder.resolve().name, "digest": upload(self._transport, folder)}
        how = {"keep_layers": keep_layers, "from_dockerfile": from_dockerfile, "task_user": task_user}
        request = {**of, **how, "name": name, "force": force, "docker_image": docker_image}
        event = ""
        with self._transport.stream("POST", target("images"), request) as pieces:
            for line in _lines(pieces):
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    data = json.loads(line.removeprefix("data: "))
                    if event == "image":
                        return from_data(Image, data)
                    if event == "error":
                        raise error_of(data, 500)
                    if progress is not None:
                        getattr(progress, event)(**data)
        raise ConnectionError("the connection broke before the image was built; build it again")


class RemoteGraph:
    """The graph of a server, for reading; see `Graph`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def resolve(self, name: str) -> State:
        """Returns a state by its hash or a prefix of it; see `Graph.resolve`."""
        return from_data(State, self._show(name)["state"])

    def lineage(self, state: str) -> list[Edge]:
        """Returns the calls that lead to a state; see `Graph.lineage`."""
        return from_data(list[Edge], self._show(state)["lineage"])

    def out_edges(self, state: str) -> list[Edge]:
        """Returns the calls made in a state; see `Graph.out_edges`."""
        return from_data(list[Edge], self._show(state)["calls"])

    def edge(self, id: int) -> Edge:
        """Returns a call by its id; see `Graph.edge`."""
        return from_data(Edge, self._transport.get(target("calls", str(id)))["call"])

    def outline(self, *, root: str | None = None, task: str | None = None) -> list[Outlined]:
        """Returns recorded calls without their texts; see `Graph.outline`."""
        pages = self._pages("outline", root=root, task=task)
        return [one for page in pages for one in from_data(list[Outlined], page["calls"])]

    def listed(self, ids: Collection[int]) -> list[Edge]:
        """Returns calls without their outputs; see `Graph.listed`."""
        wanted, edges = [str(id) for id in ids], list[Edge]()
        for first in range(0, len(wanted), LISTED):
            path = target("calls", ids=",".join(wanted[first : first + LISTED]))
            edges += from_data(list[Edge], self._transport.get(path)["calls"])
        return edges

    def matching(self, *, task: str | None = None, tool: str | None = None, text: str | None = None) -> set[int]:
        """Returns the ids of the calls that fit; see `Graph.matching`."""
        pages = self._pages("search", task=task, tool=tool, text=text)
        return {id for page in pages for id in from_data(list[int], page["ids"])}

    def snapshots_of(self, state: str) -> list[Snapshot]:
        """Returns the snapshots of a state."""
        return from_data(list[Snapshot], self._show(state)["snapshots"])

    def root_of(self, state: str) -> RootInfo:
        """Returns the root of a state; see `Graph.root_of`."""
        return from_data(RootInfo, self._show(state)["root"])

    def tasks(self) -> list[str]:
        """Returns the tasks that had rollouts; see `Graph.tasks`."""
        return from_data(list[str], self._transport.get(target("tasks"))["tasks"])

    def tree(
        self, *, root: str | None = None, task: str | None = None, image: str | None = None, depth: int | None = None
    ) -> Listing:
        """Returns the states; see `Graph.tree`."""
        path = target("tree", root=root, task=task, image=image, depth=depth)
        return Listing(from_data(list[TreeNode], self._transport.get(path)["nodes"]))

    def roots(self) -> list[RootInfo]:
        """Returns the roots; see `Graph.roots`."""
        return from_data(list[RootInfo], self._transport.get(target("roots"))["roots"])

    def rollouts(self, task: str | None = None) -> list[RolloutRecord]:
        """Returns all rollouts; see `Graph.rollouts`."""
        return from_data(list[RolloutRecord], self._transport.get(target("history", task=task))["rollouts"])

    def summaries(
        self,
        *,
        task: str | None = None,
        label: str | None = None,
        image: str | None = None,
        since: float | None = None,
        failed: bool = False,
        limit: int | None = None,
        id: str | None = None,
    ) -> list[RolloutSummary]:
        """Returns rollouts, newest first, with figures of their calls; see `Graph.summaries`."""
        query = {"task": task, "label": label, "image": image, "since": since, "limit": limit, "id": id}
        path = target("transcripts", failed="true" if failed else None, **query)
        return from_data(list[RolloutSummary], self._transport.get(path)["rollouts"])

    def tallies(self, by: str | None = None, *, task: str | None = None, label: str | None = None) -> list[Tally]:
        """Returns figures of groups of rollouts; see `Graph.tallies`."""
        return from_data(list[Tally], self._transport.get(target("tallies", by=by, task=task, label=label))["tallies"])

    def find_rollout(self, name: str) -> RolloutRecord | None:
        """Returns the rollout that a person names, or None; see `Graph.find_rollout`."""
        record = self._transport.get(target("transcripts", name, steps="false"))["rollout"]
        return None if record is None else from_data(RolloutRecord, record)

    def steps(self, rollout: str) -> list[Step]:
        """Returns the calls of a rollout in order; see `Graph.steps`."""
        return from_data(list[Step], self._transport.get(target("transcripts", rollout))["steps"])

    def _pages(self, name: str, **query: Any) -> Iterator[Any]:
        """Yields the answers of an operation that is answered in parts."""
        after: int | None = 0
        while after is not None:
            page = self._transport.get(target(name, after=after, **query))
            yield page
            after = page["next"]

    def _show(self, state: str) -> Any:
        return self._transport.get(target("states", state))


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line.decode() for line in lines)


def upload(transport: Transport, source: Upload, *, owners: bool = False, mode: int | None = None) -> str:
    """Uploads a file or a folder, unless the server has it; returns its digest."""
    if not isinstance(source, (str, Path, bytes)):
        source = list(source)  # it is read twice, or more often if the connection breaks
    size = 0

    def count(data: bytes) -> None:
        nonlocal size
        size += len(data)

    def items() -> Iterator[TreeItem]:
        return items_of(source, owners=owners, mode=mode)

    digest = store(items(), count)
    path = target("contents", digest)
    if not transport.exists(path):
        transport.upload(path, size, lambda: serialised(items()))
    return digest


@contextlib.contextmanager
def downloaded(transport: Transport, digest: str) -> Iterator[Iterator[TreeItem]]:
    """A block with the items of a content of the server, which was downloaded completely."""
    with transport.download(target("contents", digest)) as file:
        yield stored(file, digest)
