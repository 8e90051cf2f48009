"""What `tvsnap.connect` returns: a cache elsewhere, its rollouts and its sandboxes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, TypeVar, cast, overload

from tvsnap.client.operations import (
    Hosts,
    RolloutSteps,
    SandboxSteps,
    end_sandboxes,
    make_sandboxes,
    open_rollout,
    resume_rollouts,
    upload,
    warm_image,
)
from tvsnap.client.steps import Ask, Blocking, blocking, in_turn
from tvsnap.client.transport import PATIENCE, Transport
from tvsnap.client.wire import target
from tvsnap.graph.model import Edge, RolloutRecord, RootInfo, Snapshot, State, TreeNode
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.stats import Stats
from tvsnap.wire.errors import Unreachable, error_of
from tvsnap.wire.values import from_data

K = TypeVar("K")


def connect(url: str, token: str | None = None, *, patience: float = PATIENCE) -> Client:
    """Returns the cache of a server, which is used as a `Cache` is.

    Args:
        url: `http://HOST:PORT`, or `unix:PATH`.
        token: what the server lets in with; None where it asks for none.
        patience: seconds to wait while the server's sandboxes are used up.

    Raises:
        UsageError: the address is none, or the server does not know the token.
        Unreachable: there is no server.
    """
    client = Client(Transport(url, token, patience))
    client.transport.ask("GET", target("rollouts"))
    return client


class Client:
    """A `Cache` elsewhere. Thread-safe, and a context manager that ends its rollouts.

    Attributes:
        transport: its connections.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._open: dict[str, RemoteRollout] = {}

    def rollout(
        self,
        image: str,
        task: str = "",
        salt: str | None = None,
        label: str | None = None,
        *,
        limits: Limits | None = None,
        network: Hosts = None,
        deadline: float | None = None,
    ) -> RemoteRollout:
        """Begins a rollout at the root of an image; see `Cache.rollout`.

        Args:
            image: the image's name or digest, as the server knows it.
            task: the task that the rollout is of.
            salt: a text that keeps rollouts apart.
            label: what people call this rollout.
            limits: what its sandboxes may use; None for what all sandboxes of the image may.
            network: what its sandboxes may reach outside; None for what the image says.
            deadline: seconds from now on by which the rollout is to be through; None for none.

        Raises:
            NotFound: there is no such image.
            UsageError: an argument makes no sense.
        """
        return self._begin(open_rollout(image, task, salt, label, limits, network, deadline))

    def resume(self, state: str, task: str = "", label: str | None = None, *, after: float = 0.0) -> RemoteRollout:
        """Begins a rollout at any state; see `Cache.resume`.

        Args:
            state: the state's full hash.
            task: the task that the rollout is of.
            label: what people call this rollout.
            after: seconds that are to have passed there since the state was reached.

        Raises:
            NotFound: there is no such state, or its image was removed.
            StateLost: what kept the state is gone, and nothing else leads to it.
        """
        return self._begin(resume_rollouts(state, 1, task, label, after))

    @contextlib.contextmanager
    def materialise(self, state: str, *, after: float = 0.0, network: Hosts = None) -> Iterator[RemoteSandbox]:
        """Returns a context manager with a sandbox in any state; see `Cache.materialise`.

        Args:
            state: the state's full hash.
            after: seconds that the sandbox is to have run in the state before it is given out.
            network: what the sandbox may reach outside; None for what rollouts there may.

        Yields:
            The sandbox.

        Raises:
            NotFound: there is no such state, or its image was removed.
            StateLost: what kept the state is gone, and nothing else leads to it.
        """
        with self._make(make_sandboxes(state, 1, after, network)) as (sandbox,):
            yield sandbox

    @overload
    def fork(self, state: str, n: int = 1, *, as_rollouts: Literal[False] = False) -> RemoteForks: ...

    @overload
    def fork(
        self, state: str, n: int = 1, *, as_rollouts: Literal[True], task: str = "", label: str | None = None
    ) -> list[RemoteRollout]: ...

    def fork(
        self, state: str, n: int = 1, *, as_rollouts: bool = False, task: str = "", label: str | None = None
    ) -> RemoteForks | list[RemoteRollout]:
        """Returns several sandboxes, or rollouts, that stand at any state; see `Cache.fork`.

        Args:
            state: the state's full hash.
            n: how many.
            as_rollouts: begin rollouts, which make sandboxes once they need them.
            task: groups the rollouts for people.
            label: what people call the rollouts.

        Returns:
            The sandboxes, to be closed together; or the rollouts, to be closed one by one.

        Raises:
            NotFound: there is no such state, or its image was removed.
            StateLost: what kept the state is gone, and nothing else leads to it.
            Busy: the server's sandboxes are used up, and stayed so for as long as the client is patient.
        """
        if as_rollouts:
            begun = self._ask(resume_rollouts(state, n, task, label, 0.0))["rollouts"]
            return [self._begun(RolloutSteps(None, one)) for one in begun]
        return self._make(make_sandboxes(state, n, 0.0, None))

    def warm(self, image: str) -> str:
        """Takes a snapshot of an image's root where its sandboxes run a service; see `Cache.warm`.

        Args:
            image: the image's name or digest, as the server knows it.

        Returns:
            The hash of the root.

        Raises:
            NotFound: there is no such image.
            NotCheckpointable: the root cannot be kept; the message is the reason.
        """
        return str(self._ask(warm_image(image))["root"])

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
        return from_data(Stats, self.transport.ask("GET", target("stats"))["stats"])

    def figures(self) -> dict[str, Any]:
        """Returns what `tvsnap stats --json` prints of the server's data directory."""
        return cast("dict[str, Any]", self.transport.ask("GET", target("stats"))["figures"])

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
        return from_data(kind, self.transport.ask("GET", path)["difference"])

    def close(self) -> None:
        """Ends the rollouts that were begun here, and the connections. It may be called more than once."""
        with contextlib.suppress(Unreachable):  # a server that has gone has ended them
            for rollout in list(self._open.values()):
                rollout.close()
        self.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, ask: Ask) -> Any:
        return self.transport.ask(ask.method, ask.path, ask.body, ask.key)

    def _begin(self, opening: Ask) -> RemoteRollout:
        steps = RolloutSteps(opening)
        in_turn(self.transport, steps.begin())
        return self._begun(steps)

    def _begun(self, steps: RolloutSteps) -> RemoteRollout:
        rollout = RemoteRollout(self, steps)
        self._open[steps.data["id"]] = rollout
        return rollout

    def _make(self, ask: Ask) -> RemoteForks:
        made = self._ask(ask)["sandboxes"]
        return RemoteForks(self.transport, [one["id"] for one in made])

    def _ended(self, key: str) -> None:
        self._open.pop(key, None)


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool elsewhere.

    Attributes:
        name: its name.
        description: what it does, for models.
        parameters: the JSON schema of its arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


class RemoteRollout(Blocking[RolloutSteps]):
    """A `Rollout` elsewhere. It is a context manager that closes it."""

    def __init__(self, client: Client, steps: RolloutSteps) -> None:
        self._client = client
        self._transport = client.transport
        self._steps = steps
        self._tools: Mapping[str, RemoteTool] | None = None

    @property
    def id(self) -> str | None:
        """Its name in the graph; see `Rollout.id`."""
        return cast("str | None", self._steps.data["name"])

    @property
    def root(self) -> str:
        """The hash of its root."""
        return str(self._steps.data["root"])

    @property
    def state(self) -> str:
        """The hash of the state at which it stands; see `Rollout.state`."""
        return str(self._where()["state"])

    @property
    def depth(self) -> int:
        """The number of calls that changed the state."""
        return int(self._where()["depth"])

    @property
    def private(self) -> str | None:
        """Why it is in a private branch, or None; see `Rollout.private`."""
        return cast("str | None", self._where()["private"])

    @property
    def unshared(self) -> str | None:
        """Why the last call's result answers no other, or None; see `Rollout.unshared`."""
        return cast("str | None", self._where()["unshared"])

    call = blocking(RolloutSteps.call)
    """Makes a tool call; see `Rollout.call`. It is executed once, also where the connection breaks."""
    exec_all = blocking(RolloutSteps.exec_all)
    """Runs several commands side by side, as one call; see `Rollout.exec_all`."""
    put = blocking(RolloutSteps.put)
    """Copies a file or a folder of this machine into the sandbox; see `Rollout.put`."""
    get = blocking(RolloutSteps.get)
    """Copies a file or a folder out of the sandbox; see `Rollout.get`."""
    cancel = blocking(RolloutSteps.cancel)
    """Ends the call that another thread is making; see `Rollout.cancel`."""
    snapshot_if_idle = blocking(RolloutSteps.snapshot_if_idle)
    """Takes a snapshot where it stands; see `Rollout.snapshot_if_idle`."""

    @property
    def tools(self) -> Mapping[str, RemoteTool]:
        """The tools that may be called, by name; see `Rollout.tools`."""
        if self._tools is None:
            told = self._transport.ask("GET", target("rollouts", self._steps.data["id"], "tools"))["tools"]
            self._tools = {name: RemoteTool(name, **about) for name, about in told.items()}
        return self._tools

    def fork(self, n: int = 1) -> list[RemoteRollout]:
        """Begins rollouts where it stands; see `Rollout.fork`."""
        return [self._client._begun(RolloutSteps(None, one)) for one in self._do(self._steps.fork(n))]

    def close(self) -> None:
        """Ends it. It may be called more than once."""
        self._client._ended(self._steps.data["id"])
        self._do(self._steps.close())

    def __enter__(self) -> RemoteRollout:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _where(self) -> Mapping[str, Any]:
        return self._steps.place or self._do(self._steps.where())


class RemoteSandbox(Blocking[SandboxSteps]):
    """A `Sandbox` elsewhere."""

    def __init__(self, transport: Transport, key: str) -> None:
        self._transport = transport
        self._steps = SandboxSteps(key)

    @property
    def id(self) -> str:
        """Its name on the server."""
        return self._steps.key

    run = blocking(SandboxSteps.run)
    """Runs a command in the persistent shell; see `Sandbox.run`."""
    exec = blocking(SandboxSteps.exec)
    """Runs a command in a fresh shell; see `Sandbox.exec`."""
    exec_all = blocking(SandboxSteps.exec_all)
    """Runs commands side by side, each in a fresh shell; see `Sandbox.exec_all`."""
    read_file = blocking(SandboxSteps.read_file)
    """Returns a file's contents; see `Sandbox.read_file`."""
    write_file = blocking(SandboxSteps.write_file)
    """Writes a file; see `Sandbox.write_file`."""
    put = blocking(SandboxSteps.put)
    """Copies a file or a folder of this machine into it; see `Sandbox.put`."""
    get = blocking(SandboxSteps.get)
    """Copies a file or a folder out of it; see `Sandbox.get`."""
    processes = blocking(SandboxSteps.processes)
    """Returns the live processes; see `Sandbox.processes`."""
    changes = blocking(SandboxSteps.changes)
    """Returns what differs from the image; see `Sandbox.changes`."""
    shell_state = blocking(SandboxSteps.shell_state)
    """Returns the shell's state by name; see `Sandbox.shell_state`."""

    @contextlib.contextmanager
    def archive(self) -> Iterator[IO[bytes]]:
        """A block with its files as a tar stream; see `Sandbox.archive`."""
        with self._transport.download(target("sandboxes", self.id, "archive")) as file:
            yield file


class RemoteForks(Sequence[RemoteSandbox]):
    """Sandboxes elsewhere that stood in one state when they were made; see `Forks`."""

    def __init__(self, transport: Transport, keys: Sequence[str]) -> None:
        self._transport = transport
        self._sandboxes = [RemoteSandbox(transport, key) for key in keys]
        self._closed = False

    @overload
    def __getitem__(self, index: int) -> RemoteSandbox: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[RemoteSandbox]: ...

    def __getitem__(self, index: int | slice) -> RemoteSandbox | Sequence[RemoteSandbox]:
        return self._sandboxes[index]

    def __len__(self) -> int:
        return len(self._sandboxes)

    def close(self) -> None:
        """Ends all of them. It may be called more than once."""
        if not self._closed:
            self._closed = True
            in_turn(self._transport, end_sandboxes([sandbox.id for sandbox in self._sandboxes]))

    def __enter__(self) -> RemoteForks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteImages:
    """The images of a server; see `ImageStore`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, name: str) -> Image:
        """Returns an image; see `ImageStore.get`."""
        return from_data(Image, self._transport.ask("GET", target("images", name))["image"])

    def list(self) -> list[Image]:
        """Returns all images; see `ImageStore.list`."""
        return [from_data(Image, one) for one in self._transport.ask("GET", target("images"))["images"]]

    def build(self, source: Path | str, *, name: str | None = None, progress: Any = None, force: bool = False) -> Image:
        """Builds an image of a name that comes with tvsnap, or of a folder of this machine; see `ImageStore.build`."""
        of = {"source": source} if isinstance(source, str) else {"digest": upload(self._transport, source)}
        event = ""
        with self._transport.stream("POST", target("images"), {**of, "name": name, "force": force}) as pieces:
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

    def snapshots_of(self, state: str) -> list[Snapshot]:
        """Returns the snapshots of a state."""
        return from_data(list[Snapshot], self._show(state)["snapshots"])

    def root_of(self, state: str) -> RootInfo:
        """Returns the root of a state; see `Graph.root_of`."""
        return from_data(RootInfo, self._show(state)["root"])

    def tasks(self) -> list[str]:
        """Returns the tasks of which there were rollouts; see `Graph.tasks`."""
        return from_data(list[str], self._transport.ask("GET", target("tasks"))["tasks"])

    def tree(
        self, *, root: str | None = None, task: str | None = None, image: str | None = None, depth: int | None = None
    ) -> list[TreeNode]:
        """Returns the states; see `Graph.tree`."""
        path = target("tree", root=root, task=task, image=image, depth=depth)
        return from_data(list[TreeNode], self._transport.ask("GET", path)["nodes"])

    def roots(self) -> list[RootInfo]:
        """Returns the roots; see `Graph.roots`."""
        return from_data(list[RootInfo], self._transport.ask("GET", target("roots"))["roots"])

    def rollouts(self, task: str | None = None) -> list[RolloutRecord]:
        """Returns the rollouts there ever were; see `Graph.rollouts`."""
        return from_data(list[RolloutRecord], self._transport.ask("GET", target("history", task=task))["rollouts"])

    def _show(self, state: str) -> Any:
        return self._transport.ask("GET", target("states", state))


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line.decode() for line in lines)
