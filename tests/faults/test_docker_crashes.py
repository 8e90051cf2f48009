"""Processes that die at every step of their work with an engine: what is left in it, and what is answered then."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.dying import EXPECTED, outputs, program, run_program
from tvsnap import Cache
from tvsnap.images import Image
from tvsnap.plugins.docker.engine import LABEL_HOME, Engine, home_tag
from tvsnap.plugins.docker.snapshot_store import REPOSITORY

pytestmark = pytest.mark.usefixtures("docker_engine")

IMPORTS = "from tvsnap.plugins.docker import containers, sandbox, snapshot_store"
STEPS = {
    "before a container is made": "before(containers.Containers, 'create')",
    "before a container starts": "after(containers.Containers, 'create')",
    "after a container started": "after(containers.Containers, 'start')",
    "with a call under way": "before(sandbox.DockerSandbox, 'run', 2)",
    "after a call, unrecorded": "after(sandbox.DockerSandbox, 'run', 2)",
    "before a record": "before(Graph, 'record', 2)",
    "before a commit": "before(snapshot_store.SnapshotStore, 'commit')",
    "after a commit": "after(snapshot_store.SnapshotStore, 'commit')",
    "paused, before a checkpoint": "before(containers.Containers, 'checkpoint')",
    "paused, after a checkpoint": "after(containers.Containers, 'checkpoint')",
    "paused, after its commit": "after(snapshot_store.SnapshotStore, 'commit', 2)",
    "after a snapshot, without its row": "before(Graph, 'add_snapshot')",
    "after a snapshot's row": "after(Graph, 'add_snapshot', 2)",
    "while closing a sandbox": "before(containers.Containers, 'remove')",
}


@pytest.fixture
def home(tmp_path: Path, terminal_image: Image) -> Path:
    """A fresh data directory with the terminal image."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    return tmp_path


@pytest.mark.parametrize("step", STEPS)
def test_killed_at(step: str, home: Path, terminal_image: Image) -> None:
    died = run_program(program(home, terminal_image, STEPS[step], backend="docker", imports=IMPORTS))
    assert died.returncode == -signal.SIGKILL, (died.stdout, died.stderr)
    with Cache(home, backend="docker", policy="eager") as cache:
        assert cache.backend.reap().sandboxes == 0, "opening the directory left something to reap"
        on_disk = set(cache.backend.snapshots())
        assert {snapshot.id for snapshot in cache.graph.snapshots()} == on_disk
        assert snapshots_in_engine(home) == on_disk
        assert outputs(cache, terminal_image)[:3] == EXPECTED
        for snapshot in cache.graph.snapshots():
            with cache.materialise(snapshot.state) as sandbox:
                assert sandbox.run("echo fine", timeout=60).output == b"fine\n"
        delete_snapshots(cache)
    assert containers_in_engine(home) == []
    with Cache(home, backend="docker") as cache:  # what could not go while its forks lived went just now
        delete_snapshots(cache)  # those that were still being taken
    assert snapshots_in_engine(home) == set()


def delete_snapshots(cache: Cache) -> None:
    for id in list(cache.backend.snapshots()):
        cache.backend.delete_snapshot(id)


def containers_in_engine(home: Path) -> list[Any]:
    api: Any = Engine().api
    return list(api.containers(all=True, filters={"label": [f"{LABEL_HOME}={home_tag(home)}"]}))


def snapshots_in_engine(home: Path) -> set[str]:
    api: Any = Engine().api
    found = api.images(name=REPOSITORY, filters={"label": [f"{LABEL_HOME}={home_tag(home)}"]})
    return {tag.partition(":")[2] for image in found for tag in image["RepoTags"]}
