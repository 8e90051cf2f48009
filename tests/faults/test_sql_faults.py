"""Databases when things go wrong: processes that die amid SQL calls, snapshots that are damaged, no CRIU at all."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.faults.consistency import assert_nothing_left
from tests.faults.dying import program, run_program
from tests.faults.test_local_crashes import IMPORTS, damage_nothing_but
from tests.sql_images import ask, seen
from tvsnap import Cache
from tvsnap.images import Image
from tvsnap.model.errors import StateLost

CALLS = (
    "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1)",
    "BEGIN; INSERT INTO t SELECT COUNT(*) + 1 FROM t",
    "CREATE TEMPORARY TABLE w (n INTEGER); INSERT INTO w VALUES (7)",
    "SELECT COUNT(*) FROM t",
)
STEPS = {
    "before the server starts": ("postgres", "before(InnerService, 'start')"),
    "with the server started": ("mariadb", "after(InnerService, 'start')"),
    "with a statement under way": ("postgres", "before(sandbox.LocalSandbox, 'request', 5)"),
    "after a statement, unrecorded": ("mariadb", "after(SqlEnvironment, 'execute', 2)"),
    "before a record": ("sqlite", "before(Graph, 'record', 2)"),
    "in a dump": ("postgres", "before(storage.BtrfsStorage, 'copy', 2)"),
    "after a dump, unnamed": ("mariadb", "after(criu.Criu, 'dump', 2)"),
    "after a snapshot's row": ("sqlite", "after(Graph, 'add_snapshot', 2)"),
}
IMPORT_SQL = (
    f"{IMPORTS}\nfrom tvsnap.environments.service import InnerService\n"
    "from tvsnap.plugins.sql.environment import SqlEnvironment"
)


@pytest.fixture
def home(tmp_path: Path, sql_image: Image) -> Path:
    """A fresh data directory with a database system's image."""
    (tmp_path / "images").symlink_to(sql_image.rootfs.parents[1])
    return tmp_path


def work(home: Path, image: Image, fault: str = "") -> subprocess.CompletedProcess[str]:
    return run_program(
        program(home, image, fault, backend="local", imports=IMPORT_SQL, calls=CALLS, tool=("sql", "query"))
    )


def finish(cache: Cache, image: Image) -> tuple[list[list[Any]], int]:
    """Makes the calls, then two that nobody made before.

    Returns:
        What those see, and how many of the calls changed the state.
    """
    with cache.rollout(image.name) as rollout:
        for query in CALLS:
            assert ask(rollout, query).exit_code == 0, query
        depth = rollout.depth
        held = seen(rollout, "SELECT t.n, w.n FROM t, w ORDER BY t.n")
        ask(rollout, "ROLLBACK; SELECT 'unseen so far' AS x")
        assert not rollout.private
        return [*held, *seen(rollout, "SELECT n FROM t")], depth


EXPECTED = [[1, 7], [2, 7], [1]]


@pytest.mark.parametrize(
    ("sql_system", "step"), [(system, step) for step, (system, _) in STEPS.items()], indirect=["sql_system"]
)
def test_killed_at(step: str, home: Path, sql_image: Image) -> None:
    died = work(home, sql_image, STEPS[step][1])
    assert died.returncode == -signal.SIGKILL, (died.stdout, died.stderr)
    with Cache(home, policy="eager") as cache:
        assert cache.backend.reap().sandboxes == 0, "opening the directory left something to reap"
        assert {snapshot.id for snapshot in cache.graph.snapshots()} == set(cache.backend.snapshots())
        assert finish(cache, sql_image)[0] == EXPECTED
    assert_nothing_left(home)


@pytest.mark.parametrize("change", ["truncated", "deleted"])
def test_damaged_snapshots(change: str, home: Path, sql_image: Image) -> None:
    """Who was answered from them is told; once they are known to be damaged, the calls are made again."""
    done = work(home, sql_image)
    assert done.stdout == "survived\n", done.stderr
    assert damage_nothing_but("*/criu/pages-*.img", home, "damager", change) >= 2
    with Cache(home, policy="eager") as cache:  # however busy the machine is, nothing is private
        lost = 0
        while True:
            try:
                assert finish(cache, sql_image)[0] == EXPECTED
            except StateLost:  # noqa: PERF203
                lost += 1
                assert lost <= len(CALLS), "a damaged snapshot goes on answering"
            else:
                break
        assert lost > 0 or cache.stats().replayed > 0
        assert finish(cache, sql_image)[0] == EXPECTED
    assert_nothing_left(home)


def test_without_criu(home: Path, sql_image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot be captured is started again, and what is not proven is executed again."""
    monkeypatch.setenv("TVSNAP_CRIU", "/nowhere")
    monkeypatch.setenv("TVSNAP_WITHOUT_CRIU", "1")
    with Cache(home, policy="eager") as cache:
        assert not cache.backend.captures.processes
        assert finish(cache, sql_image)[0] == EXPECTED
    with Cache(home, policy="eager") as cache, cache.rollout(sql_image.name) as rollout:
        for query in CALLS:  # what the database system knows to be reproducible is answered, and replayed
            assert ask(rollout, query).exit_code == 0
        assert seen(rollout, "SELECT n FROM w") == [[7]]
        assert not rollout.private
    with Cache(home, policy="eager") as cache:
        assert finish(cache, sql_image)[0] == EXPECTED
    assert_nothing_left(home)
