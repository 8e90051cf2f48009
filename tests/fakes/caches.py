"""What the cache's tests share: a cache on the fake backend, and short ways to call."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tests.fakes.backend import FakeBackend, FakeSandbox, Hook, fake_image
from tests.fakes.filed import FiledBackend
from tests.fakes.inside import settle
from tests.fakes.machine import WORK
from tvsnap import Budget
from tvsnap.cache import Cache
from tvsnap.environments.terminal import TerminalEnvironment
from tvsnap.environments.terminal import bash as bash_tool
from tvsnap.images import Image
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import NotFound
from tvsnap.rollout import Rollout

IMAGE = fake_image()
BUSY = WORK
"""A command that works until its timeout."""
__all__ = ["settle"]
T = TypeVar("T")


@dataclass(frozen=True)
class FakeImages:
    """Stands in for an `ImageStore`, with one image."""

    image: Image = IMAGE

    def get(self, name: str) -> Image:
        if name not in (self.image.name, self.image.digest):
            raise NotFound(f'image "{name}" not found; have: {self.image.name}')
        return self.image


def open_cache(home: Path, backend: FakeBackend | None = None, **options: Any) -> Cache:
    """Opens a cache on a fake backend."""
    options.setdefault("policy", "eager")
    return Cache(home, backend=backend or FakeBackend(), images=FakeImages(), **options)


def open_shared(home: Path, **options: Any) -> Cache:
    """Opens a cache on a fake backend whose snapshots other processes share; its options are those of both."""
    kinds = ("hooks", "faults", "captures", "seed", "delays")
    backend = FiledBackend(home / "snapshots", **{name: options.pop(name) for name in kinds if name in options})
    cache = open_cache(home, backend, **options)
    backend.owner = cache.owner
    return cache


def bash(rollout: Rollout, command: str, timeout: float = 20.0) -> ToolResult:
    """Makes a call of `bash`."""
    return rollout.call("bash", {"command": command}, timeout)


def run(cache: Cache, *commands: str, **options: Any) -> list[ToolResult]:
    """Makes a rollout of `bash` calls; returns their results, once the last one's state is kept if it is to be."""
    with cache.rollout("terminal", **options) as rollout:
        results = [bash(rollout, command) for command in commands]
        settle(rollout)
        return results


def prove(home: Path, backend: FakeBackend, *histories: Sequence[str]) -> None:
    """Makes rollouts of `bash` calls until each is known to be reproducible; needs the fixture `proofs_at_once`.

    It leaves no snapshots.
    """
    with open_cache(home, backend, policy="never", budget=Budget(parked=0)) as cache:
        for _ in range(2):
            for history in histories:
                run(cache, *history)


def sources(results: list[ToolResult]) -> list[str]:
    return [result.source for result in results]


def backend_of(cache: Cache) -> FakeBackend:
    assert isinstance(cache.backend, FakeBackend)
    return cache.backend


def eventually(probe: Callable[[], T], timeout: float = 60.0) -> T:
    """Calls `probe` until what it returns is true; returns that."""
    end = time.monotonic() + timeout
    while True:
        value = probe()
        if value:
            return value
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


@dataclass
class Gate:
    """Holds up whoever comes to it with a given command, until it is opened. Use as a hook of the fake backend."""

    command: str
    arrived: threading.Event = field(default_factory=threading.Event)
    open: threading.Event = field(default_factory=threading.Event)
    passed: int = 0

    def __call__(self, sandbox: object, subject: str) -> None:
        if subject == self.command:
            self.passed += 1
            self.arrived.set()
            assert self.open.wait(60)


@dataclass
class First:
    """Holds up the first that comes with a command until `open` is set, and the others until they are interrupted."""

    command: str
    arrived: list[FakeSandbox] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)

    def __call__(self, sandbox: FakeSandbox | None, subject: str) -> None:
        if subject == self.command and sandbox is not None:
            self.arrived.append(sandbox)
            gate = self.open if sandbox is self.arrived[0] else sandbox.interrupted
            assert gate.wait(60)


def writes(path: str, data: bytes) -> Hook:
    """Returns a hook of the fake backend by which a sandbox's files change without its commands."""

    def write(sandbox: FakeSandbox | None, subject: str) -> None:
        assert sandbox is not None
        sandbox.machine.write(path, data)

    return write


@contextlib.contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(count) as pool:
        yield pool


class OddEnvironment(TerminalEnvironment):
    """The terminal, with tools of other kinds; they take a command and run it in the persistent shell."""

    def __init__(self) -> None:
        super().__init__(
            tools=(
                replace(bash_tool, name="ask", stochastic=True),
                replace(bash_tool, name="send", cacheable=False),
                replace(bash_tool, name="fetch", cacheable=False, read_only=True),
                replace(bash_tool, name="note", reproducible=True),
            )
        )
