"""What is done with rollouts, sandboxes and states elsewhere, as steps."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from tvsnap.client.steps import Ask, Steps
from tvsnap.client.transport import Transport
from tvsnap.client.wire import target
from tvsnap.host.trees import MOST_FETCHED, TreeItem, Upload, extract, items_of, serialised, store, stored
from tvsnap.model.calls import Part, ToolResult, canonical_json
from tvsnap.model.errors import UsageError
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Command, FileChange, Outcome, Process
from tvsnap.model.side_by_side import exec_all_arguments, results_of
from tvsnap.wire.errors import WorkerDied
from tvsnap.wire.values import from_data

DEFAULT_TIMEOUT = 30.0  # seconds, as of `Rollout.call`
MOST_READ = 16 * 1024 * 1024  # bytes, as of `Sandbox.read_file`
Hosts = str | Sequence[str] | None


class RemoteFetched:
    """What a rollout elsewhere has fetched; see `Fetched`. Its methods block.

    Attributes:
        result: the result of the call.
        digest: of what was fetched; None if nothing was.
        kind: `file` or `directory`; None if nothing was fetched.
    """

    def __init__(
        self, transport: Transport, result: ToolResult, digest: str | None, kind: str | None, *, owners: bool
    ) -> None:
        self._transport = transport
        self._owners = owners
        self.result = result
        self.digest = digest
        self.kind = kind

    def read(self) -> bytes:
        """Returns the contents of a file; see `Fetched.read`."""
        if self.kind == "directory":
            raise IsADirectoryError(21, "Is a directory")
        with self._items() as items:
            return b"".join(piece for item in items for piece in item.content)

    def extract(self, destination: str | Path) -> tuple[str, ...]:
        """Writes it to this machine; see `Fetched.extract`."""
        with self._items() as items:
            return extract(items, destination, owners=self._owners)

    @contextlib.contextmanager
    def _items(self) -> Iterator[Iterator[TreeItem]]:
        if self.digest is None:
            raise OSError(self.result.output.strip())
        with downloaded(self._transport, self.digest) as items:
            yield items


class RolloutSteps:
    """A rollout elsewhere. It begins with what is asked of it first, or when `begin` is done."""

    def __init__(self, opening: Ask | None, data: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            opening: begins it; None if it has begun.
            data: what the server says of it, if it has begun.
        """
        self._opening = opening
        self._data = data
        self.place: Mapping[str, Any] | None = None if data is None else data["place"]
        self.calling: str | None = None
        self.closed = False

    @property
    def data(self) -> Mapping[str, Any]:
        """What the server said of it when it began."""
        if self._data is None:
            raise UsageError("the rollout has not begun; use `async with`, or make a call")
        return self._data

    @property
    def has_begun(self) -> bool:
        """Whether it has begun."""
        return self._data is not None

    def begin(self) -> Steps[None]:
        """Begins it, unless it has begun."""
        if self.closed:
            raise UsageError("the rollout is closed")
        if self._data is None:
            answer = yield cast("Ask", self._opening)
            self._data = answer["rollouts"][0] if "rollouts" in answer else answer
            self.place = self._data["place"]

    def where(self) -> Steps[Mapping[str, Any]]:
        """Returns where it stands, once that is known."""
        if self.place is None:
            self.place = (yield Ask("GET", self._target()))["place"]
        return cast("Mapping[str, Any]", self.place)

    def settled(self) -> Steps[None]:
        """Waits until it is known where the last call led."""
        yield from self.where()

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        after: float = 0.0,
        deadline: float | None = None,
        grade: Sequence[str] | None = None,
    ) -> Steps[ToolResult]:
        """Makes a tool call; see `Rollout.call`. It is executed once, also where the connection breaks."""
        yield from self.begin()
        if not all(isinstance(value, str) for value in arguments.values()):
            canonical_json(arguments)  # raises UsageError where they are no plain JSON, as `Rollout.call` does
        asked: dict[str, Any] = {"name": name, "arguments": arguments, "timeout": timeout}
        if after:
            asked["after"] = after
        if deadline is not None:
            asked["deadline"] = deadline
        if grade is not None:
            asked["grade"] = list(grade)
        answer = yield from self._in_sight(Ask("POST", self._target("calls"), asked))
        return result_of(answer["result"])

    def exec_all(
        self,
        commands: Sequence[Command | str],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        user: str | None = None,
        after: float = 0.0,
    ) -> Steps[list[ToolResult]]:
        """Runs several commands side by side, as one call; see `Rollout.exec_all`."""
        arguments = exec_all_arguments(commands, user)
        return results_of((yield from self.call("exec_all", arguments, timeout, after=after)))

    def put(
        self,
        source: str | Path | bytes,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> Steps[ToolResult]:
        """Copies a file or a folder of this machine into the sandbox; see `Rollout.put`."""
        yield from self.begin()
        if not isinstance(source, (str, Path, bytes)):
            raise UsageError(f"source must be a path, or bytes, not {source!r}")
        digest = yield lambda transport: upload(transport, source, owners=owners, mode=mode)
        chosen: dict[str, Any] = {} if user is None else {"user": user}
        chosen |= {"owners": True} if owners else {}
        return (yield from self.call("put", {"path": path, "digest": digest, **chosen}, timeout))

    def get(
        self,
        path: str,
        destination: str | Path | None = None,
        *,
        owners: bool = False,
        limit: int = MOST_FETCHED,
        timeout: float | None = None,
    ) -> Steps[RemoteFetched]:
        """Copies a file or a folder out of the sandbox; see `Rollout.get`."""
        yield from self.begin()
        asked = {"path": path, "owners": owners, "limit": limit, "timeout": timeout}
        answer = yield from self._in_sight(Ask("POST", self._target("fetches"), asked))

        def fetch(transport: Transport) -> RemoteFetched:
            result, digest = result_of(answer["result"]), answer["digest"]
            fetched = RemoteFetched(transport, result, digest, answer["kind"], owners=owners)
            if destination is not None:
                fetched.extract(destination)
            return fetched

        return cast("RemoteFetched", (yield fetch))

    def fork(self, n: int = 1) -> Steps[list[Mapping[str, Any]]]:
        """Begins rollouts where it stands; see `Rollout.fork`."""
        yield from self.begin()
        return cast("list[Mapping[str, Any]]", (yield Ask("POST", self._target("forks"), {"n": n}))["rollouts"])

    def cancel(self) -> Steps[bool]:
        """Ends the call that is being made; see `Rollout.cancel`."""
        key = self.calling
        if key is None:
            return False
        yield Ask("POST", self._target("cancel", call=key))
        return True

    def snapshot_if_idle(self) -> Steps[bool]:
        """Takes a snapshot where it stands; see `Rollout.snapshot_if_idle`."""
        yield from self.begin()
        return bool((yield Ask("POST", self._target("snapshots")))["done"])

    def close(self) -> Steps[None]:
        """Ends it. It may be called more than once."""
        if not self.closed:
            self.closed = True
            if self._data is not None:
                with contextlib.suppress(WorkerDied):  # it has ended by that
                    yield Ask("DELETE", self._target())

    def _in_sight(self, ask: Ask) -> Steps[Any]:
        """Makes a call that can be cancelled, and notes where it led."""
        self.calling = ask.key
        try:
            answer = yield ask
        finally:
            self.calling = None
        self.place = answer["place"]
        return answer

    def _target(self, *parts: str, **query: Any) -> str:
        return target("rollouts", self.data["id"], *parts, **query)


class SandboxSteps:
    """A sandbox elsewhere."""

    def __init__(self, key: str) -> None:
        self.key = key

    def run(self, command: str, *, timeout: float) -> Steps[Outcome]:
        """Runs a command in the persistent shell; see `Sandbox.run`."""
        return from_data(Outcome, (yield self._ask("run", {"command": command, "timeout": timeout})))

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
    ) -> Steps[Outcome]:
        """Runs a command in a fresh shell; see `Sandbox.exec`."""
        asked = {"command": command, "timeout": timeout, "cwd": cwd, "env": dict(env), "user": user}
        return from_data(Outcome, (yield self._ask("exec", {**asked, "separate": separate, "service": service})))

    def exec_all(self, commands: Sequence[Command], *, timeout: float, user: str | None = None) -> Steps[list[Outcome]]:
        """Runs commands side by side, each in a fresh shell; see `Sandbox.exec_all`."""
        asked = {"commands": [asdict(command) for command in commands], "timeout": timeout, "user": user}
        return from_data(list[Outcome], (yield self._ask("exec_all", asked)))

    def read_file(self, path: str, *, limit: int = MOST_READ, service: str | None = None) -> Steps[bytes]:
        """Returns a file's contents; see `Sandbox.read_file`."""
        where = self._target("files", path=path, limit=limit, service=service)
        return cast("bytes", (yield lambda transport: transport.fetch(where)))

    def write_file(self, path: str, data: bytes, *, user: str | None = None, service: str | None = None) -> Steps[None]:
        """Writes a file; see `Sandbox.write_file`."""
        yield Ask("PUT", self._target("files", path=path, user=user, service=service), data)

    def put(
        self,
        source: Upload,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> Steps[None]:
        """Copies a file or a folder of this machine into it; see `Sandbox.put`."""
        digest = yield lambda transport: upload(transport, source, owners=owners, mode=mode)
        asked = {"path": path, "digest": digest, "user": user, "owners": owners, "timeout": timeout}
        yield self._ask("puts", asked)

    def get(
        self,
        path: str,
        destination: str | Path,
        *,
        owners: bool = False,
        limit: int = MOST_FETCHED,
        timeout: float | None = None,
    ) -> Steps[tuple[str, ...]]:
        """Copies a file or a folder out of it; see `Sandbox.get`."""
        answer = yield self._ask("fetches", {"path": path, "limit": limit, "timeout": timeout})

        def write(transport: Transport) -> tuple[str, ...]:
            with downloaded(transport, answer["digest"]) as items:
                return extract(items, destination, owners=owners)

        return cast("tuple[str, ...]", (yield write))

    def processes(self) -> Steps[list[Process]]:
        """Returns the live processes; see `Sandbox.processes`."""
        return from_data(list[Process], (yield from self._look("processes")))

    def changes(self) -> Steps[Mapping[str, FileChange]]:
        """Returns what differs from the image; see `Sandbox.changes`."""
        return from_data(dict[str, FileChange], (yield from self._look("changes")))

    def shell_state(self) -> Steps[Mapping[str, str]]:
        """Returns the shell's state by name; see `Sandbox.shell_state`."""
        return from_data(dict[str, str], (yield from self._look("shell_state")))

    def _look(self, what: str) -> Steps[Any]:
        return (yield Ask("GET", self._target(what)))[what]

    def _ask(self, what: str, body: Any) -> Ask:
        return Ask("POST", self._target(what), body)

    def _target(self, what: str, **query: Any) -> str:
        return target("sandboxes", self.key, what, **query)


def warm_image(image: str) -> Ask:
    """Returns what keeps the root of an image."""
    return Ask("POST", target("images", image, "warm"))


def open_rollout(
    image: str,
    task: str,
    salt: str | None,
    label: str | None,
    limits: Limits | None,
    network: Hosts,
    deadline: float | None,
) -> Ask:
    """Returns what begins a rollout at the root of an image."""
    said = None if limits is None else asdict(limits)
    asked = {"image": image, "task": task, "salt": salt, "label": label, "limits": said}
    return Ask("POST", target("rollouts"), {**asked, "network": _hosts(network), "deadline": deadline})


def resume_rollouts(state: str, n: int, task: str, label: str | None, after: float) -> Ask:
    """Returns what begins rollouts at a state."""
    asked = {"n": n, "task": task, "label": label, "after": after}
    return Ask("POST", target("states", state, "rollouts"), asked)


def make_sandboxes(state: str, n: int, after: float, network: Hosts) -> Ask:
    """Returns what makes sandboxes in a state."""
    asked = {"n": n, "after": after, "network": _hosts(network)}
    return Ask("POST", target("states", state, "sandboxes"), asked)


def end_sandboxes(keys: Sequence[str]) -> Steps[None]:
    """Ends sandboxes."""
    for key in keys:
        with contextlib.suppress(WorkerDied):  # it has ended by that
            yield Ask("DELETE", target("sandboxes", key))


def _hosts(network: Hosts) -> str | list[str] | None:
    return network if network is None or isinstance(network, str) else list(network)


def result_of(data: Mapping[str, Any]) -> ToolResult:
    """Returns the result that an answer tells of."""
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


def upload(transport: Transport, source: Upload, *, owners: bool = False, mode: int | None = None) -> str:
    """Uploads a file or a folder, unless the server has it; returns its digest."""
    if not isinstance(source, (str, Path, bytes)):
        source = list(source)  # it is read twice, or more often where the connection breaks
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
    """A block with the items of a content of the server, which is there whole by then."""
    with transport.download(target("contents", digest)) as file:
        yield stored(file, digest)
