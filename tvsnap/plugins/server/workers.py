"""Several processes that serve one data directory: started, started again if one dies, and ended together."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import logging
import mmap
import os
import secrets
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvsnap.model.errors import InfrastructureError, TvsnapError
from tvsnap.model.limits import Budget
from tvsnap.plugins.server.places import Places
from tvsnap.plugins.server.settings import ServerSettings
from tvsnap.plugins.server.sockets import address_of, listening

START_PATIENCE = 60.0
"""Seconds within which the first workers are to be ready."""
LOOK_AGAIN = 1.0
"""Seconds between two looks whether all workers live."""
BETWEEN_BEATS = 1.0
"""Seconds between two signs of a worker that it is at work."""
PAUSE = 1.0
"""Seconds between two starts of a worker that keeps dying."""
KILL_AFTER = 20.0
"""Seconds beyond the time for requests under way after which a worker that does not stop is killed."""
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_COUNT = struct.Struct("Q")

logger = logging.getLogger("tvsnap.server")


class Heartbeat:
    """A count in memory that a worker shares with the process that has started it, which sees whether it goes up."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _COUNT.size)

    @property
    def count(self) -> int:
        """The worker's count; 0 until it counts for the first time."""
        count: int = _COUNT.unpack(self._memory)[0]
        return count

    async def beat(self) -> None:
        """Counts up each second, as long as the event loop does its work."""
        while True:
            self._memory[:] = _COUNT.pack(self.count + 1)
            await asyncio.sleep(BETWEEN_BEATS)


@dataclass(frozen=True, slots=True)
class Worker:
    """One of the processes of a server.

    Attributes:
        number: which, from 0 on.
        generation: the number of times that it was started before.
        names: names of the Unix sockets at which the workers listen for each other, by number; they have no files.
        secret: the secret that workers show each other.
        heartbeat: by which it shows that it is at work.
        places: where the first one shows the others which environments of TVCache's clients stand where; None where
            those are not answered.
    """

    number: int
    generation: int
    names: tuple[bytes, ...]
    secret: str
    heartbeat: Heartbeat
    places: Places | None

    @property
    def server(self) -> str:
        """The id of the server, the same for all of its workers, from which the secret cannot be found out."""
        return hashlib.sha256(self.secret.encode()).hexdigest()[:16]

    @property
    def prefix(self) -> str:
        """The beginning of the ids of its rollouts and sandboxes."""
        return f"w{self.number}-{self.generation}-"


Run = Callable[[Worker, list[socket.socket], Callable[[], None]], None]
"""The work of a worker until its end; it takes the worker, its sockets, and a function to call once it is ready."""


def share_of(settings: ServerSettings, budget: Budget, count: int) -> tuple[ServerSettings, Budget]:
    """Returns what each worker may hold and use, of what all of them may.

    Args:
        settings: the server's.
        budget: the server's; what snapshots take counts for the data directory as a whole in any case.
        count: the number of workers.
    """
    settings_of_worker = replace(
        settings,
        max_rollouts=-(-settings.max_rollouts // count),
        max_sandboxes=-(-settings.max_sandboxes // count),
    )
    memory = None if budget.memory is None else budget.memory // count
    return settings_of_worker, replace(budget, sandboxes=max(1, budget.sandboxes // count), memory=memory)


def supervise(settings: ServerSettings, count: int, run: Run, ready: Callable[[list[str]], None]) -> None:
    """Serves by several processes until SIGTERM or SIGINT comes. It is to be called while there is one thread.

    Args:
        settings: the server's settings.
        count: the number of processes.
        run: the work of each process.
        ready: is given the addresses once all processes are ready.

    Raises:
        UsageError: the server cannot listen there.
        InfrastructureError: a process ended before it was ready; it has said why.
    """
    with listening(settings) as sockets:
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        workers = _Workers(settings, count, run, sockets)
        # Another thread may be told of a signal, too; then Python's handler is called here, in the main one.
        handlers = {number: signal.signal(number, workers.end) for number in (signal.SIGTERM, signal.SIGINT)}
        workers.handlers = handlers
        try:
            workers.start_all()
            ready([address_of(one, settings) for one in sockets])
            workers.keep()
        finally:
            workers.stop_all()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for number, handler in handlers.items():
                signal.signal(number, handler)


class _Workers:
    """The processes of a server, as the one that has started them sees them."""

    def __init__(self, settings: ServerSettings, count: int, run: Run, sockets: list[socket.socket]) -> None:
        self._settings = settings
        self._run = run
        self._sockets = sockets
        self._secret = secrets.token_hex(16)
        self._between = [_listener(f"tvsnap-{secrets.token_hex(8)}-{number}") for number in range(count)]
        self._names = tuple(listener.getsockname() for listener in self._between)
        self._running: dict[int, Worker] = {}
        self._due: dict[int, tuple[float, Worker]] = {}
        self._started: dict[int, float] = {}
        self._still: dict[
            int, tuple[int, float]
        ] = {}  # by process: the count of its heartbeats, and since how many seconds that is so
        self._looked = time.monotonic()
        self._stopping = self._told_to_end = False
        self.handlers: dict[signal.Signals, Any] = {}  # of this process before, which are those of workers

    def end(self, *_: object) -> None:
        """Has `keep` return; the handler of a signal."""
        self._told_to_end = True

    def start_all(self) -> None:
        """Starts all workers, and waits until they are ready."""
        places = Places() if self._settings.tvcache else None
        pipes = [
            self._start(Worker(number, 0, self._names, self._secret, Heartbeat(), places))
            for number in range(len(self._between))
        ]
        until = time.monotonic() + START_PATIENCE
        for pipe in pipes:
            with contextlib.closing(pipe):
                pipe.settimeout(max(0.1, until - time.monotonic()))
                try:
                    answer = pipe.recv(1)
                except TimeoutError:
                    answer = b""
                if not answer:
                    raise InfrastructureError("a worker of the server did not start; it has said above why")

    def keep(self) -> None:
        """Starts workers again that die, until a signal asks to stop."""
        while not self._told_to_end:
            now = time.monotonic()
            wait = min((due for due, _ in self._due.values()), default=now + LOOK_AGAIN) - now
            # Another thread of the process may have been told of a child's end, and then nobody is told here.
            signal_info = signal.sigtimedwait(
                {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}, min(max(0.0, wait), LOOK_AGAIN)
            )
            if signal_info is not None and signal_info.si_signo != signal.SIGCHLD:
                return
            self._reap()
            self._kill_frozen()
            for number, (due, worker) in list(self._due.items()):
                if due <= time.monotonic():
                    del self._due[number]
                    self._start(worker).close()

    def stop_all(self) -> None:
        """Ends all workers; those that do not end in time are killed."""
        self._stopping = True
        for pid in self._running:
            os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + self._settings.grace + KILL_AFTER
        while self._running:
            signal.sigtimedwait({signal.SIGCHLD}, max(0.0, min(1.0, until - time.monotonic())))
            self._reap()
            if time.monotonic() > until:
                for pid in self._running:
                    os.kill(pid, signal.SIGKILL)
        for listener in self._between:
            listener.close()

    def _reap(self) -> None:
        """Notes which workers have ended, and when to start them again."""
        for pid, worker in list(self._running.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del self._running[pid]
                if not self._stopping:
                    logger.error("worker %d (process %d) has died; it is started again", worker.number, pid)
                self._still.pop(pid, None)
                again = replace(worker, generation=worker.generation + 1, heartbeat=Heartbeat())
                self._due[worker.number] = (self._started[worker.number] + PAUSE, again)

    def _kill_frozen(self) -> None:
        """Kills workers that have shown for too long that they are not at work.

        A look counts for a second at most, so that time in which this process was frozen, too, does not count.
        """
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, LOOK_AGAIN), now
        for pid, worker in self._running.items():
            count, before = worker.heartbeat.count, self._still.get(pid, (0, 0.0))
            still = before[1] + passed if count and count == before[0] else 0.0
            self._still[pid] = (count, still)
            if still > self._settings.worker_patience:
                words = "worker %d (process %d) has done nothing for %.0f s (--worker-patience), and is killed"
                logger.error(words, worker.number, pid, still)
                os.kill(pid, signal.SIGKILL)
                self._still[pid] = (0, 0.0)

    def _start(self, worker: Worker) -> socket.socket:
        """Starts a worker; returns a socket at which it tells that it is ready."""
        ours, child_end = socket.socketpair()
        self._started[worker.number] = time.monotonic()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            child_end.close()
            self._running[pid] = worker
            return ours
        status = 1
        try:
            ours.close()
            ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM)
            for number, handler in self.handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD))
            if os.getppid() == parent:

                def ready() -> None:
                    with contextlib.suppress(BrokenPipeError):  # of one that is started again, nobody waits for it
                        child_end.send(b"1")
                    child_end.close()

                self._run(worker, [*self._sockets, self._between[worker.number]], ready)
                status = 0
        except TvsnapError as error:
            print(f"tvsnap: worker {worker.number}: {error}", file=sys.stderr, flush=True)
        except BaseException:
            logger.exception("worker %d failed", worker.number)
        finally:
            os._exit(status)  # what belongs to the process that has started it is left alone


def _listener(name: str) -> socket.socket:
    """Returns a Unix socket without a file that listens: what comes while its worker is started again waits."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("\0" + name)
    listener.listen(2048)
    return listener
