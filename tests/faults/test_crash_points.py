"""Processes that die at every step of forking, evicting, forgetting, warming, opening and closing.

The directory is opened after each death, and at the end all in it is looked at: deaths one after another add up.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from tests.faults.consistency import assert_consistent, assert_in_order, assert_nothing_left, local
from tests.faults.dying import CALLS, EXPECTED, outputs, program, program_of, run_program, see_it_die, verb
from tests.faults.test_local_crashes import IMPORTS
from tvsnap import Cache
from tvsnap.graph import Graph
from tvsnap.host.home import GRAPH_FILE
from tvsnap.host.owners import Owner
from tvsnap.images import Image
from tvsnap.sandboxes.local import LocalBackend

PARTS = f"""{IMPORTS}
from tvsnap.host import owners
from tvsnap.sandboxes.local import cgroups, snapshot_store
from tvsnap.engine.keeping import housekeeping
from tvsnap.upkeep import maintenance
from tvsnap.environments.service import InnerService
from tvsnap.images import ImageStore
from tvsnap.engine.supply.pool import SandboxPool
"""

FORKING = {
    "before files are copied": "before(storage.BtrfsStorage, 'copy')",
    "files copied, before CRIU": "after(storage.BtrfsStorage, 'copy')",
    "CRIU started": "before(criu.Criu, '_converse')",
    "restored, but not told": "after(criu.Criu, '_converse')",
    "restored, not adopted": "before(backend.LocalBackend, '_adopt')",
    "adopted": "after(backend.LocalBackend, '_adopt')",
    "after the call in it": "after(sandbox.LocalSandbox, 'run')",
}
EVICTING = {
    "before rows go": "before(Graph, 'drop_snapshots')",
    "after rows went": "after(Graph, 'drop_snapshots')",
    "with the snapshot moved away": "before(snapshot_store.Snapshots, '_remove')",
    "with the files gone": "after(storage.BtrfsStorage, 'delete')",
    "after the first": "after(backend.LocalBackend, 'delete_snapshot')",
    "at its end": "after(ImageStore, 'sweep')",
}
FORGETTING = {
    "before": "before(Graph, 'forget', 2)",
    "rows gone": "after(Graph, 'forget', 2)",
    "with a snapshot moved away": "before(snapshot_store.Snapshots, '_remove')",
    "with the first one's files gone": "after(backend.LocalBackend, 'delete_snapshot')",
}
OPENING = {
    "before all": "before(backend.LocalBackend, 'reap')",
    "with a sandbox killed": "after(cgroups.Cgroup, 'destroy')",
    "with its files gone": "after(storage.BtrfsStorage, 'delete')",
    "with an unfinished snapshot gone": "after(snapshot_store.Snapshots, '_remove')",
    "after reaping": "after(backend.LocalBackend, 'reap')",
    "with leases gone": "after(Graph, 'sweep_leases')",
    "with an owner gone": "after(owners, 'remove')",
    "before a row goes": "before(Graph, 'drop_snapshot')",
    "after a row went": "after(Graph, 'drop_snapshot')",
    "before files without a row go": "before(backend.LocalBackend, 'delete_snapshot')",
    "with them moved away": "before(snapshot_store.Snapshots, '_remove')",
    "after all": "after(housekeeping, 'find_mismatch')",
}
CLOSING = {
    "before all": "before(Cache, 'close')",
    "before sandboxes end": "before(SandboxPool, 'close')",
    "after they ended": "after(SandboxPool, 'close')",
    "after the backend": "after(backend.LocalBackend, 'close')",
    "after the graph": "after(Graph, 'close')",
    "before its claim ends": "before(owners.Owner, 'close')",
    "after all": "after(Cache, 'close')",
}
WARMING = {
    "before the server starts": "before(InnerService, 'start')",
    "with the server started": "after(InnerService, 'start')",
    "in a dump": "after(storage.BtrfsStorage, 'copy', 2)",
    "after a dump, unnamed": "after(criu.Criu, 'dump')",
    "after a snapshot, without its row": "before(Graph, 'add_snapshot')",
}

UNFINISHED = "after(criu.Criu, 'dump')"


@pytest.fixture
def home(tmp_path: Path, terminal_image: Image) -> Path:
    """A fresh data directory with the terminal image."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    return tmp_path


def work(home: Path, image: Image, *calls: str, fault: str = "") -> str:
    return program(home, image, fault, backend="local", imports=PARTS, calls=calls or CALLS)


def survive(home: Path, image: Image, *calls: str) -> None:
    done = run_program(work(home, image, *calls))
    assert done.stdout == "survived\n", done.stderr


def assert_opens_in_order(home: Path) -> int:
    """Asserts that it does; returns how many snapshots there are."""
    with Cache(home) as cache:
        assert_in_order(cache)
        return len(cache.graph.snapshots())


def test_killed_while_forking(home: Path, terminal_image: Image) -> None:
    survive(home, terminal_image, *CALLS[:2])
    for step, fault in FORKING.items():
        see_it_die(work(home, terminal_image, *CALLS[:2], f"echo {step}; cat f", fault=fault))
        assert assert_opens_in_order(home) == 2, f"{step}: the snapshot to fork was not there"
    assert assert_consistent(home, terminal_image) == 2


def test_killed_while_evicting(home: Path, terminal_image: Image) -> None:
    for number, fault in enumerate(EVICTING.values()):
        survive(home, terminal_image, f"echo {number} > /tmp/f", "echo two >> /tmp/f")  # rows go all at once
        see_it_die(program_of(verb(home, "gc", "--keep-bytes", "0"), fault, imports=PARTS))
        assert_opens_in_order(home)
    assert_consistent(home, terminal_image)


def test_killed_while_forgetting(home: Path, terminal_image: Image) -> None:
    for number in range(len(FORGETTING)):
        survive(home, terminal_image, f"echo {number} > /tmp/f", "echo two >> /tmp/f")
    with Cache(home) as cache:
        (root,) = cache.graph.roots()
        tops = cache.graph.children(root.hash)
    for top, fault in zip(tops, FORGETTING.values(), strict=True):
        see_it_die(program_of(verb(home, "forget", top.hash, "--yes"), fault, imports=PARTS))
        assert_opens_in_order(home)
    assert assert_consistent(home, terminal_image) == 2, "one was killed before it forgot anything"


def test_killed_while_deleting_what_a_live_process_took(home: Path, terminal_image: Image) -> None:
    with Cache(home, policy="eager") as cache:
        outputs(cache, terminal_image)
        gc = verb(home, "gc", "--keep-bytes", "0")
        see_it_die(program_of(gc, "before(snapshot_store.Snapshots, '_remove')", imports=PARTS))
        assert len(os.listdir(local(cache)._snapshots.temporary)) == 1
        Cache(home).close()
        assert os.listdir(local(cache)._snapshots.temporary) == []
    assert_opens_in_order(home)


def test_killed_while_opening(home: Path, terminal_image: Image) -> None:
    survive(home, terminal_image)
    see_it_die(work(home, terminal_image, *CALLS[:2], "echo new > new", fault=UNFINISHED))
    owner = Owner(home)
    with Graph(home / GRAPH_FILE) as graph, contextlib.closing(LocalBackend(home, owner.id)) as backend:
        first, second, *others = graph.snapshots()
        graph.drop_snapshot(first.state, first.backend)
        backend.delete_snapshot(second.id)
    owner.close()
    for fault in OPENING.values():
        see_it_die(program_of(f"Cache({str(home)!r}).close()", fault, imports=PARTS))
    assert assert_consistent(home, terminal_image) == len(others)


def test_killed_while_closing(home: Path, terminal_image: Image) -> None:
    for step, fault in CLOSING.items():
        see_it_die(work(home, terminal_image, *CALLS[:2], f"echo {step} > new", fault=fault))
        assert_opens_in_order(home)
    with Cache(home, policy="eager") as cache:
        assert outputs(cache, terminal_image)[:3] == EXPECTED
    assert_consistent(home, terminal_image)


def test_a_wrong_snapshot_is_found_out(home: Path, terminal_image: Image) -> None:
    """Else all of the above would say little."""
    survive(home, terminal_image, "echo 1 > /tmp/f", "echo 2 > /tmp/f")
    with contextlib.closing(sqlite3.connect(home / GRAPH_FILE)) as database, database:
        (one,), (two,) = database.execute("SELECT id FROM snapshots").fetchall()
        database.execute("UPDATE snapshots SET id = CASE id WHEN ? THEN ? ELSE ? END", (one, two, one))
    with pytest.raises(AssertionError, match="/tmp/f"):
        assert_consistent(home, terminal_image)


@pytest.mark.parametrize("sql_system", ["sqlite"], indirect=True)
def test_killed_while_warming(tmp_path: Path, sql_image: Image) -> None:
    (tmp_path / "images").symlink_to(sql_image.rootfs.parents[1])
    warm = f"Cache({str(tmp_path)!r}).warm({sql_image.name!r})"
    for fault in WARMING.values():
        see_it_die(program_of(warm, fault, imports=PARTS))
        assert_opens_in_order(tmp_path)
    with Cache(tmp_path) as cache:
        root = cache.warm(sql_image.name)
        assert cache.graph.snapshot(root, "local") is not None
    assert_nothing_left(tmp_path)
