"""Processes that hold the memory of snapshots, so that forks share it until they write to it.

A holder has read the large heaps of one snapshot, and starts a CRIU for each fork: the restored processes inherit the
memory like the child of a process (`native/criu/held.c`). A holder ends if it is the least recently used one and
there is no room for another, when its snapshot is deleted, and with this process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import queue
import socket
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from tvsnap.host import native
from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.libc import closing
from tvsnap.host.memory import available
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.limits import Limits
from tvsnap.sandboxes.criu.client import Criu, Held
from tvsnap.sandboxes.local.cgroups import Cgroup, CgroupTree
from tvsnap.sandboxes.local.snapshot_store import Snapshots

T = TypeVar("T")

ADDITION = "held"
"""Entry of `binary.additions` of a CRIU that can hold memory."""
WORTH_HOLDING = 16 << 20
"""Bytes of pages of the smallest snapshot that gets a holder."""
_PART = 0.25
"""Fraction of this machine's memory for all holders together, and of the available memory for another one."""
_BESIDE = 256 << 20
"""Bytes of memory that a holder may need in addition: for CRIU, and for its images in the page cache."""
_HELD_WITHIN = 120.0
"""Seconds within which a holder must have read everything."""
_ENDED_WITHIN = 5.0
_LONGEST = 8192
"""Bytes of the longest message of a holder."""
_READY = b"holds "
_HIGH = 200
"""The lowest descriptor that the launcher does not change."""


class _NotHeld(Exception):
    """A snapshot's memory is not held."""


@dataclass(slots=True)
class _Holder:
    """A process that holds the memory of a snapshot.

    Attributes:
        size: the bytes that it counts for.
        process: the process.
        cgroup: its control groups.
        channel: the socket for requests to it.
        parts: a file of `struct held_part`, see `native/criu/held.h`.
        users: the number of forks that are being made with it.
        dropped: whether it is to end once nobody uses it.
    """

    size: int
    process: subprocess.Popen[bytes]
    cgroup: Cgroup
    channel: socket.socket
    parts: int
    users: int = 0
    dropped: bool = False


class Holders:
    """The holders of one backend. Thread-safe."""

    def __init__(self, owner: str, cgroups: CgroupTree, criu: Criu, snapshots: Snapshots) -> None:
        """Starts none yet.

        Args:
            owner: the process's claim on the data directory, with which the names of control groups begin.
            cgroups: the control groups of all owners.
            criu: the program that holds memory and makes forks of it.
            snapshots: the store of snapshots.
        """
        self._owner = owner
        self._cgroups = cgroups
        self._criu = criu
        self._snapshots = snapshots
        self._most = int(_PART * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._holders: OrderedDict[str, Future[_Holder]] = OrderedDict()
        self._unfit: set[str] = set()
        self._works = ADDITION in criu.additions
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._left: list[Cgroup] = []  # what could not be removed; is looked at once the thread has ended

    def lent(self, snapshot: str) -> contextlib.AbstractContextManager[int | None]:
        """Yields the descriptor by which a holder of a verified snapshot is asked; None if its memory is not held.

        If the block fails, the snapshot's memory is not held any more, and the next attempt goes without.
        """
        worth = self._works and self._snapshots.pages(snapshot) >= WORTH_HOLDING
        return self._lent(snapshot) if worth else contextlib.nullcontext()

    @contextlib.contextmanager
    def _lent(self, snapshot: str) -> Iterator[int | None]:
        try:
            holder = self._take(snapshot)
        except _NotHeld:
            yield None
            return
        try:
            yield holder.channel.fileno()
        except AttemptFailed:
            self._refuse(snapshot)
            raise
        finally:
            self._give_back(holder)

    @contextlib.contextmanager
    def holding(self, snapshot: str) -> Iterator[Held | None]:
        """Yields the process that holds the memory of a snapshot, for a dump to look at; None if there is none."""
        with self._lock:
            future = self._holders.get(snapshot)
            holder = future.result() if future is not None and _is_held(future) else None
            if holder is not None:
                holder.users += 1
        if holder is None:
            yield None
            return
        try:
            yield Held(holder.process.pid, holder.parts)
        finally:
            self._give_back(holder)

    def drop(self, snapshot: str) -> None:
        """Ends the holder of a snapshot, if there is one, as soon as no fork is being made with it."""
        with self._lock:
            self._unfit.discard(snapshot)
            self._drop(snapshot)

    def close(self) -> None:
        """Ends all holders, and waits for their end."""
        with self._lock:
            for snapshot in list(self._holders):
                self._drop(snapshot)
            thread, self._thread = self._thread, None
        if thread:
            self._jobs.put(None)
            thread.join()
        while self._left:
            with contextlib.suppress(OSError):  # the next process takes it for a dead owner's
                self._left.pop().destroy()

    # -- one holder -------------------------------------------------------------------------------------------------

    def _take(self, snapshot: str) -> _Holder:
        """Returns the holder of a snapshot, which is made now if there is none, for one more user."""
        size = self._snapshots.pages(snapshot)
        with self._lock:
            if size > self._most or snapshot in self._unfit:
                raise _NotHeld
            future = self._holders.get(snapshot)
            mine = future is None
            if future is None:
                if size > _PART * available():
                    raise _NotHeld
                future = self._holders[snapshot] = Future()
            self._holders.move_to_end(snapshot)
        if mine:
            self._make_room(size)
            try:
                future.set_result(self._started(snapshot, size))
            except BaseException as error:
                self._refuse(snapshot)
                future.set_exception(_NotHeld(str(error)))
                if not isinstance(error, (OSError, InfrastructureError, _NotHeld)):
                    raise
        holder = future.result()
        with self._lock:
            if mine and self._holders.get(snapshot) is not future:  # its snapshot was deleted meanwhile
                holder.dropped = True
            elif holder.dropped:
                raise _NotHeld
            holder.users += 1
        if holder.process.poll() is not None:
            self._give_back(holder)
            self._refuse(snapshot)
            raise _NotHeld
        return holder

    def _give_back(self, holder: _Holder) -> None:
        with self._lock:
            holder.users -= 1
            self._end_if_dropped(holder)

    def _make_room(self, size: int) -> None:
        """Ends the least recently used holders that there is no room for beside another of a size."""
        with self._lock:
            ready = [(name, future.result()) for name, future in self._holders.items() if _is_held(future)]
            excess = sum(holder.size for _, holder in ready) + size - self._most
            for name, holder in ready:
                if excess <= 0:
                    return
                self._drop(name)
                excess -= holder.size

    def _started(self, snapshot: str, size: int) -> _Holder:
        """Starts a holder, and returns it when it has read all; raises _NotHeld if there is nothing to hold."""
        limits = Limits(memory=size + _BESIDE)
        cgroup = self._cgroups.create(self._owner, f"{self._owner}.h{next(self._numbers)}", limits)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                process = self._on_thread(lambda: self._start(cgroup, theirs))
            holder = _Holder(size, process, cgroup, ours, _empty_file())
        except BaseException:
            ours.close()
            cgroup.destroy()
            raise
        try:
            ours.settimeout(_HELD_WITHIN)
            with self._snapshots.processes(snapshot) as images:
                socket.send_fds(ours, [b"hold"], [images])
            while not (message := ours.recv(_LONGEST)).startswith(_READY):
                if not message:
                    raise _NotHeld("the holder has ended")
                os.write(holder.parts, message)
            if not int(message.removeprefix(_READY)):
                raise _NotHeld("no mapping can be shared")
            ours.settimeout(None)
            return holder
        except BaseException:
            holder.dropped = True
            self._end(holder)
            raise

    def _start(self, cgroup: Cgroup, channel: socket.socket) -> subprocess.Popen[bytes]:
        options = [*self._criu.directories, *native.DEVICE_OPTIONS]
        options += [item for path in cgroup.paths for item in ("--cgroup", path)]
        return subprocess.Popen(
            [native.LAUNCH, "hold", *options, "--", str(self._criu.binary.resolve()), "swrk", "3"],
            stdin=channel.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _refuse(self, snapshot: str) -> None:
        with self._lock:
            self._unfit.add(snapshot)
            self._drop(snapshot)

    def _drop(self, snapshot: str) -> None:
        future = self._holders.pop(snapshot, None)
        if future is not None and _is_held(future):
            future.result().dropped = True
            self._end_if_dropped(future.result())

    def _end_if_dropped(self, holder: _Holder) -> None:
        if holder.dropped and not holder.users:
            self._end(holder)

    def _end(self, holder: _Holder) -> None:
        """Has a holder end, which it does when nobody can ask it any more."""
        holder.channel.close()
        os.close(holder.parts)
        self._jobs.put(lambda: self._finish(holder))

    def _finish(self, holder: _Holder) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            holder.process.wait(_ENDED_WITHIN)
        gone = False
        with contextlib.suppress(OSError):
            gone = holder.cgroup.destroy()
        if not gone:
            self._left.append(holder.cgroup)
        holder.process.kill()
        holder.process.wait()

    # -- the thread with which all of them end ----------------------------------------------------------------------

    def _on_thread(self, do: Callable[[], T]) -> T:
        """Calls a function in the thread that is the parent of all holders, and returns its result.

        They, and each CRIU that they start, end with their parent, which is a thread for the kernel.
        """
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(do())
            except BaseException as error:
                future.set_exception(error)

        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tvsnap-holders", daemon=True)
                self._thread.start()
        self._jobs.put(work)
        return future.result()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _empty_file() -> int:
    with closing(os.memfd_create("parts")) as low:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH)


def _is_held(future: Future[_Holder]) -> bool:
    return future.done() and future.exception() is None
