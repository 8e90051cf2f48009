"""Processes that make rollouts on the same data directory, and may be killed over it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from tests.fuzz.cases import Seen

Report = Callable[[Seen], None]


class Helper:
    """A process, forked before any thread was started, that waits for its turn."""

    def __init__(self, work: Callable[[Report], None]) -> None:
        """Forks it.

        Args:
            work: what it does; it is given what to call with each thing seen.
        """
        self._status: int | None = None
        wait, self._go = os.pipe()
        self._said, say = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self._go)
                os.close(self._said)
                if os.read(wait, 1):
                    work(lambda seen: _write(say, seen))
                status = 0
            finally:
                os._exit(status)
        os.close(wait)
        os.close(say)

    def start(self) -> None:
        """Lets it begin."""
        os.write(self._go, b"g")

    def seen(self) -> Iterator[Seen]:
        """Yields what it sees, until it ends."""
        with os.fdopen(self._said, closefd=False) as lines:
            for line in lines:
                if line.endswith("\n"):
                    said = json.loads(line)
                    yield Seen(**{**said, "since": tuple(map(tuple, said["since"]))})

    def see(self, count: int, then: float) -> Sequence[Seen]:
        """Returns what it has seen after so many calls and seconds; then it is killed."""
        found = []
        if count:
            for seen in self.seen():
                found.append(seen)
                if len(found) >= count:
                    break
        time.sleep(then)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return found

    def end(self) -> int:
        """Waits for its end, or ends it if it never began; returns its exit status."""
        if self._status is None:
            os.close(self._go)
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._said)
        return self._status


def _write(descriptor: int, seen: Seen) -> None:
    os.write(descriptor, (json.dumps(asdict(seen)) + "\n").encode())
