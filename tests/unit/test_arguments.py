"""What makes no sense is refused with the reason before anything is done, and costs nothing."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import FakeBackend
from tests.fakes.caches import IMAGE, FakeImages, backend_of, bash, open_cache
from tvsnap import AsyncCache, Budget
from tvsnap.cache import Cache
from tvsnap.model.arguments import LONGEST, check_seconds
from tvsnap.model.calls import canonical_json
from tvsnap.model.errors import NotFound, UsageError
from tvsnap.model.images import ImageLimits
from tvsnap.model.limits import LEAST_MEMORY, Limits
from tvsnap.upkeep.replay import ReplayOptions

NO_STATES = ["zz", "", "abcd", "a" * 65, "A" * 64, "\udc80" * 64, None, 5, b"a" * 64]
NO_TEXTS = [5, "a\0b", "\udc80"]


@pytest.mark.parametrize("value", [1e10, LONGEST + 1, 10**400])
def test_nothing_takes_longer_than_a_year(value: float) -> None:
    for least in (None, 0.0):
        with pytest.raises(UsageError, match=r"^it must be "):
            check_seconds(value, "it", least=least)


def test_a_year_is_a_number_of_seconds() -> None:
    assert check_seconds(LONGEST) == LONGEST
    assert check_seconds(0, least=0.0) == 0.0


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("wrong", [{"timeout": 1e10}, {"timeout": "1"}, {"after": 1e10}, {"after": "1"}])
def test_a_call_of_nonsense_costs_a_rollout_nothing(tmp_path: Path, wrong: dict[str, Any], use_cache: bool) -> None:
    with open_cache(tmp_path, use_cache=use_cache) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "x=1")
        for name, arguments, options in (
            ("bash", {"command": "x=2"}, wrong),
            ("keys", {"keys": "a", "wait": 10**400}, {}),
        ):
            with pytest.raises(UsageError):
                rollout.call(name, arguments, **options)
        assert bash(rollout, "echo $x").output == "1\n"
        assert backend_of(cache).counts["start"] == 1


def test_a_call_of_nonsense_under_an_event_loop(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            AsyncCache(tmp_path, backend=FakeBackend(), images=FakeImages()) as cache,
            cache.rollout("terminal") as rollout,
        ):
            with pytest.raises(UsageError, match="a timeout must be at most"):
                await rollout.call("bash", {"command": "ls"}, timeout=1e10)
            with pytest.raises(UsageError, match="after must be at most"):
                async with cache.materialise(rollout.state, after=1e10):
                    pass

    asyncio.run(work())


@pytest.mark.parametrize("state", NO_STATES)
def test_what_cannot_be_a_state(tmp_path: Path, state: Any) -> None:
    with open_cache(tmp_path) as cache:
        graph = cache.graph
        for use in (cache.resume, graph.state, graph.forget, graph.lineage, graph.children, graph.edge_to):
            with pytest.raises(UsageError, match="is no state: give its full hash"):
                use(state)
        with pytest.raises(UsageError, match="is no state"), cache.materialise(state):
            pass
        assert not graph.rollouts()


def test_a_state_that_is_not_there(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        for use in (cache.resume, cache.graph.state, cache.graph.forget):
            with pytest.raises(NotFound, match="state 000000000000 is not in the graph"):
                use("0" * 64)


@pytest.mark.parametrize("name", ["image", "task", "salt", "label"])
@pytest.mark.parametrize("wrong", NO_TEXTS)
def test_what_is_no_text(tmp_path: Path, name: str, wrong: Any) -> None:
    with open_cache(tmp_path) as cache:
        with pytest.raises(UsageError, match=f"^{name} "):
            cache.rollout(**{"image": "terminal", name: wrong})
        assert not cache.graph.rollouts()
        with cache.rollout("terminal") as rollout:
            state = rollout.state
        if name in ("task", "label"):
            with pytest.raises(UsageError, match=f"^{name} "):
                cache.resume(state, **{name: wrong})
    with pytest.raises(UsageError, match="image must be a string, not None"), open_cache(tmp_path) as cache:
        cache.warm(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", NO_TEXTS)
def test_what_is_no_task(tmp_path: Path, wrong: Any) -> None:
    with open_cache(tmp_path) as cache:
        for use in (cache.graph.rollouts, cache.graph.forget_task, lambda task: cache.graph.tree(task=task)):
            with pytest.raises(UsageError, match=r"^task "):
                use(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": 0},
        {"memory": 1000},
        {"memory": 1e9},
        {"memory": 2**63},
        {"processes": 1},
        {"processes": 2**22 + 1},
        {"cpus": -1},
        {"cpus": 0.001},
        {"cpus": float("inf")},
        {"cpus": True},
        {"cpus": "1"},
        {"output": -1},
        {"output": 0},
        {"disk": -1},
        {"disk": None},
    ],
)
def test_limits_of_nonsense(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"^Limits\.{next(iter(wrong))}.* must be "):
        Limits(**wrong)


def test_the_least_limits() -> None:
    Limits(memory=LEAST_MEMORY, processes=4, cpus=0.01, output=1, disk=0)


def test_an_image_whose_limits_leave_no_room(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache, pytest.raises(UsageError, match=r"image terminal .*Limits\.memory must be"):
        cache.rollout(replace(IMAGE, limits=ImageLimits(memory=1000)))
    with open_cache(tmp_path, limits=Limits()) as cache, cache.rollout(replace(IMAGE, limits=ImageLimits(memory=1000))):
        pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"parked": -1},
        {"parked": None},
        {"parked_memory": -1},
        {"parked_memory": 1.5},
        {"sandboxes": 0},
        {"sandboxes": None},
    ],
)
def test_budgets_that_must_be_numbers(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"^Budget\.{next(iter(wrong))} must be a whole number"):
        Budget(**wrong)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"budget": 5}, "budget must be a tvsnap.Budget, not 5"),
        ({"limits": Budget()}, "limits must be a tvsnap.Limits, not Budget"),
        ({"prefork": 1.5}, "prefork must be a whole number"),
        ({"use_cache": "no"}, "use_cache must be True or False, not 'no'"),
        ({"policy": 5}, r"policy must be a policy's name, or a tvsnap.Policy, with a method should_checkpoint\(\)"),
        ({"policy": "always"}, 'policy "always" not found; have: default, eager, never'),
        ({"backend": 5}, r"backend must be a backend's name, or one that is open, with a method fork\(\); not 5"),
        ({"images": 5}, r"images must be a source of images, with a method get\(\); not 5"),
        ({"audit": "all"}, "audit must be a number from 0 to 1, not 'all'"),
    ],
)
def test_a_cache_of_nonsense_opens_nothing(tmp_path: Path, wrong: dict[str, Any], says: str) -> None:
    for kind in (Cache, AsyncCache):
        with pytest.raises(UsageError, match=says):
            kind(tmp_path / "home", **{"images": FakeImages(), **wrong})
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("home", [5, b"/tmp", "a\0b", ""])
def test_a_data_directory_of_nonsense(home: Any) -> None:
    with pytest.raises(UsageError, match=r"^home must "):
        Cache(home)


@pytest.mark.parametrize("arguments", [{5: 1}, {"a": [{"b": {5: 1, "c": 2}}]}])
def test_a_key_that_is_no_string(tmp_path: Path, arguments: Any) -> None:
    with pytest.raises(UsageError, match=r"must be plain JSON: the key 5 is no string"):
        canonical_json({"a": 1, "b": arguments, 5: 6} if 5 in arguments else {"b": arguments})


def test_what_is_asked_of_a_closed_cache(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache, cache.rollout("terminal") as rollout:
        state = rollout.state
    for use in (lambda: cache.rollout("terminal"), lambda: cache.resume(state), lambda: cache.warm("terminal")):
        with pytest.raises(UsageError, match="the cache is closed"):
            use()
    with pytest.raises(UsageError, match="the cache is closed"), cache.materialise(state):
        pass


def test_what_is_no_recorded_call(tmp_path: Path) -> None:
    with (
        open_cache(tmp_path) as cache,
        pytest.raises(UsageError, match=r"edge must be a tvsnap\.graph\.Edge, not None"),
    ):
        cache.reexecute(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [{"image": 5}, {"salt": 5}, {"parallel": 0}, {"repeat": 1.5}, {"think": -1}, {"timeout": 0}, {"timeout": math.inf}],
)
def test_a_replay_of_nonsense(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"^ReplayOptions\.{next(iter(wrong))} must be "):
        ReplayOptions(**wrong)


def test_an_event_loop_without_threads(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="threads must be a whole number of at least 1, not 0"):
        AsyncCache(tmp_path / "home", threads=0)
    assert not (tmp_path / "home").exists()
