"""What must hold of a data directory, whatever became of the processes that used it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from tests.conformance.helpers import eventually
from tvsnap import Cache
from tvsnap.engine.supply.rebuilding import RebuildDiffered, make_again
from tvsnap.host import owners
from tvsnap.host.home import GRAPH_FILE
from tvsnap.host.waiting import Wait
from tvsnap.images import Image
from tvsnap.model.errors import StateLost
from tvsnap.model.observations import ReapReport
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.protocol import Sandbox
from tvsnap.upkeep.diff import StateDifference, compare

UNCOUNTED = {"background"}
"""Of a shell's items, those that name process ids."""

# What each returns is wrong; nothing else ties the tables together.
DANGLING = {
    "states without the state above": (
        "SELECT 1 FROM states s WHERE s.parent IS NOT NULL AND s.parent NOT IN (SELECT hash FROM states)"
    ),
    "states without the edge that leads to them": (
        "SELECT 1 FROM states s WHERE s.edge IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM edges e WHERE e.id = s.edge AND e.state = s.parent AND e.next_state = s.hash)"
    ),
    "states without a root": "SELECT 1 FROM states WHERE root NOT IN (SELECT state FROM roots)",
    "roots without a state": "SELECT 1 FROM roots WHERE state NOT IN (SELECT hash FROM states)",
    "edges from nowhere": "SELECT 1 FROM edges WHERE state NOT IN (SELECT hash FROM states)",
    "edges to nowhere": (
        "SELECT 1 FROM edges WHERE next_state IS NOT NULL AND next_state NOT IN (SELECT hash FROM states)"
    ),
    "snapshots of no state": "SELECT 1 FROM snapshots WHERE state NOT IN (SELECT hash FROM states)",
    "visits of no edge": "SELECT 1 FROM visits WHERE edge NOT IN (SELECT id FROM edges)",
    "visits of no task": "SELECT 1 FROM visits WHERE task NOT IN (SELECT id FROM tasks)",
    "leases in no state": "SELECT 1 FROM leases WHERE state NOT IN (SELECT hash FROM states)",
}


def assert_consistent(home: Path, image: Image) -> int:
    """Opens a data directory that nobody uses, and asserts that all in it is whole, right, and there for a reason.

    What a state's snapshot restores is compared with a fresh sandbox in which the calls that led there are made again;
    so are the recorded results and digests: the calls must be such that they lead to the same state each time. States
    that nothing keeps any more must be told by `StateLost`, and answer nothing.

    Returns:
        How many snapshots there are.
    """
    with Cache(home, policy="never", prefork=0) as cache:
        assert_in_order(cache)
        assert_graph_is_sound(home)
        promised = assert_states_are_right(cache, image)
        groups = groups_of(cache)
    assert_nothing_left(home)
    assert not [path for path in groups if path.exists()]
    return promised


def assert_in_order(cache: Cache) -> None:
    """Asserts that opening a data directory left nothing of the dead in it. Nobody else must have it open."""
    home, backend = cache.home, local(cache)
    assert backend.reap() == ReapReport(), "opening the directory left something to reap"
    assert os.listdir(home / "run" / "owners") == [f"{cache.owner}.lock"]
    assert owners.dead_owners(home) == []
    assert cache.graph.leases() == []
    assert {snapshot.id for snapshot in cache.graph.snapshots(backend.name)} == set(os.listdir(backend._snapshots.path))
    assert os.listdir(backend._pool.live) == ["template"]
    assert os.listdir(backend._snapshots.temporary) == []
    assert [name for name in os.listdir(home / "guest") if "." in name] == []
    assert [owner for owner in backend._cgroups.owners() if owner != cache.owner] == []
    if not (home / "images").is_symlink():  # other tests may be building there
        assert [path.name for path in (home / "images").glob(".*")] == []


def assert_graph_is_sound(home: Path) -> None:
    with contextlib.closing(sqlite3.connect(home / GRAPH_FILE)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for what, query in DANGLING.items():
            assert database.execute(query).fetchone() is None, what


def assert_states_are_right(cache: Cache, image: Image) -> int:
    """Asserts that what the cache makes of each state is what its calls make of a fresh sandbox; they return the same.

    A state that has a snapshot must be restored from it, without replay. One that has none, and whose calls are neither
    proven nor comparable, is lost.

    Returns:
        How many have.
    """
    promised = {snapshot.state for snapshot in cache.graph.snapshots(cache.backend.name)}
    states = [node.state for node in cache.graph.tree() if not node.state.private]
    unchecked = {state.hash for state in states}
    for leaf in unchecked - {state.parent for state in states}:
        recipe = cache._services.recipes.of_state(leaf)
        fresh = cache.backend.start(image, recipe.limits)
        try:
            edges = cache.graph.lineage(leaf)
            for edge in (None, *edges):
                if edge is not None:
                    time.sleep(edge.waited)
                    result = make_again(fresh, edge, recipe)
                    assert result.same_value(edge.result), (edge.call, edge.result, result)
                    fresh.settle(changed=edge.changed)
                    assert not edge.digest or fresh.digest() == edge.digest, edge.call
                state = edge.next_state if edge else edges[0].state if edges else leaf
                if state in unchecked:
                    unchecked.remove(state)
                    assert_state_is_like(cache, state, fresh, restored=state in promised)
        finally:
            fresh.close()
    assert unchecked == set()
    return len(promised)


def assert_state_is_like(cache: Cache, state: str, fresh: Sandbox, *, restored: bool) -> None:
    """Asserts that a state is like a sandbox, and that the calls which leave it as it is return what is recorded."""
    before, sure = cache.stats(), restored or cache._services.acquirer.is_sure(state)
    with contextlib.ExitStack() as opened:
        try:
            sandbox = opened.enter_context(cache.materialise(state))
        except StateLost as lost:
            assert not sure, lost  # noqa: PT017
            assert not isinstance(lost, RebuildDiffered), lost  # noqa: PT017
            assert_answers_nothing(cache, state)
            return
        after = cache.stats()
        if restored:
            assert (after.forks - before.forks, after.replayed) == (1, before.replayed), "a snapshot is of no use"
        difference = settled_difference(fresh, sandbox)
        assert (difference.files, difference.started, difference.ended) == ((), (), ()), difference
        assert not [item for item in difference.shell if item.name not in UNCOUNTED], difference
        for edge in cache.graph.out_edges(state):
            if edge.shared and edge.next_state == state:
                result = make_again(sandbox, edge, cache._services.recipes.of_state(state))
                assert result.same_value(edge.result), (edge.call, edge.result, result)


def assert_answers_nothing(cache: Cache, state: str) -> None:
    """Asserts that no rollout is answered by a call that led to a state."""
    edge = cache.graph.edge_to(state)
    assert edge is not None
    found = cache.graph.lookup(
        edge.state, edge.call, edge.timeout or 3600.0, cache.backend.name, wait=Wait(edge.waited)
    )
    assert found is None or found.next_state != state, edge.call


def settled_difference(one: Sandbox, other: Sandbox) -> StateDifference:
    """Compares two sandboxes, once all of their processes have exec'ed what they are to be."""
    end = time.monotonic() + 60
    while True:
        difference = compare(one, other)
        if not (difference.started or difference.ended) or time.monotonic() > end:
            return difference
        time.sleep(0.05)


def local(cache: Cache) -> LocalBackend:
    assert isinstance(cache.backend, LocalBackend)
    return cache.backend


def groups_of(cache: Cache) -> tuple[Path, ...]:
    """Returns the control groups of a data directory."""
    return local(cache)._cgroups.roots


def loops_of(home: Path) -> list[str]:
    """Returns the loop devices on files of this data directory."""
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # another test's has just gone
            found += [str(backing)] if backing.read_text().startswith(f"{home}/") else []
    return found


def assert_nothing_left(home: Path) -> None:
    """Asserts that no process, loop device, mount or owner of a data directory is left; it must not be open."""
    eventually(lambda: loops_of(home) == [], timeout=60)  # the kernel clears it a moment after its last user
    assert str(home) not in Path("/proc/self/mounts").read_text()
    assert [path.name for path in (home / "run" / "owners").glob("*")] == []
    known = {path.name for path in Path("/proc").iterdir() if path.name.isdigit()}
    for pid in known:
        try:
            mounts = Path(f"/proc/{pid}/mountinfo").read_text()
        except OSError:
            continue
        assert str(home) not in mounts
