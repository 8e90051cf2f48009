"""Which states rollouts stand at: written down by each process, read by whoever evicts, and no race between the two."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import inside
from tests.fakes.backend import FakeBackend
from tests.fakes.caches import bash, eventually, open_cache, open_shared, run, settle, threads
from tests.unit.other_processes import other_process, stand
from tvsnap import Budget
from tvsnap.engine.keeping.budgets import Ledger
from tvsnap.engine.keeping.holds import ROLLOUTS, Holds
from tvsnap.host.owners import Owner
from tvsnap.upkeep.maintenance import plan_gc, run_gc

ROOT = Path(__file__).parents[2]


def state(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Holds]:
    """Those of this process, which is an owner of the data directory."""
    with contextlib.closing(Owner(tmp_path)) as owner, contextlib.closing(Holds(tmp_path, owner.id)) as mine:
        yield mine


@pytest.fixture
def others(tmp_path: Path, mine: Holds) -> Iterator[Holds]:
    """What another program sees, which has no rollouts."""
    with contextlib.closing(Holds(tmp_path)) as others:
        yield others


def test_where_rollouts_stand_is_seen_by_all(mine: Holds, others: Holds) -> None:
    assert others.held() == mine.held() == set()
    one, two = mine.add(), mine.add()
    assert others.held() == set()
    one.stand(state(1))
    two.stand(state(2))
    assert others.held() == mine.held() == {state(1), state(2)}
    one.approach(state(3))
    assert others.held() == {state(1), state(2), state(3)}
    one.stand(state(3))
    assert others.held() == {state(2), state(3)}
    mine.remove(two)
    assert others.held() == {state(3)}
    again = mine.add()
    assert others.held() == {state(3)}, "what it had before is forgotten"
    again.stand(state(3))
    mine.remove(one)
    assert others.held() == {state(3)}


def test_more_rollouts_than_a_file_has_room_for(mine: Holds, others: Holds, tmp_path: Path) -> None:
    every = [mine.add() for _ in range(ROLLOUTS + 1)]
    for number, hold in enumerate(every):
        hold.stand(state(number))
    assert len(others.held()) == ROLLOUTS + 1
    assert len(list((tmp_path / "run" / "holds").iterdir())) == 2
    mine.close()
    assert others.held() == set()
    assert list((tmp_path / "run" / "holds").iterdir()) == []


def test_a_full_disk_fails_no_rollout(mine: Holds, others: Holds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own process sees where it stands all the same."""

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", fail)
    mine.add().stand(state(1))
    assert mine.held() == {state(1)}
    assert others.held() == set()


def test_what_a_dead_process_wrote_down_is_swept(tmp_path: Path, others: Holds) -> None:
    with contextlib.closing(Owner(tmp_path)) as owner:
        dead = Holds(tmp_path, owner.id)
        dead.add().stand(state(1))
        assert others.held() == {state(1)}
    assert others.held() == set()
    assert list((tmp_path / "run" / "holds").iterdir()) == []


def test_gc_takes_away_what_a_dead_process_wrote_down(tmp_path: Path) -> None:
    with open_cache(tmp_path, FakeBackend()) as cache:
        with contextlib.closing(Owner(tmp_path)) as owner:
            Holds(tmp_path, owner.id).add().stand(state(1))
        run_gc(tmp_path, cache.graph, cache.backend, plan_gc(tmp_path, cache.graph, cache.backend))
        assert not [path for path in (tmp_path / "run" / "holds").iterdir() if path.name.startswith(owner.id)]


def test_an_eviction_is_seen_while_it_is_under_way(mine: Holds, others: Holds) -> None:
    before = mine.evictions
    assert before % 2 == 0
    mine.add().stand(state(1))
    with others.evicting() as held:
        assert held == {state(1)}
        assert mine.evictions == before + 1
    assert mine.evictions == before + 2
    with pytest.raises(ZeroDivisionError), others.evicting():
        raise ZeroDivisionError
    assert mine.evictions == before + 4


def test_who_comes_during_an_eviction_waits_for_its_end(mine: Holds, others: Holds) -> None:
    with threads(1) as pool:
        with others.evicting():
            waiting = pool.submit(mine.wait_for_evictions)
            time.sleep(0.05)
            assert not waiting.done()
        waiting.result(60)
    mine.wait_for_evictions()


def test_a_process_that_is_forked_during_an_eviction_does_not_prolong_it(mine: Holds, others: Holds) -> None:
    """It has the file that the evictor has locked, as the workers of a trainer's data loader do."""
    reading, writing = os.pipe()
    with others.evicting():
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)  # until the test ends
            os._exit(0)
    try:
        with threads(1) as pool:
            pool.submit(mine.wait_for_evictions).result(60)
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


def test_evictions_come_one_after_the_other(mine: Holds, others: Holds) -> None:
    inside, most = 0, 0

    def evict(holds: Holds) -> None:
        nonlocal inside, most
        for _ in range(20):
            with holds.evicting():
                inside += 1
                most = max(most, inside)
                inside -= 1

    with threads(4) as pool:
        list(pool.map(evict, [mine, others] * 2))
    assert most == 1
    assert mine.evictions == 160


KILLED = """
import sys, time
from pathlib import Path
from tvsnap.engine.keeping.holds import Holds

with Holds(Path(sys.argv[1])).evicting():
    print("evicting", flush=True)
    time.sleep(1000)
"""


def test_an_evictor_that_is_killed_is_waited_for_no_longer(tmp_path: Path, mine: Holds, others: Holds) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE) as evictor:
        assert evictor.stdout is not None
        assert evictor.stdout.readline() == b"evicting\n"
        assert mine.evictions % 2 == 1
        evictor.send_signal(signal.SIGKILL)
    mine.wait_for_evictions()
    assert mine.evictions % 2 == 1, "it did not end"
    with others.evicting():
        assert mine.evictions % 2 == 1
    assert mine.evictions % 2 == 0


def test_hits_go_on_after_an_evictor_was_killed(tmp_path: Path) -> None:
    """Each waits for nothing, though none can tell that it is over, until the next eviction has ended."""
    with open_cache(tmp_path, budget=Budget(parked=0)) as cache:
        run(cache, "echo $RANDOM > f", "cat f")
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
        ) as evictor:
            assert evictor.stdout is not None
            evictor.stdout.readline()
            evictor.kill()
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, "echo $RANDOM > f").source == "hit"
            assert bash(rollout, "cat f").source == "hit"


def test_no_reader_is_missed_however_it_meets_the_evictor(mine: Holds, others: Holds) -> None:
    """A reader who saw no eviction, before and after he wrote down what he had looked up, was seen by it."""
    kept = dict.fromkeys(map(state, range(8)), True)
    done = threading.Event()
    taken_away: list[str] = []

    def evict() -> int:
        count = 0
        while not done.is_set():
            with others.evicting() as held:
                for name in kept:
                    if name not in held:
                        kept[name] = False
                        count += 1
            for name in kept:  # taken anew
                kept[name] = True
        return count

    def read(number: int) -> int:
        hold, answered = mine.add(), 0
        for step in itertools.count():
            if step >= 400 and answered:
                break
            name = state((number + step) % len(kept))
            before = mine.evictions
            if not kept[name]:  # the lookup
                continue
            hold.approach(name)
            if before % 2 or mine.evictions != before:
                mine.wait_for_evictions()
                if not kept[name]:
                    hold.stand(state(99))
                    continue
            hold.stand(name)
            answered += 1
            for _ in range(3):
                if not kept[name]:
                    taken_away.append(name)
                time.sleep(0)
        mine.remove(hold)
        return answered

    with threads(4) as pool:
        evicting = pool.submit(evict)
        answered = [each.result(120) for each in [pool.submit(read, number) for number in range(3)]]
        done.set()
        assert evicting.result(60) > 0
    assert taken_away == []
    assert min(answered) > 0


@pytest.mark.parametrize("killed", [False, True])
def test_what_a_rollout_of_another_process_stands_on(tmp_path: Path, killed: bool) -> None:
    with open_shared(tmp_path, budget=Budget(parked=0)) as cache:
        token = run(cache, "echo $RANDOM > f", "cat f")[1].output
        ledger = Ledger(cache.graph, "fake", Holds(tmp_path))
        with other_process(stand, tmp_path) as other:
            assert other.answer() == "hit"
            assert ledger.evict(cache.graph.snapshots()) == []
            if killed:
                other.kill()
            else:
                other.connection.send("go on")
                assert other.answer() == token
        assert len(ledger.evict(cache.graph.snapshots())) == 1
        assert len(list((tmp_path / "run" / "holds").iterdir())) == 1


def test_closing_leaves_nothing_behind(tmp_path: Path) -> None:
    with open_cache(tmp_path, FakeBackend()) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "x=1")
        settle(rollout)
        assert rollout.state in inside.held(cache)
    eventually(lambda: not list((tmp_path / "run" / "holds").iterdir()))


def test_who_only_evicts_keeps_nothing_open(tmp_path: Path) -> None:
    """A program that tidies up again and again (`plan_gc`, `run_gc`) does not run out of descriptors."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache:
        run(cache, "echo 1 > f")
        counts = []
        for _ in range(3):
            run_gc(cache.home, cache.graph, backend, plan_gc(cache.home, cache.graph, backend, keep_bytes=0))
            gc.collect()
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[0] == counts[-1]
