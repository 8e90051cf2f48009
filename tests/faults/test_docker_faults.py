"""What goes wrong with engines: late answers, deaths, restarts, many layers; and what is left after that."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker.errors
import pytest
import requests.exceptions

from scripts.docker_engine import pointing_at
from tests.engine import TestEngine
from tests.fakes.caches import settle
from tests.small_image import build_small_image
from tvsnap import Cache
from tvsnap.host.owners import Owner
from tvsnap.images import Image
from tvsnap.images.build.containers import LABEL_PURPOSE
from tvsnap.model.errors import InfrastructureError, MachineLacks, SandboxDied, SnapshotUnusable
from tvsnap.model.limits import Limits
from tvsnap.plugins.docker import DockerBackend, taking
from tvsnap.plugins.docker.engine import IN_FLIGHT, LABEL_HOME, LABEL_IMAGE, LABEL_OWNER, Engine
from tvsnap.plugins.docker.snapshot_store import MANIFEST, REPOSITORY, SHELL

LIMITS = Limits()
DEEP, FEW = 30, 12
"""Snapshots one above the other, and layers beyond which they are joined; engines take some 125."""


@pytest.fixture(scope="module")
def engine() -> Iterator[TestEngine]:
    """An engine that tests may kill."""
    own = TestEngine()
    own.start()
    with pointing_at(own.address):
        yield own
    own.stop()


@pytest.fixture(scope="module")
def small(terminal_image: Image, tvsnap_home: Path) -> Image:
    return build_small_image(terminal_image, tvsnap_home)


class Bench:
    """A backend on a data directory of its own, and a look at what it keeps in the engine."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.owner = Owner(home)
        self.engine = Engine(patience=1.0)
        self.api: Any = self.engine.api
        self.backend = DockerBackend(home, self.owner.id, self.engine)

    def tags(self) -> set[str]:
        return {tag for each in self.api.images() for tag in each["RepoTags"] or []}

    def containers(self) -> list[dict[str, Any]]:
        looking: Any = Engine().api
        found: list[dict[str, Any]] = looking.containers(all=True)
        return [each for each in found if each["Labels"].get(LABEL_OWNER) == self.owner.id]

    def snapshot_images(self) -> list[dict[str, Any]]:
        looking: Any = Engine().api
        found: list[dict[str, Any]] = looking.images(filters={"label": [f"{LABEL_OWNER}={self.owner.id}"]})
        return [each for each in found if any(tag.startswith(REPOSITORY) for tag in each["RepoTags"] or [])]


@pytest.fixture
def bench(engine: TestEngine, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for snapshot in list(made.backend.snapshots()):
        made.backend.delete_snapshot(snapshot)
    made.backend.close()
    made.owner.close()
    assert made.containers() == []


def out(sandbox: Any, command: str) -> str:
    return str(sandbox.run(command, timeout=60).output.decode())


def test_a_commit_that_answers_late_is_found(bench: Bench, small: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = bench.backend.start(small, LIMITS)
    out(sandbox, "x=5; echo late > /root/f")
    real = bench.api.commit

    def late(*arguments: Any, **named: Any) -> None:
        threading.Timer(1.0, real, arguments, named).start()
        raise requests.exceptions.ReadTimeout("the engine takes its time")

    monkeypatch.setattr(bench.api, "commit", late)
    info = sandbox.checkpoint()
    assert out(bench.backend.fork(info.id, small, LIMITS), "echo $x; cat /root/f") == "5\nlate\n"
    assert len(bench.snapshot_images()) == 1


def test_a_commit_that_never_comes_is_an_error(bench: Bench, small: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = bench.backend.start(small, LIMITS)

    def lost(*_: Any, **__: Any) -> None:
        raise requests.exceptions.ReadTimeout("the engine takes its time")

    with monkeypatch.context() as patch:
        patch.setattr(bench.api, "commit", lost)
        patch.setattr(bench.backend._snapshots, "_late_commit", 1.0)
        with pytest.raises(InfrastructureError, match="did not answer in time"):
            sandbox.checkpoint()
    assert list(bench.backend.snapshots()) == []
    assert out(sandbox, "echo alive") == "alive\n"
    sandbox.checkpoint()


def test_a_commit_whose_answer_comes_after_all_is_removed(
    bench: Bench, small: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given up, then done by the engine: the image is found by its name and goes."""
    sandbox = bench.backend.start(small, LIMITS)
    given: list[Any] = []

    def lost(*arguments: Any, **named: Any) -> None:
        given.append((arguments, named))
        raise requests.exceptions.ReadTimeout("the engine takes its time")

    with monkeypatch.context() as patch:
        patch.setattr(bench.api, "commit", lost)
        patch.setattr(bench.backend._snapshots, "_late_commit", 0.1)
        with pytest.raises(InfrastructureError):
            sandbox.checkpoint()
    arguments, named = given[0]
    bench.api.commit(*arguments, **named)
    assert len(bench.snapshot_images()) == 1
    bench.backend.reap()
    assert bench.snapshot_images() == []


@pytest.mark.timeout(900)
def test_more_commits_deep_than_layers_are_allowed(bench: Bench, small: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each a fork of the one before: they must have been joined on the way."""
    monkeypatch.setattr(taking, "MAX_DEPTH", FEW)
    sandbox = bench.backend.start(small, LIMITS)
    before: str | None = None
    with ThreadPoolExecutor(1) as closing:
        for number in range(DEEP):
            out(
                sandbox,
                f"echo {number} > /root/n$(( {number} % 7 )); last={number}; touch -d @1600000000.{number:09} /root/t",
            )
            info = sandbox.checkpoint()
            closed = closing.submit(sandbox.close)
            sandbox = bench.backend.fork(info.id, small, LIMITS)
            closed.result()
            if before:
                bench.backend.delete_snapshot(before)
            before = info.id
    assert sandbox.depth <= taking.MAX_DEPTH
    about: Any = bench.api.inspect_image(f"{REPOSITORY}:{before}")
    assert len(about["RootFS"]["Layers"]) <= taking.MAX_DEPTH
    expected = sorted(range(DEEP - 7, DEEP), key=lambda number: number % 7)
    assert out(sandbox, "cat /root/n*; echo $last") == "".join(f"{n}\n" for n in (*expected, DEEP - 1))
    assert out(sandbox, "stat -c %.9Y /root/t") == f"1600000000.{DEEP - 1:09}\n"


def test_everything_is_labelled(bench: Bench, small: Image) -> None:
    sandbox = bench.backend.start(small, LIMITS)
    sandbox.checkpoint()
    (container,) = bench.containers()
    assert container["Labels"][LABEL_PURPOSE] == "sandbox"
    assert container["Labels"][LABEL_IMAGE] == small.digest
    (image,) = bench.snapshot_images()
    assert image["Labels"][LABEL_PURPOSE] == "snapshot"
    assert image["Labels"][LABEL_HOME] == container["Labels"][LABEL_HOME]


def test_images_are_never_listed_and_few_calls_are_made_at_once(
    bench: Bench, small: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.api, "images", lambda *_, **__: pytest.fail("images were listed"))
    lock, now, most = threading.Lock(), 0, 0
    for name in ("create_container", "inspect_container", "commit", "remove_container", "inspect_image", "exec_create"):
        real = getattr(bench.api, name)

        def counted(*arguments: Any, real: Any = real, **named: Any) -> Any:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            try:
                return real(*arguments, **named)
            finally:
                with lock:
                    now -= 1

        monkeypatch.setattr(bench.api, name, counted)
    sandbox = bench.backend.start(small, LIMITS)
    info = sandbox.checkpoint()
    forks: list[Any] = []
    threads = [
        threading.Thread(target=lambda: forks.append(bench.backend.fork(info.id, small, LIMITS)))
        for _ in range(2 * IN_FLIGHT)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(forks) == len(threads)
    assert 1 < most <= IN_FLIGHT
    bench.backend.reap()


def test_a_snapshot_whose_forks_live_goes_with_the_last_of_them(bench: Bench, small: Image) -> None:
    sandbox = bench.backend.start(small, LIMITS)
    info = sandbox.checkpoint()
    fork = bench.backend.fork(info.id, small, LIMITS)
    bench.backend.delete_snapshot(info.id)
    assert list(bench.backend.snapshots()) == []
    assert out(fork, "echo alive") == "alive\n"
    fork.close()
    bench.backend.reap()
    assert bench.snapshot_images() == []


def test_a_snapshot_that_others_stand_on_goes_with_the_last_of_them(bench: Bench, small: Image) -> None:
    first = bench.backend.start(small, LIMITS).checkpoint()
    fork = bench.backend.fork(first.id, small, LIMITS)
    out(fork, "echo more > /root/more")
    second = fork.checkpoint()
    fork.close()
    bench.backend.delete_snapshot(first.id)
    assert out(bench.backend.fork(second.id, small, LIMITS), "cat /root/more") == "more\n"
    for sandbox in list(bench.backend._sandboxes.values()):
        sandbox.close()
    bench.backend.delete_snapshot(second.id)
    bench.backend.reap()
    assert bench.snapshot_images() == []


@pytest.mark.parametrize("name", [SHELL, MANIFEST])
@pytest.mark.parametrize("change", ["truncated", "deleted", "flipped"])
def test_a_damaged_snapshot_is_unusable(bench: Bench, small: Image, name: str, change: str) -> None:
    info = bench.backend.start(small, LIMITS).checkpoint()
    path = bench.backend._snapshots.directory(info.id) / name
    data = path.read_bytes()
    if change == "truncated":
        path.write_bytes(data[:100])
    elif change == "flipped":
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    else:
        path.unlink()
    with pytest.raises(SnapshotUnusable, match=info.id):
        bench.backend.fork(info.id, small, LIMITS)
    assert len(bench.containers()) == 1


def test_a_container_that_is_gone_is_a_sandbox_that_died(bench: Bench, small: Image) -> None:
    sandbox = bench.backend.start(small, LIMITS)
    bench.api.remove_container(sandbox.container, force=True)
    for use in (sandbox.observe, sandbox.checkpoint, sandbox.changes, lambda: sandbox.attach(80, 24)):
        with pytest.raises(SandboxDied):
            use()
    with pytest.raises(SandboxDied):
        sandbox.read_file("/etc/passwd")


def test_an_image_that_was_removed_in_the_engine_is_brought_again(bench: Bench, small: Image) -> None:
    bench.backend.start(small, LIMITS).close()
    reference = bench.backend._images.startable(small)
    bench.api.remove_image(reference)
    with pytest.raises(InfrastructureError):
        bench.backend.start(small, LIMITS)
    assert out(bench.backend.start(small, LIMITS), "echo again") == "again\n"


def test_nothing_of_an_image_stays_that_was_removed_after_an_upgrade(
    bench: Bench, small: Image, tmp_path: Path
) -> None:
    """With another version's PID 1, what sandboxes start from goes; without the image, so does what it stands on."""
    bench.backend.start(small, LIMITS).close()
    images, known = bench.backend._images, tmp_path / "images"
    (known / small.digest).mkdir(parents=True)
    digest = small.digest[:40]
    for images.guest_version, is_there in (("0" * 16, True), ("1" * 16, True), ("1" * 16, False)):
        if not is_there:
            (known / small.digest).rmdir()
        images.reap(known)
        assert not any(tag.startswith("tvsnap/guest:" + digest) for tag in bench.tags())
        assert any(tag.startswith(f"tvsnap/image:{digest}") for tag in bench.tags()) == is_there


def test_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(MachineLacks, match=r"no Docker Engine answers .*none\.sock"):
        Cache(tmp_path, backend="docker")


def test_an_engine_that_dies_amid_a_rollout(engine: TestEngine, small: Image, tmp_path: Path) -> None:
    """Without it, hits go on and misses say what is wrong; back again, the rollout goes on where it stood."""
    images = {"small": small}

    class Images:
        def get(self, name: str) -> Image:
            return images[name]

    with Cache(tmp_path, backend=_impatient(tmp_path), images=Images(), policy="eager") as cache:
        with cache.rollout("small") as first:
            first.call("bash", {"command": "echo one > /root/f; x=1"})
            first.call("bash", {"command": "echo two >> /root/f"})
            settle(first)
        with cache.rollout("small") as rollout:
            assert rollout.call("bash", {"command": "echo one > /root/f; x=1"}).source == "hit"
            engine.kill()
            assert rollout.call("bash", {"command": "echo two >> /root/f"}).source == "hit"
            with pytest.raises(InfrastructureError, match="does not answer"):
                rollout.call("bash", {"command": "cat /root/f; echo $x"})
            threading.Timer(0.5, engine.start).start()
            deadline = time.monotonic() + 60
            while True:
                try:
                    result = rollout.call("bash", {"command": "cat /root/f; echo $x"})
                    break
                except InfrastructureError:
                    assert time.monotonic() < deadline
            assert result.output == "one\ntwo\n1\n"
            assert not rollout.private


def _impatient(home: Path) -> DockerBackend:
    return DockerBackend(home, Owner(home).id, Engine(patience=1.0))


def test_what_the_engine_refuses_is_told(bench: Bench, small: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = bench.backend.start(small, LIMITS)
    bench.api.kill(sandbox.container)
    with pytest.raises(InfrastructureError):
        sandbox.checkpoint()
    with pytest.raises(docker.errors.NotFound):
        bench.api.inspect_image(f"{REPOSITORY}:0123")
