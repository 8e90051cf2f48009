"""What a process that runs for long may have ever more of: looked at between rollouts, when nothing is under way."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sized
from pathlib import Path

from tvsnap import Cache
from tvsnap.engine.keeping.budgets import taken
from tvsnap.host.database import Database
from tvsnap.sandboxes.local.backend import LocalBackend

POOLED = ("tvsnap-work", "tvsnap-pool", "tvsnap-evict", "tvsnap-companion", "tvsnap-fork", "soak")
"""Made when they are needed, up to a fixed number."""
PATIENCE = 60.0  # seconds to wait for what is on its way out
GIVING_BACK = 300.0
KIB = 1024


class Gauges:
    """Looks at one cache with the local backend, and at what it has on this machine."""

    def __init__(self, cache: Cache) -> None:
        assert isinstance(cache.backend, LocalBackend)
        self._cache = cache
        self._backend = cache.backend
        self._libc = ctypes.CDLL(None)

    def levels(self) -> dict[str, float]:
        """Returns how much there is of everything, by name; bytes where it is memory or disk.

        No rollout may be under way. What nobody uses is closed first, so that what is left is left over.

        Raises:
            TimeoutError: something does not go.
        """
        with self._cache._services.preforker._planning:  # so that it makes no more meanwhile
            as_found = self._memory()
            gc.collect()  # what is dropped in a circle is dropped now
            self._drain()
            self._libc.malloc_trim(0)
            descriptors = _descriptors()
            return {
                **{f"raw {name}": value for name, value in as_found.items()},
                **self._memory(),
                **self._disk(),
                "allocated": self._allocated() - _graph_memory(),
                "blocks": sys.getallocatedblocks() - sum(map(len, self._cache._services.meter._latency.values())),
                "descriptors": sum(count for name, count in descriptors.items() if not name.startswith("tvsnap.db")),
                "connections": len(self._database.readers) + 1,
                "threads": sum(not thread.name.startswith(POOLED) for thread in threading.enumerate()),
                "pooled threads": sum(thread.name.startswith(POOLED) for thread in threading.enumerate()),
                "processes": len(self._processes()),
                "mounts": len(self._mounts()),
                "control groups": sum(
                    len(names) for root in self._backend._cgroups.roots for _, names, _ in os.walk(root)
                ),
                "loop devices": len(self._loops()),
                "rollouts": len(self._cache._rollouts.all()),
                "leases": self._ask("SELECT count(*) FROM leases"),
            }

    def _drain(self) -> None:
        """Closes all sandboxes that nobody uses, and waits until nothing is on its way out or to the graph."""
        pool = self._cache.pool
        deadline = time.monotonic() + PATIENCE
        while (
            self._cache._rollouts.all()
            or pool.live
            or pool._opening
            or self._cache._services.workers._work_queue.qsize()
        ):
            self._cache._rollouts.end_dropped()
            pool.keep_ready_at_most({})
            with pool._changed:
                parked = list(pool._parked)
            for live in parked:
                pool.discard(live)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self._cache._rollouts.all())} rollouts and {pool.live} sandboxes do not end")
            time.sleep(0.02)
        while self._strays() and time.monotonic() < deadline:  # files of what was evicted go in the background
            time.sleep(0.02)
        self._cache.graph.flush()

    def give_back(self, size: int) -> float:
        """Waits until the pool's file is no larger than `size` bytes, and at most `GIVING_BACK` seconds.

        The kernel gives back what was deleted in its own time: empty regions after 10 s, others after two minutes.

        Returns:
            Its bytes then.
        """
        deadline = time.monotonic() + GIVING_BACK
        while (held := self._pool_file()) > size and time.monotonic() < deadline:
            time.sleep(1)
        return held

    def tables(self) -> Counter[str]:
        """Returns how many entries the tables in memory have, by the attribute that holds them."""
        found: Counter[str] = Counter()
        seen: set[int] = set()
        ahead: list[object] = [self._cache]
        while ahead:
            part = ahead.pop()
            if id(part) in seen or not type(part).__module__.startswith("tvsnap"):
                continue
            seen.add(id(part))
            slots = (name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ()))
            names = {*getattr(part, "__dict__", ()), *slots}
            for name in names:
                value = getattr(part, name, None)
                if isinstance(value, Sized) and not isinstance(value, (str, bytes)):
                    found[f"{type(part).__name__}.{name}"] += len(value)
                if isinstance(value, Mapping):
                    ahead += value.values()
                elif isinstance(value, (list, tuple, set, frozenset)):
                    ahead += value
                else:
                    ahead.append(value)
        return found

    @property
    def _database(self) -> Database:
        return self._cache.graph._database

    def _ask(self, query: str) -> int:
        """Returns the number that the graph answers."""
        with self._database.read() as reader:
            number: int = reader.execute(query).fetchone()[0]
        return number

    def _memory(self) -> dict[str, float]:
        """Returns bytes of this process: resident; proportional; and what is its own, which no file backs."""
        status = Path("/proc/self/smaps_rollup").read_text()
        found = {name: int(number) * KIB for name, number in re.findall(r"^(\w+): +(\d+) kB", status, re.MULTILINE)}
        graph = _graph_memory()
        return {
            "resident": found["Rss"],
            "proportional": found["Pss"],
            "own memory": found["Anonymous"] - graph,
            "graph memory": graph,
        }

    def _allocated(self) -> int:
        """Returns bytes that the C library has given out; 0 for one that does not tell."""
        try:
            mallinfo = self._libc.mallinfo2
        except AttributeError:
            return 0
        mallinfo.restype = _Mallinfo
        found = mallinfo()
        return int(found.uordblks + found.hblkhd)

    def _disk(self) -> dict[str, float]:
        home = self._cache.home
        snapshots = self._cache.graph.snapshots(self._backend.name)
        storage = self._backend._storage.path
        return {
            "snapshots": len(snapshots),
            "snapshot bytes": taken(self._backend, self._cache.graph),
            "pool": self._held_by_pool(),
            "pool file": self._pool_file(),
            "left in pool": len(os.listdir(storage / "live")) + len(os.listdir(storage / "tmp")),
            "quota groups": len(self.empty_quota_groups()),
            "strays": len(self._strays()),
            "files": sum(len(names) for _, _, names in os.walk(home / "run")),
            "database": self._ask("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"),
            "log": (home / "tvsnap.db-wal").stat().st_size,
            "recorded": self._ask("SELECT count(*) FROM edges"),
        }

    def _strays(self) -> set[str]:
        """Returns the snapshots that are on disk without a row, and those that have a row only."""
        rows = self._cache.graph.snapshots(self._backend.name)
        return set(self._backend.snapshots()) ^ {snapshot.id for snapshot in rows}

    def _pool_file(self) -> int:
        """Returns bytes on disk of the file that the pool is kept in; 0 if there is none."""
        path = self._cache.home / "pool.btrfs"
        return path.stat().st_blocks * 512 if path.exists() else 0

    def _settle_pool(self) -> str:
        """Waits until all is written and what was deleted is gone; returns where the pool is."""
        path = str(self._backend._storage.path).replace("/proc/self/", f"/proc/{os.getpid()}/", 1)
        for action in ("filesystem", "subvolume", "filesystem"):
            subprocess.run(["btrfs", action, "sync", path], capture_output=True, check=False)
        return path

    def _held_by_pool(self) -> int:
        """Returns bytes in use in the pool."""
        found = os.statvfs(self._settle_pool())
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def empty_quota_groups(self) -> list[str]:
        """Returns the accounts that the kernel still keeps of layers of which nothing is left."""
        self._settle_pool()
        groups = [group for path in self._sysfs("qgroups") for group in path.glob("0_*")]
        return [group.name for group in groups if _read(group / "referenced").strip() == "0"]

    def _sysfs(self, name: str) -> list[Path]:
        """Returns what the kernel shows of a pool in a file: a directory of its own, if it does."""
        device = os.path.basename(self._backend._storage.device or "")
        return [path.parents[1] / name for path in Path("/sys/fs/btrfs").glob("*/devices/*") if path.name == device]

    def _processes(self) -> list[str]:
        """Returns the children of this process, dead ones that nobody has waited for too, and what is in sandboxes."""
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            text = _read(status)
            parent = text.rpartition(")")[2].split()[1:2]
            if parent == [str(os.getpid())] or self._cache.owner in _read(status.with_name("cgroup")):
                found.append(text)
        return found

    def _mounts(self) -> list[str]:
        """Returns the mounts that this process sees of the data directory, its images or its pool."""
        image_roots = {str(path.resolve()) for path in (self._cache.home, self._cache.home / "images")}
        names = [*image_roots, self._backend._storage.device or "no device"]
        return [line for line in Path("/proc/self/mounts").read_text().splitlines() if any(n in line for n in names)]

    def _loops(self) -> list[str]:
        home = str(self._cache.home.resolve())
        backings = Path("/sys/block").glob("loop*/loop/backing_file")
        return [str(backing) for backing in backings if _read(backing).startswith(home)]


class _Mallinfo(ctypes.Structure):
    """The C library's struct mallinfo2."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in _names]


def _graph_memory() -> int:
    """Returns bytes that SQLite has allocated, most of them for its caches, whose size is fixed."""
    used = ctypes.CDLL("libsqlite3.so.0").sqlite3_memory_used
    used.restype = ctypes.c_int64
    return int(used())


def _descriptors() -> Counter[str]:
    """Returns the open descriptors of this process by what they are."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the one that listed them
            continue
        found[os.path.basename(target) if target.startswith("/") else target.partition(":")[0]] += 1
    return found


def _read(path: Path) -> str:
    """Returns what a file of /proc or /sys holds; nothing if what it tells of has gone."""
    try:
        return path.read_text()
    except OSError:
        return ""
