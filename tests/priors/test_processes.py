"""Several processes on one file, some of which are killed, and a file that cannot grow: no answer is wrong or lost."""

from __future__ import annotations

import contextlib
import logging
import math
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tvsnap import InfrastructureError
from tvsnap.plugins.priors import PriorCache

ACTIONS = tuple("abcdefgh")
PROCESS = """
import random, sys
from tvsnap.plugins.priors import PriorCache

ACTIONS = tuple("abcdefgh")

class Places:
    name = "places/1"
    def __call__(self, text):
        number = int(text)
        return [1.0 if number // 10 == place else 0.01 * (number % 10) / 10 for place in range(10)]

def right(number):
    return ACTIONS[number // 10 % len(ACTIONS)]

generator = random.Random(int(sys.argv[2]))
with PriorCache(sys.argv[1], delta=0.99, refresh=0.1, capacity=60, embedder=Places(), smoothing=0.1) as cache:
    print("begun", flush=True)
    for _ in range(int(sys.argv[3])):
        number = generator.randrange(100)
        key = {"text": str(number)} if generator.random() < 0.7 else {"state": f"{number:064x}"}
        prior = cache.prior("go", ACTIONS, lambda: {right(number): 1.0}, **key)
        assert max(prior.probabilities, key=prior.probabilities.get) == right(number), (number, prior)
print("done", flush=True)
"""


def start(file: Path, seed: int, calls: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(file), str(seed), str(calls)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


def test_processes_that_are_killed_leave_a_file_that_is_sound(tmp_path: Path) -> None:
    file = tmp_path / "priors.db"
    for seed in range(3):
        doomed = start(file, 10 + seed, 1_000_000)
        living = start(file, seed, 400)
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "begun\n"
        time.sleep(0.3 + 0.2 * seed)
        doomed.kill()
        doomed.communicate()
        assert doomed.returncode == -signal.SIGKILL
        output, _ = living.communicate(timeout=120)
        assert output.split() == ["begun", "done"]
    with PriorCache(file, capacity=60) as cache:
        stats = cache.stats()
    assert stats.entries <= 60
    assert stats.damaged == 0
    assert stats.evicted > 0
    assert stats.near_divergence == pytest.approx(0.0, abs=1e-9), "similar states had the same answer"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_that_cannot_grow_costs_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with PriorCache(tmp_path / "priors.db", refresh=0.0) as cache:
        kept = cache.prior("go", ACTIONS, lambda: {"a": 1.0}, state="kept")
        with cache._store.database.write() as writer:
            pages = writer.execute("PRAGMA page_count").fetchone()[0]
        cache._store.database._writer.execute(f"PRAGMA max_page_count = {pages}")
        with caplog.at_level(logging.WARNING, "tvsnap.priors"):
            for number in range(300):
                prior = cache.prior("go" * 500, ACTIONS, lambda: {"b": 1.0}, state=f"{number}")
                assert max(prior.probabilities, key=prior.probabilities.__getitem__) == "b"
        assert "no room left" in caplog.text
        assert cache.prior("go", ACTIONS, lambda: {"b": 1.0}, state="kept").probabilities == kept.probabilities
        cache._store.database._writer.execute("PRAGMA max_page_count = 1000000")
        assert cache.prior("go", ACTIONS, lambda: {"b": 1.0}, state="new").source == "asked"
        assert cache.prior("go", ACTIONS, lambda: {"b": 1.0}, state="new").source == "exact"
        assert math.isclose(math.fsum(kept.probabilities.values()), 1.0)


def test_a_file_that_another_has_locked_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvsnap.host.database.BUSY_SECONDS", 0.2)
    with PriorCache(tmp_path / "priors.db", refresh=0.0) as cache:
        cache.prior("go", ACTIONS, lambda: {"a": 1.0}, state="1")
        with contextlib.closing(sqlite3.connect(tmp_path / "priors.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert cache.prior("go", ACTIONS, lambda: {"a": 1.0}, state="1").source == "exact", "reading needs no lock"
            with pytest.raises(InfrastructureError, match=r"another process has kept it locked for 0\.2 s"):
                cache.clear()
            other.execute("ROLLBACK")
        assert cache.clear() == 1


def test_a_process_that_was_forked_while_the_model_was_asked_keeps_nobody_waiting(tmp_path: Path) -> None:
    """As the workers of a model do that are forked when it is asked first: they live on, with all open files."""
    forked = multiprocessing.get_context("fork")
    workers = list[multiprocessing.context.ForkProcess]()
    rests = forked.Event()

    def ask() -> list[str]:
        if not workers:
            workers.append(forked.Process(target=rests.wait, args=(60,)))
            workers[0].start()
        return ["a"]

    with PriorCache(tmp_path / "priors.db", refresh=1.0) as cache:
        cache.prior("go", ACTIONS, ask, state="1")
        began = time.monotonic()
        assert cache.prior("go", ACTIONS, ask, state="1").source == "asked"
        took = time.monotonic() - began
    rests.set()
    workers[0].join()
    assert took < 30
