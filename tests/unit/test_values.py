"""What states and calls were worth: means over the rollouts that stood there, and advantages for each call."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import FakeBackend
from tests.fakes.caches import BUSY, FakeImages, bash, open_cache, settle
from tvsnap import AsyncCache, Cache, TerminalEnvironment, ToolCall, tool
from tvsnap.graph import Graph
from tvsnap.host.home import GRAPH_FILE
from tvsnap.model.credit import Passage, Way, task_values
from tvsnap.model.errors import ForkFailed, InfrastructureError, NotFound, UsageError
from tvsnap.rollout import Rollout
from tvsnap.types import Credit, StateValue, TaskValues

FIRST, SECOND = ("echo a > f", "echo b > f"), ("echo c >> f", "echo d >> f", "echo e >> f")
PAYS = {
    (FIRST[0], SECOND[0]): (0.0, 1.0),
    (FIRST[0], SECOND[1]): (0.5, 0.5),
    (FIRST[0], SECOND[2]): (1.0, 1.0),
    (FIRST[1], SECOND[0]): (0.25, 0.75),
    (FIRST[1], SECOND[1]): (0.0, 0.0),
    (FIRST[1], SECOND[2]): (0.1, 0.3),
}
"""The environment: two choices, of two and three, and a coin that falls at the end: the reward of either side."""
CHOOSES: dict[str | None, tuple[float, ...]] = {None: (0.7, 0.3), FIRST[0]: (0.2, 0.3, 0.5), FIRST[1]: (0.6, 0.3, 0.1)}
"""The policy: the chances of the second choices, after the first; and of the first."""


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with open_cache(tmp_path) as cache:
        yield cache


def play(cache: Cache, commands: Sequence[str], reward: float | None = None, task: str = "t", **options: Any) -> str:
    """Makes a rollout; returns its id."""
    with cache.rollout("terminal", task, **options) as rollout:
        return go_on(rollout, commands, reward)


def go_on(rollout: Rollout, commands: Sequence[str], reward: float | None = None) -> str:
    for command in commands:
        bash(rollout, command)
        settle(rollout)
    if reward is not None:
        rollout.record(reward)
    return str(rollout.id)


def means(value: StateValue) -> dict[str | None, float]:
    """Returns the means of what was done in a state, by command; that of ending as None."""
    return {None if one.call is None else one.call.arguments["command"]: one.mean for one in value.calls}


def weighted(values: TaskValues, state: str) -> float:
    """Returns the sum of the advantages of all that was done in a state."""
    total = []
    for credit in values.rollouts:
        made = zip(credit.states, credit.advantages, strict=True)
        total += [advantage for at, advantage in made if at == state]
    return math.fsum(total)


def test_where_each_way_was_gone_once_the_means_are_the_values(cache: Cache) -> None:
    ways = [(first, second, side) for first, second in PAYS for side in (0, 1)]
    for first, second, side in ways:
        play(cache, (first, second), PAYS[first, second][side])
    values = cache.values("t")
    root, *below = values.states
    assert len(below) == 2 + 6
    assert len({credit.states for credit in values.rollouts}) == 2
    rewards = [PAYS[first, second][side] for first, second, side in ways]
    assert root.rollouts == 12
    assert root.mean == pytest.approx(sum(rewards) / 12, rel=1e-15)
    assert root.variance == pytest.approx(sum((one - root.mean) ** 2 for one in rewards) / 11)
    true = {first: sum(sum(PAYS[first, second]) for second in SECOND) / 6 for first in FIRST}
    assert means(root) == pytest.approx(true, rel=1e-15)
    for first, (state, *_) in zip(FIRST, itertools.groupby(row.states[1] for row in values.rollouts), strict=True):
        assert means(values.at(state)) == {second: sum(PAYS[first, second]) / 2 for second in SECOND}
        assert values.at(state).rollouts == 6
    for (first, second, side), credit in zip(ways, values.rollouts, strict=True):
        reward = PAYS[first, second][side]
        of_first = sum(sum(PAYS[first, other]) for other in SECOND)
        baselines = ((math.fsum(rewards) - reward) / 11, (of_first - reward) / 5)
        assert credit.reward == reward
        assert credit.advantage == pytest.approx(reward - baselines[0])
        assert credit.stood == (12, 6)
        assert credit.baselines == pytest.approx(baselines)
        assert credit.advantages == pytest.approx(
            (
                (true[first] - root.mean) * 12 / 11,
                (sum(PAYS[first, second]) / 2 - true[first]) * 6 / 5,
            )
        )
        assert credit.end == 0.0, "there was no other choice"


def test_the_more_rollouts_there_are_the_nearer_are_the_means_to_the_values(cache: Cache) -> None:
    chance, count = random.Random(1), 400
    for _ in range(count):
        (first,) = chance.choices(FIRST, CHOOSES[None])
        (second,) = chance.choices(SECOND, CHOOSES[first])
        play(cache, (first, second), chance.choice(PAYS[first, second]))
    values = cache.values("t")
    of_second = {ways: sum(sides) / 2 for ways, sides in PAYS.items()}
    of_first = {
        first: sum(p * of_second[first, second] for p, second in zip(CHOOSES[first], SECOND, strict=True))
        for first in FIRST
    }
    at_root = sum(p * of_first[first] for p, first in zip(CHOOSES[None], FIRST, strict=True))
    assert values.states[0].mean == pytest.approx(at_root, abs=3 / 2 / count**0.5)
    for one in values.states[0].calls:
        assert one.call is not None
        first = one.call.arguments["command"]
        assert one.mean == pytest.approx(of_first[first], abs=3 / 2 / one.rollouts**0.5)
        assert one.rollouts == pytest.approx(count * CHOOSES[None][FIRST.index(first)], abs=3 / 2 * count**0.5)
        state = next(row.states[1] for row in values.rollouts if values.at(row.states[1]).mean == one.mean)
        for after in values.at(state).calls:
            assert after.call is not None
            expected = of_second[first, after.call.arguments["command"]]
            assert after.mean == pytest.approx(expected, abs=3 / 2 / after.rollouts**0.5)


@pytest.mark.parametrize("group", [2, 3])
def test_the_gradient_has_the_expectation_of_the_policy_s_own(group: int) -> None:
    """Of all groups that there can be, each with its chance."""
    ends = [
        (first, second, side, CHOOSES[None][one] * CHOOSES[first][other] / 2)
        for one, first in enumerate(FIRST)
        for other, second in enumerate(SECOND)
        for side in (0, 1)
    ]
    means: dict[str, defaultdict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
    for rollouts in itertools.product(ends, repeat=group):
        ways = [
            Way(str(number), PAYS[first, second][side], "root", _passages(first, second), first + second)
            for number, (first, second, side, _) in enumerate(rollouts)
        ]
        chance = math.prod(each for *_, each in rollouts)
        for way, credit in zip(ways, task_values("t", None, ways).rollouts, strict=True):
            for each, advantage in zip(way.passages, credit.advantages, strict=True):
                for kind, gain in (("by state", advantage), ("by rollout", credit.advantage)):
                    for command, slope in _slopes(each).items():
                        means[kind][each.state, command] += chance * slope * gain / group
    of_second = {ways: sum(sides) / 2 for ways, sides in PAYS.items()}
    of_first = {
        first: sum(p * of_second[first, second] for p, second in zip(CHOOSES[first], SECOND, strict=True))
        for first in FIRST
    }
    at_root = sum(p * of_first[first] for p, first in zip(CHOOSES[None], FIRST, strict=True))
    true = {("root", first): p * (of_first[first] - at_root) for p, first in zip(CHOOSES[None], FIRST, strict=True)} | {
        (first, second): reached * p * (of_second[first, second] - of_first[first])
        for reached, first in zip(CHOOSES[None], FIRST, strict=True)
        for p, second in zip(CHOOSES[first], SECOND, strict=True)
    }
    assert means.keys() == {"by state", "by rollout"}
    for gradient in means.values():
        assert dict(gradient) == pytest.approx(true, abs=1e-12)


def _passages(first: str, second: str) -> list[Passage]:
    at = {"root": first, first: second}
    return [
        Passage(place, state, command, ToolCall("bash", {"command": command}))
        for place, (state, command) in enumerate(at.items(), 1)
    ]


def _slopes(made: Passage) -> dict[str, float]:
    """Returns the derivatives of the logarithm of a choice's chance with respect to the policy's logits there."""
    choices = FIRST if made.state == "root" else SECOND
    chances = CHOOSES[None if made.state == "root" else made.state]
    return {one: (one == made.key) - chance for one, chance in zip(choices, chances, strict=True)}


def test_the_advantages_in_a_state_sum_up_to_nothing(cache: Cache) -> None:
    chance = random.Random(2)
    for _ in range(12):
        ways = (chance.choice(FIRST), chance.choice(SECOND))
        play(cache, ways, chance.choice(PAYS[ways]))
    values = cache.values("t")
    for value in values.states[:1] + tuple(values.at(row.states[1]) for row in values.rollouts):
        assert weighted(values, value.state) == pytest.approx(0, abs=1e-12)
    assert math.fsum(credit.advantage for credit in values.rollouts) == pytest.approx(0, abs=1e-12)
    for value in values.states:
        assert value.mean == pytest.approx(sum(one.mean * one.rollouts for one in value.calls) / value.rollouts)


def test_to_end_is_a_choice(cache: Cache) -> None:
    stays = play(cache, ["echo 1 > f"], 1.0)
    goes = play(cache, ["echo 1 > f", "echo 2 > f"], 0.0)
    values = cache.values("t")
    assert values.of(stays).advantages == (0.0,)
    assert values.of(stays).end == 1.0
    assert values.of(goes).advantages == (0.0, -1.0)
    state = values.of(goes).states[1]
    assert means(values.at(state)) == {None: 1.0, "echo 2 > f": 0.0}
    assert weighted(values, state) + values.of(stays).end == 0.0


def test_an_advantage_is_the_mean_of_those_that_leave_one_out(cache: Cache) -> None:
    rewards = {("echo 1 > f",): (1.0, 0.0, 0.25), ("echo 2 > f",): (0.5,), (): (0.75, 0.0)}
    for ways, those in rewards.items():
        for reward in those:
            play(cache, ways, reward)
    values = cache.values("t")
    root = values.states[0]
    all_ = [reward for those in rewards.values() for reward in those]
    for one, those in zip(root.calls, rewards.values(), strict=True):
        left_out = [reward - (sum(all_) - reward) / 5 for reward in those]
        assert one.advantage == pytest.approx(sum(left_out) / len(left_out))
    assert sum((one.advantage or 0.0) * one.rollouts for one in root.calls) == pytest.approx(0, abs=1e-12)
    assert [credit.advantage for credit in values.rollouts] == pytest.approx(
        [reward - (sum(all_) - reward) / 5 for reward in all_]
    )


def test_equal_rewards_leave_no_advantage_at_all(cache: Cache) -> None:
    ids = [play(cache, ways, 0.1) for ways in (*PAYS, *PAYS, (FIRST[0],))]
    values = cache.values("t")
    assert {value.mean for value in values.states} == {0.1}
    assert {value.variance for value in values.states} <= {0.0, None}
    for id in ids:
        credit = values.of(id)
        assert {credit.advantage, *credit.advantages, credit.end} == {0.0}


def test_where_a_rollout_stood_alone_its_advantage_is_that_over_its_group(cache: Cache) -> None:
    alone = play(cache, ["echo 1 > f", "echo 2 > f", "echo 3 > f"], 1.0)
    for reward in (0.0, 0.5):
        play(cache, ["echo 0 > f"], reward)
    credit = cache.values("t").of(alone)
    assert credit.stood == (3, 1, 1)
    assert credit.advantage == 0.75
    assert credit.baselines == (0.25, 0.25, 0.25)
    assert credit.advantages == (0.75, 0.75, 0.75)
    assert credit.end == 0.75


def test_a_single_rollout_is_compared_with_nothing(cache: Cache) -> None:
    id = play(cache, ["echo 1 > f"], 1.0)
    credit = cache.values("t").of(id)
    assert (credit.advantage, credit.advantages, credit.baselines, credit.end) == (0.0, (0.0,), (1.0,), 0.0)
    assert not credit.compared
    play(cache, [], 0.0)
    assert cache.values("t").of(id).compared


def test_calls_that_change_nothing_are_made_in_one_state_and_count_there_once(cache: Cache) -> None:
    reads = play(cache, ["echo 1 > f", "cat f", "cat f", "ls"], 1.0)
    writes = play(cache, ["echo 1 > f", "cat f", "echo 2 > f"], 0.0)
    values = cache.values("t")
    credit = values.of(reads)
    assert len(set(credit.states[1:])) == 1
    value = values.at(credit.states[1])
    assert (value.rollouts, value.mean, value.variance) == (2, 0.5, 0.5)
    assert means(value) == {"cat f": 0.5, "ls": 1.0, None: 1.0, "echo 2 > f": 0.0}
    assert credit.advantages == (0.0, 0.0, 0.0, 1.0)
    assert values.of(writes).advantages == (0.0, 0.0, -1.0)


def test_rollouts_without_a_reward_are_left_out(cache: Cache) -> None:
    assert cache.values("t") == TaskValues("t", None, (), ())
    none = play(cache, ["echo 1 > f", "echo 2 > f"])
    ids = [play(cache, ["echo 1 > f"], reward) for reward in (1.0, 0.0)]
    play(cache, ["echo 1 > f"], 1.0, task="other")
    values = cache.values("t")
    assert [credit.rollout for credit in values.rollouts] == ids
    assert [value.rollouts for value in values.states] == [2, 2]
    for id in (none, "0" * 16):
        with pytest.raises(NotFound, match="it has no reward"):
            values.of(id)
    with pytest.raises(NotFound, match="stood in state"):
        values.at("0" * 64)


def test_a_rollout_without_calls_counts_where_it_stood(cache: Cache) -> None:
    idle, other = play(cache, [], 0.0), play(cache, ["echo 1 > f"], 1.0)
    values = cache.values("t")
    assert (values.of(idle).advantages, values.of(idle).end, values.of(idle).advantage) == ((), -1.0, -1.0)
    assert values.of(other).advantages == (1.0,)


def test_a_grade_is_a_reward_and_no_call(cache: Cache) -> None:
    ids = []
    for text in ("1", "0"):
        with cache.rollout("terminal", "t") as rollout:
            bash(rollout, f"echo {text} > truth")
            rollout.grade("cat truth")
            ids.append(str(rollout.id))
    values = cache.values("t")
    assert [values.of(id).advantages for id in ids] == [(1.0,), (-1.0,)]
    assert [values.of(id).places for id in ids] == [(1,), (1,)]


def test_epochs_are_apart(cache: Cache) -> None:
    for epoch, reward in ((0, 0.0), (0, 0.0), (1, 1.0), (1, 0.5), (None, 0.25)):
        play(cache, ["echo 1 > f"], reward, epoch=epoch)
    for epoch, rollouts, mean in ((0, 2, 0.0), (1, 2, 0.75), (2, 0, 0.0), (None, 5, 0.35)):
        values = cache.values("t", epoch=epoch)
        assert values.epoch == epoch
        assert [value.rollouts for value in values.states] == ([rollouts] * 2 if rollouts else [])
        assert [value.mean for value in values.states] == ([mean] * 2 if rollouts else [])


def test_of_a_group_alone(cache: Cache) -> None:
    """Whatever else was made of the task, in the same epoch."""
    ids = [play(cache, ["echo 1 > f"], reward, epoch=0) for reward in (1.0, 0.0, 0.5, 0.5)]
    values = cache.values("t", epoch=0, rollouts=ids[:2])
    assert [one.rollout for one in values.rollouts] == ids[:2]
    assert [one.advantage for one in values.rollouts] == [1.0, -1.0]
    assert cache.values("t", rollouts=[]).rollouts == cache.values("other", rollouts=ids).rollouts == ()
    with pytest.raises(UsageError, match="must be a list of ids"):
        cache.values("t", rollouts=ids[0])


def test_advantages_of_turns_and_tokens() -> None:
    credit = Credit(
        "r", 1.0, 0.5, (1, 2, 4), ("a", "b", "c"), (2, 2, 1), (0.5, 0.5, 0.5), (0.0, 0.25, 0.75), -0.1, True
    )
    assert credit.by_turn(5) == (0.0, 0.25, 0.5, 0.75, -0.1)  # the third call came to no result
    assert credit.by_turn(4, setup=1) == (0.25, 0.5, 0.75, -0.1)
    assert credit.by_turn(3, setup=1) == (0.25, 0.5, 0.75)
    assert credit.by_turn(4, setup=1, ended=False) == (0.25, 0.5, 0.75, 0.5)
    assert credit.by_turn(1, setup=4) == (-0.1,)
    assert credit.by_token([(2, 4), (5, 6)], 8, setup=3) == [0.0, 0.0, 0.75, 0.75, 0.0, -0.1, 0.0, 0.0]
    with pytest.raises(UsageError, match="has 3 calls after the setup"):
        credit.by_turn(2, setup=1)


@pytest.mark.parametrize("turns", [[(2, 4), (5, 9)], [(2, 4), (3, 6)], [(5, 6), (2, 4)], [(-2, 2)], [(4, 2)]], ids=str)
def test_turns_that_are_none_of_the_tokens_give_no_row(turns: list[tuple[int, int]]) -> None:
    """Such a row would be longer than the rollout, or have the advantage of one turn in another's place."""
    credit = Credit("r", 1.0, 0.5, (1,), ("a",), (2,), (0.5,), (0.25,), -0.1, True)
    with pytest.raises(UsageError, match="turns must be in order and end at 8"):
        credit.by_token(turns, 8)


def test_rollouts_that_share_no_states_are_apart(cache: Cache) -> None:
    ids = [play(cache, ["echo 1 > f"], reward, salt=salt) for salt in ("a", "b") for reward in (1.0, 0.0)]
    values = cache.values("t")
    assert [value.rollouts for value in values.states] == [2, 2, 2, 2]
    assert [values.of(id).advantage for id in ids] == [1.0, -1.0, 1.0, -1.0]


def test_forks_count_from_where_they_began(cache: Cache) -> None:
    with cache.rollout("terminal", "t") as rollout:
        go_on(rollout, ["echo 1 > f"])
        with rollout.fork(2) as forks:
            ids = [go_on(fork, [f"echo {n} >> f"], float(n)) for n, fork in enumerate(forks)]
        start = rollout.state
        trunk = go_on(rollout, ["echo 1 >> f"], 0.5)
    values = cache.values("t")
    root, *_ = (value for value in values.states if value.state == rollout.root)
    assert (root.rollouts, root.mean) == (1, 0.5)
    assert (values.at(start).rollouts, values.at(start).mean) == (3, 0.5)
    assert means(values.at(start)) == {"echo 0 >> f": 0.0, "echo 1 >> f": 0.75}
    assert [values.of(id).advantage for id in ids] == [-0.75, 0.75]
    assert [values.of(id).advantages for id in ids] == [(-0.75,), (0.375,)]
    assert values.of(trunk).advantages == (0.0, 0.375)
    assert values.of(trunk).stood == (1, 3)


def test_private_rollouts_stand_alone_from_where_they_are_private(cache: Cache) -> None:
    ids = []
    for reward in (1.0, 0.0):
        with cache.rollout("terminal", "t") as rollout:
            bash(rollout, "echo 1 > f")
            bash(rollout, BUSY, timeout=0.2)
            assert rollout.private
            ids.append(go_on(rollout, ["cat f"], reward))
    one, other = (cache.values("t").of(id) for id in ids)
    assert one.states[:2] == other.states[:2]
    assert one.states[2] != other.states[2]
    assert one.stood == other.stood == (2, 2, 1)
    assert (one.advantages, one.end) == ((0.0, 0.0, 1.0), 1.0)
    assert (other.advantages, other.end) == ((0.0, 0.0, -1.0), -1.0)


def test_a_fork_of_a_private_state_stands_in_it_with_its_rollout(cache: Cache) -> None:
    with cache.rollout("terminal", "t") as rollout:
        bash(rollout, BUSY, timeout=0.2)
        assert rollout.private
        with rollout.fork() as (fork,):
            id = go_on(fork, ["echo 1 > f"], 1.0)
        trunk = go_on(rollout, ["echo 2 > f"], 0.0)
    values = cache.values("t")
    assert values.of(id).states == values.of(trunk).states[1:]
    assert values.of(id).stood == (2,)
    assert (values.of(id).advantages, values.of(trunk).advantages) == ((1.0,), (0.0, -1.0))


def test_calls_that_came_to_no_result_are_left_out(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache:
        with cache.rollout("terminal", "t") as rollout:
            backend.faults.fail("start", ForkFailed("no room"), times=9)
            with pytest.raises(InfrastructureError, match="no room"):
                bash(rollout, "echo 1 > f")
            backend.faults.planned.clear()
            id = go_on(rollout, ["echo 1 > f"], 1.0)
        assert [step.source for step in cache.graph.steps(id)] == ["failed", "started"]
        assert cache.values("t").of(id).places == (2,)
        assert [value.rollouts for value in cache.values("t").states] == [1, 1]


def test_calls_on_the_host_are_made_where_the_rollout_stands(tmp_path: Path) -> None:
    @tool(on_host=True, stateless=True)
    def search(what: str) -> str:
        """Finds something, whatever the state."""
        return what

    environment = TerminalEnvironment("terminal", "values", (search,))
    with open_cache(tmp_path, environments=[environment]) as cache:
        ids = []
        for where, reward in (("a", 1.0), ("b", 0.0), ("a", 0.0)):
            with cache.rollout("terminal", "t") as rollout:
                bash(rollout, f"echo {where} > f")
                rollout.call("search", {"what": "x"})
                ids.append(go_on(rollout, [f"echo {reward} > f"], reward))
        values = cache.values("t")
        one, other, again = (values.of(id) for id in ids)
        assert one.stood == again.stood == (3, 2, 2)
        assert other.stood == (3, 1, 1)
        for credit in (one, other, again):
            assert credit.states[1] == credit.states[2]


def test_other_processes_are_told_the_same(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        for reward, ways in enumerate(PAYS):
            play(cache, ways, float(reward), epoch=3)
        values = cache.values("t", epoch=3)
        with Graph(tmp_path / GRAPH_FILE) as graph:
            assert graph.values("t", epoch=3) == values

    async def ask() -> TaskValues:
        async with AsyncCache(tmp_path, backend=FakeBackend(), images=FakeImages()) as cache:
            return await cache.values("t", epoch=3)

    assert asyncio.run(ask()) == values


def test_calls_whose_records_are_damaged_are_their_rollouts_own(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        ids = [play(cache, ["echo 1 > f"], reward) for reward in (1.0, 0.0)]
        cache.graph.flush()
        with cache.graph._database.write() as cursor:
            cursor.execute("UPDATE steps SET edge = NULL")
        values = cache.values("t")
        assert [values.of(id).advantages for id in ids] == [(1.0,), (-1.0,)]
        (root,) = values.states
        assert means(root) == {None: 0.5}


@pytest.mark.parametrize(("task", "epoch"), [(1, None), ("t", -1), ("t", True), ("t", 0.5)])
def test_arguments_that_make_no_sense(cache: Cache, task: Any, epoch: Any) -> None:
    with pytest.raises(UsageError):
        cache.values(task, epoch=epoch)


def test_a_closed_cache_tells_nothing(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        pass
    with pytest.raises(UsageError, match="closed"):
        cache.values("t")
