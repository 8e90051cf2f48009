"""Snapshots of the local backend that are no longer what was taken: each is noticed, dropped, and replayed around."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.fakes.caches import settle
from tvsnap import Budget, Cache
from tvsnap.images import Image
from tvsnap.model.errors import SnapshotUnusable, StateLost
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.local import snapshot_store as snapshots
from tvsnap.sandboxes.local.snapshot_store import FORMAT
from tvsnap.sandboxes.sealing import checksum, from_sealed_json, to_sealed_json

CALLS = ("cd /tmp; mkdir d; echo one > d/f; x=1", "echo two >> d/f; x=2")
WITH_A_JOB = (CALLS[0], "echo two >> d/f; x=2; sleep 1000 &")
LOOK = "cat d/f; echo $x; jobs -r | wc -l"
SEEN, SEEN_WITH_A_JOB = "one\ntwo\n2\n0\n", "one\ntwo\n2\n1\n"
_SUBVOL_SETFLAGS = 0x4008941A
_salts = itertools.count()


@dataclass(frozen=True)
class Snapshot:
    """A snapshot on disk and another one, of the state before it."""

    id: str
    path: Path
    before: Path


def flip(path: Path) -> None:
    """Flips one bit in the middle of a file."""
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(size // 2)
        byte = file.read(1)[0]
        file.seek(size // 2)
        file.write(bytes([byte ^ 0x10]))


def flip_unseen(path: Path) -> None:
    """Flips one bit and leaves the time of modification as it was, as copying tools do."""
    about = path.stat()
    flip(path)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def delete(path: Path) -> None:
    path.unlink()


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_link(path: Path) -> None:
    """Puts a link to a file with other contents in its place."""
    aside = path.with_name("aside")
    path.rename(aside)
    flip(aside)
    path.symlink_to(aside.name)


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES = {change.__name__: change for change in (
    flip, flip_unseen, truncate, empty, lengthen, delete, make_directory, make_link, make_pipe
)}  # fmt: skip


def opened(directory: Path, image: Image, storage: str) -> Iterator[Cache]:
    """Opens a cache; each test uses roots of its own in it."""
    (directory / "images").symlink_to(image.rootfs.parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVSNAP_STORAGE", storage)
        with Cache(directory, policy="eager", budget=Budget(parked=0), prefork=0) as cache:
            yield cache


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, terminal_image: Image) -> Iterator[Cache]:
    yield from opened(tmp_path_factory.mktemp("integrity"), terminal_image, "btrfs")


@pytest.fixture(scope="module")
def copying_cache(tmp_path_factory: pytest.TempPathFactory, terminal_image: Image) -> Iterator[Cache]:
    """One without btrfs."""
    yield from opened(tmp_path_factory.mktemp("integrity-copy"), terminal_image, "copy")


def backend_of(cache: Cache) -> LocalBackend:
    assert isinstance(cache.backend, LocalBackend)
    return cache.backend


def prepare(cache: Cache, image: Image, salt: str, calls: tuple[str, ...] = CALLS) -> Snapshot:
    """Makes a rollout with two calls; returns the snapshot of the state that it came to, whose files may be changed."""
    with cache.rollout(image, salt=salt) as rollout:
        paths = []
        for command in calls:
            assert rollout.call("bash", {"command": command}).exit_code == 0
            settle(rollout)
            row = cache.graph.snapshot(rollout.state, "local")
            assert row is not None, cache.trouble
            paths.append(backend_of(cache)._snapshots.path / row.id)
    for path in paths:
        make_writable(path / "files")
    return Snapshot(paths[-1].name, paths[-1], paths[-2])


def make_writable(subvolume: Path) -> None:
    descriptor = os.open(subvolume, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a plain directory
            fcntl.ioctl(descriptor, _SUBVOL_SETFLAGS, struct.pack("Q", 0))
    finally:
        os.close(descriptor)


def forget_what_was_checked(cache: Cache) -> None:
    """Makes the backend look at snapshots as another process's would."""
    backend_of(cache)._snapshots._sound.clear()


def assert_replayed(cache: Cache, image: Image, salt: str, damaged: Snapshot) -> None:
    """Asserts that a rollout sees what it should, by replay, and that the damaged snapshot is gone."""
    replayed = cache.stats().replayed
    with cache.rollout(image, salt=salt) as rollout:
        for command in CALLS:
            assert rollout.call("bash", {"command": command}).source == "hit"
        result = rollout.call("bash", {"command": LOOK})
        assert (result.output, result.source, rollout.private) == (SEEN, "executed", None)
    assert cache.stats().replayed > replayed
    assert_gone(cache, damaged)


def assert_gone(cache: Cache, damaged: Snapshot) -> None:
    assert not os.path.lexists(damaged.path)
    assert damaged.id not in {snapshot.id for snapshot in cache.graph.snapshots()}


def damage(cache: Cache, image: Image, pattern: str, change: Callable[[Path], None], *, known: bool = False) -> None:
    """Changes a file of a snapshot, and asserts that a rollout that needs the snapshot sees what it should.

    Args:
        pattern: which file, in the snapshot's directory.
        known: whether this process has checked the snapshot before.
    """
    salt = str(next(_salts))
    damaged = prepare(cache, image, salt)
    change(sorted(damaged.path.glob(pattern))[-1])
    if not known:
        forget_what_was_checked(cache)
    assert_replayed(cache, image, salt, damaged)


LAYER = "files/upper/tmp/d/f"
IMAGES = ("criu/pages-*.img", "criu/core-1.img", "criu/pagemap-*.img", "criu/inventory.img")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("pattern", ["criu/mm-*.img", "manifest.json", LAYER])
def test_a_changed_file(cache: Cache, terminal_image: Image, pattern: str, change: str) -> None:
    damage(cache, terminal_image, pattern, CHANGES[change])


@pytest.mark.parametrize("change", ["flip", "truncate", "delete"])
@pytest.mark.parametrize("pattern", IMAGES)
def test_a_changed_image_of_a_process(cache: Cache, terminal_image: Image, pattern: str, change: str) -> None:
    damage(cache, terminal_image, pattern, CHANGES[change])


@pytest.mark.parametrize("pattern", ["criu/pages-*.img", "manifest.json", LAYER])
def test_a_file_changed_after_it_was_checked(cache: Cache, terminal_image: Image, pattern: str) -> None:
    damage(cache, terminal_image, pattern, flip_unseen, known=True)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("pattern", ["criu/pages-*.img", LAYER])
def test_a_file_changed_where_there_is_no_btrfs(
    copying_cache: Cache, terminal_image: Image, pattern: str, known: bool
) -> None:
    damage(copying_cache, terminal_image, pattern, flip_unseen, known=known)


def chmod(path: Path) -> None:
    path.chmod(0o600)


def chown(path: Path) -> None:
    os.chown(path, 12345, 12345)


def add_beside(path: Path) -> None:
    path.with_name("new").touch()


def link_beside(path: Path) -> None:
    path.with_name("f2").hardlink_to(path)


def replace_directory(path: Path) -> None:
    shutil.copytree(path.parent, path.parents[1] / "copy")
    shutil.rmtree(path.parent)
    (path.parents[1] / "copy").rename(path.parent)


@pytest.mark.parametrize("change", [chmod, chown, add_beside, link_beside, replace_directory])
def test_a_changed_layer(cache: Cache, terminal_image: Image, change: Callable[[Path], None]) -> None:
    damage(cache, terminal_image, LAYER, change)


def move_in(damaged: Snapshot, name: str) -> None:
    """Puts what another snapshot has by a name in place of a snapshot's own."""
    (damaged.path / name).rename(damaged.path / "aside")
    (damaged.before / name).rename(damaged.path / name)


def link_in(damaged: Snapshot, name: str) -> None:
    (damaged.path / name).rename(damaged.path / "aside")
    (damaged.path / name).symlink_to(damaged.before / name)


def move_all(damaged: Snapshot, name: str) -> None:
    damaged.path.rename(damaged.path.with_name(f"aside-{damaged.path.name}"))
    damaged.before.rename(damaged.path)


def link_all(damaged: Snapshot, name: str) -> None:
    damaged.path.rename(damaged.path.with_name(f"aside-{damaged.path.name}"))
    damaged.path.symlink_to(damaged.before)


def truncate_all(damaged: Snapshot, name: str) -> None:
    damaged.path.rename(damaged.path.with_name(f"aside-{damaged.path.name}"))
    damaged.path.touch()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("mix", "name"),
    [
        (move_in, "files"),
        (move_in, "criu"),
        (move_in, "manifest.json"),
        (link_in, "files"),
        (link_in, "criu"),
        (move_all, ""),
        (link_all, ""),
        (truncate_all, ""),
    ],
)
def test_snapshots_mixed_up(
    cache: Cache, terminal_image: Image, mix: Callable[[Snapshot, str], None], name: str, known: bool
) -> None:
    salt = str(next(_salts))
    damaged = prepare(cache, terminal_image, salt)
    mix(damaged, name)
    if not known:
        forget_what_was_checked(cache)
    assert_replayed(cache, terminal_image, salt, damaged)


@pytest.mark.parametrize("change", ["flip", "truncate", "delete", "make_directory", "make_link"])
def test_a_changed_idle_shell(
    cache: Cache, terminal_image: Image, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """What is kept of a shell where there is no CRIU."""
    backend = backend_of(cache)
    monkeypatch.setattr(backend, "_taker", replace(backend._taker, criu=None))
    salt = str(next(_salts))
    damaged = prepare(cache, terminal_image, salt)
    CHANGES[change](damaged.path / "shell.json")
    forget_what_was_checked(cache)
    assert_replayed(cache, terminal_image, salt, damaged)


@pytest.mark.parametrize("pattern", [*IMAGES, LAYER])
def test_nothing_else_leads_to_it(cache: Cache, terminal_image: Image, pattern: str) -> None:
    """Where a process lives, no replay can be compared: the rollout is told, and the next one executes it all anew."""
    salt = str(next(_salts))
    damaged = prepare(cache, terminal_image, salt, WITH_A_JOB)
    flip(sorted(damaged.path.glob(pattern))[-1])
    forget_what_was_checked(cache)
    with cache.rollout(terminal_image, salt=salt) as rollout:
        for command in WITH_A_JOB:
            assert rollout.call("bash", {"command": command}).source == "hit"
        with pytest.raises(StateLost, match="damaged"):
            rollout.call("bash", {"command": LOOK})
    assert_gone(cache, damaged)
    with cache.rollout(terminal_image, salt=salt) as rollout:
        found = [rollout.call("bash", {"command": command}) for command in (*WITH_A_JOB, LOOK)]
    assert [result.source for result in found] == ["hit", "executed", "executed"]
    assert found[-1].output == SEEN_WITH_A_JOB


def test_a_snapshot_of_another_version(cache: Cache, terminal_image: Image) -> None:
    salt = str(next(_salts))
    old = prepare(cache, terminal_image, salt)
    manifest = from_sealed_json((old.path / "manifest.json").read_text())
    (old.path / "manifest.json").write_text(to_sealed_json({**manifest, "format": FORMAT - 1}))
    with pytest.raises(SnapshotUnusable, match="has format"):
        backend_of(cache)._snapshots.check(old.id)
    assert_replayed(cache, terminal_image, salt, old)


def test_a_sound_snapshot_is_read_once(cache: Cache, terminal_image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks after the first look at times and sizes only; and what they do leaves the snapshot as it was."""
    salt = str(next(_salts))
    sound = prepare(cache, terminal_image, salt)
    forget_what_was_checked(cache)
    assert backend_of(cache)._snapshots.check(sound.id)
    read_again: list[str] = []

    def note(name: str, directory: int) -> tuple[int, int]:
        if sound.id in os.readlink(f"/proc/self/fd/{directory}"):  # and not another, which is being taken
            read_again.append(name)
        return checksum(name, directory)

    monkeypatch.setattr(snapshots, "checksum", note)
    for number in range(3):
        with cache.rollout(terminal_image, salt=salt) as rollout:
            for command in CALLS:
                rollout.call("bash", {"command": command})
            result = rollout.call("bash", {"command": f"echo {number} >> d/f; tail -n 1 d/f"})
            assert (result.output, result.source) == (f"{number}\n", "executed")
    assert not read_again
    monkeypatch.undo()
    forget_what_was_checked(cache)
    assert backend_of(cache)._snapshots.check(sound.id)
    assert sound.path.exists()


def test_the_files_of_a_snapshot_cannot_be_written(cache: Cache, terminal_image: Image) -> None:
    with cache.rollout(terminal_image, salt=str(next(_salts))) as rollout:
        rollout.call("bash", {"command": CALLS[0]})
        settle(rollout)
        row = cache.graph.snapshot(rollout.state, "local")
    assert row is not None
    with pytest.raises(OSError, match="Read-only"):
        flip(backend_of(cache)._snapshots.files(row.id) / "upper" / "tmp" / "d" / "f")
