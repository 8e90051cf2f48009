"""`tvsnap.connect`: the cache of a server, its rollouts and its sandboxes."""

from __future__ import annotations

import base64
import contextlib
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Concatenate, ParamSpec, TypeVar, cast, get_type_hints

from tvsnap.graph.model import Edge, Forgotten
from tvsnap.graph.reexecution import Remade
from tvsnap.host.trees import Upload
from tvsnap.model.arguments import check_outcome, outcome_of
from tvsnap.model.blocking import finished
from tvsnap.model.display import Displayed
from tvsnap.model.errors import NotFound
from tvsnap.model.forks import Forks, reseeded
from tvsnap.model.images import Image
from tvsnap.model.limits import MIB, MOST_FETCHED, Limits
from tvsnap.model.network import NetworkLike
from tvsnap.model.observations import FolderListing
from tvsnap.model.operations.caches import CacheMethods, OpenRollout, Resume
from tvsnap.model.operations.operation import Operation
from tvsnap.model.operations.rollouts import RolloutMethods
from tvsnap.model.sandbox_methods import SandboxMethods
from tvsnap.model.stats import Stats
from tvsnap.plugins.client.connection import File
from tvsnap.plugins.client.events import Event, EventParser
from tvsnap.plugins.client.http import Ask, target
from tvsnap.plugins.client.images_and_graph import RemoteGraph, RemoteImages, RemoteTool
from tvsnap.plugins.client.performing import (
    CACHE_PERFORMERS,
    AtOnce,
    RolloutCore,
    SandboxCore,
    make_sandboxes,
    opening_of,
    reexecute,
    resuming,
)
from tvsnap.plugins.client.terminals import Terminal, open_terminal
from tvsnap.plugins.client.transport import PATIENCE, Transport
from tvsnap.plugins.client.wire.errors import Unreachable
from tvsnap.plugins.client.wire.values import from_data, to_data

K = TypeVar("K")
P = ParamSpec("P")
T = TypeVar("T")
MOST_ENTRIES = 10_000  # as of `Sandbox.list_folder`
MOST_READ = 16 * MIB  # bytes, as of `Sandbox.read_file`


def connect(
    url: str,
    token: str | None = None,
    *,
    patience: float = PATIENCE,
    ca: File | None = None,
    certificate: File | tuple[File, File] | None = None,
) -> Client:
    """Returns the cache of a server, which is used like a `Cache`.

    Args:
        url: `http://HOST:PORT`, `https://HOST:PORT`, or `unix:PATH`.
        token: the server's token; None if it needs none.
        patience: seconds to wait while the server's sandboxes are used up.
        ca: a file with the certificate of the authority that has signed the server's, for https; None for the file
            named by the variable TVSNAP_CA, or else the authorities that this machine trusts.
        certificate: a file with the certificate of this client and its key; or two files, one for each. None for the
            file named by the variable TVSNAP_CERTIFICATE, if it is set.

    Raises:
        UsageError: the address is none, a file with certificates cannot be used, or the server does not know the token.
        Unreachable: there is no server, or its certificate or ours is not trusted.
    """
    client = Client(Transport(url, token, patience, ca=ca, certificate=certificate))
    client.transport.ask(Ask("GET", target("rollouts")))
    return client


class Client(CacheMethods["RemoteRollout", "RemoteSandbox"]):
    """The `Cache` of a server, and a context manager that ends its rollouts.

    Attributes:
        transport: its connections.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._asking = AtOnce(transport)
        self._open: set[RemoteRollout] = set()

    def begin(self, opening: OpenRollout | Resume) -> RemoteRollout:
        """Begins a rollout; see `BeginsRollouts.begin`."""
        rollout = RemoteRollout(self, opening_of(opening))
        try:
            finished(rollout._begin())
        except BaseException:
            self._open.discard(rollout)
            raise
        return rollout

    def perform(self, operation: Operation[T]) -> T:
        """Performs an operation; see `Performs.perform`."""
        answer: T = finished(CACHE_PERFORMERS[type(operation)](self._asking, operation))
        return answer

    def terminal(self, state: str, columns: int = 80, rows: int = 24) -> Terminal:
        """Returns the terminal of a fork of a state. The fork ends with it, or with this process.

        Args:
            state: the state's full hash.
            columns: the width of the terminal in cells.
            rows: its height in cells.

        Raises:
            NotFound: there is no such state, or its image was removed.
            StateLost: the state is no longer kept, and nothing else leads to it.
            Busy: the server's sandboxes are used up, and stayed so for as long as the client is patient.
        """
        return open_terminal(self.transport, target("states", state, "terminal", columns=columns, rows=rows))

    @contextlib.contextmanager
    def events(self) -> Iterator[Iterator[Event]]:
        """Returns a context manager with the server's events from then on, as they happen.

        A tenant sees its own. If events come faster than they are taken, some are left out, and an event `dropped`
        gives their number.

        Yields:
            The events, which end when the server is stopped.
        """
        with self.transport.stream("GET", target("events")) as pieces:
            parser = EventParser()
            parser.take(next(pieces, b""))  # a comment, from which on no event is missed
            yield (event for piece in pieces for event in parser.take(piece))

    def reexecute(self, edge: Edge) -> Remade:
        """Makes a recorded call once more, in a sandbox that is ended afterwards; see `Cache.reexecute`.

        Args:
            edge: the recorded call, from `graph`.

        Returns:
            The new result of the call, and the digest of the sandbox after it.

        Raises:
            UsageError: `edge` is not a `tvsnap.graph.Edge`, or was made in no sandbox.
            StateLost: the state is no longer kept, and nothing else leads to it.
        """
        return finished(reexecute(self._asking, edge))

    @property
    def images(self) -> RemoteImages:
        """The images of the server; see `Cache.images`."""
        return RemoteImages(self.transport)

    @property
    def graph(self) -> RemoteGraph:
        """The graph, for reading; see `Cache.graph`."""
        return RemoteGraph(self.transport)

    def stats(self) -> Stats:
        """Returns the statistics of the server's cache; see `Cache.stats`."""
        return from_data(Stats, self.transport.get(target("stats"))["stats"])

    def figures(self) -> dict[str, Any]:
        """Returns the output of `tvsnap stats --json` for the server's data directory."""
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
        """Returns the difference of two states.

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
            mark: have it answer nothing any more if its result differs.

        Raises:
            NotFound: there is no such call (any more).
            Busy: the server's sandboxes are used up, and stayed so for as long as the client is patient.
        """
        return from_data(kind, self.transport.ask(Ask("POST", target("calls", str(call), "checks"), {"mark": mark})))

    def forget(
        self, *, state: str | None = None, task: str | None = None, image: str | None = None, dry_run: bool = False
    ) -> tuple[Forgotten, int]:
        """Deletes a state with all states below it, or the calls of one task alone, or all calls on an image.

        Args:
            state: the topmost state to delete: its hash or a prefix of it. One of this, `task` and `image` is given.
            task: the task's name.
            image: the image's name or digest.
            dry_run: delete nothing, only count.

        Returns:
            The deleted rows, and the bytes that their deletion frees.

        Raises:
            UsageError: not one of `state`, `task` and `image` is given; or a tenant names no state.
            NotFound: there is no such state or task, or no rollout used such an image.
        """
        request = {"state": state, "task": task, "image": image, "dry_run": dry_run}
        answer = self.transport.ask(Ask("POST", target("forget"), request))
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

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _materialised(self, state: str, after: float, network: NetworkLike) -> Iterator[RemoteSandbox]:
        with self._made(state, 1, after, network) as sandboxes:
            yield sandboxes[0]

    def _made(self, state: str, n: int, after: float = 0.0, network: NetworkLike = None) -> Forks[RemoteSandbox]:
        sandboxes = finished(make_sandboxes(self._asking, state, n, after, network))
        return together([RemoteSandbox(self._asking, one) for one in sandboxes])

    def _forked(self, opening: Resume, n: int) -> Forks[RemoteRollout]:
        answer = self.transport.ask(resuming(opening, n))
        return together([RemoteRollout(self, None, one) for one in answer["rollouts"]])


class RemoteRollout(RolloutMethods, RolloutCore, Displayed):
    """The `Rollout` of a server, and a context manager that closes it."""

    def __init__(self, client: Client, opening: Ask | None, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(client._asking, opening, data)
        self._client = client
        client._open.add(self)

    @property
    def tools(self) -> Mapping[str, RemoteTool]:
        """The tools that may be called, by name; see `Rollout.tools`."""
        return finished(self._list_tools())

    def perform(self, operation: Operation[T]) -> T:
        """Performs an operation; see `Performs.perform`. A call is executed once, also if a connection breaks."""
        return finished(self._performing(operation))

    def fork(self, n: int = 1, *, reseed: bool = False) -> Forks[RemoteRollout]:
        """Begins rollouts at its state; see `Rollout.fork`."""
        forks = together([RemoteRollout(self._client, None, one) for one in finished(self._forked(n))])
        return reseeded(forks, forks[0].state) if reseed else forks

    def sandbox(self) -> RemoteSandbox:
        """Returns its own sandbox in its present state; see `Rollout.sandbox`."""
        return RemoteSandbox(self._asking, finished(self._give_out()))

    def cancel(self) -> bool:
        """Ends the call that is being made; see `Rollout.cancel`."""
        return finished(self._cancel())

    def close(self, outcome: str | None = None) -> None:
        """Ends it, if it has begun; see `Rollout.close`. It may be called more than once."""
        self._client._open.discard(self)
        finished(self._end(check_outcome(outcome)))

    async def _leave(self) -> None:
        self.close()

    def __enter__(self) -> RemoteRollout:
        finished(self._begin())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.close(outcome_of(error))


def is_open(rollout: RemoteRollout) -> bool:
    """Returns whether the server still has a rollout that has begun; it has not after a restart."""
    try:
        rollout._asking.blocking.get(rollout._target())
    except NotFound:
        return False
    return True


def known_state(rollout: RemoteRollout) -> str | None:
    """Returns the state at which a rollout stands; None if only the server knows it."""
    return None if rollout._place is None or rollout._given_out else str(rollout._place["state"])


def _posted(method: Callable[Concatenate[SandboxMethods, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Returns a method of a server's sandbox: it sends the arguments by their names, and reads the result."""
    what, signature = method.__name__, inspect.signature(method)

    @functools.wraps(method)
    def post(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        _, *named = bound.arguments.items()
        request = self._ask("POST", what, _result_of(method), {name: _in_json(value) for name, value in named})
        answer: T = self._run(request)
        return answer

    return post


def _looked(method: Callable[[SandboxMethods], T]) -> Callable[[Any], T]:
    """Returns a method of a server's sandbox without arguments, which changes nothing there."""

    @functools.wraps(method)
    def look(self: Any) -> T:
        answer: T = self._run(self._look(method.__name__, _result_of(method)))
        return answer

    return look


def _result_of(method: Callable[..., Any]) -> Any:
    kind = get_type_hints(method)["return"]
    return Any if kind is type(None) else kind


def _in_json(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else to_data(value)


class RemoteSandbox(SandboxCore):
    """The `Sandbox` of a server."""

    run = _posted(SandboxMethods.run)
    """`Sandbox.run`, at the server."""
    exec = _posted(SandboxMethods.exec)
    """`Sandbox.exec`, at the server."""
    exec_all = _posted(SandboxMethods.exec_all)
    """`Sandbox.exec_all`, at the server."""
    request = _posted(SandboxMethods.request)
    """`Sandbox.request`, at the server."""
    send_keys = _posted(SandboxMethods.send_keys)
    """`Sandbox.send_keys`, at the server."""
    terminal = _looked(SandboxMethods.terminal)
    """`Sandbox.terminal`, at the server."""
    digest = _looked(SandboxMethods.digest)
    """`Sandbox.digest`, at the server."""
    processes = _looked(SandboxMethods.processes)
    """`Sandbox.processes`, at the server."""
    changes = _looked(SandboxMethods.changes)
    """`Sandbox.changes`, at the server."""
    shell_state = _looked(SandboxMethods.shell_state)
    """`Sandbox.shell_state`, at the server."""

    def read_file(self, path: str, *, limit: int = MOST_READ, service: str | None = None) -> bytes:
        """Returns a file's contents; see `Sandbox.read_file`."""
        return self._run(self._read_file(path=path, limit=limit, service=service))

    def list_folder(self, path: str, *, limit: int = MOST_ENTRIES) -> FolderListing:
        """Returns the entries of one folder; see `Sandbox.list_folder`."""
        asking: Coroutine[Any, Any, FolderListing] = self._ask("GET", "folder", FolderListing, path=path, limit=limit)
        return self._run(asking)

    def write_file(self, path: str, data: bytes, *, user: str | None = None, service: str | None = None) -> None:
        """Writes a file; see `Sandbox.write_file`."""
        return self._run(self._write_file(data, path=path, user=user, service=service))

    def put(
        self,
        source: Upload,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Copies a file or a folder of this machine into it; see `Sandbox.put`."""
        return self._run(self._put(source, owners=owners, mode=mode, path=path, user=user, timeout=timeout))

    def get(
        self,
        path: str,
        destination: str | Path,
        *,
        owners: bool = False,
        limit: int = MOST_FETCHED,
        timeout: float | None = None,
    ) -> tuple[str, ...]:
        """Copies a file or a folder out of it; see `Sandbox.get`."""
        return self._run(self._get(destination, owners=owners, path=path, limit=limit, timeout=timeout))

    def attach(self, columns: int, rows: int) -> Terminal:
        """Returns the shell's terminal, for a person; no other method may be used until it is left.

        Args:
            columns: the width of the terminal in cells.
            rows: its height in cells.
        """
        path = target("sandboxes", self.id, "attach", columns=columns, rows=rows)
        return open_terminal(self._asking.blocking, path)

    @contextlib.contextmanager
    def archive(self) -> Iterator[IO[bytes]]:
        """A block with its files as a tar stream; see `Sandbox.archive`."""
        with self._asking.blocking.download(target("sandboxes", self.id, "archive")) as file:
            yield file

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return finished(work)


_T = TypeVar("_T", RemoteRollout, RemoteSandbox)


def together(items: Sequence[_T]) -> Forks[_T]:
    """Returns sandboxes or rollouts that are closed together."""

    def end() -> None:
        for one in items:
            finished(one._leave())

    return Forks(items, end)
