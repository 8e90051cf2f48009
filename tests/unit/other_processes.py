"""Other processes on a data directory, forked off a server that has imported what they use and opened nothing."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.fakes.backend import FakeSandbox
from tests.fakes.caches import bash, open_shared, run
from tvsnap import Budget

_SERVER = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Other:
    """A process, and its end of talking with this one."""

    process: BaseProcess
    connection: Connection

    def answer(self) -> Any:
        """Returns the next thing that it says; waits for it."""
        assert self.connection.poll(60), "it never said anything"
        return self.connection.recv()

    def kill(self) -> None:
        """Kills it, and waits until it is gone."""
        self.process.kill()
        self.wait()

    def wait(self) -> int | None:
        """Returns its exit status, once it has ended."""
        self.process.join(60)
        return self.process.exitcode


@contextmanager
def other_process(does: Callable[..., None], *arguments: Any) -> Iterator[Other]:
    """A block with a process that executes one of the functions below; its end is waited for at the block's."""
    _SERVER.set_forkserver_preload([__name__])
    ours, theirs = _SERVER.Pipe()
    process = _SERVER.Process(target=does, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    with ours:
        other = Other(process, ours)
        try:
            yield other
        except BaseException:
            process.kill()
            raise
        finally:
            other.wait()


def make(connection: Connection, home: Path, name: str) -> None:
    """Makes the call `make`, which takes as long as the file `go` is missing; tells the sources of results."""

    def work(sandbox: FakeSandbox | None, subject: str) -> None:
        if subject == "make":
            _wait_for_go(home, f"making-{name}")

    with open_shared(home, hooks={"run": work}) as cache:
        connection.send([result.source for result in run(cache, "x=1", "make", "echo $x")])


def execute(connection: Connection, home: Path, policy: str, command: str) -> None:
    """Executes a command until the file `go` is there; tells its output."""

    def work(sandbox: FakeSandbox | None, subject: str) -> None:
        _wait_for_go(home, "making")

    with open_shared(home, hooks={"run": work}, policy=policy) as cache:
        connection.send(run(cache, command)[0].output)


def stand(connection: Connection, home: Path) -> None:
    """Tells the source of a call's result, stays in the state after it until it hears something, and looks at it."""
    with open_shared(home, budget=Budget(parked=0)) as cache, cache.rollout("terminal") as rollout:
        connection.send(bash(rollout, "echo $RANDOM > f").source)
        connection.recv()
        connection.send(bash(rollout, "cat f; :").output)


def _wait_for_go(home: Path, came: str) -> None:
    (home / came).touch()
    while not (home / "go").exists():
        time.sleep(0.005)
