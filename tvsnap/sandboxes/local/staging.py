"""Forks that wait just before their first instruction until they are needed.

CRIU asks before it lets a restored tree run. While the answer is withheld, a fork is complete and has not run,
including jobs, sessions, servers and databases. The remaining work, once it is needed, takes some milliseconds.
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
    """A waiting fork is not needed any more."""


class Gate:
    """The point where the restore of one fork waits until it may go on.

    Attributes:
        standing: gets the fork's control groups once it waits there.
        was_used: whether the latest attempt at the fork has waited here.
    """

    def __init__(self) -> None:
        self.was_used = False
        self._decided = threading.Event()
        self._dropped = False
        self.standing: Future[Cgroup] = Future()

    @property
    def is_open(self) -> bool:
        """Whether forks pass without waiting."""
        return self._decided.is_set() and not self._dropped

    def stand(self, cgroup: Cgroup) -> None:
        """Waits until the gate is opened; called by the restoring thread when all is restored and nothing has run.

        The processes are frozen meanwhile, so that they do not run if CRIU, which holds them, is killed. Raises Dropped
        if the fork is not needed; its processes have been killed then.
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
        """Lets the fork run, and later attempts too."""
        self._decided.set()

    def drop(self) -> None:
        """Ends the fork."""
        self._dropped = True
        self._decided.set()


class LocalStaged:
    """A waiting fork. See `tvsnap.sandboxes.protocol.Staged`."""

    def __init__(self, fork: Callable[[Gate], Sandbox], name: str) -> None:
        """Makes the fork, and returns as soon as it waits; raises the same errors as `Backend.fork`.

        `fork` makes a fork that waits at the given gate; `name` is the snapshot's, for the thread's name.
        """
        self._gate = Gate()
        self._sandbox: Future[Sandbox] = Future()
        # CRIU is killed when the thread that started it ends.
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
        if self._sandbox.exception() is None:  # the fork has begun to run
            self._sandbox.result().close()

    def _work(self, fork: Callable[[Gate], Sandbox]) -> None:
        try:
            self._sandbox.set_result(fork(self._gate))
        except BaseException as error:
            self._sandbox.set_exception(error)
            if not self._gate.standing.done():
                self._gate.standing.set_exception(error)
