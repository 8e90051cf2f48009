"""What `tvsnap.aio.connect` returns: a cache elsewhere, its rollouts and its sandboxes."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, overload

from tvsnap.client.async_bases import AsyncClientBase, AsyncRolloutBase, AsyncSandboxBase, in_order
from tvsnap.client.events import Event, EventParser
from tvsnap.client.operations import (
    MOST_ENTRIES,
    MOST_READ,
    RemoteFetched,
    check_call,
    downloaded,
    expect_rollouts,
    grading,
    make_sandboxes,
    open_rollout,
    result_of,
    resume_rollouts,
    upload,
    warm_image,
)
from tvsnap.client.terminals import AsyncTerminal, async_open_terminal
from tvsnap.client.transport import PATIENCE, File, Transport
from tvsnap.client.wire import Ask, target
from tvsnap.graph.model import Edge
from tvsnap.graph.remade import Remade
from tvsnap.host.trees import MOST_FETCHED, Upload, extract
from tvsnap.model.arguments import check_outcome, check_reward, check_whole, outcome_of
from tvsnap.model.calls import DEFAULT_TIMEOUT, ToolResult
from tvsnap.model.errors import CallCancelled, UsageError
from tvsnap.model.grades import Grade, Verifier
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.network import NetworkLike
from tvsnap.model.observations import Command, FileChange, FolderListing, Outcome, Process, TerminalBytes
from tvsnap.model.several import Several, awaited_or_entered
from tvsnap.model.side_by_side import exec_all_arguments, results_of
from tvsnap.wire.errors import Unreachable, WorkerDied
from tvsnap.wire.values import from_data


async def connect(
    url: str,
    token: str | None = None,
    *,
    patience: float = PATIENCE,
    ca: File | None = None,
    certificate: File | tuple[File, File] | None = None,
) -> AsyncClient:
    """Returns the cache of a server, which is used as an `AsyncCache` is.

    Args:
        url: `http://HOST:PORT`, `https://HOST:PORT`, or `unix:PATH`.
        token: what the server lets in with; None where it asks for none.
        patience: seconds to wait while the server's sandboxes are used up.
        ca: a file with the certificate of the authority that has signed the server's, for https; None for the one
            that the variable TVSNAP_CA names, or else those that this machine trusts.
        certificate: a file with the certificate to show to the server, and its key; or two files, one for each. None
            for the file that the variable TVSNAP_CERTIFICATE names, if it is set.

    Raises:
        UsageError: the address is none, a file with certificates cannot be used, or the server does not know the token.
        Unreachable: there is no server, or its certificate or ours is not trusted.
    """
    client = AsyncClient(Transport(url, token, patience, ca=ca, certificate=certificate))
    await client.transport.ask(Ask("GET", target("rollouts")))
    return client


class AsyncClient(AsyncClientBase["AsyncRemoteRollout"]):
    """An `AsyncCache` elsewhere, and a context manager that ends its rollouts.

    Attributes:
        transport: its connections.
    """

    def rollout(
        self,
        image: str | Image,
        task: str = "",
        salt: str | None = None,
        label: str | None = None,
        *,
        limits: Limits | None = None,
        network: NetworkLike = None,
        deadline: float | None = None,
        epoch: int | None = None,
    ) -> AsyncRemoteRollout:
        """Returns a rollout at the root of an image; see `AsyncCache.rollout`.

        Args:
            image: the image, or its name or digest, as the server knows it.
            task: the task that the rollout is of.
            salt: a text that keeps rollouts apart.
            label: what people call this rollout.
            limits: what its sandboxes may use; None for what all sandboxes of the image may.
            network: what its sandboxes may reach outside; None for what the image says.
            deadline: seconds from now on by which the rollout is to be through; None for none.
            epoch: the number of the training run's pass over its tasks, 0 or more, for people; None for none.

        Raises:
            NotFound: there is no such image.
            UsageError: an argument makes no sense.
        """
        opening = open_rollout(image, task, salt, label, limits, network, deadline, epoch)
        return self._opened(AsyncRemoteRollout(self, opening))

    def group(self, image: str, task: str = "", n: int = 8, **options: Any) -> list[AsyncRemoteRollout]:
        """Returns several rollouts at one root; see `AsyncCache.group`.

        Args:
            image: the image's name or digest, as the server knows it.
            task: the task that the rollouts are of.
            n: how many.
            options: `salt`, `label`, `limits`, `network`, `deadline` and `epoch`, as in `rollout`.

        Raises:
            NotFound: there is no such image.
            UsageError: an argument makes no sense, or there may never be so many.
            Busy: the server has no room for all of them. None is open then.
        """
        check_whole(n, "n", 1)
        return self._all(self.rollout(image, task, **options) for _ in range(n))

    def resume(
        self, state: str, task: str = "", label: str | None = None, *, after: float = 0.0, epoch: int | None = None
    ) -> AsyncRemoteRollout:
        """Returns a rollout at any state; see `AsyncCache.resume`.

        Args:
            state: the state's full hash.
            task: the task that the rollout is of.
            label: what people call this rollout.
            after: seconds that are to have passed there since the state was reached.
            epoch: as in `rollout`.

        Raises:
            NotFound: there is no such state, or its image was removed.
            StateLost: what kept the state is gone, and nothing else leads to it.
        """
        return self._opened(AsyncRemoteRollout(self, resume_rollouts(state, 1, task, label, after, epoch)))

    @contextlib.asynccontextmanager
    async def materialise(
        self, state: str, *, after: float = 0.0, network: NetworkLike = None
    ) -> AsyncIterator[AsyncRemoteSandbox]:
        """Returns a context manager with a sandbox in any state; see `AsyncCache.materialise`.

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
        async with await self._make(make_sandboxes(state, 1, after, network)) as made:
            yield made[0]

    async def terminal(self, state: str, columns: int = 80, rows: int = 24) -> AsyncTerminal:
        """Returns the terminal of a fork of a state. The fork ends with it, also where this process does.

        Args:
            state: the state's full hash.
            columns: the width of the terminal in cells.
            rows: its height in cells.

        Raises:
            NotFound: there is no such state, or its image was removed.
            StateLost: what kept the state is gone, and nothing else leads to it.
            Busy: the server's sandboxes are used up, and stayed so for as long as the client is patient.
        """
        return await async_open_terminal(
            self.transport, target("states", state, "terminal", columns=columns, rows=rows)
        )

    @overload
    @awaited_or_entered
    async def fork(
        self, state: str, n: int = 1, *, as_rollouts: Literal[False] = False
    ) -> AsyncRemoteForks[AsyncRemoteSandbox]: ...

    @overload
    @awaited_or_entered
    async def fork(
        self, state: str, n: int = 1, *, as_rollouts: Literal[True], task: str = "", label: str | None = None
    ) -> AsyncRemoteForks[AsyncRemoteRollout]: ...

    @awaited_or_entered
    async def fork(
        self, state: str, n: int = 1, *, as_rollouts: bool = False, task: str = "", label: str | None = None
    ) -> AsyncRemoteForks[AsyncRemoteSandbox] | AsyncRemoteForks[AsyncRemoteRollout]:
        """Returns several sandboxes, or rollouts, that stand at any state; see `AsyncCache.fork`.

        Args:
            state: the state's full hash.
            n: how many.
            as_rollouts: begin rollouts, which make sandboxes once they need them.
            task: groups the rollouts for people.
            label: what people call the rollouts.

        Returns:
            The sandboxes or rollouts, to be closed together.

        Raises:
            NotFound: there is no such state, or its image was removed.
            StateLost: what kept the state is gone, and nothing else leads to it.
            Busy: the server's sandboxes are used up, and stayed so for as long as the client is patient.
        """
        if as_rollouts:
            answer = await self.transport.ask(resume_rollouts(state, n, task, label, 0.0))
            return AsyncRemoteForks([AsyncRemoteRollout(self, None, one) for one in answer["rollouts"]])
        return await self._make(make_sandboxes(state, n, 0.0, None))

    @contextlib.asynccontextmanager
    async def events(self) -> AsyncIterator[AsyncIterator[Event]]:
        """Returns a context manager with what happens at the server from then on, as it happens.

        A tenant sees its own. Where events come faster than they are taken, some are left out, and an event `dropped`
        tells how many.

        Yields:
            The events, which end when the server is stopped.
        """
        async with self.transport.stream("GET", target("events")) as pieces:
            parser = EventParser()
            parser.take(await anext(pieces, b""))  # a comment, once nothing is missed
            yield (event async for piece in pieces for event in parser.take(piece))

    async def reexecute(self, edge: Edge) -> Remade:
        """Makes a recorded call once more, in a sandbox that is ended afterwards; see `Cache.reexecute`.

        Args:
            edge: the recorded call, from `graph`.

        Returns:
            What the call returned this time, and the digest of what it left behind.

        Raises:
            UsageError: `edge` is not a `tvsnap.graph.Edge`, or was made in no sandbox.
            StateLost: what kept the state is gone, and nothing else leads to it.
        """
        if not isinstance(edge, Edge):
            raise UsageError(f"edge must be a tvsnap.graph.Edge, not {edge!r}")
        return from_data(Remade, await self.transport.ask(Ask("POST", target("calls", str(edge.id), "executions"))))

    async def expect(
        self,
        image: str | Image,
        n: int = 1,
        *,
        salt: str | None = None,
        limits: Limits | None = None,
        network: NetworkLike = None,
    ) -> None:
        """Announces that rollouts of an image will soon need a sandbox at its root; see `AsyncCache.expect`.

        Args:
            image: the image's name or digest, as the server knows it.
            n: how many more rollouts than those announced before.
            salt: as in `rollout`, like `limits` and `network`.
            limits: what the sandboxes may use.
            network: what they may reach outside.

        Raises:
            NotFound: there is no such image.
            UsageError: an argument makes no sense.
        """
        await self.transport.ask(expect_rollouts(image, n, salt, limits, network))

    async def warm(self, image: str | Image) -> str:
        """Takes a snapshot of an image's root where its sandboxes run a service; see `AsyncCache.warm`.

        Args:
            image: the image, or its name or digest, as the server knows it.

        Returns:
            The hash of the root.

        Raises:
            NotFound: there is no such image.
            NotCheckpointable: the root cannot be kept; the message is the reason.
        """
        answer = await self.transport.ask(warm_image(image))
        return str(answer["root"])

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _make(self, ask: Ask) -> AsyncRemoteForks[AsyncRemoteSandbox]:
        made = await self.transport.ask(ask)
        return AsyncRemoteForks([AsyncRemoteSandbox(self.transport, one) for one in made["sandboxes"]])


class AsyncRemoteRollout(AsyncRolloutBase):
    """An `AsyncRollout` elsewhere, and a context manager that closes it."""

    def __init__(self, client: AsyncClient, opening: Ask | None, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(client.transport, opening, data)
        self._client = client
        client._open.add(self)

    @in_order
    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        after: float = 0.0,
        deadline: float | None = None,
        grade: Sequence[str] | None = None,
    ) -> ToolResult:
        """Makes a tool call; see `AsyncRollout.call`. It is executed once, also where the connection breaks."""
        await self._begin()
        check_call(name, arguments, timeout, after, deadline)  # raises what `AsyncRollout.call` does
        asked: dict[str, Any] = {"name": name, "arguments": arguments, "timeout": timeout}
        if after:
            asked["after"] = after
        if deadline is not None:
            asked["deadline"] = deadline
        if grade is not None:
            asked["grade"] = list(grade)
        return await self._make(asked)

    async def exec_all(
        self,
        commands: Sequence[Command | str],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        user: str | None = None,
        after: float = 0.0,
    ) -> list[ToolResult]:
        """Runs several commands side by side, as one call; see `AsyncRollout.exec_all`."""
        return results_of(await self.call("exec_all", exec_all_arguments(commands, user), timeout, after=after))

    @in_order
    async def put(
        self,
        source: str | Path | bytes,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> ToolResult:
        """Copies a file or a folder of this machine into the sandbox; see `AsyncRollout.put`."""
        await self._begin()
        if not isinstance(source, (str, Path, bytes)):
            raise UsageError(f"source must be a path, or bytes, not {source!r}")
        digest = await self._transport.do(lambda transport: upload(transport, source, owners=owners, mode=mode))
        chosen: dict[str, Any] = {} if user is None else {"user": user}
        chosen |= {"owners": True} if owners else {}
        arguments = {"path": path, "digest": digest, **chosen}
        return await self._make({"name": "put", "arguments": arguments, "timeout": timeout})

    @in_order
    async def get(
        self,
        path: str,
        destination: str | Path | None = None,
        *,
        owners: bool = False,
        limit: int = MOST_FETCHED,
        timeout: float | None = None,
    ) -> RemoteFetched:
        """Copies a file or a folder out of the sandbox; see `AsyncRollout.get`."""
        await self._begin()
        asked = {"path": path, "owners": owners, "limit": limit, "timeout": timeout}
        answer = await self._in_sight(Ask("POST", self._target("fetches"), asked))

        def fetch(transport: Transport) -> RemoteFetched:
            result, digest = result_of(answer["result"]), answer["digest"]
            fetched = RemoteFetched(transport, result, digest, answer["kind"], owners=owners)
            if destination is not None:
                fetched.extract(destination)
            return fetched

        return await self._transport.do(fetch)

    @awaited_or_entered
    @in_order
    async def fork(self, n: int = 1) -> AsyncRemoteForks[AsyncRemoteRollout]:
        """Begins rollouts where it stands; see `AsyncRollout.fork`."""
        await self._begin()
        answer = await self._transport.ask(Ask("POST", self._target("forks"), {"n": n}))
        return AsyncRemoteForks([AsyncRemoteRollout(self._client, None, one) for one in answer["rollouts"]])

    @in_order
    async def sandbox(self) -> AsyncRemoteSandbox:
        """Returns its own sandbox in its present state; see `AsyncRollout.sandbox`."""
        await self._begin()
        self._given_out = True
        return AsyncRemoteSandbox(self._transport, await self._transport.ask(Ask("POST", self._target("sandbox"))))

    @in_order
    async def keep(self, label: str, output: str = "") -> str:
        """Records what was done in that sandbox as one step, and keeps its state; see `AsyncRollout.keep`."""
        await self._begin()
        answer = await self._transport.ask(Ask("POST", self._target("kept"), {"label": label, "output": output}))
        self._place = answer["place"]
        return str(answer["state"])

    @in_order
    async def grade(self, verifier: Verifier | str) -> Grade:
        """Grades the state at which it stands; see `AsyncRollout.grade`. The verifier is a command, not a function."""
        await self._begin()
        answer = await self._transport.ask(Ask("POST", self._target("grades"), grading(Verifier.of(verifier))))
        return Grade.of_result(result_of(answer["result"]))

    async def cancel(self) -> bool:
        """Ends the call that is being made; see `AsyncRollout.cancel`."""
        key = self._calling
        if key is None:
            return False
        await self._transport.ask(Ask("POST", self._target("cancel", call=key), short=True))
        return True

    @in_order
    async def snapshot_if_idle(self) -> bool:
        """Takes a snapshot where it stands; see `AsyncRollout.snapshot_if_idle`."""
        await self._begin()
        answer = await self._transport.ask(Ask("POST", self._target("snapshots")))
        return bool(answer["done"])

    @in_order
    async def record(self, reward: float) -> None:
        """Records its reward, also once it is closed; see `AsyncRollout.record`."""
        check_reward(reward)
        if self._data is None:
            await self._begin()
        if self.id is not None:
            await self._transport.ask(
                Ask("POST", target("transcripts", self.id, "reward"), {"reward": float(reward)}, short=True)
            )

    async def close(self, outcome: str | None = None) -> None:
        """Ends it, if it has begun; see `AsyncRollout.close`. It may be called more than once."""
        self._client._open.discard(self)
        await self._close(check_outcome(outcome))

    @in_order
    async def __aenter__(self) -> AsyncRemoteRollout:
        await self._begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        await self.close(outcome_of(error))

    async def _leave(self) -> None:
        await self.close()

    async def _begin(self) -> None:
        if self._closed:
            raise UsageError("the rollout is closed")
        if self._data is None:
            assert self._opening is not None
            answer = await self._transport.ask(self._opening)
            self._data = answer["rollouts"][0] if "rollouts" in answer else answer
            self._place = self._data["place"]

    @in_order
    async def _close(self, outcome: str | None) -> None:
        if not self._closed:
            self._closed = True
            if self._data is not None and not self._transport.forked_off:
                with contextlib.suppress(WorkerDied, Unreachable):  # it has ended by that
                    await self._transport.ask(Ask("DELETE", self._target(outcome=outcome)))

    async def _make(self, asked: Mapping[str, Any]) -> ToolResult:
        answer = await self._in_sight(Ask("POST", self._target("calls"), asked))
        return result_of(answer["result"])

    async def _in_sight(self, ask: Ask) -> Any:
        """Makes a call that can be cancelled, and notes where it led."""
        if self._dropped:
            raise CallCancelled("the call was cancelled before it was executed")
        self._calling = ask.key
        try:
            answer = await self._transport.ask(ask)
        finally:
            self._calling = None
        self._place = answer["place"]
        return answer


class AsyncRemoteSandbox(AsyncSandboxBase):
    """An `AsyncSandbox` elsewhere."""

    _ended = False

    async def run(self, command: str, *, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        """Runs a command in the persistent shell; see `Sandbox.run`."""
        return from_data(Outcome, await self._post("run", {"command": command, "timeout": timeout}))

    async def exec(
        self,
        command: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        cwd: str | None = None,
        env: Mapping[str, str] = {},
        user: str | None = None,
        separate: bool = False,
        service: str | None = None,
    ) -> Outcome:
        """Runs a command in a fresh shell; see `Sandbox.exec`."""
        asked = {"command": command, "timeout": timeout, "cwd": cwd, "env": dict(env), "user": user}
        return from_data(Outcome, await self._post("exec", {**asked, "separate": separate, "service": service}))

    async def exec_all(
        self, commands: Sequence[Command], *, timeout: float = DEFAULT_TIMEOUT, user: str | None = None
    ) -> list[Outcome]:
        """Runs commands side by side, each in a fresh shell; see `Sandbox.exec_all`."""
        asked = {"commands": [asdict(command) for command in commands], "timeout": timeout, "user": user}
        return from_data(list[Outcome], await self._post("exec_all", asked))

    async def read_file(self, path: str, *, limit: int = MOST_READ, service: str | None = None) -> bytes:
        """Returns a file's contents; see `Sandbox.read_file`."""
        where = self._target("files", path=path, limit=limit, service=service)
        return await self._transport.do(lambda transport: transport.fetch(where))

    async def list_folder(self, path: str, *, limit: int = MOST_ENTRIES) -> FolderListing:
        """Returns what is in one folder; see `Sandbox.list_folder`."""
        return from_data(
            FolderListing, await self._transport.ask(Ask("GET", self._target("folder", path=path, limit=limit)))
        )

    async def write_file(self, path: str, data: bytes, *, user: str | None = None, service: str | None = None) -> None:
        """Writes a file; see `Sandbox.write_file`."""
        await self._transport.ask(Ask("PUT", self._target("files", path=path, user=user, service=service), data))

    async def put(
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
        digest = await self._transport.do(lambda transport: upload(transport, source, owners=owners, mode=mode))
        await self._post("puts", {"path": path, "digest": digest, "user": user, "owners": owners, "timeout": timeout})

    async def get(
        self,
        path: str,
        destination: str | Path,
        *,
        owners: bool = False,
        limit: int = MOST_FETCHED,
        timeout: float | None = None,
    ) -> tuple[str, ...]:
        """Copies a file or a folder out of it; see `Sandbox.get`."""
        answer = await self._post("fetches", {"path": path, "limit": limit, "timeout": timeout})

        def write(transport: Transport) -> tuple[str, ...]:
            with downloaded(transport, answer["digest"]) as items:
                return extract(items, destination, owners=owners)

        return await self._transport.do(write)

    async def request(self, path: str, data: bytes, *, timeout: float, limit: int = MOST_READ) -> bytes:
        """Sends a request to a service inside, and returns its answer; see `Sandbox.request`."""
        asked = {"path": path, "data": base64.b64encode(data).decode(), "timeout": timeout, "limit": limit}
        return from_data(bytes, await self._post("request", asked))

    async def send_keys(self, data: bytes, *, wait: float) -> None:
        """Types bytes into the shell's terminal; see `Sandbox.send_keys`."""
        await self._post("send_keys", {"data": base64.b64encode(data).decode(), "wait": wait})

    async def attach(self, columns: int, rows: int) -> AsyncTerminal:
        """Returns the shell's terminal, for a person; nothing else can be asked of the sandbox until it is left.

        Args:
            columns: the width of the terminal in cells.
            rows: its height in cells.
        """
        return await async_open_terminal(self._transport, self._target("attach", columns=columns, rows=rows))

    async def terminal(self) -> TerminalBytes:
        """Returns the bytes sent to the shell's terminal, and its size; see `Sandbox.terminal`."""
        return from_data(TerminalBytes, await self._look("terminal"))

    async def digest(self) -> str | None:
        """Returns a digest of all that it holds; see `Sandbox.digest`."""
        return cast("str | None", await self._look("digest"))

    async def processes(self) -> list[Process]:
        """Returns the live processes; see `Sandbox.processes`."""
        return from_data(list[Process], await self._look("processes"))

    async def changes(self) -> Mapping[str, FileChange]:
        """Returns what differs from the image; see `Sandbox.changes`."""
        return from_data(dict[str, FileChange], await self._look("changes"))

    async def shell_state(self) -> Mapping[str, str]:
        """Returns the shell's state by name; see `Sandbox.shell_state`."""
        return from_data(dict[str, str], await self._look("shell_state"))

    async def _leave(self) -> None:
        if not self._ended and not self._transport.forked_off:
            self._ended = True
            with contextlib.suppress(WorkerDied, Unreachable):  # it has ended by that
                await self._transport.ask(Ask("DELETE", target("sandboxes", self.id)))

    async def _look(self, what: str) -> Any:
        answer = await self._transport.ask(Ask("GET", self._target(what)))
        return answer[what]

    async def _post(self, what: str, asked: Any) -> Any:
        return await self._transport.ask(Ask("POST", self._target(what), asked))

    def _target(self, what: str, **query: Any) -> str:
        return target("sandboxes", self.id, what, **query)


_T = TypeVar("_T", AsyncRemoteRollout, AsyncRemoteSandbox)


class AsyncRemoteForks(Several[_T]):
    """Sandboxes or rollouts elsewhere that stood in one state when they were made; see `AsyncForks`."""

    async def close(self) -> None:
        """Ends all of them. It may be called more than once."""
        for one in self:
            await one._leave()

    async def __aenter__(self) -> AsyncRemoteForks[_T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
