"""States that travel between data directories, with real sandboxes: processes, shared trees, what is interrupted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import make_app
from tests.registry.s3 import s3_server
from tests.small_image import build_small_image
from tests.unit.graph_helpers import disorder
from tvsnap.cache import Cache
from tvsnap.images import Image, ImageStore
from tvsnap.model.calls import ToolResult
from tvsnap.rollout import Rollout
from tvsnap.sandboxes.local import portability

WORK = (
    "cd /tmp; A=5; seq 2000 > f; ln f g",
    "(trap '' HUP; while :; do sleep 0.2; done) & echo started",
    "rm /etc/group; mkdir -p deep/er; (echo begin; sleep 1000) > out & sleep 0.3",
)
LOOK = "echo $A; sort -n f | cat | seq 1; jobs | cat; cat out; ls /etc; stat -c %h f"


@pytest.fixture
def small(terminal_image: Image, tmp_path: Path) -> Path:
    """A data directory with a small image."""
    home = tmp_path / "there"
    home.mkdir()
    build_small_image(terminal_image, home)
    return home


def made(home: Path, *commands: str, task: str = "travels", **options: object) -> list[ToolResult]:
    """Makes a rollout, whose states are all kept."""
    with Cache(home, policy="eager") as cache, cache.rollout("small", task, **options) as rollout:  # type: ignore[arg-type]
        return [rollout.call("bash", {"command": command}) for command in commands]


def made_as_before(cache: Cache, rollout: Rollout, command: str) -> ToolResult:
    """Makes a call after the wait after which it was made before, which depends on how slow the machine was."""
    edges = [edge for edge in cache.graph.out_edges(rollout.state) if edge.call.arguments["command"] == command]
    return rollout.call("bash", {"command": command}, after=max((edge.waited for edge in edges), default=0.0))


def tvsnap(*arguments: str, home: Path, status: int = 0) -> str:
    """Runs a verb; returns what it printed."""
    result = CliRunner().invoke(make_app(), [*arguments, "--home", str(home)])
    assert result.exit_code == status, result.output + result.stderr
    return result.stdout if status == 0 else result.stderr


def moved(verb: str, *arguments: str, home: Path) -> Any:
    return json.loads(tvsnap(verb, *arguments, "--json", home=home))


def test_processes_go_on_elsewhere(small: Path, tmp_path: Path) -> None:
    there = made(small, *WORK, LOOK)
    store, here = str(tmp_path / "store"), tmp_path / "here"
    sent = moved("push", "travels", store, home=small)
    kept = sent["snapshots"]  # the last call may have changed the shell's list of jobs, or not
    assert (sent["calls"], sent["images"], sent["left_out"]) == (4, 1, {})
    assert kept in (3, 4)
    assert sent["sent_bytes"] > 1_000_000
    assert moved("push", "travels", store, home=small)["sent_bytes"] == 0
    brought = moved("pull", "travels", store, home=here)
    assert (brought["calls"], brought["images"], brought["snapshots"], brought["left_out"]) == (4, 1, kept, {})
    with Cache(here, policy="eager") as cache, cache.rollout("small", "travels") as rollout:
        results = [made_as_before(cache, rollout, command) for command in (*WORK, LOOK)]
        assert "executed" not in {one.source for one in results}
        assert [one.output for one in results] == [one.output for one in there]
        state = rollout.state
        new = rollout.call("bash", {"command": f"{LOOK}; kill %1; wait %1; echo ended $?"})
        assert cache.stats().arrivals.get("forked") == 1, "no call was made again"
        assert there[3].output in new.output
        assert "ended 143" in new.output
        with cache.materialise(state) as sandbox:
            assert any("sleep 1000" in process.command for process in sandbox.processes())
    assert disorder(here / "tvsnap.db") == []
    again = moved("pull", "travels", store, home=here)
    assert (again["calls"], again["known"], again["images"], again["snapshots"]) == (0, 4, 0, 0)
    assert again["left_out"] == {"the state has a snapshot here": kept}
    assert again["fetched_bytes"] < 50_000


def test_an_image_that_shares_trees(terminal_image: Image, tmp_path: Path) -> None:
    there, here, store = tmp_path / "there", tmp_path / "here", str(tmp_path / "store")
    there.mkdir()
    build_small_image(terminal_image, there)
    folder = tmp_path / "derived"
    folder.mkdir()
    (folder / "image.yaml").write_text("name: derived\nimage: small\nenv: {GREETING: hello}\nrun: [rm /etc/group]\n")
    ImageStore(there).build(folder)
    with Cache(there) as cache, cache.rollout("derived", "t") as rollout:
        expected = rollout.call("bash", {"command": "echo $GREETING; ls -la /etc; ls /usr/bin"}).output
    assert moved("push", "t", store, home=there)["images"] == 2
    assert moved("pull", "t", store, home=here)["images"] == 2
    with Cache(here) as cache, cache.rollout("derived", "other", salt="fresh") as rollout:
        assert rollout.call("bash", {"command": "echo $GREETING; ls -la /etc; ls /usr/bin"}).output == expected
    for name in ("small", "derived"):
        assert ImageStore(here).get(name).digest == ImageStore(there).get(name).digest
    assert not list((here / "images").glob(".build-*"))


def test_a_snapshot_that_does_not_fit_is_rebuilt(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = ("cd /tmp; echo 1 > f", "echo 2 >> f")
    made(small, *commands)
    time.sleep(2.1)
    made(small, *commands, salt="")  # answered
    tvsnap("verify", "--all", home=small)
    store, here = str(tmp_path / "store"), tmp_path / "here"
    tvsnap("push", "travels", store, home=small)
    monkeypatch.setattr(portability, "kernel", lambda: "2.6")
    brought = moved("pull", "travels", store, home=here)
    assert brought["snapshots"] == 0
    (reason,) = brought["left_out"]
    assert "and this is 2.6" in str(reason)
    monkeypatch.undo()
    with Cache(here) as cache, cache.rollout("small", "travels") as rollout:
        for command in commands:
            rollout.call("bash", {"command": command})
        assert rollout.call("bash", {"command": "cat f"}).output == "1\n2\n"
    assert moved("pull", "travels", store, home=here)["snapshots"] >= 1


def test_a_branch_through_s3(small: Path, tmp_path: Path) -> None:
    made(small, "echo 1 > /tmp/f", "echo 2 > /tmp/f")
    with Cache(small) as cache:
        (rollout,) = cache.graph.rollouts()
        state = rollout.state
    here = tmp_path / "here"
    with s3_server() as url:
        assert moved("push", state[:10], f"{url}/tvsnap", home=small)["snapshots"] == 2
        assert "neither a task nor a state" in tvsnap("pull", "ffff", f"{url}/tvsnap", home=here, status=3)
        assert moved("pull", state[:8], f"{url}/tvsnap", home=here)["snapshots"] == 2
    with Cache(here) as cache, cache.materialise(state) as sandbox:
        assert sandbox.run("cat /tmp/f", timeout=20).output == b"2\n"


def test_two_hosts_push_one_task(terminal_image: Image, tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("one", "two")]
    for number, home in enumerate(homes):
        home.mkdir()
        build_small_image(terminal_image, home)
        made(home, "echo same > /tmp/f", f"echo {number} > /tmp/g")
    store, here = str(tmp_path / "store"), tmp_path / "here"
    program = "from cli.main import main; main()"
    with ThreadPoolExecutor(2) as pool:
        run = [sys.executable, "-c", program, "push", "travels", store]
        ended = list(pool.map(lambda home: subprocess.run([*run, "--home", str(home)], check=False).returncode, homes))
    assert ended == [0, 0]
    brought = moved("pull", "travels", store, home=here)
    assert brought["calls"] + brought["known"] + brought["conflicting"] == 4
    with Cache(here) as cache:
        first = cache.rollout("small", "travels")
        assert first.call("bash", {"command": "echo same > /tmp/f"}).source == "hit"
        first.close()
    assert disorder(here / "tvsnap.db") == []


@contextlib.contextmanager
def begun(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    program = "from cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _killed_in_the_middle(arguments: tuple[str, ...], goes_on: Callable[[], int]) -> None:
    """Kills a verb each time that it has come further, several times."""
    for _ in range(4):
        before = goes_on()
        with begun(*arguments) as process:
            deadline = time.monotonic() + 60
            while process.poll() is None and goes_on() <= before and time.monotonic() < deadline:
                time.sleep(0.005)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def test_a_push_and_a_pull_that_are_killed_go_on(small: Path, tmp_path: Path) -> None:
    there = made(small, *WORK, LOOK)
    store, here = tmp_path / "store", tmp_path / "here"

    def blobs() -> int:
        return sum(1 for path in store.rglob("*") if path.is_file())

    def files() -> int:
        return sum(1 for path in here.rglob("*"))

    push = ("push", "travels", str(store))
    _killed_in_the_middle((*push, "--home", str(small)), blobs)
    tvsnap(*push, home=small)
    _killed_in_the_middle(("pull", "travels", str(store), "--home", str(here)), files)
    moved("pull", "travels", str(store), home=here)
    with Cache(here, policy="eager") as cache, cache.rollout("small", "travels") as rollout:
        assert [rollout.call("bash", {"command": one}).output for one in (*WORK, LOOK)] == [one.output for one in there]
        assert there[3].output in rollout.call("bash", {"command": f"{LOOK}; echo more"}).output
    assert disorder(here / "tvsnap.db") == []
    tvsnap("image", "ls", home=here)
    ImageStore(here).sweep()
    assert not list((here / "images").glob(".build-*"))


def test_what_is_damaged_on_the_way_is_no_state(small: Path, tmp_path: Path) -> None:
    made(small, *WORK)
    store, here = tmp_path / "store", tmp_path / "here"
    tvsnap("push", "travels", str(store), home=small)
    tvsnap("pull", "travels", str(store), "--no-snapshots", home=here)
    blobs = sorted((store / "blobs").rglob("*"), key=lambda path: path.stat().st_size)
    for blob in [path for path in blobs if path.is_file()]:
        data = bytearray(blob.read_bytes())
        data[len(data) // 2] ^= 1
        blob.write_bytes(data)
    assert "is damaged; delete it and push again" in tvsnap("pull", "travels", str(store), home=here, status=1)
    with Cache(here) as cache:
        assert cache.graph.snapshots() == []
        assert list(cache.backend.snapshots()) == []


def test_words(small: Path, tmp_path: Path) -> None:
    made(small, "echo 1 > /tmp/f")
    store = str(tmp_path / "store")
    assert "there is no store" in tvsnap("pull", "travels", store, home=small, status=3)
    assert "there is no task nosuch (tvsnap tree), and no such state" in tvsnap(
        *("push", "nosuch", store), home=small, status=3
    )
    assert tvsnap("push", "travels", store, home=small).startswith("1 call, 1 image, 1 snapshot: ")
    assert "neither a task nor a state of that name: nosuch" in tvsnap("pull", "nosuch", store, home=small, status=3)
    assert tvsnap("pull", "travels", store, home=small).startswith(
        "0 new calls, 0 new images, 0 new snapshots; 1 call known already"
    )
