"""Forks that stand still just before their first instruction, until somebody needs them.

CRIU asks before it lets a restored tree run. Where the answer is withheld, a fork is complete and has not run: jobs,
sessions, servers and databases included. What is left to be done, once somebody needs it, takes some milliseconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from tvsnap.host.memory import proportional
from tvsnap.model.errors import InfrastructureError
from tvsnap.sandboxes.local.cgroups import Cgroup
from tvsnap.sandboxes.protocol import Sandbox


class Dropped(InfrastructureError):
    """A fork that stood still is not needed any more."""


class Gate:
    """Where the restore of one fork waits until it may go on.

    Attributes:
        standing: comes to the fork's control groups, once it stands there.
        was_used: whether the latest attempt at the fork has waited here.
    """

    def __init__(self) -> None:
        self.was_used = False
        self._decided = threading.Event()
        self._dropped = False
        self.standing: Future[Cgroup] = Future()

    @property
    def is_open(self) -> bool:
        """Whether nothing waits at it."""
        return self._decided.is_set() and not self._dropped

    def stand(self, cgroup: Cgroup) -> None:
        """Waits until the gate is opened; for the thread that restores, when all is there and nothing has run.

        The processes are frozen meanwhile, so that they do not run if CRIU, which holds them, is killed.

        Args:
            cgroup: of the fork.

        Raises:
            Dropped: it is not needed; its processes have been killed.
        """
        self.was_used = True
        cgroup.freeze()
        if not self.standing.done():
            self.standing.set_result(cgroup)
        self._decided.wait()
        if self._dropped:
            cgroup.kill()
        cgroup.thaw()
        if self._dropped:
            raise Dropped("the fork was not needed")

    def open(self) -> None:
        """Lets the fork run, and whatever comes to the gate later."""
        self._decided.set()

    def drop(self) -> None:
        """Ends the fork."""
        self._dropped = True
        self._decided.set()


class LocalStaged:
    """A fork that stands still. See `tvsnap.sandboxes.protocol.Staged`."""

    def __init__(self, fork: Callable[[Gate], Sandbox], name: str) -> None:
        """Makes it, and returns as soon as it stands.

        Args:
            fork: makes a fork that waits at a gate on its way.
            name: of the snapshot, for people who look at threads.

        Raises:
            InfrastructureError: as `Backend.fork` does.
        """
        self._gate = Gate()
        self._sandbox: Future[Sandbox] = Future()
        # CRIU is a child of the thread that started it, and is killed when that ends.
        self._thread = threading.Thread(target=self._work, args=(fork,), name=f"tvsnap-staged-{name}", daemon=True)
        self._thread.start()
        self._cgroup = self._gate.standing.result()

    def begin(self) -> Sandbox:
        self._gate.open()
        return self._sandbox.result()

    def memory(self) -> int:
        return sum(map(proportional, self._cgroup.pids()))

    def close(self) -> None:
        self._gate.drop()
        self._thread.join()
        if self._sandbox.exception() is None:  # it had begun
            self._sandbox.result().close()

    def _work(self, fork: Callable[[Gate], Sandbox]) -> None:
        try:
            self._sandbox.set_result(fork(self._gate))
        except BaseException as error:
            self._sandbox.set_exception(error)
            if not self._gate.standing.done():
                self._gate.standing.set_exception(error)
