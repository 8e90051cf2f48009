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
            times.append([float(line) for line in ask(rollout, f"{STAT} # {number}")[0].splitlines()])
            src, out, makefile = times[-1]
            assert src > out >= makefile
            assert int(src) > int(out), "many programs go by whole seconds"
            assert ask(rollout, f"make; cat out # {number}")[0] == "cp src out\ntwo"
    assert all(abs(one - other) < 0.3 for each in times for one, other in zip(times[0], each, strict=True)), times


def test_what_a_rollout_wrote_is_as_old_as_it_is_told(cache: Cache, request: pytest.FixtureRequest) -> None:
    """The answer about a time was recorded by one, the state is another's who executed the same calls."""
    with begin(cache, request) as rollout:
        ask(rollout, "touch f")
        told = float(ask(rollout, "stat -c %.Y f")[0])
    time.sleep(1.0)
    with begin(cache, request) as rollout:
        assert ask(rollout, "touch f")[1] == "executed"
        again, source = ask(rollout, "stat -c %.Y f")
        assert (float(again), source) == (told, "hit")
        assert abs(float(ask(rollout, "stat -c %.Y f; true")[0]) - told) < 0.3
