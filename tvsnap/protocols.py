"""What a cache gives, wherever it is: `Cache` and the client of a server have these methods, and so their awaitables.

Whoever takes `AnyCache` or `AnyAsyncCache` works with either. The docstrings of `Cache`, `Rollout`, `Sandbox` and
`ImageStore` say what the methods do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol, overload

from tvsnap.graph.model import Edge, RolloutRecord, RootInfo, Snapshot, State, TreeNode
from tvsnap.host.trees import Upload
from tvsnap.model.calls import ToolResult
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Command, FileChange, Outcome, Process
from tvsnap.model.stats import Stats

Hosts = str | Sequence[str] | None


class AnyFetched(Protocol):
    """What a rollout has fetched; see `Fetched`."""

    @property
    def result(self) -> ToolResult: ...

    @property
    def kind(self) -> str | None: ...

    def read(self) -> bytes: ...

    def extract(self, destination: str | Path) -> tuple[str, ...]: ...


class AnySandbox(Protocol):
    """A sandbox in a state; see `Sandbox`."""

    @property
    def id(self) -> str: ...

    def run(self, command: str, *, timeout: float) -> Outcome: ...

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
    ) -> Outcome: ...

    def exec_all(self, commands: Sequence[Command], *, timeout: float, user: str | None = None) -> list[Outcome]: ...

    def read_file(self, path: str, *, limit: int = ..., service: str | None = None) -> bytes: ...

    def write_file(self, path: str, data: bytes, *, user: str | None = None, service: str | None = None) -> None: ...

    def put(
        self,
        source: Upload,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> None: ...

    def get(
        self,
        path: str,
        destination: str | Path,
        *,
        owners: bool = False,
        limit: int = ...,
        timeout: float | None = None,
    ) -> tuple[str, ...]: ...

    def processes(self) -> list[Process]: ...

    def changes(self) -> Mapping[str, FileChange]: ...

    def shell_state(self) -> Mapping[str, str]: ...


class AnyForks(Protocol):
    """Sandboxes that stood in one state; see `Forks`."""

    def __getitem__(self, index: int, /) -> AnySandbox: ...

    def __iter__(self) -> Iterator[AnySandbox]: ...

    def __len__(self) -> int: ...

    def close(self) -> None: ...

    def __enter__(self) -> AnyForks: ...

    def __exit__(self, *_: object) -> None: ...


class AnyTool(Protocol):
    """A tool that may be called; see `Tool`."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Any]: ...


class AnyRollout(Protocol):
    """A rollout; see `Rollout`."""

    @property
    def tools(self) -> Mapping[str, AnyTool]: ...

    @property
    def id(self) -> str | None: ...

    @property
    def root(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def depth(self) -> int: ...

    @property
    def private(self) -> str | None: ...

    @property
    def unshared(self) -> str | None: ...

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = ...,
        *,
        after: float = 0.0,
        deadline: float | None = None,
        grade: Sequence[str] | None = None,
    ) -> ToolResult: ...

    def cancel(self) -> bool: ...

    def exec_all(
        self,
        commands: Sequence[Command | str],
        timeout: float | None = ...,
        *,
        user: str | None = None,
        after: float = 0.0,
    ) -> list[ToolResult]: ...

    def put(
        self,
        source: str | Path | bytes,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> ToolResult: ...

    def get(
        self,
        path: str,
        destination: str | Path | None = None,
        *,
        owners: bool = False,
        limit: int = ...,
        timeout: float | None = None,
    ) -> AnyFetched: ...

    def fork(self, n: int = 1) -> Sequence[AnyRollout]: ...

    def snapshot_if_idle(self) -> bool: ...

    def close(self) -> None: ...

    def __enter__(self) -> AnyRollout: ...

    def __exit__(self, *_: object) -> None: ...


class AnyImages(Protocol):
    """Images; see `ImageStore`."""

    def get(self, name: str) -> Image: ...

    def list(self) -> list[Image]: ...

    def build(
        self, source: Path | str, *, name: str | None = None, progress: Any = None, force: bool = False
    ) -> Image: ...


class AnyGraph(Protocol):
    """The graph, to be looked at; see `Graph`."""

    def resolve(self, name: str) -> State: ...

    def lineage(self, state: str) -> list[Edge]: ...

    def out_edges(self, state: str) -> list[Edge]: ...

    def root_of(self, state: str) -> RootInfo: ...

    def snapshots_of(self, state: str) -> list[Snapshot]: ...

    def tree(
        self, *, root: str | None = None, task: str | None = None, image: str | None = None, depth: int | None = None
    ) -> list[TreeNode]: ...

    def roots(self) -> list[RootInfo]: ...

    def rollouts(self, task: str | None = None) -> list[RolloutRecord]: ...

    def tasks(self) -> list[str]: ...


class AnyCache(Protocol):
    """A cache: `Cache` on a data directory of this machine, or `Client` of a server."""

    @property
    def images(self) -> AnyImages: ...

    @property
    def graph(self) -> AnyGraph: ...

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
    ) -> AnyRollout: ...

    def resume(self, state: str, task: str = "", label: str | None = None, *, after: float = 0.0) -> AnyRollout: ...

    def materialise(
        self, state: str, *, after: float = 0.0, network: Hosts = None
    ) -> AbstractContextManager[AnySandbox]: ...

    @overload
    def fork(self, state: str, n: int = 1, *, as_rollouts: Literal[False] = False) -> AnyForks: ...

    @overload
    def fork(
        self, state: str, n: int = 1, *, as_rollouts: Literal[True], task: str = "", label: str | None = None
    ) -> Sequence[AnyRollout]: ...

    def warm(self, image: str) -> str: ...

    def stats(self) -> Stats: ...

    def close(self) -> None: ...

    def __enter__(self) -> AnyCache: ...

    def __exit__(self, *_: object) -> None: ...


class AnyAsyncSandbox(Protocol):
    """A sandbox in a state whose methods are awaited; see `AsyncSandbox`."""

    @property
    def id(self) -> str: ...

    def run(self, command: str, *, timeout: float) -> Awaitable[Outcome]: ...

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
    ) -> Awaitable[Outcome]: ...

    def exec_all(
        self, commands: Sequence[Command], *, timeout: float, user: str | None = None
    ) -> Awaitable[list[Outcome]]: ...

    def read_file(self, path: str, *, limit: int = ..., service: str | None = None) -> Awaitable[bytes]: ...

    def write_file(
        self, path: str, data: bytes, *, user: str | None = None, service: str | None = None
    ) -> Awaitable[None]: ...

    def put(
        self,
        source: Upload,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> Awaitable[None]: ...

    def get(
        self,
        path: str,
        destination: str | Path,
        *,
        owners: bool = False,
        limit: int = ...,
        timeout: float | None = None,
    ) -> Awaitable[tuple[str, ...]]: ...

    def processes(self) -> Awaitable[list[Process]]: ...

    def changes(self) -> Awaitable[Mapping[str, FileChange]]: ...

    def shell_state(self) -> Awaitable[Mapping[str, str]]: ...


class AnyAsyncForks(Protocol):
    """Sandboxes that stood in one state; see `AsyncForks`."""

    def __getitem__(self, index: int, /) -> AnyAsyncSandbox: ...

    def __iter__(self) -> Iterator[AnyAsyncSandbox]: ...

    def __len__(self) -> int: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> AnyAsyncForks: ...

    async def __aexit__(self, *_: object) -> None: ...


class AnyAsyncRollout(Protocol):
    """A rollout whose calls are awaited; see `AsyncRollout`."""

    @property
    def id(self) -> str | None: ...

    @property
    def root(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def depth(self) -> int: ...

    @property
    def private(self) -> str | None: ...

    @property
    def unshared(self) -> str | None: ...

    async def settled(self) -> None: ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = ...,
        *,
        after: float = 0.0,
        deadline: float | None = None,
        grade: Sequence[str] | None = None,
    ) -> ToolResult: ...

    async def cancel(self) -> bool: ...

    async def exec_all(
        self,
        commands: Sequence[Command | str],
        timeout: float | None = ...,
        *,
        user: str | None = None,
        after: float = 0.0,
    ) -> list[ToolResult]: ...

    async def put(
        self,
        source: str | Path | bytes,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> ToolResult: ...

    async def get(
        self,
        path: str,
        destination: str | Path | None = None,
        *,
        owners: bool = False,
        limit: int = ...,
        timeout: float | None = None,
    ) -> AnyFetched: ...

    async def fork(self, n: int = 1) -> Sequence[AnyAsyncRollout]: ...

    def snapshot_if_idle(self) -> Awaitable[bool]: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> AnyAsyncRollout: ...

    async def __aexit__(self, *_: object) -> None: ...


class AnyAsyncCache(Protocol):
    """A cache whose methods are awaited: `AsyncCache`, or `AsyncClient` of a server. `cache` is the one that blocks."""

    @property
    def cache(self) -> AnyCache: ...

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
    ) -> AnyAsyncRollout: ...

    def resume(
        self, state: str, task: str = "", label: str | None = None, *, after: float = 0.0
    ) -> AnyAsyncRollout: ...

    def materialise(
        self, state: str, *, after: float = 0.0, network: Hosts = None
    ) -> AbstractAsyncContextManager[AnyAsyncSandbox]: ...

    @overload
    async def fork(self, state: str, n: int = 1, *, as_rollouts: Literal[False] = False) -> AnyAsyncForks: ...

    @overload
    async def fork(
        self, state: str, n: int = 1, *, as_rollouts: Literal[True], task: str = "", label: str | None = None
    ) -> Sequence[AnyAsyncRollout]: ...

    def warm(self, image: str) -> Awaitable[str]: ...

    def stats(self) -> Stats: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> AnyAsyncCache: ...

    async def __aexit__(self, *_: object) -> None: ...
