"""Processes that die while they put files into sandboxes, or fetch some: the next one finds all as it should be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend
from tests.fakes.caches import bash, open_cache, settle
from tests.faults.dying import PRELUDE, REPOSITORY
from tvsnap.environments.files import contents_named
from tvsnap.upkeep.maintenance import plan_gc, run_gc

PROGRAM = """
from pathlib import Path
from tests.fakes.backend import FakeSandbox
from tests.fakes.caches import open_cache, settle
with open_cache(Path({home!r})) as cache, cache.rollout("terminal") as rollout:
    rollout.put(b"content", "/tmp/a")
    settle(rollout)
    rollout.get("/tmp/a", Path({home!r}) / "fetched")
    settle(rollout)
print("survived")
"""
STEPS = {
    "before a content is written": "before(trees, 'store', 2)",
    "written, not named": "after(trees, 'store', 2)",
    "named, not yet known to be": "before(Contents, '_hold')",
    "kept, not put": "after(Contents, 'add')",
    "put, not recorded": "before(Graph, 'record')",
    "recorded": "after(Graph, 'record')",
    "fetched, not named": "after(trees, 'store', 3)",
    "fetched, not recorded": "before(Graph, 'record', 2)",
    "fetched, not written": "before(files, 'extract')",
}
IMPORTS = (
    "from tvsnap.environments import files\nfrom tvsnap.host import trees\nfrom tvsnap.host.contents import Contents"
)


@pytest.mark.parametrize("fault", STEPS.values(), ids=STEPS)
def test_a_process_that_dies_leaves_nothing_wrong(tmp_path: Path, fault: str) -> None:
    home = tmp_path / "home"
    text = PRELUDE.format(imports=IMPORTS, fault=fault) + PROGRAM.format(home=str(home))
    ran = subprocess.run([sys.executable, "-c", text], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    for _ in range(2):
        with open_cache(home, FakeBackend()) as cache, cache.rollout("terminal") as rollout:
            rollout.put(b"content", "/tmp/a")
            assert rollout.get("/tmp/a").read() == b"content"
            assert bash(rollout, "cat /tmp/a").output == "content"
            settle(rollout)
    contents = home / "contents"
    for left in contents.glob(".new-*"):
        os.utime(left, (1, 1))
    with open_cache(home, FakeBackend()) as cache:
        run_gc(home, cache.graph, cache.backend, plan_gc(home, cache.graph, cache.backend))
        assert {*os.listdir(contents)} == contents_named(cache.graph) != set()
