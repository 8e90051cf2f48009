"""What both clients have, as no event loop matters to it: requests, contents, what is known of a rollout."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from tvsnap.client.transport import Transport
from tvsnap.client.wire import Ask, target
from tvsnap.host.trees import TreeItem, Upload, extract, items_of, serialised, store, stored
from tvsnap.model.arguments import check_epoch, check_seconds, check_text, check_type, check_whole
from tvsnap.model.calls import Part, ToolResult, canonical_json
from tvsnap.model.errors import UsageError
from tvsnap.model.grades import Verifier
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.network import Network, NetworkLike
from tvsnap.wire.values import from_data

MOST_ENTRIES = 10_000  # as of `Sandbox.list_folder`
MOST_READ = 16 * 1024 * 1024  # bytes, as of `Sandbox.read_file`


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


class RolloutAbout:
    """What a client knows of a rollout elsewhere."""

    def __init__(self, opening: Ask | None, data: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            opening: begins it; None if it has begun.
            data: what the server says of it, if it has begun.
        """
        self._opening = opening
        self._data = data
        self._place: Mapping[str, Any] | None = None if data is None else data["place"]
        self._calling: str | None = None
        self._dropped = False  # whether nobody waits any more for what is being done
        self._closed = False
        self._given_out = False  # its sandbox was: what is done there changes where it stands

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
        """The hash of the state at which it stands. Where it has `settled`, await that, so that no loop has to wait."""
        return str(self._where()["state"])

    @property
    def depth(self) -> int:
        """The number of calls that changed the state; see `state` for what may be waited for."""
        return int(self._where()["depth"])

    @property
    def private(self) -> str | None:
        """Why it is in a private branch, or None; see `state` for what may be waited for."""
        return cast("str | None", self._where()["private"])

    @property
    def unshared(self) -> str | None:
        """Why the last call's result answers no other, or None; see `state` for what may be waited for."""
        return cast("str | None", self._where()["unshared"])

    @property
    def _about(self) -> Mapping[str, Any]:
        """What the server said of it when it began."""
        if self._data is None:
            raise UsageError("the rollout has not begun; use `async with`, or make a call")
        return self._data

    def _where(self) -> Mapping[str, Any]:
        """Returns where it stands. It blocks until that is known."""
        if self._place is None or self._given_out:
            self._place = self._blocking.get(self._target())["place"]
        return cast("Mapping[str, Any]", self._place)

    @property
    def _blocking(self) -> Transport:
        """Connections that a thread may wait for."""
        raise NotImplementedError

    def _target(self, *parts: str, **query: Any) -> str:
        return target("rollouts", self._about["id"], *parts, **query)


class SandboxAbout:
    """What a client knows of a sandbox elsewhere."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        """
        Args:
            data: what the server says of it.
        """
        self._data = data

    @property
    def id(self) -> str:
        """Its name on the server."""
        return str(self._data["id"])

    @property
    def image(self) -> Image:
        """The image that it was made of; its paths are those of the server's machine."""
        return from_data(Image, self._data["image"])


def warm_image(image: str | Image) -> Ask:
    """Returns what keeps the root of an image."""
    return Ask("POST", target("images", _name_of(image), "warm"))


def expect_rollouts(image: str | Image, n: int, salt: str | None, limits: Limits | None, network: NetworkLike) -> Ask:
    """Returns what announces rollouts at the root of an image; raises UsageError where an argument makes no sense."""
    check_whole(n, "n", 1)
    check_text(salt or "", "salt")
    own = None if limits is None else asdict(check_type(limits, Limits, "limits"))
    return Ask(
        "POST",
        target("images", _name_of(image), "expect"),
        {"n": n, "salt": salt, "limits": own, "network": _hosts(network)},
    )


def open_rollout(
    image: str | Image,
    task: str,
    salt: str | None,
    label: str | None,
    limits: Limits | None,
    network: NetworkLike,
    deadline: float | None,
    epoch: int | None,
) -> Ask:
    """Returns what begins a rollout at the root of an image; raises UsageError where an argument makes no sense."""
    for said, name in ((task, "task"), (salt or "", "salt"), (label or "", "label")):
        check_text(said, name)
    own = None if limits is None else asdict(check_type(limits, Limits, "limits"))
    if deadline is not None:
        check_seconds(deadline, "deadline", least=0.0)
    check_epoch(epoch)
    asked: dict[str, Any] = {"image": _name_of(image), "task": task, "salt": salt, "label": label, "limits": own}
    asked |= {"network": _hosts(network), "deadline": deadline, **_of(epoch)}
    return Ask("POST", target("rollouts"), asked, short=True)


def check_call(name: object, arguments: object, timeout: object, after: object, deadline: object) -> None:
    """Raises UsageError where what a call says makes no sense, so that no request is needed to know."""
    check_text(name, "the name of a tool")
    if not isinstance(arguments, Mapping):
        raise UsageError(f"{name}: arguments must be an object, such as a dict, not {arguments!r}")
    if not all(isinstance(value, str) for value in arguments.values()):
        canonical_json(arguments)
    if timeout is not None:
        check_seconds(timeout)
    check_seconds(after, "after", least=0.0)
    if deadline is not None:
        check_seconds(deadline, "deadline", least=0.0)


def _of(epoch: int | None) -> dict[str, int]:
    """Returns what tells an epoch; nothing where there is none, as servers before epochs take nothing then."""
    return {} if epoch is None else {"epoch": epoch}


def resume_rollouts(state: str, n: int, task: str, label: str | None, after: float, epoch: int | None = None) -> Ask:
    """Returns what begins rollouts at a state."""
    check_epoch(epoch)
    asked = {"n": n, "task": task, "label": label, "after": after, **_of(epoch)}
    return Ask("POST", target("states", state, "rollouts"), asked, short=True)


def make_sandboxes(state: str, n: int, after: float, network: NetworkLike) -> Ask:
    """Returns what makes sandboxes in a state."""
    asked = {"n": n, "after": after, "network": _hosts(network)}
    return Ask("POST", target("states", state, "sandboxes"), asked)


def _name_of(image: str | Image) -> str:
    return image.digest if isinstance(image, Image) else check_text(image, "image")


def _hosts(network: NetworkLike) -> str | list[str] | None:
    if network is None:
        return None
    policy = Network.of(network)
    return "public" if policy.public else list(policy.allow)


def grading(verifier: Verifier) -> dict[str, Any]:
    """Returns what asks for a grade.

    Raises:
        UsageError: the verifier is a function, which cannot be sent.
    """
    if not isinstance(verifier.check, str):
        raise UsageError(f"the verifier {verifier.name} is a function, which no server can run; give it a command")
    files = {path: base64.b64encode(content).decode() for path, content in verifier.contents.items()}
    return {"check": verifier.check, "files": files, "timeout": verifier.timeout, "user": verifier.user}


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
        processor_s=data.get("processor_s"),
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
