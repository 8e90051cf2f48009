"""The common core of blocking and awaited clients: the requests of operations, and the facts about rollouts."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from tvsnap.graph import Step
from tvsnap.graph.model import Edge
from tvsnap.graph.reexecution import Remade
from tvsnap.host.trees import TreeItem, Upload, extract
from tvsnap.model.arguments import check_epoch, check_reward, check_seconds, check_text, check_type, check_whole
from tvsnap.model.calls import Part, ToolResult, canonical_json
from tvsnap.model.credit import TaskValues
from tvsnap.model.errors import CallCancelled, UsageError
from tvsnap.model.exec_all import results_of
from tvsnap.model.fetched import Fetched
from tvsnap.model.grades import Grade, Verifier
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.network import NetworkLike
from tvsnap.model.operations.caches import Expect, OpenRollout, Resume, Values, Warm
from tvsnap.model.operations.operation import Operation, hosts_of
from tvsnap.model.operations.rollouts import Call, ExecAll, Get, GradeState, Keep, Put, Record, SnapshotIfIdle
from tvsnap.plugins.client.http import Ask, target
from tvsnap.plugins.client.images_and_graph import RemoteGraph, RemoteTool, downloaded, upload
from tvsnap.plugins.client.transport import Transport
from tvsnap.plugins.client.wire.errors import Unreachable, WorkerDied
from tvsnap.plugins.client.wire.operations import as_json
from tvsnap.plugins.client.wire.values import from_data

T = TypeVar("T")


class Asking(Protocol):
    """Asks a server, by coroutines."""

    @property
    def blocking(self) -> Transport:
        """The blocking transport."""

    async def ask(self, ask: Ask) -> Any:
        """Returns the JSON answer to a request; see `Transport.ask`."""

    async def do(self, work: Callable[[Transport], T]) -> T:
        """Returns the result of a function, which blocks."""


class AtOnce:
    """Asks a server by coroutines that are finished at once; see `tvsnap.model.blocking`."""

    def __init__(self, blocking: Transport) -> None:
        self.blocking = blocking

    async def ask(self, ask: Ask) -> Any:
        """Returns the JSON answer to a request; see `Transport.ask`."""
        return self.blocking.ask(ask)

    async def do(self, work: Callable[[Transport], T]) -> T:
        """Returns the result of a function."""
        return work(self.blocking)


class RemoteFetched(Fetched):
    """The file or folder that a server's rollout has fetched; see `Fetched`."""

    def __init__(
        self, transport: Transport, result: ToolResult, digest: str | None, kind: str | None, *, owners: bool
    ) -> None:
        super().__init__(result, digest, kind)
        self._transport = transport
        self._owners = owners

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


class RolloutCore:
    """The common core of a server's rollout with blocking or awaited methods: its facts and its operations."""

    def __init__(self, asking: Asking, opening: Ask | None, data: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            asking: makes requests.
            opening: the request that begins it; None if it has begun.
            data: the server's description of it, if it has begun.
        """
        self._asking = asking
        self._opening = opening
        self._data = data
        self._place: Mapping[str, Any] | None = None if data is None else data["place"]
        self._calling: str | None = None
        self._dropped = False  # whether nobody waits any more for the present operation
        self._closed = False
        self._tools: Mapping[str, RemoteTool] | None = None
        self._given_out = False  # its sandbox was: work there changes the rollout's state

    @property
    def id(self) -> str | None:
        """Its name in the graph; see `Rollout.id`."""
        return cast("str | None", self._about["name"])

    @property
    def root(self) -> str:
        """The hash of its root."""
        return str(self._about["root"])

    @property
    def state(self) -> str:
        """The hash of the state at which it stands. If it has `settled`, await that first, so that no loop waits."""
        return str(self._where()["state"])

    @property
    def depth(self) -> int:
        """The number of calls that changed the state; it may block like `state`."""
        return int(self._where()["depth"])

    @property
    def private(self) -> str | None:
        """The reason why it is in a private branch, or None; it may block like `state`."""
        return cast("str | None", self._where()["private"])

    @property
    def unshared(self) -> str | None:
        """The reason why the last call's result answers no other, or None; it may block like `state`."""
        return cast("str | None", self._where()["unshared"])

    @property
    def _about(self) -> Mapping[str, Any]:
        """The server's description of it at its begin."""
        if self._data is None:
            raise UsageError("the rollout has not begun; use `async with`, or make a call")
        return self._data

    def _where(self) -> Mapping[str, Any]:
        """Returns its position. It blocks until that is known."""
        if self._place is None or self._given_out:
            self._place = self._asking.blocking.get(self._target())["place"]
        return cast("Mapping[str, Any]", self._place)

    def _steps(self) -> list[Step]:
        """Returns its calls in order, for people; it blocks."""
        return [] if self.id is None else RemoteGraph(self._asking.blocking).steps(self.id)

    def _target(self, *parts: str, **query: Any) -> str:
        return target("rollouts", self._about["id"], *parts, **query)

    def _performing(self, operation: Operation[T]) -> Coroutine[Any, Any, T]:
        """Returns the coroutine that performs an operation."""
        return _PERFORMERS[type(operation)](self, operation)

    async def _call(self, call: Call) -> ToolResult:
        if self._data is None or self._closed:
            await self._begin()
        check_call(call)  # raises the errors of `Rollout.call`
        return await self._make(call)

    async def _exec_all(self, operation: ExecAll) -> list[ToolResult]:
        return results_of(await self._call(operation.as_call()))

    async def _put(self, operation: Put) -> ToolResult:
        await self._begin()
        operation.check()
        source, owners, mode = operation.source, operation.owners, operation.mode
        digest = await self._asking.do(lambda transport: upload(transport, source, owners=owners, mode=mode))
        return await self._make(operation.as_call(digest))

    async def _get(self, operation: Get) -> Fetched:
        await self._begin()
        answer = await self._in_sight(Ask("POST", self._target("fetches"), as_json(operation)))

        def fetch(transport: Transport) -> RemoteFetched:
            result, digest = result_of(answer["result"]), answer["digest"]
            fetched = RemoteFetched(transport, result, digest, answer["kind"], owners=operation.owners)
            if operation.destination is not None:
                fetched.extract(operation.destination)
            return fetched

        return await self._asking.do(fetch)

    async def _grade(self, operation: GradeState) -> Grade:
        answer = await self._ask("grades", grading(Verifier.of(operation.verifier)))
        return Grade.of_result(result_of(answer["result"]))

    async def _keep(self, operation: Keep) -> str:
        answer = await self._ask("kept", as_json(operation))
        self._place = answer["place"]
        return str(answer["state"])

    async def _snapshot_if_idle(self, _: SnapshotIfIdle) -> bool:
        return bool((await self._ask("snapshots"))["done"])

    async def _record(self, operation: Record) -> None:
        check_reward(operation.reward)
        if self._data is None:
            await self._begin()
        if self.id is not None:
            reward = {"reward": float(operation.reward)}
            await self._asking.ask(Ask("POST", target("transcripts", self.id, "reward"), reward, short=True))

    async def _begin(self) -> None:
        if self._closed:
            raise UsageError("the rollout is closed")
        if self._data is None:
            assert self._opening is not None
            answer = await self._asking.ask(self._opening)
            self._data = answer["rollouts"][0] if "rollouts" in answer else answer
            self._place = self._data["place"]

    async def _list_tools(self) -> Mapping[str, RemoteTool]:
        if self._tools is None:
            await self._begin()
            answer = await self._asking.ask(Ask("GET", self._target("tools")))
            self._tools = {name: RemoteTool(name, **about) for name, about in answer["tools"].items()}
        return self._tools

    async def _forked(self, n: int) -> Sequence[Mapping[str, Any]]:
        """Begins rollouts at its state; returns the server's descriptions of them."""
        return cast("Sequence[Mapping[str, Any]]", (await self._ask("forks", {"n": n}))["rollouts"])

    async def _give_out(self) -> Mapping[str, Any]:
        """Requests its sandbox; returns the server's description of it."""
        await self._begin()
        self._given_out = True
        return cast("Mapping[str, Any]", await self._ask("sandbox"))

    async def _cancel(self) -> bool:
        """Ends the call that is being made."""
        key = self._calling
        if key is None:
            return False
        await self._asking.ask(Ask("POST", self._target("cancel", call=key), short=True))
        return True

    async def _end(self, outcome: str | None) -> None:
        """Ends it, if it has begun."""
        if not self._closed:
            self._closed = True
            if self._data is not None and not self._asking.blocking.forked_off:
                with contextlib.suppress(WorkerDied, Unreachable):  # it has ended by that
                    await self._asking.ask(Ask("DELETE", self._target(outcome=outcome)))

    async def _ask(self, what: str, body: Mapping[str, Any] | None = None) -> Any:
        await self._begin()
        return await self._asking.ask(Ask("POST", self._target(what), body))

    async def _make(self, call: Call) -> ToolResult:
        answer = await self._in_sight(Ask("POST", self._target("calls"), as_json(call)))
        return result_of(answer["result"])

    async def _in_sight(self, ask: Ask) -> Any:
        """Makes a call that can be cancelled, and notes its outcome."""
        if self._dropped:
            raise CallCancelled("the call was cancelled before it was executed")
        self._calling = ask.key
        try:
            answer = await self._asking.ask(ask)
        finally:
            self._calling = None
        self._place = answer["place"]
        return answer


_PERFORMERS: Mapping[type, Callable[[Any, Any], Coroutine[Any, Any, Any]]] = {
    Call: RolloutCore._call,
    ExecAll: RolloutCore._exec_all,
    Put: RolloutCore._put,
    Get: RolloutCore._get,
    GradeState: RolloutCore._grade,
    Keep: RolloutCore._keep,
    SnapshotIfIdle: RolloutCore._snapshot_if_idle,
    Record: RolloutCore._record,
}


class SandboxCore:
    """The common core of a server's sandbox with blocking or awaited methods."""

    _ended = False

    def __init__(self, asking: Asking, data: Mapping[str, Any]) -> None:
        """
        Args:
            asking: makes requests.
            data: the server's description of it.
        """
        self._asking = asking
        self._data = data

    @property
    def id(self) -> str:
        """Its name on the server."""
        return str(self._data["id"])

    @property
    def image(self) -> Image:
        """The image of which it was made; its paths are those of the server's machine."""
        return from_data(Image, self._data["image"])

    async def _ask(self, method: str, what: str, kind: Any, body: Any = None, **query: Any) -> Any:
        """Returns the answer to a request about the sandbox as a value of a type."""
        answer = await self._asking.ask(Ask(method, target("sandboxes", self.id, what, **query), body))
        return from_data(kind, answer)

    async def _look(self, what: str, kind: Any) -> Any:
        answer = await self._asking.ask(Ask("GET", target("sandboxes", self.id, what)))
        return from_data(kind, answer[what])

    async def _read_file(self, **query: Any) -> bytes:
        where = target("sandboxes", self.id, "files", **query)
        return await self._asking.do(lambda transport: transport.fetch(where))

    async def _write_file(self, data: bytes, **query: Any) -> None:
        await self._ask("PUT", "files", Any, data, **query)

    async def _put(self, source: Upload, *, owners: bool, mode: int | None, **options: Any) -> None:
        digest = await self._asking.do(lambda transport: upload(transport, source, owners=owners, mode=mode))
        await self._ask("POST", "puts", Any, {**options, "digest": digest, "owners": owners})

    async def _get(self, destination: str | Path, *, owners: bool, **options: Any) -> tuple[str, ...]:
        answer = await self._ask("POST", "fetches", Any, options)

        def write(transport: Transport) -> tuple[str, ...]:
            with downloaded(transport, answer["digest"]) as items:
                return extract(items, destination, owners=owners)

        return await self._asking.do(write)

    async def _leave(self) -> None:
        if not self._ended and not self._asking.blocking.forked_off:
            self._ended = True
            with contextlib.suppress(WorkerDied, Unreachable):  # it has ended by that
                await self._asking.ask(Ask("DELETE", target("sandboxes", self.id)))


def opening_of(opening: OpenRollout | Resume) -> Ask:
    """Returns the request that begins a rollout; raises UsageError if an argument makes no sense."""
    check_epoch(opening.epoch)
    if isinstance(opening, Resume):
        return resuming(opening, 1)
    image, limits = opening.image, opening.limits
    for text, name in ((opening.task, "task"), (opening.salt or "", "salt"), (opening.label or "", "label")):
        check_text(text, name)
    if not isinstance(image, Image):
        check_text(image, "image")
    if limits is not None:
        check_type(limits, Limits, "limits")
    if opening.deadline is not None:
        check_seconds(opening.deadline, "deadline", least=0.0)
    return Ask("POST", target("rollouts"), as_json(opening), short=True)


def resuming(opening: Resume, n: int) -> Ask:
    """Returns the request that begins several rollouts at a state."""
    return Ask("POST", target("states", opening.state, "rollouts"), {"n": n, **as_json(opening)}, short=True)


async def expect(asking: Asking, announced: Expect) -> None:
    """Performs `Cache.expect`."""
    check_whole(announced.n, "n", 1)
    check_text(announced.salt or "", "salt")
    if announced.limits is not None:
        check_type(announced.limits, Limits, "limits")
    await asking.ask(Ask("POST", target("images", _name_of(announced.image), "expect"), as_json(announced)))


async def warm(asking: Asking, warming: Warm) -> str:
    """Performs `Cache.warm`."""
    answer = await asking.ask(Ask("POST", target("images", _name_of(warming.image), "warm")))
    return str(answer["root"])


async def values(asking: Asking, operation: Values) -> TaskValues:
    """Performs `Cache.values`."""
    check_epoch(operation.epoch)
    path = target(
        "values", task=check_text(operation.task, "task"), epoch=operation.epoch, rollouts=_ids(operation.rollouts)
    )
    return from_data(TaskValues, (await asking.ask(Ask("GET", path)))["values"])


CACHE_PERFORMERS: Mapping[type, Callable[[Asking, Any], Coroutine[Any, Any, Any]]] = {
    Expect: expect,
    Values: values,
    Warm: warm,
}


async def reexecute(asking: Asking, edge: Edge) -> Remade:
    """Makes a recorded call once more; see `Cache.reexecute`."""
    if not isinstance(edge, Edge):
        raise UsageError(f"edge must be a tvsnap.graph.Edge, not {edge!r}")
    return from_data(Remade, await asking.ask(Ask("POST", target("calls", str(edge.id), "executions"))))


async def make_sandboxes(
    asking: Asking, state: str, n: int, after: float = 0.0, network: NetworkLike = None
) -> Sequence[Mapping[str, Any]]:
    """Makes sandboxes in a state; returns the server's descriptions of them."""
    body = {"n": n, "after": after, "network": hosts_of(network)}
    answer = await asking.ask(Ask("POST", target("states", state, "sandboxes"), body))
    return cast("Sequence[Mapping[str, Any]]", answer["sandboxes"])


def _ids(rollouts: Sequence[str] | None) -> str | None:
    """Returns ids as one parameter."""
    if isinstance(rollouts, str):
        raise UsageError(f"rollouts must be a list of ids, not {rollouts!r}")
    return None if rollouts is None else ",".join(check_text(id, "a rollout's id") for id in rollouts)


def _name_of(image: str | Image) -> str:
    return image.digest if isinstance(image, Image) else check_text(image, "image")


def grading(verifier: Verifier) -> dict[str, Any]:
    """Returns the body of a request for a grade.

    Raises:
        UsageError: the verifier is a function, which cannot be sent.
    """
    if not isinstance(verifier.check, str):
        raise UsageError(f"the verifier {verifier.name} is a function, which no server can run; give it a command")
    files = {path: base64.b64encode(content).decode() for path, content in verifier.contents.items()}
    return {"check": verifier.check, "files": files, "timeout": verifier.timeout, "user": verifier.user}


def check_call(call: Call) -> None:
    """Raises UsageError if a call makes no sense, without a request to the server."""
    name, arguments = check_text(call.name, "the name of a tool"), call.arguments
    if not isinstance(arguments, Mapping):
        raise UsageError(f"{name}: arguments must be an object, such as a dict, not {arguments!r}")
    if not all(isinstance(value, str) for value in arguments.values()):
        canonical_json(arguments)
    if call.timeout is not None:
        check_seconds(call.timeout)
    check_seconds(call.after, "after", least=0.0)
    if call.deadline is not None:
        check_seconds(call.deadline, "deadline", least=0.0)


def result_of(data: Mapping[str, Any]) -> ToolResult:
    """Returns the result in an answer."""
    parts = tuple(
        Part(one["media_type"], one["text"] if "text" in one else base64.b64decode(one["base64"]))
        for one in data["parts"]
    )
    return ToolResult(
        *(parts, data["exit_code"], data["duration"], data["timed_out"], data["blocked"], data["truncated"]),
        source=data["source"],
        cost=data["cost"],
        strain=data["strain"],
        processor_s=data.get("processor_s"),
    )
