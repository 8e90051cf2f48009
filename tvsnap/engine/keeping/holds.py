"""Which states rollouts stand at, in all processes of a data directory, so that what keeps them is not evicted.

A rollout that was only answered so far has no sandbox: it can go on from its state only by a snapshot. Each process
writes the states that its rollouts stand at into a file that is mapped into memory, since a hit must not cost a write
to the database; whoever evicts reads the files of all.

The order of steps is that of hazard pointers (Michael, IEEE TPDS 2004). Who answers a call looks the answer up, writes
down the state that it leads to, and then sees whether an eviction was under way meanwhile: if so, it waits for the end
of that and looks once more. Who evicts says so, reads all that is written down, deletes rows, and says that it is done.
So either the evictor sees the state, or the reader sees the eviction.
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

STATE = 32  # bytes of a state's name
ROLLOUTS = 1024  # in one file; a process with more has several
NOTHING = bytes(STATE)
SETTLING = 0.0005  # seconds in which what another processor has written becomes visible, many times over
_COUNT = struct.Struct("<Q")


class Hold:
    """Where one rollout writes down the state it stands at, and the one that it is about to come to."""

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._memory = memory
        self._offset = offset

    def stand(self, state: str) -> None:
        """Says that the rollout stands at a state, and is about to come to no other."""
        self._write(0, bytes.fromhex(state))
        self._write(1, NOTHING)

    def approach(self, state: str) -> None:
        """Says that the rollout is about to come to a state from where it stands."""
        self._write(1, bytes.fromhex(state))

    def release(self) -> None:
        """Says that there is no such rollout any more."""
        self._write(0, NOTHING)
        self._write(1, NOTHING)

    def _write(self, which: int, state: bytes) -> None:
        at = self._offset + which * STATE
        self._memory[at : at + STATE] = state


class Holds:
    """The states that rollouts of one data directory stand at. Thread-safe."""

    def __init__(self, home: Path, owner: str = "") -> None:
        """
        Args:
            home: the data directory.
            owner: the id of this process's `Owner`; empty for who only evicts.
        """
        self._home = home
        self._owner = owner
        self._directory = home / "run" / "holds"
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.Lock()
        self._files: list[Path] = []
        self._unseen: list[mmap.mmap] = []
        self._free: list[Hold] = []
        descriptor = os.open(home / "run" / "evictions", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < _COUNT.size:
                os.ftruncate(descriptor, _COUNT.size)
            self._count = mmap.mmap(descriptor, _COUNT.size)  # it keeps the file open, and goes with this object
        finally:
            os.close(descriptor)

    def add(self) -> Hold:
        """Returns where a rollout of this process writes its states down."""
        with self._lock:
            if not self._free:
                self._grow()
            return self._free.pop()

    def remove(self, hold: Hold) -> None:
        """Takes back what `add` gave."""
        hold.release()
        with self._lock:
            self._free.append(hold)

    @property
    def evictions(self) -> int:
        """Grows by one when an eviction begins, and by one when it ends: odd while one is under way."""
        (count,) = _COUNT.unpack_from(self._count)
        return int(count)

    def wait_for_evictions(self) -> None:
        """Waits until the eviction that is under way, if any, is done; one whose process was killed is."""
        descriptor = os.open(self._home / "run" / "evictions", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def evicting(self) -> Iterator[frozenset[str]]:
        """A block in which snapshots may be deleted; gives the states that rollouts of live processes stand at."""
        descriptor = os.open(self._home / "run" / "evictions", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            began = self.evictions | 1  # odd already where a process was killed amid one
            _COUNT.pack_into(self._count, 0, began)
            time.sleep(SETTLING)
            try:
                yield self.held()
            finally:
                _COUNT.pack_into(self._count, 0, began + 1)
        finally:
            os.close(descriptor)

    def held(self) -> frozenset[str]:
        """Returns the states that rollouts of live processes stand at, or are about to come to, as of now."""
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
        """Removes what processes that were killed have written down."""
        self.held()

    def close(self) -> None:
        """Says that no rollout of this process stands anywhere; safe to repeat."""
        with self._lock:
            for path in self._files:
                path.unlink(missing_ok=True)
            self._files.clear()

    def _grow(self) -> None:
        size = 2 * STATE * ROLLOUTS
        try:
            memory = self._map(self._directory / f"{self._owner}.{len(self._files)}", size)
        except OSError:  # a full disk must not fail a rollout: only this process sees where it stands
            memory = mmap.mmap(-1, size)
            self._unseen.append(memory)
        self._free += [Hold(memory, 2 * STATE * number) for number in range(ROLLOUTS)]

    def _map(self, path: Path, size: int) -> mmap.mmap:
        """Returns the memory of a new file.

        Raises:
            OSError: it cannot be had.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)  # a full disk is told of now, not by a signal later
            memory = mmap.mmap(descriptor, size)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        self._files.append(path)
        return memory


def _states(data: bytes) -> set[str]:
    """Returns the states that are written down."""
    found = {data[at : at + STATE] for at in range(0, len(data), STATE)}
    return {state.hex() for state in found - {NOTHING} if len(state) == STATE}
