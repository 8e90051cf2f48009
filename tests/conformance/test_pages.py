"""What pages of processes take on the disk: only new ones are written, compressed, and forks have all of them."""

from __future__ import annotations

import os

import pytest

from tests.conformance.heap import MIB, backend_with, do, start_holder
from tests.conformance.helpers import Lab
from tvsnap.model.errors import SnapshotUnusable
from tvsnap.sandboxes import sealing
from tvsnap.sandboxes.criu import pages
from tvsnap.sandboxes.local import snapshot_store
from tvsnap.sandboxes.local.backend import LocalBackend
from tvsnap.sandboxes.protocol import Sandbox

SIZE = 24 * MIB


@pytest.fixture
def local(local_lab: Lab) -> LocalBackend:
    return backend_with(local_lab, pages.ADDITION)


@pytest.fixture
def holder(local_lab: Lab) -> Sandbox:
    """A sandbox with a process that holds random pages and does what it is told through a pipe."""
    sandbox = local_lab.start()
    start_holder(sandbox, SIZE)
    return sandbox


def sizes(local: LocalBackend, snapshot: str) -> tuple[int, int]:
    """Returns the bytes of pages that a snapshot's dump wrote, and of those that were lent to it."""
    images = local._snapshots.path / snapshot / "criu"
    own = sum(file.stat().st_size for file in images.glob("pages-*.img"))
    return own, sum(file.stat().st_size for file in (images / pages.DIRECTORY).glob("pages-*.img"))


def occupied(local: LocalBackend) -> int:
    """Returns the bytes that are used in the pool, with all that was written and nothing that was deleted."""
    local.reclaim()
    os.sync()
    used = local.occupied()
    assert used is not None
    return used


@pytest.mark.parametrize("most", [pages.MOST_COMPRESSED, SIZE - 1])
def test_pages_are_compressed(
    local_lab: Lab, local: LocalBackend, holder: Sandbox, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Unless that would take a processor for too long; a fork has them as they were either way."""
    monkeypatch.setattr(pages, "MOST_COMPRESSED", most)
    digest = do(
        holder, "data[:] = (random.Random(2).randbytes(999).hex().encode() * (len(data) // 1998 + 1))[:len(data)]"
    )
    before = occupied(local)
    snapshot = local_lab.checkpoint(holder)
    taken = occupied(local) - before
    assert sizes(local, snapshot.id)[0] >= SIZE
    assert (taken < SIZE / 2) == (most > SIZE), taken
    assert do(local_lab.fork(snapshot)) == digest


def test_only_new_pages_are_written(local_lab: Lab, local: LocalBackend, holder: Sandbox) -> None:
    """Also by a fork of that dump; and each has all pages, whichever other dump is deleted."""
    first = local_lab.checkpoint(holder)
    assert sizes(local, first.id)[0] >= SIZE
    changed = do(holder, "data[5000:5010] = b'0123456789'; data[-1:] = b'x'")
    second = local_lab.checkpoint(holder)
    own, lent = sizes(local, second.id)
    assert own < SIZE / 4
    assert lent >= SIZE
    fork = local_lab.fork(second)
    assert do(fork) == changed
    further = do(fork, "data[9 * 4096] = data[9 * 4096] ^ 1")
    third = local_lab.checkpoint(fork)
    assert sizes(local, third.id)[0] < SIZE / 4
    local.delete_snapshot(first.id)
    local.delete_snapshot(second.id)
    assert do(local_lab.fork(third)) == further
    assert do(local_lab.fork(third)) == further


@pytest.mark.parametrize(
    "order",
    [
        "data.madvise(mmap.MADV_DONTNEED)",
        "data.madvise(mmap.MADV_DONTNEED, 4096 * 100, 4096 * 1000)",
        "data.close(); data = mmap.mmap(-1, 4096 * 3)",
        "data.resize(len(data) * 2); data[-4096:] = b'r' * 4096",
        "data[:] = data[4096:] + data[:4096]",
        "data[4096 * 50:4096 * 60] = bytes(4096 * 10)",
        "other = data; data = mmap.mmap(-1, len(other), flags=mmap.MAP_PRIVATE); data[:] = other[:]",
        "os.fork() or signal.pause()",
        "bytes(200 << 20)",
    ],
)
def test_memory_is_as_it_was(local_lab: Lab, local: LocalBackend, holder: Sandbox, order: str) -> None:
    """Pages that are gone, moved, zero, mapped anew, or another process' since the dump before."""
    local_lab.checkpoint(holder)
    changed = do(holder, order)
    second = local_lab.checkpoint(holder)
    assert do(local_lab.fork(second)) == changed
    assert do(holder) == changed


def test_a_dump_is_whole_again(local_lab: Lab, local: LocalBackend, holder: Sandbox) -> None:
    """Once most pages are new: the next dump after that is one that others are compared with."""
    local_lab.checkpoint(holder)
    do(holder, "data[:] = random.Random(2).randbytes(len(data)); further = [random.Random(3).randbytes(len(data))]")
    second = local_lab.checkpoint(holder)
    assert sizes(local, second.id)[0] > SIZE / 2
    changed = do(holder, "data[:1] = b'y'")
    third = local_lab.checkpoint(holder)
    own, lent = sizes(local, third.id)
    assert own >= SIZE
    assert not lent
    assert do(local_lab.fork(third)) == changed


def test_damage_to_lent_pages_is_noticed(local_lab: Lab, local: LocalBackend, holder: Sandbox) -> None:
    first = local_lab.checkpoint(holder)
    do(holder, "data[:1] = b'z'")
    second = local_lab.checkpoint(holder)
    assert do(local_lab.fork(second))
    images = local._snapshots.path / first.id / "criu"
    largest = max(images.glob("pages-*.img"), key=lambda file: file.stat().st_size)
    with open(largest, "r+b") as file:
        file.seek(largest.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    for snapshot in (first, second):
        with pytest.raises(SnapshotUnusable, match="damaged"):
            local_lab.fork(snapshot)


def test_pages_are_not_read_again_because_others_lose_them(
    local_lab: Lab, local: LocalBackend, holder: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots stay verified when one that has the same pages is taken, or deleted; unless they change meanwhile."""
    first, second, third = (local_lab.checkpoint(holder) for _ in range(3))
    read: list[str] = []

    def note(name: str, directory: int | None = None) -> tuple[int, int]:
        read.append(name)
        return sealing.checksum(name, directory)

    monkeypatch.setattr(snapshot_store, "checksum", note)
    local.delete_snapshot(second.id)
    for snapshot in (first, third):
        assert local._snapshots.check(snapshot.id)
    assert not read
    images = local._snapshots.path / first.id / "criu"
    largest = max(images.glob("pages-*.img"), key=lambda file: file.stat().st_size)
    about = largest.stat()
    with open(largest, "r+b") as file:
        file.write(b"otherwise")
    os.utime(largest, ns=(about.st_atime_ns, about.st_mtime_ns))
    local.delete_snapshot(third.id)
    with pytest.raises(SnapshotUnusable, match="damaged"):
        local._snapshots.check(first.id)
