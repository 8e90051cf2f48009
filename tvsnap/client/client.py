"""What `tvsnap.connect` returns: a cache elsewhere, its rollouts and its sandboxes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from io import RawIOBase
from pathlib import Path
from typing import Any

from tvsnap.client.transport import PATIENCE, Transport
from tvsnap.client.wire import target
from tvsnap.graph.model import Edge, RolloutRecord, RootInfo, Snapshot, State, TreeNode
from tvsnap.host.trees import MOST_FETCHED, TreeItem, Upload, extract, items_of, serialised, store, stored
from tvsnap.model.calls import Part, ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.observations import FileChange, Outcome, Process
from tvsnap.model.stats import Stats
from tvsnap.wire.errors import error_of
from tvsnap.wire.values import from_data

DEFAULT_TIMEOUT = 30.0  # seconds, as of `Rollout.call`


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
        network: str | Sequence[str] | None = None,
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
        asked: dict[str, Any] = {
            "image": image,
            "task": task,
            "salt": salt,
            "label": label,
            "network": network,
            "deadline": deadline,
        }
        asked["limits"] = None if limits is None else asdict(limits)
        return self._begun(self.transport.ask("POST", target("rollouts"), asked))

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
        asked = {"task": task, "label": label, "after": after}
        (begun,) = self.transport.ask("POST", target("states", state, "rollouts"), asked)["rollouts"]
        return self._begun(begun)

    @contextlib.contextmanager
    def materialise(
        self, state: str, *, after: float = 0.0, network: str | Sequence[str] | None = None
    ) -> Iterator[RemoteSandbox]:
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
        asked = {"after": after, "network": network}
        (made,) = self.transport.ask("POST", target("states", state, "sandboxes"), asked)["sandboxes"]
        try:
            yield RemoteSandbox(self.transport, made["id"])
        finally:
            self.transport.ask("DELETE", target("sandboxes", made["id"]))

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

    def close(self) -> None:
        """Ends the rollouts that were begun here, and the connections. It may be called more than once."""
        for rollout in list(self._open.values()):
            rollout.close()
        self.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begun(self, data: Mapping[str, Any]) -> RemoteRollout:
        rollout = RemoteRollout(self, data)
        self._open[data["id"]] = rollout
        return rollout

    def _ended(self, key: str) -> None:
        self._open.pop(key, None)


class RemoteRollout:
    """A `Rollout` elsewhere. It is a context manager that closes it."""

    def __init__(self, client: Client, data: Mapping[str, Any]) -> None:
        self._client = client
        self._transport = client.transport
        self._key: str = data["id"]
        self._name: str | None = data["name"]
        self._root: str = data["root"]
        self._place: Mapping[str, Any] | None = data["place"]
        self._calls = target("rollouts", self._key, "calls")
        self._closed = False

    @property
    def id(self) -> str | None:
        """Its name in the graph; see `Rollout.id`."""
        return self._name

    @property
    def root(self) -> str:
        """The hash of its root."""
        return self._root

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
        return self._where()["private"]  # type: ignore[no-any-return]

    @property
    def unshared(self) -> str | None:
        """Why the last call's result answers no other, or None; see `Rollout.unshared`."""
        return self._where()["unshared"]  # type: ignore[no-any-return]

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        after: float = 0.0,
        deadline: float | None = None,
        grade: Sequence[str] | None = None,
    ) -> ToolResult:
        """Makes a tool call; see `Rollout.call`. It is executed once, also where the connection breaks."""
        self._check_open()
        asked: dict[str, Any] = {"name": name, "arguments": arguments, "timeout": timeout}
        if after:
            asked["after"] = after
        if deadline is not None:
            asked["deadline"] = deadline
        if grade is not None:
            asked["grade"] = grade
        answer = self._transport.ask("POST", self._calls, _plain(asked))
        self._place = answer["place"]
        return _result(answer["result"])

    def put(
        self, source: str | Path | bytes, path: str, *, user: str | None = None, timeout: float | None = None
    ) -> ToolResult:
        """Copies a file or a folder of this machine into the sandbox; see `Rollout.put`."""
        self._check_open()
        digest = _upload(self._transport, source)
        chosen = {} if user is None else {"user": user}
        return self.call("put", {"path": path, "digest": digest, **chosen}, timeout)

    def get(
        self,
        path: str,
        destination: str | Path | None = None,
        *,
        limit: int = MOST_FETCHED,
        timeout: float | None = None,
    ) -> RemoteFetched:
        """Copies a file or a folder out of the sandbox; see `Rollout.get`."""
        self._check_open()
        asked = {"path": path, "limit": limit, "timeout": timeout}
        answer = self._transport.ask("POST", target("rollouts", self._key, "fetches"), asked)
        self._place = answer["place"]
        fetched = RemoteFetched(self._transport, _result(answer["result"]), answer["digest"], answer["kind"])
        if destination is not None:
            fetched.extract(destination)
        return fetched

    def fork(self, n: int = 1) -> list[RemoteRollout]:
        """Begins rollouts where it stands; see `Rollout.fork`."""
        self._check_open()
        begun = self._transport.ask("POST", target("rollouts", self._key, "forks"), {"n": n})["rollouts"]
        return [self._client._begun(one) for one in begun]

    def cancel(self) -> bool:
        """Ends the call that another thread is making; see `Rollout.cancel`."""
        return bool(self._transport.ask("POST", target("rollouts", self._key, "cancel"))["done"])

    def snapshot_if_idle(self) -> bool:
        """Takes a snapshot where it stands; see `Rollout.snapshot_if_idle`."""
        return bool(self._transport.ask("POST", target("rollouts", self._key, "snapshots"))["done"])

    def close(self) -> None:
        """Ends it. It may be called more than once."""
        if not self._closed:
            self._closed = True
            self._client._ended(self._key)
            self._transport.ask("DELETE", target("rollouts", self._key))

    def __enter__(self) -> RemoteRollout:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the rollout is closed")

    def _where(self) -> Mapping[str, Any]:
        if self._place is None:
            self._place = self._transport.ask("GET", target("rollouts", self._key))["place"]
        assert self._place is not None
        return self._place


class RemoteFetched:
    """What a rollout elsewhere has fetched; see `Fetched`."""

    def __init__(self, transport: Transport, result: ToolResult, digest: str | None, kind: str | None) -> None:
        self._transport = transport
        self.result = result
        self.digest = digest
        self.kind = kind

    def read(self) -> bytes:
        """Returns the contents of a file."""
        if self.kind == "directory":
            raise IsADirectoryError(21, "Is a directory")
        with self._items() as items:
            return b"".join(piece for item in items for piece in item.content)

    def extract(self, destination: str | Path) -> tuple[str, ...]:
        """Writes it to this machine; see `Fetched.extract`."""
        with self._items() as items:
            return extract(items, destination)

    @contextlib.contextmanager
    def _items(self) -> Iterator[Iterator[TreeItem]]:
        if self.digest is None:
            raise OSError(self.result.output.strip())
        with _download(self._transport, self.digest) as items:
            yield items


class RemoteSandbox:
    """A `Sandbox` elsewhere."""

    def __init__(self, transport: Transport, key: str) -> None:
        self._transport = transport
        self._key = key

    @property
    def id(self) -> str:
        """Its name on the server."""
        return self._key

    def run(self, command: str, *, timeout: float) -> Outcome:
        """Runs a command in the persistent shell; see `Sandbox.run`."""
        return from_data(Outcome, self._ask("run", {"command": command, "timeout": timeout}))

    def exec(
        self,
        command: str,
        *,
        timeout: float,
        cwd: str | None = None,
        env: Mapping[str, str] = {},
        user: str | None = None,
        separate: bool = False,
        service: str | None = None,
    ) -> Outcome:
        """Runs a command in a fresh shell; see `Sandbox.exec`."""
        asked = {"command": command, "timeout": timeout, "cwd": cwd, "env": dict(env), "user": user}
        return from_data(Outcome, self._ask("exec", {**asked, "separate": separate, "service": service}))

    def read_file(self, path: str, *, service: str | None = None) -> bytes:
        """Returns a file's contents; see `Sandbox.read_file`."""
        return self._transport.fetch(self._target("files", path=path, service=service))

    def write_file(self, path: str, data: bytes, *, user: str | None = None, service: str | None = None) -> None:
        """Writes a file; see `Sandbox.write_file`."""
        self._transport.ask("PUT", self._target("files", path=path, user=user, service=service), data)

    def put(self, source: Upload, path: str, *, user: str | None = None, timeout: float | None = None) -> None:
        """Copies a file or a folder of this machine into it; see `Sandbox.put`."""
        digest = _upload(self._transport, source)
        self._ask("puts", {"path": path, "digest": digest, "user": user, "timeout": timeout})

    def get(
        self, path: str, destination: str | Path, *, limit: int = MOST_FETCHED, timeout: float | None = None
    ) -> tuple[str, ...]:
        """Copies a file or a folder out of it; see `Sandbox.get`."""
        digest = self._ask("fetches", {"path": path, "limit": limit, "timeout": timeout})["digest"]
        with _download(self._transport, digest) as items:
            return extract(items, destination)

    def processes(self) -> list[Process]:
        """Returns the live processes; see `Sandbox.processes`."""
        return from_data(list[Process], self._look("processes"))

    def changes(self) -> Mapping[str, FileChange]:
        """Returns what differs from the image; see `Sandbox.changes`."""
        return from_data(dict[str, FileChange], self._look("changes"))

    def shell_state(self) -> Mapping[str, str]:
        """Returns the shell's state by name; see `Sandbox.shell_state`."""
        return from_data(dict[str, str], self._look("shell_state"))

    def _look(self, what: str) -> Any:
        return self._transport.ask("GET", self._target(what))[what]

    def _ask(self, what: str, body: Any) -> Any:
        return self._transport.ask("POST", self._target(what), body)

    def _target(self, what: str, **query: Any) -> str:
        return target("sandboxes", self._key, what, **query)


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
        of = {"source": source} if isinstance(source, str) else {"digest": _upload(self._transport, source)}
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


def _result(data: Mapping[str, Any]) -> ToolResult:
    import base64

    parts = tuple(
        Part(one["media_type"], one["text"] if "text" in one else base64.b64decode(one["base64"]))
        for one in data["parts"]
    )
    return ToolResult(
        *(parts, data["exit_code"], data["duration"], data["timed_out"], data["blocked"], data["truncated"]),
        source=data["source"],
        cost=data["cost"],
        strain=data["strain"],
    )


def _plain(asked: dict[str, Any]) -> dict[str, Any]:
    """Returns what a call asks for; raises UsageError if it is no plain JSON, as `Rollout.call` does."""
    from tvsnap.model.calls import canonical_json

    arguments = asked["arguments"]
    if not all(isinstance(value, str) for value in arguments.values()):
        canonical_json(arguments)
    return asked


def _upload(transport: Transport, source: Upload) -> str:
    """Uploads a file or a folder, unless the server has it; returns its digest."""
    size = 0

    def count(data: bytes) -> None:
        nonlocal size
        size += len(data)

    digest = store(items_of(source), count)
    path = target("contents", digest)
    if not transport.exists(path):
        transport.upload(path, size, serialised(items_of(source)))
    return digest


@contextlib.contextmanager
def _download(transport: Transport, digest: str) -> Iterator[Iterator[TreeItem]]:
    with transport.stream("GET", target("contents", digest)) as pieces:
        yield stored(_Stream(pieces), digest)  # type: ignore[arg-type]


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line.decode() for line in lines)


class _Stream(RawIOBase):
    """Pieces as a file to be read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = bytearray()

    def read(self, size: int = -1) -> bytes:
        while len(self._rest) < size and (piece := next(self._pieces, b"")):
            self._rest += piece
        taken = bytes(self._rest[:size])
        del self._rest[:size]
        return taken

    def readline(self, size: int | None = -1) -> bytes:
        while b"\n" not in self._rest and (piece := next(self._pieces, b"")):
            self._rest += piece
        end = self._rest.find(b"\n") + 1
        return self.read(end or len(self._rest))
