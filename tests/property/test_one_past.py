"""Random histories full of silent chance: what a rollout is shown of a file is one content, until it is written."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.backend import FakeBackend, fake_image
from tvsnap import Budget, Cache
from tvsnap.engine.keeping.budgets import Ledger
from tvsnap.engine.keeping.holds import Holds
from tvsnap.model.observations import Captures

SCALE = int(os.environ.get("TVSNAP_TEST_EXAMPLES", "0"))
FILES = ("a", "b")
EVICT = "(evict)"
WRITES = [f"echo $RANDOM > {name}" for name in FILES] + [f"date > {name}" for name in FILES]
APPENDS = [f"echo $RANDOM >> {name}" for name in FILES] + ["x=$RANDOM", "echo $x >> a"]
LOOKS = [f"cat {name} 2> /dev/null" for name in FILES]
OTHERS = [
    "echo one > other",
    "echo two > other",
    'n="$n"1',
    "sleep 1000 &",
    "kill %1; wait; true",
    "cat other 2> /dev/null",
    EVICT,
]
NEW = "; : new"
"""At a command's end: nobody has made this call before."""
calls = st.one_of(*map(st.sampled_from, (WRITES, APPENDS, LOOKS, [look + NEW for look in LOOKS], OTHERS)))
_numbers = itertools.count()


@st.composite
def histories(draw: st.DrawFn) -> list[list[str]]:
    """Rollouts that go a way along the first, then their own way."""
    first = draw(st.lists(calls, min_size=1, max_size=10))
    found = [first]
    for _ in range(draw(st.integers(1, 4))):
        shared = draw(st.integers(0, len(first)))
        found.append([*first[:shared], *draw(st.lists(calls, max_size=5))])
    return found


@dataclass
class Content:
    """What a rollout knows of a file.

    Attributes:
        known: how it begins.
        whole: that is all of it.
    """

    known: str = ""
    whole: bool = True

    def look(self, shown: str) -> None:
        assert shown == self.known if self.whole else shown.startswith(self.known)
        self.known, self.whole = shown, True


@dataclass
class Knowledge:
    """What a rollout was shown."""

    files: dict[str, Content] = field(default_factory=lambda: {name: Content() for name in FILES})

    def learn(self, command: str, output: str) -> None:
        for name, content in self.files.items():
            if command.startswith(f"cat {name}"):
                content.look(output)
            elif command.endswith(f" > {name}"):
                self.files[name] = Content(whole=False)
            elif command.endswith(f" >> {name}"):
                content.whole = False


def evict(cache: Cache) -> None:
    for snapshot in Ledger(cache.graph, cache.backend.name, Holds(cache.home)).evict(cache.graph.snapshots()):
        cache.backend.delete_snapshot(snapshot.id)


def roll(cache: Cache, history: list[str], salt: str) -> None:
    """Makes a rollout; asserts that all it is shown is of one past, and that a grader sees the same."""
    knowledge = Knowledge()
    with cache.rollout(fake_image(), salt=salt) as rollout:
        for command in [*history, *(look + NEW for look in LOOKS)]:
            if command == EVICT:
                evict(cache)
                continue
            made = command.replace("new", f"new {next(_numbers)}")
            knowledge.learn(command, rollout.call("bash", {"command": made}).output)
        sandbox = rollout.sandbox()
        for name, content in knowledge.files.items():
            content.look(sandbox.run(f"cat {name} 2> /dev/null", timeout=5).output.decode())


@pytest.fixture(
    params=[
        ("eager", True, None),
        ("default", True, None),
        ("default", False, None),
        ("never", True, None),
        ("eager", True, 1),
        ("default", False, 3),
    ],
    ids=lambda param: f"{param[0]}{'' if param[1] else '-no-processes'}{'' if param[2] is None else f'-{param[2]}'}",
)
def cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    """One of a policy, whose snapshots capture processes or not, and of which there may be so many."""
    policy, processes, count = request.param
    backend = FakeBackend(captures=Captures(files=True, processes=processes, shell=True))
    with Cache(
        tmp_path_factory.mktemp("past"),
        backend=backend,
        policy=policy,
        budget=Budget(snapshots=count, parked=1),
    ) as cache:
        yield cache


@pytest.mark.usefixtures("proofs_at_once")
@settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=SCALE == 0,
    max_examples=30 * max(SCALE, 1),
)
@given(group=histories())
def test_one_past(cache: Cache, group: list[list[str]]) -> None:
    salt = f"example {next(_numbers)}"
    for history in [*group, *group]:
        roll(cache, history, salt)
    with ThreadPoolExecutor(len(group)) as threads:
        for each in [threads.submit(roll, cache, history, f"{salt} at once") for history in [*group, *group]]:
            each.result(120)
