"""Rollouts of hostile calls, through the whole stack: each gets a clear result, and nobody else is harmed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import eventually
from tests.conformance.hostile_cases import HOSTILE, ON_DOCKER, Step
from tvsnap import Budget, Cache
from tvsnap.images import Image
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import MachineLacks
from tvsnap.model.limits import MIB, Limits
from tvsnap.rollout import Rollout

LIMITS = Limits(memory=256 * MIB, processes=64)
TIMEOUT = 60.0
PROMPT = 15.0
"""Seconds in which a sandbox answers that has nothing to do, on a machine where others are hostile."""
GROWTH = 192 * MIB
"""Bytes of memory that this process may need in a hostile rollout beyond what it had before; 108 MiB were seen of a
test alone, and 136 of one in a process that had executed others."""
LISTING = (
    "ls -laR --time-style=full-iso /root /app /usr/bin | cksum; ls -laR --time-style=+ /etc /tmp /run | cksum; "
    "ulimit -a | cksum; id; pwd; ls / | wc -l; ps -e | wc -l"
)
BRANCH = "echo branch; pwd"
"""What nobody called before where the hostile calls led."""


class Lair:
    """A cache in which hostile rollouts are made, beside one that minds its own business.

    No sandbox is parked: whoever comes to a state later gets a fork of it, or a replay.
    """

    def __init__(self, home: Path, image: Image, backend: str) -> None:
        self.image = image
        self.cached = Cache(home, backend=backend, policy="eager", limits=LIMITS, budget=Budget(parked=0), prefork=0)
        self.fresh = Cache(home, backend=backend, use_cache=False, same_ids=True, limits=LIMITS)
        self._salt = f"hostile-{time.time_ns()}"
        self._bystander = self.cached.rollout(image, salt=f"{self._salt} bystander")
        assert self._bash(self._bystander, "x=kept; sleep 1000 & echo began").output == "began\n"
        self.root = self.look_at_root("reference")

    def roll(self, cache: Cache, name: str, steps: tuple[Step, ...], *more: str) -> list[ToolResult]:
        """Makes a rollout of the steps and of more commands; returns what it saw."""
        with cache.rollout(self.image, task="hostile", salt=f"{self._salt} {name}") as rollout:
            seen = [rollout.call(step.tool, step.arguments, step.timeout) for step in steps]
            return [*seen, *(self._bash(rollout, command) for command in more)]

    def look_at_root(self, name: str) -> ToolResult:
        """Returns what the first call of a new rollout of the same image sees."""
        with self.cached.rollout(self.image, salt=f"{self._salt} after {name}") as rollout:
            return self._bash(rollout, LISTING)

    def ask_bystander(self, name: str) -> tuple[str, float]:
        """Returns what the bystander sees of its own sandbox, and how many seconds it had to wait."""
        began = time.monotonic()
        result = self._bash(self._bystander, f": {name}; echo $x; jobs | wc -l")
        return result.output, time.monotonic() - began

    def close(self) -> None:
        self.cached.close()
        self.fresh.close()

    @staticmethod
    def _bash(rollout: Rollout, command: str) -> ToolResult:
        return rollout.call("bash", {"command": command}, TIMEOUT)


def forget_peak() -> int:
    """Lets the peak of this process's memory begin at what it has now, so that no other test's counts; returns it."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """Returns the most memory that this process has had since `forget_peak`, in bytes."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


@pytest.fixture(scope="module")
def local(tvsnap_home: Path, terminal_image: Image) -> Iterator[Lair]:
    yield from dug(tvsnap_home, terminal_image, "local")


@pytest.fixture(scope="module")
def docker(docker_engine: str, tvsnap_home: Path, terminal_image: Image) -> Iterator[Lair]:
    yield from dug(tvsnap_home, terminal_image, "docker")


def dug(home: Path, image: Image, backend: str) -> Iterator[Lair]:
    try:
        lair = Lair(home, image, backend)
    except MachineLacks as lack:
        pytest.skip(str(lack))
    yield lair
    lair.close()


@pytest.mark.parametrize(
    ("backend", "name"), [*(("local", name) for name in HOSTILE), *(("docker", name) for name in ON_DOCKER)]
)
def test_hostile_rollout(request: pytest.FixtureRequest, backend: str, name: str) -> None:
    lair: Lair = request.getfixturevalue(backend)
    steps = HOSTILE[name]
    began, memory = time.monotonic(), forget_peak()
    first = lair.roll(lair.cached, name, steps)
    assert time.monotonic() - began < sum(step.timeout for step in steps) + TIMEOUT
    for step, result in zip(steps, first, strict=False):
        check(step, result)
    assert lair.look_at_root(name).same_value(lair.root)
    seen, waited = lair.ask_bystander(name)
    assert seen == "kept\n1\n"
    assert waited < PROMPT
    assert peak() - memory < GROWTH, f"{(peak() - memory) >> 20} MiB"
    if any(step.busy or step.varies for step in steps):
        return
    again = lair.roll(lair.cached, name, steps, BRANCH)
    for step, one, other in zip(steps, again, first, strict=False):
        assert is_same(step, one, other), (step, one, other)
    if any(step.timed_out for step in steps):
        return  # its time is spent
    fresh = lair.roll(lair.fresh, name, steps, BRANCH)
    for step, one, other in zip(steps, again, fresh, strict=False):
        assert is_same(step, one, other), (step, one, other)
    assert again[-1].same_value(fresh[-1]), (BRANCH, again, fresh)


def is_same(step: Step, one: ToolResult, other: ToolResult) -> bool:
    """Whether two results are the same; what keys show depends on how fast the terminal answers."""
    return one.same_value(other) or step.tool == "keys"


def check(step: Step, result: ToolResult) -> None:
    """Asserts that a call returned what it should."""
    assert (result.exit_code, result.timed_out) == (step.exit_code, step.timed_out), (step, result)
    assert step.truncated in (None, result.truncated), (step, result.output[:200])
    output = re.sub(r"\[interrupted after [0-9.]+ s\]\n", "", result.output)
    assert re.fullmatch(step.output, output, re.DOTALL), (step, output[-2000:])
    assert len(result.output) <= LIMITS.output + 1024


NAMED = """
import os, time
os.memfd_create({name!r}, 4)
open("/tmp/ready", "w").close()
time.sleep(1000)
"""
"""A program with a file that CRIU cannot save, and whose name CRIU tells."""


@pytest.mark.parametrize("name", ["No space left", "/tvsnap/criu_plugin/interrupted.so", "x: No space left on device"])
def test_a_name_in_criu_s_log_stops_no_snapshots_of_others(tvsnap_home: Path, terminal_image: Image, name: str) -> None:
    salt = f"{name} {time.time_ns()}"
    with Cache(tvsnap_home, policy="eager", budget=Budget(parked=0), prefork=0) as cache:
        with cache.rollout(terminal_image, salt=salt) as hostile:
            hostile.call("bash", {"command": f"cat >/tmp/p <<'END'{NAMED.format(name=name)}END"})
            started = "python3 /tmp/p & until [ -e /tmp/ready ]; do sleep 0.01; done"
            hostile.call("bash", {"command": started})
            state = hostile.state
            eventually(lambda: "no file of the sandbox" in str(cache.refusal(state)))
        with cache.rollout(terminal_image, salt=f"{salt} other") as other:
            other.call("bash", {"command": "x=1"})
            state = other.state
            eventually(lambda: cache.graph.snapshot(state, "local") is not None)
