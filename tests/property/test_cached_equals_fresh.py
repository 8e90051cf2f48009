"""The one property that everything serves: a hit may change how long a rollout takes, never what it sees."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import tvsnap
from tests.fakes.backend import FakeBackend, fake_image
from tests.fakes.directories import DirectoryBackend, DirectorySandbox
from tests.property.histories import Call, histories
from tvsnap.images import Image
from tvsnap.model.errors import TvsnapError
from tvsnap.model.observations import NO_SERVICE, Observation, Service

VARIANTS = [("eager", 0), ("default", 0), ("never", 0), ("eager", 4)]
"""Policies, and how many sandboxes are kept ready."""
TIMEOUT = 20.0
SALTS = itertools.count()

# `TVSNAP_TEST_EXAMPLES=20` looks at 20 times as many, other ones each time.
SCALE = int(os.environ.get("TVSNAP_TEST_EXAMPLES", "0"))
COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=SCALE == 0)
SCRIPTED = settings(COMMON, max_examples=100 * max(SCALE, 1))
IN_DIRECTORIES = settings(COMMON, max_examples=20 * max(SCALE, 1))
REAL = settings(
    COMMON,
    max_examples=4 * max(SCALE, 1),
    phases=[Phase.explicit, Phase.generate],  # shrinking real rollouts takes longer than reading one
)


@dataclass(frozen=True)
class Seen:
    """What an agent sees of one call."""

    call: Call
    output: str
    exit_code: int | None
    timed_out: bool
    truncated: bool


def history(seen: list[Seen]) -> str:
    return "; ".join(repr(each.call) for each in seen)


def make(rollout: tvsnap.Rollout, call: Call) -> tvsnap.ToolResult:
    """Makes a call; of what it fetched, asserts that it is what the result says."""
    arguments, timeout = dict(call.arguments), call.timeout or TIMEOUT
    if call.name == "put":
        return rollout.put(arguments["content"].encode(), arguments["path"], timeout=timeout)
    if call.name != "get":
        return rollout.call(call.name, arguments, timeout=timeout)
    fetched = rollout.get(arguments["path"], timeout=timeout)
    if fetched.kind == "file":
        assert len(fetched.read()) == json.loads(fetched.result.output)["bytes"]
    return fetched.result


def roll(cache: tvsnap.Cache, image: str | Image, calls: list[Call], salt: str) -> list[Seen]:
    """Makes a rollout of the calls; returns what it saw."""
    seen: list[Seen] = []
    with cache.rollout(image=image, task="property", salt=salt) as rollout:
        for call in calls:
            try:
                result = make(rollout, call)
            except TvsnapError as error:
                raise AssertionError(f"{error!r} at {call}, after {history(seen)}") from error
            seen.append(Seen(call, result.output, result.exit_code, result.timed_out, result.truncated))
    return seen


def same(attempt: str, found: list[Seen], wanted: list[Seen]) -> None:
    """Asserts that two rollouts saw the same; names the first call that did not."""
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one != other:
            raise AssertionError(f"{attempt}, after {history(found[:index])}\nsaw {one}\nnot {other}")


def check(fresh: tvsnap.Cache, cached: tvsnap.Cache, image: str | Image, group: list[list[Call]]) -> None:
    """Asserts that rollouts through the cache see what they see without: first time, again, and all at once."""
    salt = f"example-{next(SALTS)}"
    expected = [roll(fresh, image, calls, salt) for calls in group]
    for attempt in ("first", "again"):
        for calls, wanted in zip(group, expected, strict=True):
            assert roll(cached, image, calls, salt) == wanted, attempt
    salt += "-at-once"
    twice = group * 2
    with ThreadPoolExecutor(len(twice)) as threads:
        found = list(threads.map(lambda calls: roll(cached, image, calls, salt), twice))
    for seen, wanted in zip(found, expected * 2, strict=True):
        same("at once", seen, wanted)


def name_of(variant: tuple[str, int]) -> str:
    policy, prefork = variant
    return f"{policy}-{prefork}" if prefork else policy


@pytest.fixture(params=VARIANTS, ids=name_of)
def scripted_caches(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[tvsnap.Cache, tvsnap.Cache]]:
    policy, prefork = request.param
    options = {"policy": policy, "prefork": prefork, "same_ids": True}
    with (
        tvsnap.Cache(home=tmp_path / "fresh", backend=FakeBackend(), use_cache=False, same_ids=True) as fresh,
        tvsnap.Cache(home=tmp_path / "cached", backend=FakeBackend(), **options) as cached,
    ):
        yield fresh, cached


@pytest.mark.usefixtures("proofs_at_once")
@SCRIPTED
@given(group=histories("scripted", longest=12))
def test_in_memory(scripted_caches: tuple[tvsnap.Cache, tvsnap.Cache], group: list[list[Call]]) -> None:
    check(*scripted_caches, fake_image(), group)


@contextlib.contextmanager
def in_directories(home: Path, *, same_ids: bool, **options: Any) -> Iterator[tuple[tvsnap.Cache, tvsnap.Cache]]:
    """A block with a cache that executes every call, and one with these options, on a backend with real shells."""
    with (
        DirectoryBackend(home) as one,
        DirectoryBackend(home) as other,
        tvsnap.Cache(home=home / "fresh", backend=one, use_cache=False, same_ids=same_ids) as fresh,
        tvsnap.Cache(home=home / "cached", backend=other, same_ids=same_ids, **options) as cached,
    ):
        yield fresh, cached


@pytest.fixture(params=VARIANTS, ids=name_of)
def caches(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[tvsnap.Cache, tvsnap.Cache]]:
    policy, prefork = request.param
    with in_directories(tmp_path, same_ids=True, policy=policy, prefork=prefork) as both:
        yield both


@pytest.mark.usefixtures("proofs_at_once")
@IN_DIRECTORIES
@given(group=histories("shell", longest=12))
def test_in_directories(caches: tuple[tvsnap.Cache, tvsnap.Cache], group: list[list[Call]]) -> None:
    check(*caches, fake_image(), group)


@pytest.fixture(params=VARIANTS, ids=name_of)
def local_caches(
    request: pytest.FixtureRequest, tvsnap_home: Path, terminal_image: Image
) -> Iterator[tuple[tvsnap.Cache, tvsnap.Cache]]:
    policy, prefork = request.param
    options = {"policy": policy, "prefork": prefork, "same_ids": True}
    with (
        tvsnap.Cache(home=tvsnap_home, use_cache=False, same_ids=True) as fresh,
        tvsnap.Cache(home=tvsnap_home, **options) as cached,
    ):
        yield fresh, cached


@pytest.mark.usefixtures("proofs_at_once")
@REAL
@given(group=histories("programs", longest=12))
def test_on_the_local_backend(local_caches: tuple[tvsnap.Cache, tvsnap.Cache], group: list[list[Call]]) -> None:
    check(*local_caches, "terminal", group)


def test_a_clock_is_found_out(tmp_path: Path) -> None:
    """A clock is not a function of the calls before it: the check must notice that."""
    call = Call("bash", {"command": "date +%N"})
    with (
        DirectoryBackend(tmp_path) as one,
        DirectoryBackend(tmp_path) as other,
        tvsnap.Cache(home=tmp_path / "fresh", backend=one, use_cache=False, same_ids=True) as fresh,
        tvsnap.Cache(home=tmp_path / "cached", backend=other, policy="eager") as cached,
        pytest.raises(AssertionError),
    ):
        check(fresh, cached, fake_image(), [[call]])


class Inattentive(DirectorySandbox):
    """Overlooks every change."""

    def observe(self, service: Service = NO_SERVICE) -> Observation:
        return Observation("same", "same", "same")


class InattentiveBackend(DirectoryBackend):
    sandbox_type = Inattentive


@pytest.mark.parametrize("change", ["echo 1 > a", "x=1", "cd /tmp", "(exit 3)", "sleep 1000 &"])
def test_an_overlooked_change_is_found_out(tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvsnap.environments.terminal.writes", lambda command: False)  # else it is known to change
    look = Call("bash", {"command": "echo $?; cat a; echo $x; pwd; jobs"})
    group = [[Call("bash", {"command": change}), look], [look]]
    with (
        DirectoryBackend(tmp_path) as one,
        InattentiveBackend(tmp_path) as other,
        tvsnap.Cache(home=tmp_path / "fresh", backend=one, use_cache=False, same_ids=True) as fresh,
        tvsnap.Cache(home=tmp_path / "cached", backend=other, policy="eager") as cached,
        pytest.raises(AssertionError),
    ):
        check(fresh, cached, fake_image(), group)


def test_generated_histories_share_prefixes() -> None:
    """Without shared prefixes the property would say little."""
    shared: list[int] = []

    @settings(max_examples=50, derandomize=True, deadline=None)
    @given(group=histories("shell", longest=12))
    def collect(group: list[list[Call]]) -> None:
        for other in group[1:]:
            pairs = zip(group[0], other, strict=False)
            shared.append(sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))

    collect()
    assert sum(1 for length in shared if length >= 2) > 10
