"""What is remembered of a sandbox's files makes no difference to their fingerprints."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from tests.conformance.helpers import sh
from tests.native.mess import Mess
from tvsnap.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.observations import NO_SERVICE, Service
from tvsnap.sandboxes.kernel import allowance
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.local.sandbox import LocalSandbox
from tvsnap.sandboxes.looks import observe, observing, seen_files
from tvsnap.sandboxes.looks.digest import Contents
from tvsnap.sandboxes.looks.seen_files import SeenFiles, SnapshotFiles

ROUNDS = 60
SERVICE = Service(directories=("/data", "/b.git"))


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    (tmp_path / "upper/data").mkdir(parents=True)
    return tmp_path / "upper"


@pytest.fixture
def image(tmp_path: Path) -> observing.ImageTree:
    for name in ("a/a/a", "b.git", "data/1"):
        (tmp_path / "image" / name).mkdir(parents=True)
    return observing.ImageTree(tmp_path / "image")


def whole(upper: Path, image: observing.ImageTree, service: Service) -> tuple[str, str]:
    """Returns what a look finds that remembers nothing."""
    return observe.files_fingerprints(upper, image, service, accessed=True)


@pytest.mark.parametrize("service", [NO_SERVICE, SERVICE], ids=["alone", "beside a service"])
def test_fingerprints_are_those_of_a_look_at_everything(
    upper: Path, image: observing.ImageTree, service: Service
) -> None:
    mess, seen = Mess(upper, len(service.directories)), SeenFiles(upper, image)
    found = set()
    for each in range(ROUNDS):
        mess.stir(each % 7)
        now = seen.fingerprints(service)
        assert now == whole(upper, image, service), each
        assert now == seen.fingerprints(service)
        found.add(now)
    assert len(found) > ROUNDS // 2


def test_each_service_has_files_of_its_own(upper: Path, image: observing.ImageTree) -> None:
    (upper / "data/x").touch()
    seen = SeenFiles(upper, image)
    for service in (NO_SERVICE, SERVICE, NO_SERVICE, Service(directories=("/data/x",))):
        assert seen.fingerprints(service) == whole(upper, image, service)


def test_whether_a_directory_hides_the_image_s(upper: Path, image: observing.ImageTree) -> None:
    seen = SeenFiles(upper, image)
    before = seen.fingerprints(NO_SERVICE)
    os.setxattr(upper / "data", "trusted.overlay.opaque", b"y")
    assert before != seen.fingerprints(NO_SERVICE) == whole(upper, image, NO_SERVICE)


def test_what_nothing_is_remembered_of(upper: Path, image: observing.ImageTree) -> None:
    seen = SeenFiles(upper, image)
    (upper / Path(*"d" * 70)).mkdir(parents=True)
    for name in ("one", "two"):
        (upper / name).touch()
        assert seen.fingerprints(NO_SERVICE) == whole(upper, image, NO_SERVICE)


def test_a_look_that_takes_too_long_is_none(upper: Path, image: observing.ImageTree) -> None:
    seen = SeenFiles(upper, image)
    before = seen.fingerprints(NO_SERVICE)
    for number in range(1000):
        (upper / str(number)).touch()
    with pytest.raises(allowance.NotSeen), allowance.Looks(longest=1e-9).one():
        seen.fingerprints(NO_SERVICE)
    assert before != seen.fingerprints(NO_SERVICE) == whole(upper, image, NO_SERVICE)


def test_a_directory_that_is_not_there_is_never_the_same(upper: Path, image: observing.ImageTree) -> None:
    os.mkdir(upper / "deep")
    seen = SeenFiles(upper / "deep", image)
    assert seen.fingerprints(NO_SERVICE) == seen.fingerprints(NO_SERVICE)
    os.rmdir(upper / "deep")
    with pytest.raises(FileNotFoundError):
        seen.fingerprints(NO_SERVICE)


def test_the_snapshots_used_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_files, "MOST_FILES", 10)
    files = SnapshotFiles()

    def note(snapshot: str, size: int) -> None:
        files.note(snapshot, Contents({(f"/{name}", ""): "digest" for name in range(size)}), None)

    def known(snapshot: str) -> int:
        return len(files.of(snapshot)[0].digests)

    for snapshot, size in (("one", 4), ("two", 3), ("three", 3)):
        note(snapshot, size)
    assert known("one") == 4, "and now it is the last one used"
    note("four", 2)
    assert [known(snapshot) for snapshot in ("two", "three", "four", "one")] == [0, 3, 2, 4]
    for snapshot in ("three", "two", "three"):
        files.drop(snapshot)
    note("five", 4)
    assert [known(snapshot) for snapshot in ("four", "one", "five")] == [2, 4, 4]


def test_a_fork_tells_later_ones_about_the_files_of_its_snapshot(backend: LocalBackend, terminal_image: Image) -> None:
    """As if the snapshot came from an earlier process, which alone knew them."""
    first = backend.start(terminal_image, Limits())
    sh(first, "mkdir /w; for i in $(seq 30); do echo $i > /w/f$i; done; echo 0 > /w/changed")
    snapshot = first.checkpoint().id
    backend._files.drop(snapshot)
    digests = []
    for known in (0, 30, 30):
        with contextlib.closing(backend.fork(snapshot, terminal_image, Limits())) as fork:
            assert len(fork.contents.parts) >= known
            assert "/w/changed" not in fork.contents.parts, "the first fork changed it before its digest was taken"
            fork.observe()
            sh(fork, "echo 1 > /w/changed")
            fork.observe()
            digests.append(fork.digest())
    assert digests[0] is not None
    assert set(digests) == {digests[0]}


def test_a_fork_in_which_something_ran_tells_nothing(backend: LocalBackend, terminal_image: Image) -> None:
    """What it wrote could have the times of something else that another fork wrote."""
    first = backend.start(terminal_image, Limits())
    sh(first, "echo 0 > /f")
    snapshot = first.checkpoint().id
    backend._files.drop(snapshot)
    for disturb in (lambda fork: sh(fork, "echo 1 > /f"), lambda fork: fork.disconnect(), type_and_exit):
        with contextlib.closing(backend.fork(snapshot, terminal_image, Limits())) as fork:
            disturb(fork)
            fork.observe()
            fork.digest()
        assert backend._files.of(snapshot)[1] is None


def type_and_exit(fork: LocalSandbox) -> None:
    with contextlib.closing(fork.attach(80, 24)) as terminal:
        terminal.sendall(b"echo 1 > /f; exit\n")
        while terminal.recv(4096):
            pass
