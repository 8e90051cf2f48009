"""What only the client has that blocks; `async_bases` is what only the other one has."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from tvsnap.client.operations import RolloutAbout, SandboxAbout, upload
from tvsnap.client.transport import Transport
from tvsnap.client.wire import Ask, target
from tvsnap.graph.model import (
    Edge,
    Forgotten,
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
from tvsnap.model.display import Displayed
from tvsnap.model.errors import NotFound
from tvsnap.model.images import Image, Manifest
from tvsnap.model.limits import Limits
from tvsnap.model.stats import Stats
from tvsnap.wire.errors import Unreachable, error_of
from tvsnap.wire.values import from_data

if TYPE_CHECKING:
    from tvsnap.images import BuildProgress

K = TypeVar("K")
LISTED = 500
"""Of so many calls a server is asked at once."""


class BegunRollout(Protocol):
    """A `RemoteRollout`, as far as its client knows it."""

    def cancel(self) -> bool:
        """Ends the call that is being made."""

    def close(self) -> None:
        """Ends the rollout."""

    def __enter__(self) -> object:
        """Begins it."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Ends it."""

    def _begin(self) -> None:
        """Begins it."""


R = TypeVar("R", bound=BegunRollout)


class ClientBase(Generic[R]):
    """A `Client` without what it has in common with an `AsyncClient`.

    Attributes:
        transport: its connections.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._open: set[R] = set()

    @property
    def images(self) -> RemoteImages:
        """The images of the server; see `Cache.images`."""
        return RemoteImages(self.transport)

    @property
    def graph(self) -> RemoteGraph:
        """The graph, to be looked at; see `Cache.graph`."""
        return RemoteGraph(self.transport)

    def stats(self) -> Stats:
        """Returns what the server's cache has done; see `Cache.stats`."""
        return from_data(Stats, self.transport.get(target("stats"))["stats"])

    def figures(self) -> dict[str, Any]:
        """Returns what `tvsnap stats --json` prints of the server's data directory."""
        return cast("dict[str, Any]", self.transport.get(target("stats"))["figures"])

    def limits_for(self, image: Image) -> Limits:
        """Returns the limits that sandboxes of an image have on the server; see `Cache.limits_for`.

        Args:
            image: the image.

        Raises:
            NotFound: the server has no such image.
        """
        return from_data(Limits, self.transport.get(target("images", image.digest, "limits"))["limits"])

    def refusal(self, state: str) -> str | None:
        """Returns why the process of the server that answers could take no snapshot of a state; see `Cache.refusal`.

        Args:
            state: the state's full hash.
        """
        return cast("str | None", self.transport.get(target("states", state))["refusal"])

    def diff(self, kind: type[K], a: str, b: str, *, patch: bool = False) -> K:
        """Returns how two states differ.

        Args:
            kind: `tvsnap.upkeep.diff.StateDifference`.
            a: the first state's hash, or a prefix of it; see `Graph.resolve`.
            b: the second's.
            patch: compare text files line by line.

        Raises:
            NotFound: there is no such state.
            UsageError: they are of different images.
        """
        path = target("states", a, "diff", b, patch="true" if patch else None)
        return from_data(kind, self.transport.get(path)["difference"])

    def check(self, kind: type[K], call: int, *, mark: bool = True) -> K:
        """Makes a recorded call again, and compares; see `tvsnap verify`.

        Args:
            kind: `tvsnap.engine.auditing.checking.CheckReport`.
            call: the call's id, `Edge.id`.
            mark: have it answer nothing any more if it comes to something else.

        Raises:
            NotFound: there is no such call (any more).
            Busy: the server's sandboxes are used up, and stayed so for as long as the client is patient.
        """
        return from_data(kind, self.transport.ask(Ask("POST", target("calls", str(call), "checks"), {"mark": mark})))

    def forget(
        self, *, state: str | None = None, task: str | None = None, image: str | None = None, dry_run: bool = False
    ) -> tuple[Forgotten, int]:
        """Deletes a state with all that came of it, or what only one task did, or all that was done on an image.

        Args:
            state: the topmost state to delete: its hash or a prefix of it. One of this, `task` and `image` is given.
            task: the task's name.
            image: the image's name or digest.
            dry_run: delete nothing, only count.

        Returns:
            What was deleted, and the bytes that this frees.

        Raises:
            UsageError: not one of `state`, `task` and `image` is given; or a tenant names no state.
            NotFound: there is no such state or task, or nothing was run on such an image.
        """
        asked = {"state": state, "task": task, "image": image, "dry_run": dry_run}
        answer = self.transport.ask(Ask("POST", target("forget"), asked))
        return from_data(Forgotten, answer["forgotten"]), int(answer["bytes"])

    def close(self) -> None:
        """Ends the rollouts that were begun here, with the calls under way, and the connections.

        It may be called more than once.
        """
        if self.transport.forked_off:  # all of it belongs to the process that connected
            return
        with contextlib.suppress(Unreachable):  # a server that has gone has ended them
            for rollout in list(self._open):
                self.transport.life.check_lost()
                rollout.cancel()
                rollout.close()
        self.transport.close()

    def _opened(self, rollout: R) -> R:
        try:
            rollout._begin()
        except BaseException:
            self._open.discard(rollout)
            raise
        return rollout

    def _all(self, rollouts: Iterable[R]) -> list[R]:
        """Returns all of some rollouts; where one cannot be begun, none is open afterwards."""
        with contextlib.ExitStack() as undo:
            begun = []
            for rollout in rollouts:
                undo.enter_context(rollout)
                begun.append(rollout)
            undo.pop_all()
            return begun


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool elsewhere; see `Tool`.

    Attributes:
        name: its name.
        description: what it does, for models.
        parameters: the JSON schema of its arguments.
        read_only: whether it changes nothing itself.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    read_only: bool


def tools_of(answer: Mapping[str, Any]) -> dict[str, RemoteTool]:
    """Returns the tools that an answer tells of, by name."""
    return {name: RemoteTool(name, **about) for name, about in answer["tools"].items()}


class RolloutBase(RolloutAbout, Displayed):
    """A `RemoteRollout` without what it has in common with an `AsyncRemoteRollout`."""

    def __init__(self, transport: Transport, opening: Ask | None, data: Mapping[str, Any] | None) -> None:
        super().__init__(opening, data)
        self._transport = transport
        self._tools: Mapping[str, RemoteTool] | None = None

    @property
    def tools(self) -> Mapping[str, RemoteTool]:
        """The tools that may be called, by name; see `Rollout.tools`."""
        if self._tools is None:
            self._tools = tools_of(self._transport.get(self._target("tools")))
        return self._tools

    def _steps(self) -> list[Step]:
        """Returns its calls in order, for what people are shown."""
        return steps_of(self, self._transport)

    @property
    def _blocking(self) -> Transport:
        return self._transport


def steps_of(rollout: RolloutAbout, transport: Transport) -> list[Step]:
    """Returns a rollout's calls in order."""
    return [] if rollout.id is None else RemoteGraph(transport).steps(rollout.id)


def is_open(rollout: RolloutBase) -> bool:
    """Returns whether the server still has a rollout that has begun: one that was started anew has not."""
    try:
        rollout._transport.get(rollout._target())
    except NotFound:
        return False
    return True


def known_state(rollout: RolloutBase) -> str | None:
    """Returns the state at which a rollout stands, as far as that is known without asking the server."""
    return None if rollout._place is None or rollout._given_out else str(rollout._place["state"])


class SandboxBase(SandboxAbout):
    """A `RemoteSandbox` without what it has in common with an `AsyncRemoteSandbox`."""

    def __init__(self, transport: Transport, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self._transport = transport

    @contextlib.contextmanager
    def archive(self) -> Iterator[IO[bytes]]:
        """A block with its files as a tar stream; see `Sandbox.archive`."""
        with self._transport.download(target("sandboxes", self.id, "archive")) as file:
            yield file


class RemoteImages:
    """The images of a server; see `ImageStore`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, name: str) -> Image:
        """Returns an image; see `ImageStore.get`."""
        return from_data(Image, self._transport.get(target("images", name))["image"])

    def manifest(self, image: Image) -> Manifest:
        """Returns what is recorded about an image besides `Image`; see `ImageStore.manifest`."""
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
        asked = {**of, **how, "name": name, "force": force, "docker_image": docker_image}
        event = ""
        with self._transport.stream("POST", target("images"), asked) as pieces:
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
    """The graph of a server, to be looked at; see `Graph`."""

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
        wanted, found = [str(id) for id in ids], list[Edge]()
        for first in range(0, len(wanted), LISTED):
            path = target("calls", ids=",".join(wanted[first : first + LISTED]))
            found += from_data(list[Edge], self._transport.get(path)["calls"])
        return found

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
        """Returns the tasks of which there were rollouts; see `Graph.tasks`."""
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
        """Returns the rollouts there ever were; see `Graph.rollouts`."""
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
        """Returns rollouts, newest first, with what their calls came to; see `Graph.summaries`."""
        query = {"task": task, "label": label, "image": image, "since": since, "limit": limit, "id": id}
        path = target("transcripts", failed="true" if failed else None, **query)
        return from_data(list[RolloutSummary], self._transport.get(path)["rollouts"])

    def tallies(self, by: str | None = None, *, task: str | None = None, label: str | None = None) -> list[Tally]:
        """Returns what rollouts came to; see `Graph.tallies`."""
        return from_data(list[Tally], self._transport.get(target("tallies", by=by, task=task, label=label))["tallies"])

    def find_rollout(self, name: str) -> RolloutRecord | None:
        """Returns the rollout that a person names, or None; see `Graph.find_rollout`."""
        found = self._transport.get(target("transcripts", name, steps="false"))["rollout"]
        return None if found is None else from_data(RolloutRecord, found)

    def steps(self, rollout: str) -> list[Step]:
        """Returns the calls of a rollout in order; see `Graph.steps`."""
        return from_data(list[Step], self._transport.get(target("transcripts", rollout))["steps"])

    def _pages(self, name: str, **query: Any) -> Iterator[Any]:
        """Yields the answers of an operation that answers a part at a time."""
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
