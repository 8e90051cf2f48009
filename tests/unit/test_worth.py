"""Whether the cache is worth what it costs, and how rollouts go on where it is not."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.caches import IMAGE, backend_of, bash, open_cache, settle, sources
from tvsnap import Budget
from tvsnap.cache import Cache
from tvsnap.engine.keeping.policy import Balance, BreakEven
from tvsnap.engine.keeping.policy.costs import DEFAULTS
from tvsnap.engine.keeping.policy.snapshotting import RecordAll
from tvsnap.engine.keeping.worth import (
    BESIDE,
    COURSES_REMEMBERED,
    LEAST_EXECUTED,
    LONG,
    MEMORY,
    MEMORY_OF_CALLS,
    REMEMBERED,
    STEADY,
    UNPROFITABLE,
    Worth,
)
from tvsnap.graph import Graph
from tvsnap.model.errors import NotFound, StateLost, TvsnapError
from tvsnap.model.tuning import DEFAULT_TUNING


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Choosy(BreakEven):
    """Keeps every state, and records while it is told to."""

    name = "choosy"

    def __init__(self) -> None:
        self.records = True
        self.balances: list[Balance] = []

    def should_checkpoint(self, *_: object) -> bool:
        return True

    def should_record(self, balance: Balance) -> bool:
        self.balances.append(balance)
        return self.records


@pytest.fixture(autouse=True)
def all_is_recorded() -> None:
    """Here, trials are as short as they are."""


class Machine:
    """A machine with a clock, whose processors are as busy as they are told to be."""

    def __init__(self, used: float = 0.0, crowding: float = 1.0, computing: float = 1.0) -> None:
        self.clock = Clock()
        self.used = used
        self.crowding = crowding
        self.busy_s = self.computed_s = 0.0
        self.its = Worth(
            BreakEven(),
            crowding=lambda: self.crowding,
            busy_seconds=lambda: self.busy_s,
            computed=lambda: self.computed_s,
            clock=self.clock,
        )
        self.its.executed(2 * LEAST_EXECUTED)
        self.computed_s = 2 * LEAST_EXECUTED * computing

    def go_on(self, seconds: float) -> None:
        self.clock.now += seconds
        self.busy_s += seconds * self.used * (os.cpu_count() or 1)

    @contextlib.contextmanager
    def calls(self, count: int) -> Iterator[Worth]:
        """A block in which so many calls are being made, and have been for a while."""
        for _ in range(count):
            self.its.call_begins()
        for _ in range(20):
            self.go_on(STEADY)
            self.its.balance("another")
        yield self.its
        for _ in range(count):
            self.its.call_ends()


PROCESSORS = len(os.sched_getaffinity(0))


def test_what_costs_no_more_than_it_brings_is_recorded() -> None:
    policy = BreakEven()
    assert policy.should_record(Balance())
    assert policy.should_record(Balance(cost_s=2.0, spared_s=2.0))
    assert policy.should_record(Balance(cost_s=1.0, lasted_s=1.001 / DEFAULT_TUNING.record_share))
    assert not policy.should_record(Balance(cost_s=1.0, lasted_s=0.999 / DEFAULT_TUNING.record_share))
    assert not policy.should_record(Balance(cost_s=1.0))
    assert policy.should_record(Balance(cost_s=1.0, trial_s=1.0)), "it is still tried"


def test_a_trial_is_shorter_where_many_calls_are_made_at_once() -> None:
    machine, whole = Machine(), DEFAULT_TUNING.trial_s
    with machine.calls(1) as its:
        assert its.balance("image").trial_s == whole
    with machine.calls(8) as its:
        assert its.balance("image").trial_s == whole / 8
    with machine.calls(1) as its:
        assert whole / 8 < its.balance("image").trial_s < whole, "these were there just now"
    machine.go_on(10 * MEMORY)
    with machine.calls(1) as its:
        assert its.balance("image").trial_s == whole


def test_who_is_held_up_at_once_and_after_a_while() -> None:
    many = PROCESSORS + 1
    machine = Machine(used=1.0)
    assert not machine.its.is_held_up
    with machine.calls(4 * many) as its:
        assert its.is_held_up, "the processors have been busy"
    for crowding, calls, held_up in ((4.0, many, True), (4.0, PROCESSORS, False), (1.0, many, False)):
        machine = Machine(crowding=crowding)
        for _ in range(calls):
            machine.its.call_begins()
        machine.go_on(STEADY / 5)
        assert machine.its.is_held_up is held_up
    assert not Worth(RecordAll(), crowding=lambda: 9.0).is_held_up


def test_who_waits_where_processors_are_idle_is_held_up() -> None:
    machine = Machine()
    with machine.calls(8) as its:
        its.add("image", waiting_s=6.0, lasted_s=4.0, working_s=5.0, acquiring_s=6.0)
        its.answered("image", 0.5, waiting_s=0.1, lasted_s=1.0)
        balance = its.balance("image")
    assert (balance.cost_s, balance.spared_s, balance.lasted_s) == pytest.approx((6.1, 0.5, 5.0))
    assert not BreakEven().should_record(balance)


def test_where_processors_are_busy_work_holds_all_up() -> None:
    machine = Machine(used=1.0, crowding=2.0, computing=0.25)
    with machine.calls(1 + 3 * PROCESSORS) as its:
        its.add("image", waiting_s=3.0, working_s=5.0, acquiring_s=6.0)
        its.answered("image", 4.0, waiting_s=0.1, lasted_s=1.0)
        balance = its.balance("image")
    assert balance.cost_s == pytest.approx(3 * (5.0 + BESIDE * 6.0 / 2.0), rel=1e-3), "three calls want each processor"
    assert balance.spared_s == pytest.approx(3 * 0.25 * 4.0, rel=1e-3), "a processor would have worked a quarter of it"


def test_a_rollout_by_itself_is_held_up_by_its_waits_only() -> None:
    machine = Machine(used=1.0)
    with machine.calls(1) as its:
        its.add("image", waiting_s=3.0, working_s=5.0)
        assert its.balance("image").cost_s == pytest.approx(3.0)
        assert its.busy == 0.0


def test_what_was_long_ago_counts_less() -> None:
    machine = Machine()
    with machine.calls(1) as its:
        its.add("image", waiting_s=2.0, lasted_s=2.0)
        assert not its.is_given("image")
        machine.go_on(10 * MEMORY)
        assert its.is_given("image")


def test_who_begins_with_an_answer_is_spared_a_start() -> None:
    its = Machine().its
    its.answered("image", 0.01, waiting_s=0.0, lasted_s=0.0)
    its.answered("image", 0.01, waiting_s=0.0, lasted_s=0.0, spared_s=0.1)
    assert its.balance("image").spared_s == pytest.approx(0.12), "the usual start: none was seen yet"
    its.started("image", 0.5)
    its.answered("image", 0.01, waiting_s=0.0, lasted_s=0.0, spared_s=0.1)
    assert its.balance("image").spared_s == pytest.approx(0.63)


def test_what_holds_nobody_up_is_recorded() -> None:
    machine = Machine()
    with machine.calls(8) as its:
        for _ in range(100):
            its.add("short", working_s=1.0, acquiring_s=1.0)
            assert its.is_given("short"), "there are processors to spare"


def test_images_of_long_ago_are_forgotten() -> None:
    its = Machine().its
    for number in range(2 * REMEMBERED):
        its.add(str(number), lasted_s=1.0)
    assert len(its._sums) == REMEMBERED


def test_a_policy_that_says_nothing_of_it_records_all(tmp_path: Path) -> None:
    class Plain:
        name = "plain"

        def should_checkpoint(self, *_: object) -> bool:
            return True

    assert Worth(Plain()).is_given("image")
    choosy = Choosy()
    choosy.records = False
    assert Worth(choosy, always=True).is_given("image")
    assert not choosy.balances
    with open_cache(tmp_path, policy=choosy, same_ids=True) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        assert rollout.private is None


@pytest.fixture
def choosy() -> Choosy:
    return Choosy()


@pytest.fixture
def cache(tmp_path: Path, choosy: Choosy) -> Iterator[Cache]:
    with open_cache(tmp_path, policy=choosy, budget=Budget(parked=0)) as cache:
        yield cache


def looks(cache: Cache) -> int:
    counts = backend_of(cache).counts
    return counts["observe"] + counts["digest"]


def test_what_calls_compute_is_that_of_late_ones() -> None:
    machine = Machine(used=1.0, computing=1.0)
    with machine.calls(1 + 3 * PROCESSORS) as its:
        its.executed(10 * MEMORY_OF_CALLS)  # they slept
        machine.go_on(STEADY)
        its.answered("sleeping", 4.0, waiting_s=0.0, lasted_s=0.0)
        assert its.balance("sleeping").spared_s == pytest.approx(0.0, abs=0.01)
        for _ in range(100):
            its.executed(MEMORY_OF_CALLS / 10)
            machine.computed_s += MEMORY_OF_CALLS / 10
            machine.go_on(STEADY)
            its.balance("computing")
        its.answered("computing", 4.0, waiting_s=0.0, lasted_s=0.0)
        assert its.balance("computing").spared_s == pytest.approx(3 * 4.0, rel=0.01)


def test_a_long_call_that_is_missed_counts_once_when_it_is_made_again() -> None:
    machine = Machine()
    with machine.calls(1) as its:
        its.add("image", waiting_s=2.0)
        its.missed("image", "course", 3.0)
        assert not its.is_given("image"), "it may never be made again"
        for _ in range(3):
            its.missed("image", "course", 3.0)
        assert its.is_given("image")
        assert its.balance("image").spared_s == pytest.approx(3.0)


def test_missed_calls_of_long_ago_are_forgotten() -> None:
    its = Machine().its
    for number in range(2 * COURSES_REMEMBERED):
        its.missed("image", str(number), 1.0)
    assert len(its._missed) == COURSES_REMEMBERED


def test_what_is_not_worth_it_is_not_looked_at(cache: Cache, choosy: Choosy) -> None:
    choosy.records = False
    for _ in range(2):
        with cache.rollout("terminal") as rollout:
            results = [bash(rollout, f"echo {number} >> f; cat f") for number in range(3)]
            assert [result.output for result in results] == ["0\n", "0\n1\n", "0\n1\n2\n"]
            assert sources(results) == ["executed"] * 3
            assert rollout.private == rollout.unshared == UNPROFITABLE
            assert rollout.depth == 3
    stats = cache.stats()
    assert (looks(cache), stats.checkpoints, stats.forks, stats.starts) == (0, 0, 0, 2)


def test_what_was_not_looked_at_is_in_the_tree(cache: Cache, choosy: Choosy) -> None:
    choosy.records = False
    with cache.rollout("terminal", task="short") as rollout:
        calls = [f"echo {number} > f" for number in range(3)]
        for call in calls:
            bash(rollout, call)
        edges = cache.graph.lineage(rollout.state)
        assert [edge.call.arguments["command"] for edge in edges] == calls
        assert {(edge.shared, edge.reason) for edge in edges} == {(False, UNPROFITABLE)}
        assert cache.graph.state(rollout.state).private == UNPROFITABLE
        assert cache.graph.tasks() == ["short"]


def test_others_find_what_was_not_looked_at_once_its_rollout_has_ended(cache: Cache, choosy: Choosy) -> None:
    choosy.records = False
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        state = rollout.state
        with Graph(cache.home / "tvsnap.db") as other, pytest.raises(NotFound):
            other.state(state)
    with Graph(cache.home / "tvsnap.db") as other:
        assert other.state(state).private == UNPROFITABLE
    with pytest.raises(StateLost, match="would leave the same behind again cannot be told"):
        cache.resume(state)


def test_where_it_stands_can_be_kept_after_all(cache: Cache, choosy: Choosy) -> None:
    choosy.records = False
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        bash(rollout, "echo 2 >> f")
        forks = rollout.fork(2)
        with cache.materialise(rollout.state) as sandbox:
            assert sandbox.read_file("/task/f") == b"1\n2\n"
        assert cache.graph.snapshot(rollout.state, cache.backend.name) is not None
        for number, fork in enumerate(forks):
            assert bash(fork, f"echo fork {number} >> f; cat f").output == f"1\n2\nfork {number}\n"
            fork.close()
        assert bash(rollout, "echo 3 >> f; cat f").output == "1\n2\n3\n"


def test_time_counts_where_it_is_kept_after_all(cache: Cache, choosy: Choosy) -> None:
    """Whether something runs by itself is found out when it matters."""
    choosy.records = False
    with cache.rollout("terminal") as rollout:
        bash(rollout, "sleep 100 && echo late > f &")
        made_by = cache.graph.edge_to(rollout.state)
        assert made_by is not None
        assert made_by.quiet_s == 0.0, "nobody knows"
        for fork in rollout.fork():
            fork.close()
        made_by = cache.graph.edge_to(rollout.state)
        assert made_by is not None
        assert made_by.active
        assert made_by.quiet_s > 50.0


def test_what_was_done_outside_is_noticed(cache: Cache, choosy: Choosy) -> None:
    choosy.records = False
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        before = rollout.state
        rollout.sandbox().run("echo 2 >> f", timeout=5)
        assert rollout.keep("more") != before
        assert bash(rollout, "cat f").output == "1\n2\n"


@pytest.mark.parametrize("records", [True, False])
def test_the_state_is_that_after_what_was_done_outside(cache: Cache, choosy: Choosy, records: bool) -> None:
    choosy.records = records
    with cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        before = rollout.state
        rollout.sandbox().run("echo 2 >> f", timeout=5)
        state = rollout.state
        assert state != before
        with cache.materialise(state) as sandbox:
            assert sandbox.read_file("/task/f") == b"1\n2\n"
        assert rollout.state == state
        assert bash(rollout, "cat f").output == "1\n2\n"


def test_an_answer_that_saves_more_than_a_fork_costs_is_given(cache: Cache, choosy: Choosy) -> None:
    commands = ["echo 1 > f", f"sleep {1.5 * DEFAULTS['fork']}; echo 2 >> f", "cat f"]
    with cache.rollout("terminal") as rollout:
        for command in commands:
            bash(rollout, command)
        settle(rollout)
    choosy.records = False
    with cache.rollout("terminal", label="from the root") as rollout:
        assert rollout._engine.try_hit("bash", {"command": commands[0]}) is None
        assert bash(rollout, commands[0]).source == "executed", "these take less than a fork would later"
        assert rollout.private == UNPROFITABLE
    choosy.records = True
    with cache.rollout("terminal") as rollout:
        answered = rollout._engine.try_hit("bash", {"command": commands[0]})
        assert answered is not None
        assert answered.source == "hit"
        choosy.records = False
        assert bash(rollout, commands[1]).source == "hit", "there is no sandbox to execute it in"
        assert rollout.private is None
        assert bash(rollout, "echo 3 >> f; cat f").output == "1\n2\n3\n"
        assert rollout.private == UNPROFITABLE


def test_answers_are_given_where_a_long_call_usually_follows(cache: Cache, choosy: Choosy) -> None:
    commands = ["echo 1 > f", f"sleep {2 * LONG}; echo 2 >> f"]
    for _ in range(4):
        with cache.rollout("terminal") as rollout:
            for command in commands:
                bash(rollout, command)
            settle(rollout)
    choosy.records = False
    with cache.rollout("terminal") as rollout:
        assert sources([bash(rollout, command) for command in commands]) == ["hit"] * 2


def test_a_long_call_that_nobody_records_is_recorded_once_it_is_made_again(tmp_path: Path) -> None:
    class Stingy(BreakEven):
        def should_record(self, balance: Balance) -> bool:
            return balance.spared_s > 0.0

    long = f"sleep {LONG}; echo 1 >> f"
    with open_cache(tmp_path, policy=Stingy()) as cache:
        made = []
        for _ in range(4):
            with cache.rollout("terminal") as rollout:
                made += [bash(rollout, "echo 0 > f"), bash(rollout, long)]
                settle(rollout)
        assert sources(made) == ["executed"] * 6 + ["hit"] * 2


def test_a_call_that_fails_leaves_the_rollout_where_it_was(cache: Cache, choosy: Choosy) -> None:
    choosy.records = False
    backend_of(cache).faults.fail("start", TvsnapError("no room"))
    with cache.rollout("terminal") as rollout:
        with pytest.raises(TvsnapError):
            bash(rollout, "echo 1 > f")
        assert rollout.private is None
        choosy.records = True
        assert bash(rollout, "echo 1 > f; cat f").output == "1\n"
        assert rollout.private is None


def test_what_it_costs_is_accounted_for(cache: Cache, choosy: Choosy) -> None:
    with cache.rollout("terminal") as rollout:
        bash(rollout, "sleep 0.2; echo 1 > f")
        settle(rollout)
    with cache.rollout("terminal") as rollout:
        bash(rollout, "sleep 0.2; echo 1 > f")
        bash(rollout, "echo 2 > f")
        settle(rollout)
    balance = cache._context.worth.balance(IMAGE.digest)
    assert balance.lasted_s > 0
    assert balance.cost_s > 0, "the fork that the answer made necessary, at least"
    assert balance.spared_s > 0.2


def test_tools_that_change_nothing_are_recorded_in_any_case(cache: Cache, choosy: Choosy) -> None:
    choosy.records = False
    with cache.rollout("terminal") as rollout:
        rollout.call("read_file", {"path": "/task/f"})
        assert rollout.private is None


def test_rollouts_side_by_side_find_their_states(cache: Cache, choosy: Choosy) -> None:
    """While one thread writes what answers nobody, another asks for a state that is among it."""
    choosy.records = False
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                with cache.rollout("terminal", salt=f"{number}") as rollout:
                    bash(rollout, f"echo {turn} > f")
                    cache.graph.state(rollout.state)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
