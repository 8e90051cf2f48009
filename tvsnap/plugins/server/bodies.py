"""What requests hold and what they are answered with: checked when read, and described by the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from tvsnap.graph import Outlined
from tvsnap.model.calls import DEFAULT_TIMEOUT
from tvsnap.model.errors import UsageError
from tvsnap.model.grades import TIMEOUT
from tvsnap.model.limits import MIB
from tvsnap.model.observations import Command
from tvsnap.model.operations.operation import Bounds
from tvsnap.plugins.client.wire.operations import members

T = TypeVar("T")
Seconds = Annotated[float, Meta(ge=0)]
Cells = Annotated[int, Meta(ge=1, le=4096)]
Count = Annotated[int, Meta(ge=1, le=10_000)]
MOST_ANSWERED = 16 * MIB
"""Bytes that a service inside a sandbox may answer."""
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Body(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a request holds; a member that it does not know is an error."""


def body_of(operation: type[Any], **others: tuple[Any, Any]) -> type[Struct]:
    """Returns what a request holds that asks for an operation.

    Args:
        operation: the operation's class.
        others: further members, each a type and a default.
    """
    own = {one.name: (_checked(one.kind), one.default) for one in members(operation)}
    every = [
        (name, kind) if default is MISSING else (name, kind, default)
        for name, (kind, default) in {**own, **others}.items()
    ]
    about = {"__doc__": operation.__doc__}
    return msgspec.defstruct(operation.__name__, every, bases=(Body,), namespace=about, module=__name__, kw_only=True)


def _checked(hint: Any) -> Any:
    """Returns a type of an operation's field as one that is checked when it is read."""
    if get_origin(hint) is Annotated:
        kind, *marks = get_args(hint)
        bounds = next(mark for mark in marks if isinstance(mark, Bounds))
        return Annotated[kind, Meta(ge=bounds.least, le=bounds.most)]
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(map(_checked, get_args(hint)))]  # noqa: UP007
    return hint


class Reader(Generic[T]):
    """Reads operations from the bodies of requests.

    Attributes:
        body: what such a request holds, for the description of the server.
    """

    def __init__(self, operation: Callable[..., T], **others: tuple[Any, Any]) -> None:
        """
        Args:
            operation: the operation's class.
            others: members that are in the body beside its own, each a type and a default.
        """
        self.body = body_of(cast("type[Any]", operation), **others)
        self._decoder = decoder(self.body)
        self._operation = operation
        self._others = tuple(others)

    def read(self, body: bytes, **more: Any) -> T:
        """Returns the operation that a request asks for.

        Args:
            body: the request's.
            more: fields of the operation that are not in the body.

        Raises:
            UsageError: the body is wrong.
        """
        return self._operation(**asdict(decode(self._decoder, body)), **more)

    def split(self, body: bytes, **more: Any) -> tuple[T, dict[str, Any]]:
        """Returns the operation that a request asks for, and the members that are beside it; see `read`."""
        members = asdict(decode(self._decoder, body))
        beside = {name: members.pop(name) for name in self._others}
        return self._operation(**members, **more), beside


class Size(Body):
    """The size of a terminal, in cells."""

    columns: Cells = 80
    rows: Cells = 24


class Grade(Body):
    """Grades the state of a rollout; see `tvsnap.Verifier`. Contents of files are in base 64."""

    check: str
    files: dict[str, bytes] = {}
    timeout: Seconds = TIMEOUT
    user: str = "root"


class Fork(Body):
    """Begins rollouts where one stands; see `Rollout.fork`."""

    n: Count = 1


class Materialise(Body):
    """Makes sandboxes in a state; see `Cache.materialise` and `Cache.fork`."""

    n: Count = 1
    after: Seconds = 0.0
    network: str | list[str] | None = None


class Run(Body):
    """Runs a command in a sandbox's persistent shell; see `Sandbox.run`."""

    command: str
    timeout: Seconds = DEFAULT_TIMEOUT


class Exec(Run):
    """Runs a command in a fresh shell; see `Sandbox.exec`."""

    cwd: str | None = None
    env: dict[str, str] = {}
    user: str | None = None
    separate: bool = False
    service: str | None = None


class ExecAll(Body):
    """Runs commands side by side; see `Sandbox.exec_all`."""

    commands: Annotated[list[Command], Meta(min_length=1, max_length=256)]
    timeout: Seconds = DEFAULT_TIMEOUT
    user: str | None = None


class Inside(Body):
    """Sends a request to a service inside, by the path of its Unix socket; see `Sandbox.request`. `data` is base 64."""

    path: str
    data: bytes
    timeout: Seconds
    limit: Annotated[int, Meta(ge=0, le=MOST_ANSWERED)] = MOST_ANSWERED


class Keys(Body):
    """Types into the shell's terminal; see `Sandbox.send_keys`. `data` is base 64."""

    data: bytes
    wait: Seconds


class Check(Body):
    """Makes a recorded call again, and compares. `mark` says that one that differs is to answer nothing any more."""

    mark: bool = True


class Forget(Body):
    """Deletes a state with all below it, or what was done for a task, or on an image; `dry_run` only counts."""

    state: str | None = None
    task: str | None = None
    image: str | None = None
    dry_run: bool = False


class Put(Body):
    """Copies an uploaded content into a sandbox; see `Sandbox.put`."""

    path: str
    digest: Digest
    user: str | None = None
    owners: bool = False
    timeout: Seconds | None = None


class BuildImage(Body):
    """Builds an image: one that comes with tvsnap, by name, or the folder that was uploaded as a content.

    `folder` is the folder's name, by which the image is called where nothing else names it; `file` is the description
    in it, where it has several. See `ImageStore.build` for the others.
    """

    source: str | None = None
    digest: Digest | None = None
    folder: str = "image"
    file: str | None = None
    name: str | None = None
    force: bool = False
    keep_layers: bool = False
    from_dockerfile: bool = False
    docker_image: str | None = None
    task_user: bool = True


class PartBody(Struct, omit_defaults=True):
    """One part of what a call returned: `text`, or other data in base 64."""

    media_type: str
    text: str | None = None
    base64: str | None = None


class ResultBody(Struct):
    """What a call returned; see `ToolResult`."""

    parts: list[PartBody]
    exit_code: int | None
    duration: float
    timed_out: bool
    blocked: bool
    truncated: bool
    source: str
    cost: Mapping[str, float]
    strain: str | None
    processor_s: float | None


class PlaceBody(Struct):
    """Where a rollout stands; see `Rollout.state`, `depth`, `private` and `unshared`."""

    state: str
    depth: int
    private: str | None
    unshared: str | None


class CallAnswer(Struct):
    """A call's result, and where the rollout stands then; null while that is being found out: ask for the rollout."""

    result: ResultBody
    place: PlaceBody | None


class GradeAnswer(Struct):
    """A grade as a result: its first part has reward and tests as JSON, the second one is the log."""

    result: ResultBody


class FetchAnswer(Struct):
    """What was fetched: its content is at /v1/contents/DIGEST. Both are null where the call failed."""

    result: ResultBody | None
    digest: str | None
    kind: str | None
    place: PlaceBody | None


class RolloutAnswer(Struct):
    """An open rollout. `name` is its name in the graph; null where nothing is recorded."""

    id: str
    name: str | None
    root: str
    place: PlaceBody


class RolloutsAnswer(Struct):
    """Several open rollouts."""

    rollouts: list[RolloutAnswer]


class SandboxAnswer(Struct):
    """A sandbox that a client holds, with the state in which it was made, and its image."""

    id: str
    state: str
    image: dict[str, Any]


class SandboxesAnswer(Struct):
    """Several sandboxes."""

    sandboxes: list[SandboxAnswer]


class FolderItem(Struct):
    """One name in a folder; see `FolderEntry`. A byte of a name that is not UTF-8 is a lone surrogate, `\\udc80` to
    `\\udcff`.
    """

    name: str
    kind: str
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    target: str | None


class FolderAnswer(Struct):
    """What is in one folder, and whether there is more."""

    entries: list[FolderItem]
    cut: bool


class Answered(Struct):
    """Whether what was asked for was so."""

    done: bool


class KeptAnswer(Struct):
    """The state that was kept, and where the rollout stands then; null while that is being found out."""

    state: str
    place: PlaceBody | None


class TimelineStep(Struct):
    """A call of a rollout in time; see `tvsnap.graph.Step`. `state` is where it led; null where none is recorded."""

    source: str
    ended: float
    seconds: float
    duration: float
    exit_code: int | None
    timed_out: bool
    call: str
    state: str | None


class TimelineRollout(Struct):
    """A rollout in time: its calls in order; see `tvsnap.graph.RolloutRecord`."""

    id: str
    label: str
    started: float
    finished: float | None
    state: str
    epoch: int | None
    reward: float | None
    steps: list[TimelineStep]


class TimelineAnswer(Struct):
    """Rollouts in time, those that began latest first."""

    rollouts: list[TimelineRollout]


class OutlineAnswer(Struct):
    """Calls without their texts, each an array; see `tvsnap.graph.Outlined`. Ask on after `next`, unless it is null."""

    calls: list[Outlined]
    next: int | None


class SearchAnswer(Struct):
    """The ids of calls, in order. Ask on after `next`, unless it is null."""

    ids: list[int]
    next: int | None


class ErrorBody(Struct):
    """An error: the name of tvsnap's class and of those that it is a kind of, in words, and what to do."""

    type: str
    is_a: list[str]
    message: str
    way_out: str


class ErrorAnswer(Struct):
    """What a request is answered with that failed."""

    error: ErrorBody


def decode(reader: msgspec.json.Decoder[T], body: bytes) -> T:
    """Returns what a body holds.

    Args:
        reader: of its type.
        body: JSON.

    Raises:
        UsageError: it is no JSON, or not of this type; the message names the place.
    """
    try:
        return reader.decode(body or b"{}")
    except msgspec.ValidationError as error:
        raise UsageError(f"the request's body is wrong: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the request's body is no JSON: {error}") from None


def decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    """Returns what reads bodies of a kind."""
    return msgspec.json.Decoder(kind)


_encoder = msgspec.json.Encoder()


def encode(answer: object) -> bytes:
    """Returns an answer as JSON.

    A name of a file that is not UTF-8 holds lone surrogates, as everywhere in Python: these become escapes.
    """
    try:
        return _encoder.encode(answer)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(answer, str_keys=True)).encode()
