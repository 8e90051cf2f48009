"""One past: what a rollout is shown comes from the execution whose state it goes on from, or from a proven equal."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import FakeBackend
from tests.fakes.caches import backend_of, bash, eventually, open_cache, prove, run, settle, sources, threads
from tvsnap import Budget
from tvsnap.cache import Cache
from tvsnap.engine.keeping.budgets import Ledger
from tvsnap.engine.keeping.holds import Holds
from tvsnap.engine.keeping.policy import costs
from tvsnap.graph import Edge
from tvsnap.model.errors import InfrastructureError, SnapshotUnusable, StateLost
from tvsnap.model.observations import Captures
from tvsnap.model.operations.rollouts import Call
from tvsnap.rollout import Rollout

NOT_PARKED = Budget(parked=0)
TOKEN = "echo $RANDOM > token"
POLICIES = ("eager", "default", "never")
WITHOUT_PROCESSES = Captures(files=True, processes=False, shell=True)

_numbers = itertools.count()


def evict(cache: Cache) -> int:
    """Evicts every snapshot that no rollout stands on, as `gc` and budgets do; returns how many went."""
    gone = Ledger(cache.graph, "fake", Holds(cache.home)).evict(cache.graph.snapshots())
    for snapshot in gone:
        cache.backend.delete_snapshot(snapshot.id)
    return len(gone)


def new(command: str) -> str:
    """Returns a call that does the same and that nobody has made."""
    return f"{command}; : {next(_numbers)}"


def see(rollout: Rollout, *commands: str, meanwhile: Callable[[], object] = lambda: None) -> set[str]:
    """Makes calls; returns their outputs, which are to be one."""
    seen = set()
    for command in commands:
        meanwhile()
        seen.add(bash(rollout, command).output)
    return seen


def snapshots_go_at_once(cache: Cache) -> Callable[[], object]:
    return lambda: evict(cache)


def nothing(cache: Cache) -> Callable[[], object]:
    return lambda: None


@pytest.mark.parametrize("meanwhile", [nothing, snapshots_go_at_once])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "silent",
    [
        TOKEN,
        "date > token",
        "x=$RANDOM; echo $x > token",
        "d=/tmp/$RANDOM; mkdir $d; cd $d; pwd > /task/token; cd /task",
        "sleep 1000 & echo $! $RANDOM > token",
    ],
)
def test_what_a_silent_call_wrote_is_the_same_for_ever(
    tmp_path: Path, policy: str, silent: str, meanwhile: Callable[[Cache], Callable[[], object]]
) -> None:
    """Shown by a hit, found by a new call, and found by whoever looks inside."""
    with open_cache(tmp_path, policy=policy, budget=NOT_PARKED) as cache:
        for _ in range(4):
            with cache.rollout("terminal") as rollout:
                shake = meanwhile(cache)
                bash(rollout, silent)
                seen = see(rollout, "cat token", new("cat token"), "cat token", meanwhile=shake)
                bash(rollout, "echo more > other")
                seen |= see(rollout, "cat token", new("cat token"), meanwhile=shake)
                shake()
                with cache.materialise(rollout.state) as sandbox:
                    seen.add(sandbox.read_file("/task/token").decode())
                assert len(seen) == 1
                assert not rollout.private
        eventually(lambda: cache.graph.leases() == [])


@pytest.mark.parametrize("policy", ["eager", "default"])
def test_what_is_kept_is_answered(tmp_path: Path, policy: str) -> None:
    """The promise costs no hits where snapshots can be taken."""
    with open_cache(tmp_path, policy=policy, budget=NOT_PARKED) as cache:
        history = [TOKEN, "cat token", "echo 1 > f", "date > g", "cat g token"]
        first = run(cache, *history)
        for _ in range(3):
            results = run(cache, *history)
            assert sources(results) == ["hit"] * 5
            assert [result.output for result in results] == [result.output for result in first]


def test_break_even_keeps_what_is_not_proven_and_weighs_what_is(tmp_path: Path) -> None:
    with open_cache(tmp_path, policy="default", budget=NOT_PARKED) as cache:
        run(cache, "echo 1 > f", "ls", TOKEN)
        assert len(cache.graph.snapshots()) == 2


@pytest.mark.usefixtures("proofs_at_once")
def test_break_even_keeps_no_proven_state_that_is_cheap_to_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(costs.DEFAULTS, "checkpoint", 600.0)  # a rebuild takes seconds on a busy machine
    backend = FakeBackend()
    prove(tmp_path, backend, ["echo 1 > f", "echo 2 > g"])
    with open_cache(tmp_path, backend, policy="default", budget=NOT_PARKED) as cache:
        assert sources(run(cache, "echo 1 > f", "echo 2 > g", "ls")) == ["hit", "hit", "executed"]
        assert cache.graph.snapshots() == []


@pytest.mark.usefixtures("proofs_at_once")
def test_without_snapshots_the_third_is_answered(tmp_path: Path) -> None:
    """The second executes, and so proves what the first recorded."""
    with open_cache(tmp_path, policy="never", budget=NOT_PARKED) as cache:
        history = ["echo 1 > f", "cat f", "x=1", "echo $x"]
        assert sources(run(cache, *history)) == ["executed"] * 4
        # What changes nothing is answered at once where the state before is the same.
        assert sources(run(cache, *history)) == ["executed", "hit", "executed", "hit"]
        assert sources(run(cache, *history)) == ["hit"] * 4
        assert run(cache, *history, "cat f; echo $x; x=2")[-1].output == "1\n1\n"


@pytest.mark.usefixtures("proofs_at_once")
def test_a_state_whose_files_cannot_be_given_their_age_is_not_gone_on_from(tmp_path: Path) -> None:
    """What goes by the age of files would go wrong in it: the call is not made, and may be made again."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend, policy="never", budget=NOT_PARKED) as cache:
        for _ in range(2):
            run(cache, "echo 1 > f", "x=1")
        backend.faults.fail("set_file_times", InfrastructureError("the files cannot be listed"))
        with cache.rollout("terminal") as rollout:
            assert [bash(rollout, command).source for command in ("echo 1 > f", "x=1")] == ["hit", "hit"]
            with pytest.raises(InfrastructureError, match="cannot be listed"):
                bash(rollout, "cat f; echo $x")
            assert bash(rollout, "cat f; echo $x").output == "1\n1\n"
    eventually(lambda: not backend.live)


@pytest.mark.usefixtures("proofs_at_once")
def test_a_rollout_keeps_its_sandbox_where_files_keep_their_own_age(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, policy="never", budget=NOT_PARKED) as cache:
        run(cache, "echo 1 > f")
        backend.faults.fail("set_file_times", InfrastructureError("the files cannot be listed"))
        assert sources(run(cache, "echo 1 > f", "echo 2 > g", "cat f g")) == ["executed"] * 3
        assert backend.counts["set_file_times"] == 1
        assert backend.counts["start"] == 2


def test_within_two_seconds_nothing_is_proven(tmp_path: Path) -> None:
    with open_cache(tmp_path, policy="never", budget=NOT_PARKED) as cache:
        for _ in range(4):
            assert sources(run(cache, "echo 1 > f", "x=1")) == ["executed"] * 2
        assert not any(edge.proven for edge in every_edge(cache))


@pytest.mark.usefixtures("proofs_at_once")
def test_chance_is_never_proven(tmp_path: Path) -> None:
    with open_cache(tmp_path, policy="never", budget=NOT_PARKED) as cache:
        for _ in range(4):
            silent, shown = run(cache, TOKEN, "cat token")
            assert (silent.source, shown.source) == ("executed", "executed")
        assert not any(edge.proven for edge in every_edge(cache))
        # Each is kept for people, and one of them for whoever comes next.
        assert [edge.shared for edge in cache.graph.out_edges(cache.graph.roots()[0].hash)] == [False] * 3 + [True]


def every_edge(cache: Cache) -> list[Edge]:
    return [edge for node in cache.graph.tree() for edge in cache.graph.out_edges(node.state.hash)]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_cannot_be_kept_answers_no_call_beyond_it(tmp_path: Path, policy: str) -> None:
    """A refused state: each visitor executes the call, and is shown what its own execution left behind."""
    with open_cache(tmp_path, FakeBackend(captures=WITHOUT_PROCESSES), policy=policy, budget=NOT_PARKED) as cache:
        tokens = []
        for _ in range(3):
            with cache.rollout("terminal") as rollout:
                assert bash(rollout, f"sleep 1000 & {TOKEN}").source == "executed"
                (token,) = see(rollout, "cat token", new("cat token"))
                tokens.append(token)
                bash(rollout, "echo 1 > f")
                assert see(rollout, "cat token", new("cat token")) == {token}
                with pytest.raises(StateLost), cache.materialise(rollout.state):
                    pass
        assert len(set(tokens)) == 3


@pytest.mark.usefixtures("proofs_at_once")
def test_beyond_what_cannot_be_kept_all_goes_on_from_where_it_can_again(tmp_path: Path) -> None:
    backend = FakeBackend(captures=WITHOUT_PROCESSES)
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        history = ["echo 1 > f", "sleep 1000 &", "kill $!; wait", TOKEN, "cat token"]
        for _ in range(3):
            results = run(cache, *history)
            assert sources(results)[1] == "executed"
            assert results[-1].source == "executed", "below another state each time"
        assert sources(run(cache, "echo 1 > f", "cat f"))[0] == "hit"


def test_an_evicted_state_answers_no_call_beyond_it(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        before = run(cache, TOKEN, "cat token")[1].output
        assert evict(cache) == 1
        silent, shown = run(cache, TOKEN, "cat token")
        assert sources([silent, shown]) == ["executed", "executed"]
        assert shown.output != before
        assert sources(run(cache, TOKEN, "cat token")) == ["hit", "hit"]


def test_eviction_spares_what_a_rollout_stands_on(tmp_path: Path) -> None:
    """Though it was only answered, and has no sandbox."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, TOKEN, "echo 1 > f", "echo 2 > f")
        with cache.rollout("terminal") as rollout:
            assert [bash(rollout, command).source for command in (TOKEN, "echo 1 > f")] == ["hit", "hit"]
            assert evict(cache) == 2
            assert [snapshot.state for snapshot in cache.graph.snapshots()] == [rollout.state]
            assert bash(rollout, "cat f").output == "1\n"
        assert evict(cache) == 1


@pytest.mark.usefixtures("proofs_at_once")
def test_eviction_spares_the_snapshot_above_proven_calls(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        token = run(cache, TOKEN, "cat token")[1].output
    prove(tmp_path, backend, [TOKEN, "echo 1 > f", "echo 2 > f"])
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache, cache.rollout("terminal") as rollout:
        for command in (TOKEN, "echo 1 > f", "echo 2 > f"):
            assert bash(rollout, command).source == "hit"
        assert evict(cache) == 0
        assert bash(rollout, "cat f token").output == f"2\n{token}"


def test_a_snapshot_that_goes_while_it_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the lookup, and before the rollout has written down where it is about to stand."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, TOKEN, "cat token")
        lookup = cache.graph.lookup
        evicted: list[int] = []

        def slow(*arguments: Any, **options: Any) -> Edge | None:
            found = lookup(*arguments, **options)
            if found is not None and not evicted:
                evicted.append(evict(cache))
            return found

        monkeypatch.setattr(cache.graph, "lookup", slow)
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, TOKEN).source == "executed"
            assert len(see(rollout, "cat token", new("cat token"))) == 1
        assert evicted == [1]


def test_a_hit_during_an_eviction_waits_for_its_end(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED) as cache, threads(1) as pool:
        run(cache, TOKEN, "cat token")
        with cache.rollout("terminal") as rollout:
            with Holds(tmp_path).evicting() as held:
                assert held == {rollout.state}
                assert rollout._engine.try_hit(Call("bash", {"command": TOKEN})) is None, "an event loop does not wait"
                assert rollout.state == rollout.root
                calling = pool.submit(bash, rollout, TOKEN)
                assert not calling.done()
            assert calling.result(60).source == "hit"
            assert rollout._engine.try_hit(Call("bash", {"command": "cat token"})) is not None


@pytest.mark.usefixtures("proofs_at_once")
def test_a_replay_whose_output_alone_differs_leads_to_the_state(tmp_path: Path) -> None:
    """What it left behind was compared, and is the same; and the rollout was told what the record says."""
    backend = FakeBackend()
    history = ["echo $RANDOM; echo 1 > f", "x=1"]
    with open_cache(tmp_path, backend, policy="never", budget=NOT_PARKED) as cache:
        assert sources(run(cache, *history)) == ["executed"] * 2
        # It says something else, so it leads to another state, which is proven since it holds the same.
        assert sources(run(cache, *history)) == ["executed"] * 2
        assert sources(run(cache, *history)) == ["hit", "executed"]
    with open_cache(tmp_path, backend, policy="never", budget=NOT_PARKED) as cache:
        for _ in range(3):
            with cache.rollout("terminal") as rollout:
                assert [bash(rollout, command).source for command in history] == ["hit"] * 2
                assert bash(rollout, new("cat f; echo $x")).output == "1\n1\n"
        assert all(edge.deterministic for edge in every_edge(cache))


@pytest.mark.usefixtures("proofs_at_once")
def test_what_was_told_of_files_is_told_again(tmp_path: Path) -> None:
    """A result may tell the times of files that its call has written: those of another execution are others."""
    backend = FakeBackend()
    told, quiet = "echo 1 > f; echo $RANDOM", "x=1; echo $RANDOM"
    with open_cache(tmp_path, backend, policy="never", budget=NOT_PARKED) as cache:
        ends = []
        for command in (told, told, quiet, quiet):
            with cache.rollout("terminal") as rollout:
                assert bash(rollout, command).source == "executed"
                settle(rollout)
                ends.append(rollout.state)
        assert ends[0] != ends[1], "another result, with other files"
        assert ends[2] == ends[3], "no file was written, whose time could have been told"
        assert backend.counts["set_file_times"] == 0


@pytest.mark.usefixtures("proofs_at_once")
def test_files_get_the_times_that_were_recorded(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, policy="never", budget=NOT_PARKED) as cache:
        run(cache, "echo 1 > f", "echo 2 > g")
        assert backend.counts["set_file_times"] == 0
        run(cache, "echo 1 > f", "echo 2 > g")
        assert backend.counts["set_file_times"] == 2
        assert sources(run(cache, "echo 1 > f", "echo 2 > g", "cat f g")) == ["hit", "hit", "executed"]
        assert backend.counts["set_file_times"] == 4, "they are made again"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_state_that_is_lost_is_told_of_at_once(tmp_path: Path, policy: str) -> None:
    """When it is resumed, and not at its first call."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend, policy=policy, budget=NOT_PARKED) as cache:
        with cache.rollout("terminal") as rollout:
            bash(rollout, TOKEN)
            state = rollout.state
            settle(rollout)
        evict(cache)
        begun = len(cache.graph.rollouts())
        with pytest.raises(StateLost, match=r"can no longer be reached: it has no snapshot, and, made again, .*token"):
            cache.resume(state)
        assert all(record.finished for record in cache.graph.rollouts()[begun:])
        with pytest.raises(StateLost), cache.materialise(state):
            pass
        eventually(lambda: not backend.live)


def test_what_is_reached_again_can_be_resumed(tmp_path: Path) -> None:
    """It was never proven, and comes to the same this time: the digests tell."""
    with open_cache(tmp_path, policy="never", budget=NOT_PARKED) as cache:
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo 1 > f")
            state = rollout.state
        with cache.resume(state) as resumed:
            assert bash(resumed, "cat f").output == "1\n"


def test_a_rollout_whose_snapshot_is_destroyed_is_told(tmp_path: Path) -> None:
    """It was shown a token that is gone from the world: it is not moved to another."""
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        backend = backend_of(cache)
        run(cache, TOKEN, "cat token")
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, TOKEN).source == "hit"
            shown = bash(rollout, "cat token").output
            backend.faults.fail("fork", SnapshotUnusable("a bit was flipped"))
            for _ in range(2):
                with pytest.raises(StateLost, match="left something else behind; a rollout that is begun anew"):
                    bash(rollout, new("cat token"))
            assert bash(rollout, "cat token").output == shown, "what is recorded there is still its past"
        eventually(lambda: cache.graph.leases() == [])
        assert sources(run(cache, TOKEN)) == ["executed"]


def test_snapshots_that_are_gone_when_a_directory_is_opened(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        before = run(cache, TOKEN, "cat token")[1].output
    with open_cache(tmp_path, FakeBackend(seed=1)) as cache:
        results = run(cache, TOKEN, "cat token", new("cat token"))
        assert sources(results) == ["executed"] * 3
        assert results[1].output == results[2].output != before


def test_what_an_open_rollouts_sandbox_keeps_is_not_answered_to_others(tmp_path: Path) -> None:
    """They could not go on from there."""
    with open_cache(tmp_path, policy="never", budget=NOT_PARKED) as cache, cache.rollout("terminal") as one:
        bash(one, TOKEN)
        (first,) = see(one, "cat token")
        with cache.rollout("terminal") as two:
            assert bash(two, TOKEN).source == "executed"
            (second,) = see(two, "cat token", new("cat token"))
        assert first != second
        assert see(one, "cat token", new("cat token")) == {first}


@pytest.mark.parametrize("policy", POLICIES)
def test_many_rollouts_and_an_evictor(tmp_path: Path, policy: str) -> None:
    """All goes on at the same time, several rollouts on one history, and no rollout sees parts of two executions."""
    backend = FakeBackend(delays={"checkpoint": 0.002})
    done = threading.Event()

    def roll(cache: Cache, number: int) -> tuple[int, int]:
        with cache.rollout("terminal") as rollout:
            bash(rollout, f"echo $RANDOM > token{number % 2}")
            one = see(rollout, f"cat token{number % 2}")
            bash(rollout, "echo $RANDOM > other")
            two = see(rollout, "cat other")
            for _ in range(3):
                one |= see(rollout, f"cat token{number % 2}", new(f"cat token{number % 2}"))
                two |= see(rollout, "cat other", new("cat other"))
            assert not rollout.private or "at the same time" in rollout.private
            return len(one), len(two)

    def keep_evicting(cache: Cache) -> int:
        count = 0
        while not done.wait(0.001):
            count += evict(cache)
        return count

    with open_cache(tmp_path, backend, policy=policy, budget=Budget(parked=2)) as cache, threads(7) as pool:
        evicting = pool.submit(keep_evicting, cache)
        for seen in pool.map(lambda number: roll(cache, number), range(30)):
            assert seen == (1, 1)
        done.set()
        assert policy == "never" or evicting.result(60) > 0


def test_two_caches_share_no_more_than_one_past(tmp_path: Path) -> None:
    """Each with its own policy on one directory: what one cannot keep is nothing to the other."""
    backend = FakeBackend()
    with (
        open_cache(tmp_path, backend, policy="never", budget=NOT_PARKED) as one,
        open_cache(tmp_path, backend, policy="eager", budget=NOT_PARKED) as two,
    ):
        for cache in (one, two, one, two):
            with cache.rollout("terminal") as rollout:
                bash(rollout, TOKEN)
                assert len(see(rollout, "cat token", new("cat token"), "cat token")) == 1
        assert sources(run(one, TOKEN, "cat token")) == ["hit", "hit"], "as the other keeps it"


@pytest.fixture(autouse=True)
def no_sandbox_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    before = threading.enumerate()
    yield
    begun = [thread for thread in threading.enumerate() if thread not in before]
    assert not [thread for thread in begun if thread.name.startswith("tvsnap-work")]
