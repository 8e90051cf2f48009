"""Real sandboxes under a budget that is far too small: forks of snapshots that go meanwhile, and several processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.caches import eventually, settle
from tests.faults.dying import REPOSITORY
from tvsnap import Budget, Cache
from tvsnap.engine.keeping.budgets import taken
from tvsnap.graph import Snapshot
from tvsnap.images import Image
from tvsnap.model.errors import StateLost
from tvsnap.model.limits import MIB
from tvsnap.sandboxes.criu.client import Criu
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.local.pool import Pool

DISK = 3 * MIB  # some four snapshots of a shell
ROLLOUTS = 12

WORK = """
import json, sys
from tvsnap import Budget, Cache
home, image, disk, rollouts, number = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
found = []
with Cache(home, policy="eager", budget=Budget(disk=disk, parked=0)) as cache:
    for turn in range(rollouts):
        with cache.rollout(image) as rollout:
            commands = [f"a={turn % 3}; echo $a > /tmp/f", f"sleep 1000 & b={turn % 4}; echo $b >> /tmp/f",
                        f"c={number}.{turn}; echo $c >> /tmp/f", "cat /tmp/f; echo $a $b $c; jobs -r | wc -l"]
            found.append([rollout.call("bash", {"command": command}).output for command in commands][-1])
    stats = cache.stats()
print(json.dumps({"found": found, "evicted": stats.evicted, "refused": stats.snapshots_refused}))
"""


def test_processes_that_evict_each_others_snapshots(home: Path, terminal_image: Image) -> None:
    arguments = [str(home), terminal_image.name, str(DISK), str(ROLLOUTS)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, *arguments, str(number)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        for number in range(2)
    ]
    most = largest = 0
    with Cache(home) as cache:
        while any(worker.poll() is None for worker in workers):
            most = max(most, taken(cache.backend, cache.graph))
            largest = max([largest, *(snapshot.size for snapshot in cache.graph.snapshots())])
            time.sleep(0.1)
        at_the_end = taken(cache.backend, cache.graph)
    reports = [json.loads(worker.communicate()[0]) for worker in workers]
    for number, report in enumerate(reports):
        assert report["found"] == [
            f"{turn % 3}\n{turn % 4}\n{number}.{turn}\n{turn % 3} {turn % 4} {number}.{turn}\n1\n"
            for turn in range(ROLLOUTS)
        ]
    assert 0 < at_the_end <= DISK
    assert most <= DISK + len(workers) * largest  # the disk also holds those that are being taken
    assert sum(report["evicted"] + report["refused"] for report in reports) > 0
    with Cache(home) as cache:
        assert {snapshot.id for snapshot in cache.graph.snapshots()} == set(cache.backend.snapshots())


STEPS: dict[str, tuple[type, str, str]] = {
    "before its files are copied": (Pool, "_copy_layer", "before"),
    "before its processes are restored": (Criu, "restore", "before"),
    "after its processes were restored": (Criu, "restore", "after"),
    "when it is all but done": (LocalBackend, "_adopt", "after"),
}


@pytest.mark.usefixtures("proofs_at_once")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("proven", [True, False], ids=["proven", "not proven"])
def test_a_fork_whose_snapshot_goes_meanwhile(
    proven: bool, step: str, home: Path, terminal_image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is deleted at any moment of the fork: the state is rebuilt from the snapshot above, if its call is proven.

    Else the rollout is told, and the next executes the call.
    """
    owner, method, moment = STEPS[step]
    calls = ("echo 1 > f", "x=2" if proven else "x=2; sleep 1000 &")
    look, seen = "cat f; echo $x; jobs -r | wc -l", f"1\n2\n{0 if proven else 1}\n"

    def make(cache: Cache, *commands: str) -> list[str]:
        with cache.rollout(terminal_image) as rollout:
            outputs = [rollout.call("bash", {"command": command}).output for command in commands]
            settle(rollout)
            return outputs

    with Cache(home, policy="never", budget=Budget(parked=0), prefork=0) as prover:
        for _ in range(2):
            make(prover, *calls)
    with Cache(home, policy="eager", budget=Budget(parked=0), prefork=0) as cache:
        if proven:
            with cache.rollout(terminal_image) as first:
                for command in calls:
                    assert first.call("bash", {"command": command}).source == "hit"
                    with cache.materialise(first.state):  # which snapshots it
                        pass
        else:
            make(cache, *calls)
        before = cache.stats()
        above, last = sorted(cache.graph.snapshots(), key=lambda snapshot: snapshot.created)
        evict = once(lambda: evict_one(cache, last))
        real: Callable[..., Any] = getattr(owner, method)

        def faulty(*arguments: Any, **named: Any) -> Any:
            if moment == "before":
                evict()
                return real(*arguments, **named)
            made = real(*arguments, **named)
            evict()
            return made

        monkeypatch.setattr(owner, method, faulty)
        with contextlib.nullcontext() if proven else pytest.raises(StateLost):
            assert make(cache, *calls, look)[2] == seen
        assert evict.called  # type: ignore[attr-defined]
        assert cache.stats().replayed - before.replayed == int(proven), "from the one above"
        assert make(cache, *calls, look)[2] == seen
        assert above.id in {snapshot.id for snapshot in cache.graph.snapshots()}
        eventually(lambda: last.id not in set(cache.backend.snapshots()))


def test_a_live_fork_goes_on_without_its_snapshot(home: Path, terminal_image: Image) -> None:
    with Cache(home, policy="eager", budget=Budget(snapshots=1, parked=0)) as cache:
        with cache.rollout(terminal_image) as first:
            first.call("bash", {"command": "echo 1 > f; x=2; sleep 1"})
            settle(first)
        with cache.rollout(terminal_image) as fork:
            assert fork.call("bash", {"command": "echo 1 > f; x=2; sleep 1"}).source == "hit"
            assert fork.call("bash", {"command": "cat f"}).output == "1\n"
            settle(fork)
            for snapshot in cache.graph.snapshots():
                evict_one(cache, snapshot)
            assert fork.call("bash", {"command": "cat f; echo $x"}).output == "1\n2\n"
            assert cache.stats().replayed == 0


def evict_one(cache: Cache, snapshot: Snapshot) -> None:
    """Does what another process does that evicts a snapshot."""
    assert cache.graph.drop_snapshots([snapshot]) == [snapshot]
    cache.backend.delete_snapshot(snapshot.id)


def once(action: Callable[[], None]) -> Callable[[], None]:
    def act() -> None:
        if not act.called:  # type: ignore[attr-defined]
            act.called = True  # type: ignore[attr-defined]
            action()

    act.called = False  # type: ignore[attr-defined]
    return act
