"""Sandboxes made ahead of time: which, for whom, and when they give way."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import inside
from tests.fakes.backend import FakeBackend, FakeSandbox
from tests.fakes.caches import (
    IMAGE,
    backend_of,
    bash,
    eventually,
    open_cache,
    prove,
    run,
    settle,
    sources,
    threads,
)
from tvsnap import Budget
from tvsnap.cache import Cache
from tvsnap.engine.supply import prefork_policy as prefork
from tvsnap.engine.supply import preforking
from tvsnap.model.errors import InfrastructureError, NotFound, SandboxDied, SnapshotUnusable, UsageError
from tvsnap.model.limits import MIB
from tvsnap.model.observations import NO_SERVICE, Observation, Service
from tvsnap.rollout import Rollout

NOTHING_PARKED = Budget(parked=0)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with open_cache(tmp_path, prefork=4, budget=NOTHING_PARKED) as cache:
        yield cache
    assert backend_of(cache).live == {}


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has workers look again ten times as often, as tests wait for what they do then."""
    monkeypatch.setattr(preforking, "LOOK_AGAIN", 0.05)


def ready(cache: Cache, count: int) -> None:
    """Waits until so many sandboxes are ready."""
    eventually(lambda: cache.pool.ready == count)


def stays(cache: Cache, count: int) -> None:
    """Asserts that so many sandboxes stay ready although the workers have looked again and again."""
    time.sleep(4 * preforking.LOOK_AGAIN)
    assert cache.pool.ready == count


def different(cache: Cache, *names: str) -> list[Rollout]:
    """Begins rollouts side by side and makes a call of its own in each; closes them."""
    rollouts = [cache.rollout("terminal") for _ in names]
    for rollout, name in zip(rollouts, names, strict=True):
        bash(rollout, f"echo {name}")
    for rollout in rollouts:
        rollout.close()
    return rollouts


def make_hot(cache: Cache, *commands: str) -> str:
    """Leads to a state that then is needed twice; returns it. The root's sandbox is one made ahead of time."""
    with cache.rollout("terminal") as rollout:
        if inside.is_wanted(cache, rollout):
            ready(cache, 1)
        for command in commands:
            bash(rollout, command)
        state = rollout.state
        settle(rollout)
    for number in range(2):
        run(cache, *commands, f"echo {number}")
    return state


def test_a_rollout_that_begins_where_nothing_is_known_finds_a_sandbox_ready(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        ready(cache, 1)
        assert bash(rollout, "echo x").output == "x\n"
        assert cache.stats().arrivals == {"parked": 0, "ready": 1, "forked": 0, "started": 0, "replayed": 0}
    stats = cache.stats()
    assert (stats.starts, stats.preforks, stats.preforks_used, stats.preforks_wasted) == (0, 1, 1, 0)
    assert stats.prefork_time_s > 0
    assert cache.graph.counters()["arrivals.ready"] == 1
    stays(cache, 0)  # one arrival is no pattern


def test_after_a_burst_as_many_are_ready_again_and_start_at_once(tmp_path: Path) -> None:
    with open_cache(tmp_path, prefork=8, budget=NOTHING_PARKED) as cache:
        different(cache, *"abcdefgh")
        ready(cache, 8)
        starts = cache.stats().starts
        different(cache, *"ijklmnop")
        assert cache.stats().starts == starts
        ready(cache, 8)
        assert cache.stats().preforks_wasted == 0
    assert backend_of(cache).live == {}


def test_salts_share_what_is_started_ahead(cache: Cache) -> None:
    first = cache.rollout("terminal", salt="one")
    ready(cache, 1)
    other = cache.rollout("terminal", salt="two")
    ready(cache, 2)
    bash(other, "echo x > f")
    bash(first, "echo x > f")
    assert cache.stats().arrivals["ready"] == 2
    assert other.state != first.state
    assert run(cache, "echo x > f", "cat f", salt="two")[1].output == "x\n"


def test_a_hot_state_is_forked_ahead(cache: Cache) -> None:
    state = make_hot(cache, "echo 1 > f", "x=2")
    snapshot = cache.graph.snapshot(state, "fake")
    assert snapshot is not None
    ready(cache, 2)
    before = cache.stats()
    result = run(cache, "echo 1 > f", "x=2", "cat f; echo $x")[-1]
    assert (result.source, result.output) == ("executed", "1\n2\n")
    stats = cache.stats()
    assert (stats.forks, stats.arrivals["ready"]) == (before.forks, before.arrivals["ready"] + 1)
    cache.graph.flush()
    after = cache.graph.snapshot(state, "fake")
    assert after is not None
    assert after.forks == 3  # that it was forked ahead counts once it is used


def test_one_that_was_taken_is_replaced_at_once(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    make_hot(cache, "echo 1 > f")
    ready(cache, 2)
    monkeypatch.setattr(preforking, "LOOK_AGAIN", 600.0)
    time.sleep(0.2)  # the workers now wait for news
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        bash(rollout, "echo another")
        ready(cache, 3)


@pytest.mark.usefixtures("proofs_at_once")
def test_a_replay_begins_in_one_that_is_ready(tmp_path: Path) -> None:
    backend = FakeBackend()
    prove(tmp_path, backend, ["echo 1 > f", "echo 2 >> f"])
    with open_cache(tmp_path, backend, prefork=2, policy="never", budget=NOTHING_PARKED) as cache:
        for number in range(2):
            run(cache, "echo 1 > f", "echo 2 >> f", f"echo {number}")
        ready(cache, 2)
        starts = cache.stats().starts
        assert run(cache, "echo 1 > f", "echo 2 >> f", "cat f")[-1].output == "1\n2\n"
        stats = cache.stats()
        assert (stats.starts, stats.arrivals["replayed"]) == (starts, 3)


def test_what_is_parked_goes_first(tmp_path: Path) -> None:
    with open_cache(tmp_path, prefork=2) as cache:
        state = make_hot(cache, "echo 1 > f")
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo 1 > f")
            eventually(lambda: inside.parked_at(cache.pool, state))
            used = cache.stats().preforks_used
            bash(rollout, "echo more")
            assert cache.stats().preforks_used == used


def test_nothing_is_made_ahead_unless_asked_for_where_forks_are_quick(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=NOTHING_PARKED) as cache:
        make_hot(cache, "echo 1 > f")
        different(cache, *"abc")
        assert inside.workers(cache) == []
        assert cache.stats().preforks == 0


def test_those_that_are_announced_are_made_ahead_even_where_forks_are_quick(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=NOTHING_PARKED) as cache:
        cache.expect("terminal", 6)
        ready(cache, 6)
        different(cache, *"abcdef")
        stats = cache.stats()
        assert (stats.starts, stats.arrivals["ready"]) == (0, 6)
        different(cache, *"ghij")  # none of these was announced
        assert cache.stats().starts == 4
        stays(cache, 0)


def test_announcements_add_up_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_cache(tmp_path, budget=NOTHING_PARKED) as cache:
        cache.expect("terminal", 2)
        cache.expect("terminal", salt="one")  # salts share what is started ahead
        ready(cache, 3)
        for name in ("HOLD", "HALF_LIVES"):
            monkeypatch.setattr(prefork, name, 0)
        ready(cache, 0)


def test_a_parked_sandbox_serves_an_announced_rollout_too(tmp_path: Path) -> None:
    with open_cache(tmp_path, policy="eager") as cache:
        with cache.rollout("terminal") as rollout:
            root = rollout.state
            bash(rollout, "true")  # changes nothing: the sandbox is parked at the root
        assert rollout.state == root
        eventually(lambda: inside.parked_at(cache.pool, root))
        cache.expect("terminal", 2)
        ready(cache, 2)
        different(cache, "a")
        ready(cache, 1)


def test_announced_ones_give_way_to_rollouts_that_need_the_room(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=Budget(parked=0, sandboxes=3)) as cache:
        cache.expect("terminal", 6)
        ready(cache, 3)
        backend = backend_of(cache)
        rollouts = [cache.rollout("terminal") for _ in range(3)]
        for number, rollout in enumerate(rollouts):
            bash(rollout, f"echo {number} > f")
        assert len(backend.live) <= 3
        for rollout in rollouts:
            rollout.close()


@pytest.mark.parametrize("options", [{"prefork": 0}, {"use_cache": False}])
def test_nothing_is_announced_where_nothing_is_made_ahead(tmp_path: Path, options: dict[str, Any]) -> None:
    with open_cache(tmp_path, **options) as cache:
        cache.expect("terminal", 3)
        assert inside.workers(cache) == []


def test_announcements_are_checked(cache: Cache) -> None:
    with pytest.raises(UsageError, match="n must be"):
        cache.expect("terminal", 0)
    with pytest.raises(NotFound):
        cache.expect("nothing")


def test_a_few_are_made_ahead_where_they_are_slow(tmp_path: Path) -> None:
    backend = FakeBackend(delays={"start": preforking.SLOW})
    with open_cache(tmp_path, backend, budget=NOTHING_PARKED, policy="never") as cache:
        different(cache, *"abcdef")  # by now it is known what a start takes
        different(cache, *"ghijkl")
        ready(cache, preforking.USUAL)


def test_those_that_nobody_asked_for_and_nobody_takes_are_made_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is made at once, as on a machine under load, comes before the sandbox that is made ahead of it."""
    backend = FakeBackend(delays={"start": preforking.SLOW})
    with open_cache(tmp_path, backend, budget=NOTHING_PARKED, policy="never") as cache:
        inside.fix_costs(cache, monkeypatch, {"checkpoint": 1.0, "fork": 1.0, "start": 1.0})
        monkeypatch.setattr(inside.preforker(cache), "take", lambda source: None)
        for number in range(2 * preforking.TRIAL):
            cache.rollout("terminal", salt=str(number)).close()
            cache.pool.keep_ready_at_most({})  # as if others needed the room
            inside.wake(cache)
            time.sleep(0.05)
        eventually(lambda: cache.stats().preforks == preforking.TRIAL)
        stays(cache, 0)
        assert cache.stats().preforks == preforking.TRIAL


def test_without_the_cache_nothing_is_made_ahead(tmp_path: Path) -> None:
    with open_cache(tmp_path, prefork=4, use_cache=False) as cache:
        different(cache, *"abcd")
        assert cache.stats().preforks == 0


def test_less_than_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="prefork must be a whole number of at least 0, not -1"):
        open_cache(tmp_path, prefork=-1)
    with open_cache(tmp_path, prefork=0):
        pass


def test_states_with_programs_are_not_forked_ahead(cache: Cache) -> None:
    make_hot(cache, "sleep 1000 &", "x=1")
    stays(cache, 0)


def test_a_sandbox_that_turns_out_to_run_programs_is_not_kept(tmp_path: Path) -> None:
    class Busy(FakeBackend):
        def start(self, *arguments: object) -> FakeSandbox:
            sandbox = super().start(*arguments)  # type: ignore[arg-type]
            sandbox.run("sleep 1000 &", timeout=5)
            return sandbox

    with open_cache(tmp_path, Busy(), prefork=4, budget=NOTHING_PARKED) as cache:
        different(cache, *"abcd")
        eventually(lambda: cache.stats().preforks)
        stays(cache, 0)
        made = cache.stats().preforks
        different(cache, *"efgh")
        stays(cache, 0)
        assert cache.stats().preforks == made


def test_one_that_changed_while_it_waited_is_not_used(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        ready(cache, 1)
        (live,) = inside.ready(cache.pool)
        live.sandbox.write_file("/task/oops", b"")
        assert bash(rollout, "ls").output == ""
        assert cache.stats().arrivals["started"] == 1
        eventually(lambda: cache.stats().preforks_wasted == 1)


def test_after_one_that_changed_the_next_is_used(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout, cache.rollout("terminal", salt="other"):
        ready(cache, 2)
        live = next(iter(inside.ready(cache.pool)))
        live.sandbox.write_file("/task/oops", b"")
        assert bash(rollout, "ls").output == ""
        assert cache.stats().arrivals["ready"] == 1


def test_those_that_die_are_made_again(cache: Cache) -> None:
    rollouts = [cache.rollout("terminal", salt=str(number)) for number in range(4)]
    ready(cache, 4)
    for live in list(inside.ready(cache.pool)):
        live.sandbox.close()  # as when the engine is started anew
    for rollout in rollouts:
        bash(rollout, "echo x")
    ready(cache, 4)
    assert backend_of(cache).live.keys() >= {live.sandbox.id for live in inside.ready(cache.pool)}


def test_one_that_died_while_it_waited_is_not_used(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        ready(cache, 1)
        (live,) = inside.ready(cache.pool)
        live.sandbox.close()
        assert bash(rollout, "echo x").output == "x\n"
        assert cache.stats().arrivals["started"] == 1


def test_those_that_never_stay_as_they_were_are_given_up_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Restless(FakeSandbox):
        def observe(self, service: Service = NO_SERVICE) -> Observation:
            looks = super().observe(service)
            return Observation(looks.files, looks.processes, f"{time.perf_counter()}")

    class RestlessBackend(FakeBackend):
        sandbox_type = Restless

    with open_cache(tmp_path, RestlessBackend(), prefork=2, budget=NOTHING_PARKED, policy="never") as cache:
        salts = itertools.count()
        while inside.mistakes(cache) < preforking.MISTAKES:
            run(cache, "echo x", salt=str(next(salts)))
            time.sleep(0.02)
        stays(cache, 0)
        made = cache.stats().preforks
        for _ in range(4):
            run(cache, "echo x", salt=str(next(salts)))
        stays(cache, 0)
        assert (cache.stats().preforks, cache.stats().preforks_used) == (made, 0)
        monkeypatch.setattr(preforking, "FORGIVEN", 0.0)

        def made_once_more() -> bool:
            run(cache, "echo x", salt=str(next(salts)))
            return cache.stats().preforks > made

        eventually(made_once_more)


def test_a_snapshot_that_goes_takes_its_forks_along(cache: Cache) -> None:
    state = make_hot(cache, "echo 1 > f")
    ready(cache, 2)
    snapshot = cache.graph.snapshot(state, "fake")
    assert snapshot is not None
    inside.drop(cache, snapshot)
    ready(cache, 0)
    assert run(cache, "echo 1 > f", "cat f")[-1].output == "1\n"


def test_forks_of_a_forgotten_state_are_not_used_for_its_namesake(cache: Cache) -> None:
    state = make_hot(cache, "echo $RANDOM > f")
    ready(cache, 2)
    cache.graph.forget(state)
    with cache.rollout("terminal") as rollout:
        assert bash(rollout, "echo $RANDOM > f").source == "executed"
        assert rollout.state != state
        now = bash(rollout, "cat f").output
    looked = run(cache, "echo $RANDOM > f", "echo; cat f")
    assert sources(looked) == ["hit", "executed"]
    assert looked[1].output == f"\n{now}"


def test_a_snapshot_that_is_gone_from_the_disk_is_no_error(cache: Cache) -> None:
    def fail_ahead(*_: object) -> None:
        if threading.current_thread().name.startswith("tvsnap-prefork"):
            raise SnapshotUnusable("gone")

    backend_of(cache).hooks["fork"] = fail_ahead
    make_hot(cache, "echo 1 > f")
    stays(cache, 0)
    assert cache.stats().preforks == 1  # at the root
    assert run(cache, "echo 1 > f", "cat f")[-1].output == "1\n"


def test_failures_are_not_repeated_in_haste(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preforking, "LONGEST_PAUSE", preforking.SHORTEST_PAUSE)
    backend = FakeBackend()
    with open_cache(tmp_path, backend, prefork=4, budget=NOTHING_PARKED, policy="never") as cache:
        different(cache, *"ab")
        ready(cache, 2)
        backend.faults.fail("start", InfrastructureError("the engine is gone"), times=preforking.WORKERS + 1)
        attempts, began = backend.counts["start"], time.monotonic()
        bash(cache.rollout("terminal"), "echo c")
        eventually(lambda: backend.counts["start"] > attempts)
        time.sleep(4 * preforking.LOOK_AGAIN)
        seen = (backend.counts["start"] <= attempts + preforking.WORKERS, cache.pool.ready == 1)
        assert seen == (True, True) or time.monotonic() - began > preforking.SHORTEST_PAUSE, "in haste"
        eventually(lambda: cache.pool.ready == 3)  # it tries again


def test_one_that_dies_while_it_is_looked_at_is_no_error(cache: Cache) -> None:
    backend_of(cache).faults.fail("memory", SandboxDied("killed"))
    with cache.rollout("terminal"):
        ready(cache, 1)


def test_memory_is_a_limit(tmp_path: Path) -> None:
    budget = Budget(parked_memory=11 * MIB)  # a fake sandbox weighs 5 MiB
    with open_cache(tmp_path, prefork=4, budget=budget, policy="never") as cache:
        different(cache, *"abcd")
        eventually(lambda: cache.pool.ready == 2 and cache.pool.live == 2)
        made = cache.stats().preforks
        time.sleep(4 * preforking.LOOK_AGAIN)
        assert cache.pool.ready == 2
        assert cache.stats().preforks <= made + preforking.WORKERS, "it tried again at once"
        assert cache.pool.parked == 0  # what is ready has its part first


def test_a_full_pool_has_no_room_for_them_and_they_make_room(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, prefork=4, budget=Budget(sandboxes=4, parked=0)) as cache:
        different(cache, *"abcd")
        ready(cache, 4)
        used = [cache.rollout("terminal") for _ in range(4)]
        for number, rollout in enumerate(used):
            bash(rollout, f"x={number}")
            assert len(backend.live) <= 4
        assert cache.pool.ready == 0
        stays(cache, 0)
        used[0].sandbox()  # nobody is kept from working
        for rollout in used:
            rollout.close()
        eventually(lambda: cache.pool.ready > 0)


def test_who_waits_for_room_goes_first(tmp_path: Path) -> None:
    making, go = threading.Event(), threading.Event()

    def hold(sandbox: FakeSandbox | None, subject: str) -> None:
        if threading.current_thread().name.startswith("tvsnap-prefork"):
            making.set()
            assert go.wait(60)

    backend = FakeBackend(hooks={"start": hold})
    with open_cache(tmp_path, backend, prefork=1, budget=Budget(sandboxes=1, parked=0)) as cache, threads(1) as pool:
        rollout = cache.rollout("terminal")
        assert making.wait(60)
        waiting = pool.submit(bash, rollout, "echo x")
        eventually(lambda: inside.waiting(cache.pool))
        go.set()
        assert waiting.result(60).output == "x\n"
        assert cache.stats().preforks_used == 0
        assert len(backend.live) == 1


def test_closing_waits_for_the_one_that_is_being_made(tmp_path: Path) -> None:
    making, go = threading.Event(), threading.Event()

    def hold(sandbox: FakeSandbox | None, subject: str) -> None:
        making.set()
        assert go.wait(60)

    backend = FakeBackend(hooks={"start": hold})
    cache = open_cache(tmp_path, backend, prefork=2)
    cache.rollout("terminal")
    assert making.wait(60)
    with threads(1) as pool:
        closing = pool.submit(cache.close)
        time.sleep(0.05)
        assert not closing.done()
        go.set()
        closing.result(60)
    assert backend.live == {}
    assert backend.counts["start"] == 1
    assert not any(worker.is_alive() for worker in inside.workers(cache))


def test_demand_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_cache(tmp_path, prefork=4, budget=NOTHING_PARKED) as cache:
        different(cache, *"abcd")
        ready(cache, 4)
        monkeypatch.setattr(prefork, "HOLD", 0.0)
        monkeypatch.setattr(prefork, "HALF_LIFE_S", 0.1)
        ready(cache, 0)
        assert cache.stats().preforks_wasted == 4


def test_many_rollouts_at_once_see_what_they_would_see(tmp_path: Path) -> None:
    with open_cache(tmp_path, prefork=6) as cache, threads(8) as pool:

        def roll(number: int) -> list[str]:
            commands = ["echo 1 > f", f"echo {number % 3} >> f", f"x={number % 5}", "cat f; echo $x"]
            return [result.output for result in run(cache, *commands, salt=str(number % 2))]

        found = list(pool.map(roll, range(120)))
        assert cache.stats().preforks > 0
    for number, outputs in enumerate(found):
        assert outputs == ["", "", "", f"1\n{number % 3}\n{number % 5}\n"]
    assert backend_of(cache).live == {}


def test_the_image_is_part_of_what_is_made_ahead(cache: Cache) -> None:
    with cache.rollout("terminal"):
        ready(cache, 1)
        (origin,) = inside.ready(cache.pool).values()
        assert (origin.image, origin.limits, origin.snapshot) == (IMAGE.digest, cache.limits_for(IMAGE), "")
