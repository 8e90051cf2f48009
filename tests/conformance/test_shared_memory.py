"""Forks share the memory of a large heap until they write to it, and a program in one cannot tell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.heap import MIB, backend_with, do, start_holder
from tests.conformance.helpers import Lab, eventually, sh
from tests.conformance.targets import make_local
from tests.faults.dying import REPOSITORY
from tvsnap.images import Image
from tvsnap.model.observations import SnapshotInfo
from tvsnap.sandboxes.local import cgroups, holders
from tvsnap.sandboxes.local.backend import LocalBackend
from tvsnap.sandboxes.protocol import Sandbox

SIZE = 32 * MIB
FEW = 8 * MIB
"""Of memory: what a fork has for itself, at most, besides the heap."""

LIBC = "libc = ctypes.CDLL(None, use_errno=True); at = ctypes.addressof(ctypes.c_char.from_buffer(data)); "
FIELDS = ("Size", "KernelPageSize", "MMUPageSize", "Rss", "Anonymous", "AnonHugePages", "LazyFree", "Swap", "VmFlags")
HEAP = (
    f"fields = {FIELDS}; lines = open('/proc/self/smaps').read().splitlines(); "
    f"firsts = [n for n, line in enumerate(lines) if line[:5] == 'Size:' and int(line.split()[1]) >= {SIZE // 1024}]; "
    "said = [[one for one in lines[n - 1:n + 24] if one.split(':')[0] in fields] for n in firsts]"
)
MAPS = (
    "said = [[part for n, part in enumerate(line.split()) if n not in (3, 4)] "  # of files that differ by sandbox
    "for line in open('/proc/self/maps')]"
)


@pytest.fixture
def local(local_lab: Lab) -> LocalBackend:
    return backend_with(local_lab, holders.ADDITION)


@pytest.fixture
def heap(local_lab: Lab) -> Sandbox:
    """A sandbox with a process that has a large heap."""
    sandbox = local_lab.start()
    start_holder(sandbox, SIZE)
    return sandbox


def anonymous(local: LocalBackend) -> int:
    """Returns the bytes of anonymous memory of all sandboxes of a data directory, each page once."""
    for root in local._cgroups.roots:
        if (file := root / "memory.stat").exists():
            found = dict(map(str.split, file.read_text().splitlines()))
            return int(found.get("anon") or found["total_rss"])
    raise AssertionError("no control group counts memory")


def unshared(sandbox: Sandbox) -> int:
    """Returns the bytes that the processes of a sandbox share with no file and no snapshot."""
    return sum(process.unshared or 0 for process in sandbox.processes())


def processes(local: LocalBackend) -> list[int]:
    """Returns the ids of the processes that hold memory."""
    assert local._holders
    return [future.result().process.pid for future in local._holders._holders.values()]


def lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_what_a_checkpoint_of_a_fork_costs_is_told_by_its_own_memory(
    local: LocalBackend, local_lab: Lab, heap: Sandbox
) -> None:
    assert SIZE <= unshared(heap) < SIZE + FEW
    fork = local_lab.fork_of(heap)
    assert unshared(fork) < FEW
    do(fork, f"data[:{SIZE // 2}] = bytes({SIZE // 2})")
    assert SIZE // 2 <= unshared(fork) < SIZE // 2 + FEW


def test_forks_take_no_memory_of_their_own(local_lab: Lab, local: LocalBackend, heap: Sandbox) -> None:
    digest = do(heap)
    snapshot = local_lab.checkpoint(heap)
    assert do(local_lab.fork(snapshot)) == digest
    before = anonymous(local)
    with ThreadPoolExecutor(4) as threads:
        forks = list(threads.map(lambda _: local_lab.fork(snapshot), range(4)))
    assert [do(fork) for fork in forks] == [digest] * 4
    assert anonymous(local) - before < 4 * FEW
    for fork in forks:  # nor does it take any to look at what they hold
        local_lab.checkpoint(fork)
    assert [do(fork) for fork in forks] == [digest] * 4
    assert anonymous(local) - before < 4 * FEW


def test_forks_do_not_see_what_others_write(local_lab: Lab, local: LocalBackend, heap: Sandbox) -> None:
    snapshot = local_lab.checkpoint(heap)
    forks = [local_lab.fork(snapshot) for _ in range(3)]
    digest = do(forks[0])
    written = [do(fork, f"data[{n}::4096] = b'{n}' * (len(data) // 4096)") for n, fork in enumerate(forks[1:])]
    assert len({digest, *written}) == 3
    assert [do(fork) for fork in forks] == [digest, *written]
    assert do(local_lab.fork(snapshot)) == digest
    assert do(heap) == digest


@pytest.mark.parametrize(
    "order",
    [
        MAPS,
        HEAP,
        "data.madvise(mmap.MADV_DONTNEED, 0, 1 << 21); said = sum(data[:1 << 21]); "
        + HEAP
        + "; said = [said, sum(data[:1 << 21])]",
        "data.madvise(mmap.MADV_DONTNEED); said = any(data)",
        "data.resize(len(data) * 2); data[-4096:] = b'r' * 4096",
        "data.resize(len(data) // 2); " + MAPS,
        # A thread of the kernel (khugepaged) makes the huge pages later, at a time of its own.
        f"data.madvise(mmap.MADV_HUGEPAGE); {HEAP}; "
        "said = [[one for one in each if 'Huge' not in one] for each in said]",
        "data.madvise(18); pid = os.fork() or os._exit(any(data)); said = os.waitpid(pid, 0)[1]",
        "pid = os.fork() or (data.__setitem__(0, data[0] ^ 1), os._exit(0)); os.waitpid(pid, 0)",
        LIBC + f"pages = ctypes.create_string_buffer({SIZE // 4096}); "
        f"libc.mincore(ctypes.c_void_p(at), {SIZE}, pages); said = [n & 1 for n in pages.raw]",
        LIBC + f"said = libc.mlock(ctypes.c_void_p(at), {SIZE // 2}); " + MAPS,
        LIBC + "libc.mprotect(ctypes.c_void_p(at), 1 << 20, 1); " + MAPS,
        LIBC + f"libc.mmap(ctypes.c_void_p(at + {SIZE // 2}), 1 << 20, 1, 0x32, -1, 0); " + MAPS,
        "other = mmap.mmap(-1, 1 << 22, flags=mmap.MAP_PRIVATE); other[:] = data[:1 << 22]; del other",
    ],
)
def test_a_fork_is_as_a_process_that_was_never_forked(
    local_lab: Lab, local: LocalBackend, heap: Sandbox, order: str
) -> None:
    snapshot = local_lab.checkpoint(heap)
    forks = [local_lab.fork(snapshot) for _ in range(2)]
    assert len(processes(local)) == 1
    seen = do(heap, order), do(heap)
    for fork in forks:
        assert (do(fork, order), do(fork)) == seen


def test_a_fork_of_a_fork_shares_too(local_lab: Lab, local: LocalBackend, heap: Sandbox) -> None:
    """Also once all that it came from is gone."""
    first = local_lab.checkpoint(heap)
    fork = local_lab.fork(first)
    changed = do(fork, "data[5000:5010] = b'0123456789'")
    second = local_lab.checkpoint(fork)
    assert size_of_new_pages(local, second) < FEW
    local.delete_snapshot(first.id)
    fork.close()
    forks = [local_lab.fork(second) for _ in range(2)]
    before = anonymous(local)
    forks += [local_lab.fork(second) for _ in range(3)]
    assert [do(one) for one in forks] == [changed] * 5
    assert anonymous(local) - before < 3 * FEW
    further = do(forks[0], "data[-1] ^= 1")
    third = local_lab.checkpoint(forks[0])
    assert size_of_new_pages(local, third) < FEW
    local.delete_snapshot(second.id)
    assert do(local_lab.fork(third)) == further
    assert do(forks[1]) == changed


def test_checkpoints_are_right_whatever_is_still_shared(local_lab: Lab, local: LocalBackend, heap: Sandbox) -> None:
    """Pages that were written to and back, gone, moved, or a child's."""
    fork = local_lab.fork(local_lab.checkpoint(heap))
    for order in (
        "data[9] ^= 1",
        "data[9] ^= 1",
        "data[:8 << 20] = data[4096:(8 << 20) + 4096]",
        "data.madvise(mmap.MADV_DONTNEED, 1 << 20, 1 << 20)",
        "os.fork() or (data.__setitem__(slice(0, 1 << 22), bytes(1 << 22)), signal.pause())",
        "data.resize(len(data) + 4096)",
    ):
        changed = do(fork, order)
        assert do(local_lab.fork(local_lab.checkpoint(fork))) == changed
        assert do(fork) == changed


def size_of_new_pages(local: LocalBackend, snapshot: SnapshotInfo) -> int:
    images = local._snapshots.path / snapshot.id / "criu"
    return sum(file.stat().st_size for file in images.glob("pages-*.img"))


def test_small_heaps_are_copied(local_lab: Lab, local: LocalBackend) -> None:
    sandbox = local_lab.start()
    start_holder(sandbox, 2 * MIB)
    digest = do(sandbox)
    assert do(local_lab.fork_of(sandbox)) == digest
    assert not processes(local)


def test_memory_is_held_as_long_as_there_is_room(
    local_lab: Lab, local: LocalBackend, heap: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no longer than its snapshot exists, or the backend is open."""
    assert local._holders
    monkeypatch.setattr(local._holders, "_most", 3 * SIZE)
    digest, snapshots = do(heap), []
    for _ in range(3):
        snapshots.append(local_lab.checkpoint(heap))
        assert do(local_lab.fork(snapshots[-1])) == digest
    held = processes(local)
    assert len(held) == 2
    assert do(local_lab.fork(snapshots[0])) == digest
    eventually(lambda: not lives(held[0]))
    _, other = processes(local)
    local.delete_snapshot(snapshots[0].id)
    eventually(lambda: not lives(other))
    (last,) = processes(local)
    local._holders.close()
    assert not lives(last)


def test_without_a_holder_forks_are_made_by_copying(local_lab: Lab, local: LocalBackend, heap: Sandbox) -> None:
    """It was killed, or stopped to answer: the fork comes to be, and so do all others."""
    digest = do(heap)
    snapshot = local_lab.checkpoint(heap)
    forks = [local_lab.fork(snapshot)]
    (held,) = processes(local)
    os.kill(held, signal.SIGKILL)
    forks += [local_lab.fork(snapshot) for _ in range(2)]
    assert [do(fork) for fork in forks] == [digest] * 3
    assert do(local_lab.fork_of(forks[0])) == digest


def test_holders_are_made_after_one_whose_control_groups_could_not_be_removed(
    local_lab: Lab, local: LocalBackend, heap: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, snapshot = do(heap), local_lab.checkpoint(heap)
    local_lab.fork(snapshot)
    (first,) = processes(local)
    failed = []

    def fail(_: object) -> bool:
        failed.append(1)
        raise OSError("busy")

    assert local._holders
    with monkeypatch.context() as patch:
        patch.setattr(cgroups.Cgroup, "destroy", fail)
        local._holders.drop(snapshot.id)
        eventually(lambda: failed)
    eventually(lambda: not lives(first))
    assert do(local_lab.fork(snapshot)) == digest
    assert processes(local) != [first]
    local.close()
    assert list(local._cgroups.sandboxes(local._owner)) == []


def test_nothing_is_left_of_a_process_that_was_killed(tvsnap_home: Path, terminal_image: Image) -> None:
    """What holds memory ends with the process that it works for, and so does a CRIU that it has started."""
    program = f"""
import time
from tests.conformance.heap import backend_with, do, start_holder
from tests.conformance.helpers import Lab
from tests.conformance.targets import make_local
from tests.conformance.test_shared_memory import SIZE, processes
from tvsnap.images import ImageStore
from pathlib import Path
home = Path({str(tvsnap_home)!r})
lab = Lab(make_local(home), ImageStore(home).get({terminal_image.digest!r}))
sandbox = lab.start()
start_holder(sandbox, SIZE)
fork = lab.fork_of(sandbox)
staged = lab.backend.stage(fork.origin, lab.image, sandbox.limits)
print(*processes(lab.backend), *staged._cgroup.pids(), flush=True)
time.sleep(1000)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        pids = [int(pid) for pid in process.stdout.readline().split()]
        process.kill()
    holder, *restored = pids
    assert len(restored) > 2
    eventually(lambda: not lives(holder))
    backend = make_local(tvsnap_home)  # it ends the sandboxes that were left
    try:
        assert backend.reap().sandboxes >= 3
        eventually(lambda: not any(map(lives, restored)))
    finally:
        backend.close()


MANY = (
    "more = [mmap.mmap(-1, 3 << 20, flags=2 | n % 2 * 0x4000, prot=3 + n % 3 // 2 * 4) for n in range(9)]; "
    "[one.write(random.Random(n).randbytes((3 << 20) - 4096 * n)) for n, one in enumerate(more)]"
)


def test_a_process_with_many_mappings(local_lab: Lab, local: LocalBackend, heap: Sandbox) -> None:
    """Of several kinds, not all of which are full; and another process of the same sandbox with as much."""
    do(heap, MANY)
    sh(heap, "mkdir two && cd two")
    start_holder(heap, SIZE)
    ask = "said = [hashlib.sha256(one).hexdigest() for one in more]"
    other = do(heap)
    sh(heap, "cd ..")
    orders = (MAPS, HEAP, ask, "pass")
    for _ in range(5):  # at first, the interpreter takes memory for what is asked
        before = [do(heap, order) for order in orders]
    snapshot = local_lab.checkpoint(heap)
    for _ in range(2):
        fork = local_lab.fork(snapshot)
        assert [do(fork, order) for order in orders] == before
        sh(fork, "cd two")
        assert do(fork) == other
    assert processes(local)
