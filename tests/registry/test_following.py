"""Servers that keep their tasks in an object store: what one has done answers at the next, without a word."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

import tvsnap
from tests.server.conftest import Server, start
from tests.small_image import build_small_image
from tvsnap.cache import Cache
from tvsnap.images import Image
from tvsnap.model.errors import UsageError
from tvsnap.plugins.object_store import ObjectStore, StoredTasks

SCRIPT = (
    "cd /tmp; A=5; seq 2000 > f",
    "(while :; do sleep 0.2; done) & echo started",
    "echo $A; wc -l f; jobs | wc -l",
)


@pytest.fixture
def small(terminal_image: Image, tmp_path: Path) -> Path:
    """A data directory with a small image."""
    home = tmp_path / "there"
    home.mkdir()
    build_small_image(terminal_image, home)
    return home


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def roll(server: Server, task: str = "kept") -> list[tuple[str, str]]:
    with tvsnap.connect(server.url) as client, client.rollout("small", task) as rollout:
        results = [rollout.call("bash", {"command": command}, timeout=30) for command in SCRIPT]
        return [(result.output, result.source) for result in results]


def test_a_server_begins_where_another_one_has_stopped(small: Path, store: str, tmp_path: Path) -> None:
    first = start(small, "--store", store, "--policy", "eager")
    try:
        made = roll(first)
        roll(first, "")
    finally:
        assert first.stop() == 0, "what is new is pushed at the end"
    assert [path.name for path in (tmp_path / "store").rglob("tasks/*")] == ["_kept"]
    (tmp_path / "here").mkdir()
    second = start(tmp_path / "here", "--store", store, "--policy", "eager")
    try:
        deadline, sources = time.monotonic() + 60, {"executed"}
        while "executed" in sources:
            assert time.monotonic() < deadline, "snapshots come while rollouts work"
            found = roll(second)
            assert [output for output, _ in found] == [output for output, _ in made]
            sources = {source for _, source in found}
    finally:
        assert second.stop() == 0


def test_a_store_that_fails_keeps_nobody_from_working(
    small: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "store"
    with Cache(small, policy="eager") as cache:
        stored = StoredTasks(cache, str(folder), every=0.2)
        shutil.rmtree(folder, ignore_errors=True)
        folder.write_text("no folder any more")
        assert stored.begins("kept").wait(60)
        with cache.rollout("small", "kept") as rollout:
            assert rollout.call("bash", {"command": "echo 1"}).output == "1\n"
        stored.close()
        assert stored.begins("other").is_set(), "nothing is begun once it is closed"
        with pytest.raises(UsageError):
            StoredTasks(cache, "nosuch://bucket")
    assert any("could not be pushed to the store" in record.getMessage() for record in caplog.records)


def test_it_pushes_while_rollouts_go_on(small: Path, store: str) -> None:
    with Cache(small, policy="never") as cache:
        stored = StoredTasks(cache, store, every=0.2)
        assert stored.begins("grows").wait(60)
        assert stored.begins("") is stored.begins("")
        with cache.rollout("small", "grows") as rollout:
            rollout.call("bash", {"command": "echo 1 > /tmp/f"})
            opened = ObjectStore(store)
            deadline = time.monotonic() + 60
            while not list(opened.descriptions("tasks/_grows")):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert stored.patience("small") < stored.patience("no such image")
        stored.close()
        stored.close()
