"""Publishes the states of rollouts to all processes of a data directory, so that their snapshots are not evicted.

A rollout whose calls were all answered has no sandbox: it can go on from its state only by a snapshot. Each process
writes the states of its rollouts into a file that is mapped into memory, since a hit must not cost a write to the
database. A process that evicts reads the files of all processes.

The order of steps is that of hazard pointers (Michael, IEEE TPDS 2004). To answer a call, a rollout looks the answer
up, publishes the state that it leads to, and then checks whether an eviction was under way meanwhile. If so, it waits
for the end of the eviction and looks once more. To evict, a process announces the eviction, reads all published states,
deletes rows, and announces the end. So either the evicting process sees the state, or the rollout sees the eviction.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tvsnap.host import owners
from tvsnap.host.libc import closing
from tvsnap.host.locks import locked

STATE = 32  # bytes of a state's name
ROLLOUTS = 1024  # in one file; a process with more has several
NOTHING = bytes(STATE)
SETTLING = 0.0005  # seconds: many times as long as another processor's writes need to become visible
_COUNT = struct.Struct("<Q")


class Hold:
    """The place where one rollout publishes the state at which it stands, and the one that it is about to reach."""

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._memory = memory
        self._offset = offset

    def stand(self, state: str) -> None:
        """Publishes the state that the rollout stands at, and that it is about to reach no other."""
        self._write(0, bytes.fromhex(state))
        self._write(1, NOTHING)

    def approach(self, state: str) -> None:
        """Publishes the state that the rollout is about to reach."""
        self._write(1, bytes.fromhex(state))

    def release(self) -> None:
        """Publishes that the rollout stands nowhere any more."""
        self._write(0, NOTHING)
        self._write(1, NOTHING)

    def _write(self, which: int, state: bytes) -> None:
        at = self._offset + which * STATE
        self._memory[at : at + STATE] = state


class Holds:
    """The states that rollouts of one data directory stand at. Thread-safe."""

    def __init__(self, home: Path, owner: str = "") -> None:
        """`owner` is the id of this process's `Owner`; empty for a process that only evicts."""
        self._home = home
        self._owner = owner
        self._directory = home / "run" / "holds"
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.Lock()
        self._files: list[Path] = []
        self._unseen: list[mmap.mmap] = []
        self._free: list[Hold] = []
        self._unused: Iterator[Hold] = iter(())
        descriptor = os.open(home / "run" / "evictions", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < _COUNT.size:
                os.ftruncate(descriptor, _COUNT.size)
            self._count = mmap.mmap(descriptor, _COUNT.size)  # keeps the file open; is closed with this object
        finally:
            os.close(descriptor)

    def add(self) -> Hold:
        """Returns a place for a rollout of this process to publish its states."""
        with self._lock:
            if self._free:
                return self._free.pop()
            hold = next(self._unused, None)
            if hold is None:
                self._unused = self._grow()
                hold = next(self._unused)
            return hold

    def remove(self, hold: Hold) -> None:
        """Takes back a place that `add` returned."""
        hold.release()
        with self._lock:
            self._free.append(hold)

    @property
    def evictions(self) -> int:
        """A counter that grows by one when an eviction begins, and when it ends: odd while one is under way."""
        (count,) = _COUNT.unpack_from(self._count)
        return int(count)

    def wait_for_evictions(self) -> None:
        """Waits until the eviction that is under way, if any, has ended, or its process has died."""
        with self._evictions(fcntl.LOCK_SH):
            pass

    @contextlib.contextmanager
    def evicting(self) -> Iterator[frozenset[str]]:
        """A block in which snapshots may be deleted; yields the states that rollouts of live processes stand at."""
        with self._evictions(fcntl.LOCK_EX):
            began = self.evictions | 1  # already odd if a process was killed during an eviction
            _COUNT.pack_into(self._count, 0, began)
            time.sleep(SETTLING)
            try:
                yield self.held()
            finally:
                _COUNT.pack_into(self._count, 0, began + 1)

    @contextlib.contextmanager
    def _evictions(self, how: int) -> Iterator[None]:
        path = self._home / "run" / "evictions"
        with closing(os.open(path, os.O_RDWR | os.O_CLOEXEC)) as descriptor, locked(descriptor, how):
            yield

    def held(self) -> frozenset[str]:
        """Returns the states that rollouts of live processes stand at or are about to reach now."""
        states: set[str] = set()
        for memory in self._unseen:
            states |= _states(memory[:])
        alive: dict[str, bool] = {}
        for path in self._directory.iterdir():
            owner = path.name.partition(".")[0]
            if owner not in alive:
                alive[owner] = owner == self._owner or owners.is_alive(self._home, owner)
            if alive[owner]:
                with contextlib.suppress(FileNotFoundError):
                    states |= _states(path.read_bytes())
            else:
                path.unlink(missing_ok=True)
        return frozenset(states)

    def sweep(self) -> None:
        """Removes the files of processes that were killed."""
        self.held()

    def close(self) -> None:
        """Removes the states of all rollouts of this process; safe to repeat."""
        with self._lock:
            for path in self._files:
                path.unlink(missing_ok=True)
            self._files.clear()

    def _grow(self) -> Iterator[Hold]:
        """Returns the places of one more file, each made when a rollout needs it."""
        size = 2 * STATE * ROLLOUTS
        try:
            memory = self._map(self._directory / f"{self._owner}.{len(self._files)}", size)
        except OSError:  # a full disk must not fail a rollout: then only this process knows where it stands
            memory = mmap.mmap(-1, size)
            self._unseen.append(memory)
        return (Hold(memory, 2 * STATE * number) for number in range(ROLLOUTS))

    def _map(self, path: Path, size: int) -> mmap.mmap:
        """Maps a new file into memory; raises OSError if that fails."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)  # so that a full disk raises an error now, not a signal later
            memory = mmap.mmap(descriptor, size)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        self._files.append(path)
        return memory


def _states(data: bytes) -> set[str]:
    """Returns the published states."""
    names = {data[at : at + STATE] for at in range(0, len(data), STATE)}
    return {state.hex() for state in names - {NOTHING} if len(state) == STATE}
