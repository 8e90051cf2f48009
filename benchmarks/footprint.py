"""What sandboxes and snapshots take: memory, disk, and how many live side by side."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.figures import Figure, figure
from benchmarks.workspace import Workspace
from tvsnap.sandboxes.local.sandbox import LocalSandbox

ALIVE = 1500
SNAPSHOTS = 20
KIB = 1024


def run(space: Workspace) -> Iterator[Figure]:
    """Measures all of it."""
    yield from _disk(space)
    yield from _alive(space)


def _disk(space: Workspace) -> Iterator[Figure]:
    """What an idle shell's snapshot occupies: by its files, and by what the pool has less of."""
    space.tell("an idle shell's snapshot on disk")
    sandbox = space.start()
    sandbox.run("true", timeout=10)
    snapshots, sizes = [], []
    before = _pool_bytes(space)
    for _ in range(SNAPSHOTS):
        snapshots.append(sandbox.checkpoint().id)
        sizes.append(_allocated(space.snapshot_directory(snapshots[-1])))
    after = _pool_bytes(space)
    yield figure("snapshot_files", "idle-shell snapshot: blocks of its files", sizes, "kB", at_most=1000)
    if before and after:
        each = (after - before) / SNAPSHOTS
        yield figure("snapshot_pool", f"... by what {SNAPSHOTS} of them take of the pool", [each], "kB", at_most=1000)
    for snapshot in snapshots:
        space.backend.delete_snapshot(snapshot)
    sandbox.close()


def _allocated(directory: Path) -> int:
    """Returns bytes of the blocks of all files below a directory."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))


def _pool_bytes(space: Workspace) -> int:
    """Returns bytes in use in a btrfs pool, data and metadata, once all is written and what was deleted is gone.

    Without btrfs, 0.
    """
    for action in (["subvolume", "sync"], ["filesystem", "sync"], ["filesystem", "df", "--raw"]):
        run = subprocess.run(["btrfs", *action, str(space.pool)], capture_output=True, text=True, check=False)
        if run.returncode:
            return 0
    return sum(map(int, re.findall(r"^(?:Data|Metadata|System).*used=(\d+)$", run.stdout, re.MULTILINE)))


def _alive(space: Workspace) -> Iterator[Figure]:
    """Sandboxes side by side, forked from one snapshot: all of them answer."""
    space.tell(f"{ALIVE} sandboxes at once")
    alone = space.start()
    alone.run("true", timeout=10)
    yield figure("memory_alone", "memory of one that shares nothing", [alone.memory()], "MB")
    snapshot = alone.checkpoint().id
    alone.close()
    available = _available()
    with ThreadPoolExecutor(2 * space.cores) as threads:
        began = time.perf_counter()
        sandboxes = list(threads.map(lambda _: space.fork(snapshot), range(ALIVE)))
        forking = time.perf_counter() - began
        began = time.perf_counter()
        answers = list(threads.map(_answer, sandboxes, range(ALIVE)))
        answering = time.perf_counter() - began
        taken = (available - _available()) / ALIVE
        memory = [sandbox.memory() for sandbox in sandboxes]
        began = time.perf_counter()
        list(threads.map(LocalSandbox.close, sandboxes))
        closing = time.perf_counter() - began
    space.backend.delete_snapshot(snapshot)
    yield figure("alive", "sandboxes alive at once that answered", [sum(answers)], "", at_least=ALIVE)
    yield figure("alive_fork", "... forking them all", [forking], "s")
    yield figure("alive_answer", "... a command in each of them", [answering], "s")
    yield figure("alive_close", "... closing them all", [closing], "s")
    yield figure("memory", "proportional memory of each, idle", memory, "MB", at_most=4)
    yield figure("memory_available", "what each took of the free memory", [taken], "MB")


def _answer(sandbox: LocalSandbox, number: int) -> bool:
    return sandbox.run(f"n={number}; echo $((n + 1))", timeout=30).output == b"%d\n" % (number + 1)


def _available() -> int:
    match = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(match[1]) * KIB if match else 0
