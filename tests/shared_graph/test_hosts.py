"""Caches of several hosts that share a graph: a hit may change how long a rollout takes, never what it sees."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fakes.backend import FakeBackend, fake_image
from tests.homes import with_images_of
from tests.property.histories import Call
from tests.property.histories import histories as plain_histories
from tests.property.test_cached_equals_fresh import roll as seen_by
from tests.property.test_one_past import histories, roll
from tests.shared_graph.server import Server
from tvsnap import Cache, UsageError
from tvsnap.images import Image
from tvsnap.model.observations import Captures
from tvsnap.plugins.shared_graph import SharedGraph

_numbers = itertools.count()
COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, max_examples=20)


def exchange(cache: Cache) -> SharedGraph:
    assert isinstance(cache.graph, SharedGraph)
    return cache.graph


def given_away(*caches: Cache) -> None:
    """Waits until everything that was recorded can be found by other hosts."""
    deadline = time.monotonic() + 60
    for cache in caches:
        while exchange(cache).exchanged.waiting:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture(params=["eager", "default", "never"])
def hosts(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Cache]]:
    """Caches in memory, each with a data directory of its own."""
    url = server.url(f"hosts_{request.param}_{next(_numbers)}")
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Cache(
                    tmp_path_factory.mktemp("host"),
                    backend=FakeBackend(
                        captures=Captures(files=True, processes=number % 2 == 0, shell=True), seed=number
                    ),
                    policy=request.param,
                    graph=url,
                )
            )
            for number in range(3)
        ]


@pytest.mark.usefixtures("proofs_at_once")
@COMMON
@given(group=histories())
def test_what_is_shown_is_of_one_past_on_whatever_host(hosts: list[Cache], group: list[list[str]]) -> None:
    salt, turn = f"example {next(_numbers)}", itertools.cycle(hosts)
    for history in [*group, *group, *group]:
        roll(next(turn), history, salt)
    with ThreadPoolExecutor(len(group) * 3) as threads:
        many = [threads.submit(roll, next(turn), history, f"{salt} at once") for history in [*group, *group, *group]]
        for each in many:
            each.result(120)


@pytest.mark.usefixtures("proofs_at_once")
@COMMON
@given(group=plain_histories("scripted", longest=10))
def test_what_is_seen_is_what_is_seen_without(hosts: list[Cache], group: list[list[Call]]) -> None:
    salt, turn = f"example {next(_numbers)}", itertools.cycle(hosts)
    with Cache(hosts[0].home.with_name(f"fresh-{salt}"), backend=FakeBackend(), use_cache=False) as fresh:
        wanted = [seen_by(fresh, fake_image(), calls, salt) for calls in group]
    for _ in range(3):
        for calls, expected in zip(group, wanted, strict=True):
            assert seen_by(next(turn), fake_image(), calls, salt) == expected


def test_a_second_host_is_answered_what_the_first_has_executed(
    tvsnap_home: Path, terminal_image: Image, database: str, tmp_path: Path
) -> None:
    script = ["echo one > f", "cat f", "sleep 0.3; wc -c f", "x=1", "echo $x; cat f"]

    def run(cache: Cache) -> list[tuple[str, str]]:
        with cache.rollout(terminal_image, task="t") as rollout:
            results = [rollout.call("bash", {"command": command}) for command in script]
        return [(result.output, result.source) for result in results]

    homes = [with_images_of(tvsnap_home, tmp_path / name) for name in ("one", "other", "third")]
    with Cache(homes[0], graph=database) as one, Cache(homes[1], graph=database) as other:
        first = run(one)
        time.sleep(2.1)  # so that equal results prove something
        given_away(one)
        second = run(other)
        given_away(other)
        assert [output for output, _ in first] == [output for output, _ in second]
        assert exchange(other).exchanged.taken > 0
    with Cache(homes[2], graph=database) as third:
        found = run(third)
    assert [output for output, _ in found] == [output for output, _ in first]
    # It claims each of them, and is answered by what others have told meanwhile.
    assert [source for _, source in found] == ["coalesced"] * len(script), "two hosts have proven all of it"


def test_hosts_wait_for_each_other(tvsnap_home: Path, terminal_image: Image, database: str, tmp_path: Path) -> None:
    """One of them executes what both ask for at once, where it is sure that the other may have the answer."""
    command = f"sleep 1.5; echo {random.random()}"
    with ExitStack() as stack:
        homes = [with_images_of(tvsnap_home, tmp_path / name) for name in ("one", "other")]
        caches = [stack.enter_context(Cache(home, graph=database)) for home in homes]
        rollouts = [stack.enter_context(cache.rollout(terminal_image)) for cache in caches]
        for rollout in rollouts:
            rollout.call("bash", {"command": "true"})
        given_away(*caches)
        found: list[tuple[str, str]] = []

        def make(number: int) -> None:
            time.sleep(0.5 * number)
            result = rollouts[number].call("bash", {"command": command})
            found.append((result.output, result.source))

        threads = [threading.Thread(target=make, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(source for _, source in found) == ["coalesced", "executed"]


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="postgresql://"):
        Cache(tmp_path, backend=FakeBackend(), graph="redis://host")
