"""The times of files in states that are rebuilt, or that another execution of the same calls has come to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.caches import settle
from tvsnap import Cache
from tvsnap.images import Image
from tvsnap.rollout import Rollout

MADE = (
    r"mkdir /b; cd /b; echo one > src; printf 'out: src\n\tcp src out\n' > Makefile; make",
    "echo two > src",
)
STAT = "stat -c '%.Y' src out Makefile"


@pytest.fixture(params=["local", "docker"])
def cache(
    request: pytest.FixtureRequest, tvsnap_home: Path, terminal_image: Image, proofs_at_once: None
) -> Iterator[Cache]:
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
    with Cache(tvsnap_home, backend=request.param, policy="never") as cache:
        yield cache


def begin(cache: Cache, request: pytest.FixtureRequest) -> Rollout:
    return cache.rollout("terminal", salt=f"{request.node.name} {id(cache)}")


def ask(rollout: Rollout, command: str) -> tuple[str, str]:
    result = rollout.call("bash", {"command": command}, 30.0)
    settle(rollout)
    return result.output.strip(), result.source


def test_make_sees_what_is_newer(cache: Cache, request: pytest.FixtureRequest) -> None:
    """Each rollout thinks between its calls; where they are made again to rebuild a state, nobody does."""
    times = []
    for number in range(4):
        with begin(cache, request) as rollout:
            for command in MADE:
                source = ask(rollout, command)[1]
                assert source == ("executed" if number < 2 else "hit")
                if source == "executed":
                    time.sleep(1.2)
            times.append(ask(rollout, f"{STAT} # {number}")[0].splitlines())
            src, out, makefile = map(float, times[-1])
            assert src > out >= makefile
            assert int(src) > int(out), "many programs go by whole seconds"
            assert ask(rollout, f"make; cat out # {number}")[0] == "cp src out\ntwo"
    assert all(each == times[0] for each in times)


def test_what_a_rollout_wrote_is_as_old_as_it_is_told(cache: Cache, request: pytest.FixtureRequest) -> None:
    """The answer about a time was recorded by one, the state is another's who executed the same calls."""
    with begin(cache, request) as rollout:
        ask(rollout, "touch f")
        told = ask(rollout, "stat -c %.Y f")[0]
    time.sleep(1.0)
    with begin(cache, request) as rollout:
        assert ask(rollout, "touch f")[1] == "executed"
        assert ask(rollout, "stat -c %.Y f") == (told, "hit")
        assert ask(rollout, "stat -c %.Y f; true") == (told, "executed")


DATED = {
    "relative": ["echo one > a; touch -d '1 hour ago' a"],
    "by the future": ["touch -d 'next week' a; ln -s a b; touch -h -d yesterday b"],
    "by a program": ['python3 -c \'import os, time; open("a", "w"); os.utime("a", (1, time.time() - 9.5))\''],
    "in the same call": [
        "mkdir s t; echo x > s/x; touch -d '3 seconds ago' s/x; tar c -C s . | tar x -C t; cp -p s/x y"
    ],
    "by later calls": ["mkdir s t; echo x > s/x", "cp -p s/x y", "tar c -C s . | tar x -C t; mv s/x s/y", "cp -a s u"],
    "in an archive": ["echo x > z; touch -d @1580608922 z; tar cf w z", "mkdir v; tar xf w -C v; tar xmf w"],
    "in other directories": [
        "mkdir -p d/e; touch -d '2 days ago' d/e d",
        "chmod 700 d; touch d/e/f; touch -d @7.5 d/e",
    ],
}


@pytest.mark.parametrize("history", DATED.values(), ids=DATED)
def test_times_that_calls_set_are_those_of_the_record(
    cache: Cache, request: pytest.FixtureRequest, history: list[str]
) -> None:
    """Exactly: in a rollout that executes the same calls, and where they are made again to rebuild the state."""
    look = "find . -printf '%P %T@\\n' | sort"
    told = []
    for number in range(4):
        with begin(cache, request) as rollout:
            ask(rollout, "mkdir -p /b; cd /b")
            for command in history:
                assert ask(rollout, command)[1] == ("executed" if number < 2 else "hit")
                time.sleep(1.1 * (number < 2))
            shown, source = ask(rollout, look)
            assert source == ("hit" if number else "executed")
            again, source = ask(rollout, f"{look} # {number}")
            assert (again, source) == (shown, "executed")
            told.append(shown)
    assert len(told[0].splitlines()) > 1
    assert told == [told[0]] * 4


def test_a_file_that_nobody_touches_has_one_time(cache: Cache, request: pytest.FixtureRequest) -> None:
    """Where a result shows it, the rollout's own file keeps it, and another result leads to another state."""
    show = "stat -c %.Y a"
    sources = []
    for number in range(4):
        with begin(cache, request) as rollout:
            told, source = ask(rollout, f"echo a > a; {show}")
            time.sleep(1.1 * (source == "executed"))
            sources.append(source)
            for command in (show, f"{show}; true", f"{show} # {number}"):
                assert ask(rollout, command)[0] == told
    assert sources == ["executed", "executed", "hit", "hit"]


@pytest.mark.parametrize("src", ["", "-d '1 hour ago'", "-d '2 seconds ago'", "-d @1000000000", "-r /etc/passwd"])
@pytest.mark.parametrize("out", ["", "-d '30 minutes ago'", "-d '3 seconds ago'"])
def test_make_decides_the_same(cache: Cache, request: pytest.FixtureRequest, src: str, out: str) -> None:
    """Whichever times calls have set, as in the rollout that was first."""
    decide = "make -q out; echo $?; stat -c '%n %.Y' src out"
    decided = []
    for number in range(3):
        with begin(cache, request) as rollout:
            for command in (
                r"mkdir -p /b; cd /b; printf 'out: src\n\tcp src out\n' > Makefile",
                f"touch {out} out",
                f"touch {src} src",
            ):
                source = ask(rollout, command)[1]
                time.sleep(0.6 * (source == "executed"))
            decided.append(ask(rollout, f"{decide} # {number}")[0])
    assert decided == [decided[0]] * 3
    times = {name: float(at) for name, at in (line.split() for line in decided[0].splitlines()[1:])}
    assert decided[0][0] == str(int(times["src"] > times["out"]))
