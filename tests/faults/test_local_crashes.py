"""Processes that die at every step of their work, and damaged snapshots: what is left, and what is answered then."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.faults.consistency import assert_consistent, assert_in_order, assert_nothing_left
from tests.faults.dying import CALLS, EXPECTED, outputs, program, run_program, see_it_die
from tvsnap import Cache
from tvsnap.images import Image
from tvsnap.model.errors import StateLost
from tvsnap.sandboxes.local import LocalBackend

IMPORTS = """
from tvsnap.sandboxes.criu import client as criu
from tvsnap.sandboxes.local import backend, pool, sandbox
from tvsnap.sandboxes.local.storage import layers as storage
"""
STEPS = {
    "before a sandbox starts": "before(backend.LocalBackend, '_adopt')",
    "after a sandbox started": "after(backend.LocalBackend, '_adopt')",
    "with a call under way": "before(sandbox.LocalSandbox, 'run', 2)",
    "after a call, unrecorded": "after(sandbox.LocalSandbox, 'run', 2)",
    "before an observation": "before(sandbox.LocalSandbox, 'observe', 3)",
    "before a record": "before(Graph, 'record', 2)",
    "after a record": "after(Graph, 'record', 2)",
    "before a dump": "before(criu.Criu, 'dump')",
    "in a dump, files not copied": "before(storage.BtrfsStorage, 'copy', 2)",
    "in a dump, files copied": "after(storage.BtrfsStorage, 'copy', 2)",
    "after a dump, unnamed": "after(criu.Criu, 'dump')",
    "after a snapshot, without its row": "before(Graph, 'add_snapshot')",
    "after a snapshot's row": "after(Graph, 'add_snapshot')",
    "while closing a sandbox": "before(pool.Pool, 'take_back')",
}


INTERRUPT = """
import threading
def die():  # in a moment, with the call under way
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
"""


def work(home: Path, image: Image, fault: str = "") -> subprocess.CompletedProcess[str]:
    return run_program(program(home, image, fault, backend="local", imports=IMPORTS))


@pytest.mark.parametrize("step", STEPS)
def test_killed_at(step: str, home: Path, terminal_image: Image) -> None:
    see_it_die(program(home, terminal_image, STEPS[step], backend="local", imports=IMPORTS))
    with Cache(home, policy="eager") as cache:
        assert_in_order(cache)
        assert outputs(cache, terminal_image)[:3] == EXPECTED
    assert assert_consistent(home, terminal_image) >= 2


def test_interrupted(home: Path, terminal_image: Image) -> None:
    slow = ("echo $$ > /tmp/began; sleep 100",)
    fault = f"before(sandbox.LocalSandbox, 'run')\n{INTERRUPT}"
    began = time.monotonic()
    ended = run_program(program(home, terminal_image, fault, backend="local", imports=IMPORTS, calls=slow))
    assert "KeyboardInterrupt" in ended.stderr
    assert time.monotonic() - began < 60
    assert_nothing_left(home)
    with Cache(home) as cache:
        assert outputs(cache, terminal_image)[:3] == EXPECTED


def damage_nothing_but(pattern: str, home: Path, owner: str, change: str) -> int:
    """Changes files of all snapshots; returns how many."""
    backend = LocalBackend(home, owner)
    try:
        paths = list(backend._snapshots.path.glob(pattern))
        for path in paths:
            if change == "truncated":
                os.truncate(path, path.stat().st_size // 2)
            else:
                path.unlink()
        return len(paths)
    finally:
        backend.close()


@pytest.mark.parametrize("pattern", ["*/criu/pages-*.img", "*/criu/core-1.img", "*/manifest.json"])
@pytest.mark.parametrize("change", ["truncated", "deleted"])
def test_damaged_snapshots(pattern: str, change: str, home: Path, terminal_image: Image) -> None:
    done = work(home, terminal_image)
    assert done.stdout == "survived\n", done.stderr
    assert damage_nothing_but(pattern, home, "damager", change) >= 2
    with Cache(home, prefork=0) as cache:
        lose_after_hits(cache, terminal_image)
        with cache.rollout(terminal_image.name) as rollout:
            sources = [rollout.call("bash", {"command": command}).source for command in CALLS[:2]]
            assert sources == ["hit", "executed"], "that of the first state is not known to be damaged yet"
            result = rollout.call("bash", {"command": "cat f; echo $x"})
            assert (result.output, result.source) == ("one\ntwo\n2\n", "executed")
        assert cache.stats().replayed == 1, "the first call, whose digest tells that it led to the same state"
    assert_nothing_left(home)


def lose_after_hits(cache: Cache, image: Image) -> None:
    """Makes a rollout that is answered, and then told that nothing keeps its state any more."""
    with cache.rollout(image.name) as rollout:
        for command in CALLS[:2]:
            assert rollout.call("bash", {"command": command}).source == "hit"
        with pytest.raises(StateLost, match="a rollout that is begun anew"):
            rollout.call("bash", {"command": "cat f; echo $x"})  # new: needs the state


def test_pool_that_is_gone(home: Path, terminal_image: Image) -> None:
    assert work(home, terminal_image).stdout == "survived\n"
    (home / "pool.btrfs").unlink()
    with Cache(home) as cache, cache.rollout(terminal_image.name) as rollout:
        sources = [rollout.call("bash", {"command": command}).source for command in CALLS[:2]]
        assert sources == ["executed", "executed"], "that it is gone is seen when the directory is opened"
        assert rollout.call("bash", {"command": "cat f"}).output == "one\ntwo\n"
    assert_nothing_left(home)
