"""Waits in rollouts, with real processes and real time: jobs are polled to their end, and servers come up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.helpers import TIMEOUT, asleep
from tests.fakes.caches import settle
from tvsnap import Budget, Cache
from tvsnap.engine.keeping.snapshotter import LATE
from tvsnap.images import Image
from tvsnap.model.errors import NotCheckpointable
from tvsnap.rollout import Rollout

BUILD = "rm -f /tmp/f; (sleep 2; echo done > /tmp/f) > /dev/null 2>&1 &"
SERVER = "mkdir -p /tmp/w; cd /tmp/w; (sleep 1.5; : > /tmp/began; exec python3 -m http.server 8000) > /dev/null 2>&1 &"


@pytest.fixture(params=["local", "docker"])
def cache(request: pytest.FixtureRequest, tvsnap_home: Path, terminal_image: Image) -> Iterator[Cache]:
    """One whose rollouts fork from snapshots."""
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
    with Cache(tvsnap_home, backend=request.param, budget=Budget(parked=0), policy="eager") as cache:
        yield cache


def begin(cache: Cache, request: pytest.FixtureRequest) -> Rollout:
    return cache.rollout("terminal", salt=f"{request.node.name} {id(cache)}")


def ask(rollout: Rollout, command: str, after: float = 0.0) -> tuple[str, str]:
    """Makes a call that long after the last; returns its output, and where that came from."""
    result = rollout.call("bash", {"command": command}, TIMEOUT, after=after)
    settle(rollout)
    return result.output.strip(), result.source


def test_a_job_that_is_polled_ends(cache: Cache, request: pytest.FixtureRequest) -> None:
    """The same question, asked again and again: each rollout sees the end of it."""
    for number in range(2):
        with begin(cache, request) as rollout:
            began, polls = time.monotonic(), 0
            ask(rollout, BUILD)
            while ask(rollout, "cat /tmp/f 2>/dev/null || echo none")[0] != "done":
                polls += 1
                assert time.monotonic() - began < 60, "stuck"
                time.sleep(0.4)
            if number and not polls:
                assert time.monotonic() - began > 1.5, "before its time"
            assert ask(rollout, f": {number}; cat /tmp/f")[0] == "done"


def test_a_fork_has_run_as_long_as_its_rollout_has_waited(cache: Cache, request: pytest.FixtureRequest) -> None:
    """Only answered so far; then a call that nobody has made finds the server up."""
    get = "python3 -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000/').status)\""
    page = f"ls /tmp/began && until {get} 2> /dev/null; do sleep 0.1; done"  # on a busy machine, it begins slowly
    came = "/tmp/began\n200"
    for number in range(2):
        with begin(cache, request) as rollout:
            ask(rollout, SERVER)
            time.sleep(4.0)
            assert ask(rollout, f"{page} # {number}")[0] == came
    with begin(cache, request) as rollout:
        assert ask(rollout, SERVER)[1] == "hit"
        assert ask(rollout, f"{page} # said", after=4.0)[0] == came


def test_a_fork_stands_where_its_rollout_stands(cache: Cache, request: pytest.FixtureRequest) -> None:
    """The state was kept before the key was made; a fork has the key of its rollout, and makes none of its own."""
    with begin(cache, request) as rollout:
        ask(rollout, "cd /tmp; (sleep 1; cat /proc/sys/kernel/random/uuid > key) &")
        time.sleep(4.0)
        with rollout.fork(2) as forks:
            keys = [ask(each, f"cat key # {number}")[0] for number, each in enumerate((*forks, rollout))]
    assert len(keys[0]) == 36
    assert len(set(keys)) == 1


def test_a_snapshot_is_none_of_the_next_call_s_doing(
    cache: Cache, tvsnap_home: Path, request: pytest.FixtureRequest
) -> None:
    """Processes that sleep run a little for it; a look at a file leaves the state as it was all the same."""
    commands = (
        f"sleep 1000 & {asleep('sleep')}",
        "echo a > /tmp/f",
        "cat /tmp/f",
        "cat /tmp/f; true",
        "(sleep 9 & echo $!)",
    )
    backend = cache.backend.name
    with (
        Cache(tvsnap_home, use_cache=False, same_ids=True, backend=backend) as fresh,
        begin(fresh, request) as rollout,
    ):
        expected = [ask(rollout, command)[0] for command in commands]
    with begin(cache, request) as rollout:
        states = []
        for command, output in zip(commands, expected, strict=True):
            assert ask(rollout, command)[0] == output
            states.append(rollout.state)
    assert states[1] == states[2] == states[3]


def test_nor_is_a_grader_s_or_one_by_hand(
    cache: Cache, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot between two calls, of a rollout of whose states none is kept otherwise."""
    monkeypatch.setattr("tvsnap.engine.execution.executor.held_up", lambda result, load: "was held up")
    with begin(cache, request) as rollout:
        ask(rollout, f"mkfifo /root/f; cat /root/f > /dev/null & {asleep('cat')}")
        rollout.call("bash", {"command": "while :; do :; done"}, 1.0)
        assert rollout.private
        ask(rollout, "true")  # $? is part of the state
        ids = []
        for _ in range(2):
            state = rollout.state
            with cache.materialise(state) as sandbox:
                assert "cat" in sandbox.exec("ps -A -o comm", timeout=TIMEOUT).output.decode()
            assert ask(rollout, "ls /root")[0] == "f"
            assert rollout.state == state
            ids.append(ask(rollout, "bash -c 'echo $$'")[0])
        assert ids[0] == ids[1]
        rollout.sandbox().write_file("/root/by-hand", b"")
        kept = rollout.keep("one")
        rollout.sandbox()
        assert rollout.keep("two") == kept


def test_a_grade_does_not_wait_for_what_its_rollout_has_waited(
    cache: Cache, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given in a fork of the rollout's own sandbox, which has run as long, and not in one of the snapshot."""
    with begin(cache, request) as rollout:
        ask(rollout, "(while :; do date > /tmp/next; mv /tmp/next /tmp/now; sleep 0.1; done) > /dev/null 2>&1 &")
        ask(rollout, "until [ -e /tmp/now ]; do sleep 0.01; done")
        engine = rollout._engine
        monkeypatch.setattr(engine, "_hooks", replace(engine._hooks, materialise=None))  # type: ignore[arg-type]
        for _ in range(2):
            assert rollout.grade("test -s /tmp/now && echo 1").reward == 1.0
        assert ask(rollout, "test -s /tmp/now && echo on")[0] == "on"


def test_thinking_costs_no_hit_beside_a_server(cache: Cache, request: pytest.FixtureRequest) -> None:
    """It waits for what only a call can bring."""
    serve = "import socket as s; l = s.create_server(('127.0.0.1', 8000)); open('/tmp/up', 'w'); l.accept()"
    for number in range(2):
        with begin(cache, request) as rollout:
            ask(rollout, f'python3 -c "{serve}" & until [ -e /tmp/up ]; do :; done; {asleep("python3")}')
            time.sleep(2.0 * number)
            found = ask(rollout, "pgrep -fc create_server")
            assert found[0] == "1"
            if number:
                assert found[1] == "hit"


def test_a_snapshot_that_comes_late_is_refused(
    tvsnap_home: Path, terminal_image: Image, request: pytest.FixtureRequest
) -> None:
    """Who has not waited would be given a later state by it; a fork of the sandbox as it is serves who asks now."""
    with Cache(tvsnap_home, policy="never") as cache, begin(cache, request) as rollout:
        ask(rollout, "rm -f /tmp/ticks; (while sleep 0.2; do echo >> /tmp/ticks; done) > /dev/null 2>&1 &")
        state = rollout.state
        time.sleep(LATE + 3.0)  # the loop comes to four rounds meanwhile, on a busy machine, too
        with pytest.raises(NotCheckpointable, match="the state has changed by itself"):
            rollout.snapshot_if_idle()
        with cache.materialise(state) as fork:
            assert int(fork.run("wc -l < /tmp/ticks", timeout=TIMEOUT).output) >= 4
        assert cache.graph.snapshot(state, "local") is None
        assert (rollout.state, rollout.private) == (state, None)


def test_a_fork_has_waited_as_long_as_its_rollout(
    tvsnap_home: Path, terminal_image: Image, request: pytest.FixtureRequest
) -> None:
    """The rollout was only answered: nothing of it has run."""
    with Cache(tvsnap_home, policy="eager", budget=Budget(parked=0)) as cache:
        for source in ("executed", "hit"):
            with begin(cache, request) as rollout:
                assert ask(rollout, "rm -f /tmp/f; (sleep 1; echo done > /tmp/f) > /dev/null 2>&1 &")[1] == source
                if source == "hit":
                    time.sleep(4.0)
                    (fork,) = rollout.fork()
                    with fork:
                        assert ask(fork, "cat /tmp/f || echo none")[0] == "done"
