"""What calls were worth, by the states in which rollouts made them.

The advantage of a call in a state is that of a rollout as LOOP has it (arXiv 2502.01600), its reward minus the mean of
the others, where the others are those that stood in the same state, and averaged over the rollouts that made the same
call there. Of n rollouts that stood there, this is n / (n - 1) times (Q - V), Q being the mean reward of those that
made the call, and V that of all. Q and V are those of Rollout-Tree Monte Carlo (RTMC, arXiv 2604.11037): a rollout that
comes to a state more than once counts there once, as its reward comes at its end (first-visit Monte Carlo).

Not the papers', but ours:

- RTMC recognises states by signatures of what was done before. Here they are the graph's: rollouts are in one state if
  the same calls changed their sandboxes in the same order, with the same results.
- The factor n / (n - 1) comes from leaving a rollout out of the mean that it is compared with. Such a mean does not
  depend on what the rollout does there, so the gradient keeps its expectation; with V itself it would be the smaller,
  the fewer rollouts stood there.
- The average over those that made the same call leaves the gradient as it is if they came to it by the same words. If
  not, the words are not credited with what came after the call by chance: where all make the same call, it has the
  advantage 0.
- Values are plain means, and not drawn towards a prior.
- Where a rollout stood alone, its advantage is LOOP's: its reward minus the mean of the others that stood where it
  began. Whether it stood alone does not depend on what it does there, so this is no bias, either.
- To end is a choice like a call: it has a value in each state where rollouts ended.
- A rollout that began in a state counts there and below, and not in the states above, whose policy did not choose it.

So the gradient has the expectation of LOOP's where the agent goes by the state alone. It varies less in large groups,
and may vary more in small ones, where the mean of the others is that of one or two. Calls that change nothing leave the
state as it is, though the agent knows more afterwards, and so do its own words: Q then is a mean over all that was
known there, which is drawn towards what the others made of the call. The means of the others remain free of bias.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import NotFound, UsageError

_END = ""
"""Stands for the key of a call where a rollout ended."""


class Passage(NamedTuple):
    """A call that a rollout made in a state.

    Attributes:
        place: its place in the rollout, from 1 on.
        state: where it was made.
        key: of the call; None where it is not known any more.
        call: likewise.
    """

    place: int
    state: str
    key: str | None
    call: ToolCall | None


class Way(NamedTuple):
    """What a rollout did, and its reward.

    Attributes:
        rollout: its id.
        start: the state at which it began.
        end: the state at which it ended.
    """

    rollout: str
    reward: float
    start: str
    passages: Sequence[Passage]
    end: str


@dataclass(frozen=True, slots=True)
class CallValue:
    """What rollouts came to that made a call in a state.

    Attributes:
        call: the call; None for having ended there.
        rollouts: how many made it there, each counted once.
        mean: of their rewards.
        variance: of their rewards, estimated from them (divided by one less than they are); None for one rollout.
        advantage: of the call in this state; None where only one rollout stood there.
    """

    call: ToolCall | None
    rollouts: int
    mean: float
    variance: float | None
    advantage: float | None


@dataclass(frozen=True, slots=True)
class StateValue:
    """What rollouts came to that stood in a state.

    Attributes:
        state: its hash.
        rollouts: how many stood there, each counted once.
        mean: of their rewards.
        variance: of their rewards, as in `CallValue`.
        calls: what they did there, in the order in which it was first done; without calls whose records are gone.
    """

    state: str
    rollouts: int
    mean: float
    variance: float | None
    calls: tuple[CallValue, ...]


@dataclass(frozen=True, slots=True)
class Credit:
    """What the calls of a rollout were worth, beside what others came to. The tuples have an item for each call.

    Attributes:
        rollout: its id.
        reward: its reward.
        advantage: of the whole rollout: its reward minus the mean reward of the others that stood where it began; 0 if
            there are none.
        places: the places of its calls in the rollout, from 1 on. Calls that came to no result are left out.
        states: the states in which it made them.
        stood: how many rollouts stood in these states, itself among them.
        baselines: the mean rewards of the others that stood there; where it stood alone, of the others that stood where
            it began; where it was alone there, too, its own reward.
        advantages: its reward minus the baseline, averaged over the rollouts that made the same call in the state.
        end: the advantage of having ended where it did, likewise. It belongs to what an agent says last, if that makes
            no call, and to nothing where its turns were used up.
        compared: whether another rollout stood in any of its states, so that there was something to compare it with.
    """

    rollout: str
    reward: float
    advantage: float
    places: tuple[int, ...]
    states: tuple[str, ...]
    stood: tuple[int, ...]
    baselines: tuple[float, ...]
    advantages: tuple[float, ...]
    end: float
    compared: bool

    def by_turn(self, turns: int, *, setup: int = 0, ended: bool = True) -> tuple[float, ...]:
        """Returns an advantage for each turn of an agent that makes one call in each.

        Args:
            turns: how many there were. The last may be one in which the agent made no call.
            setup: how many calls were made before the first turn, to set the task up.
            ended: whether the agent ended the rollout in such a last turn. If not, as its turns were used up, the turn
                has the advantage of the whole rollout, and so has one whose call came to no result.

        Raises:
            UsageError: there are fewer turns than calls.
        """
        made = dict(zip(self.places, self.advantages, strict=True))
        calls = max(self.places, default=0) - setup
        if turns < calls:
            raise UsageError(f"rollout {self.rollout} has {calls} calls after the setup, more than {turns} turns")
        found = [made.get(setup + turn, self.advantage) for turn in range(1, turns + 1)]
        if ended and turns > max(calls, 0):
            found[-1] = self.end
        return tuple(found)

    def by_token(
        self, turns: Sequence[tuple[int, int]], tokens: int, *, setup: int = 0, ended: bool = True
    ) -> list[float]:
        """Returns an advantage for each token of a rollout: that of its turn, and 0 for those of the task and of tools.

        It is the row of a batch that trainers with an advantage for each token want.

        Args:
            turns: where the agent wrote, first token and the one after the last, turn by turn.
            tokens: how many there are.
            setup: see `by_turn`.
            ended: see `by_turn`.

        Raises:
            UsageError: see `by_turn`.
        """
        found = [0.0] * tokens
        for (first, end), advantage in zip(turns, self.by_turn(len(turns), setup=setup, ended=ended), strict=True):
            found[first:end] = [advantage] * (end - first)
        return found


@dataclass(frozen=True, slots=True)
class TaskValues:
    """What states and calls of a task were worth.

    Attributes:
        task: the task.
        epoch: whose rollouts these are; None for all.
        states: in which rollouts stood, in the order in which they first came there, rollout by rollout.
        rollouts: those that have a reward, in the order in which they began.
    """

    task: str
    epoch: int | None
    states: tuple[StateValue, ...]
    rollouts: tuple[Credit, ...]

    def at(self, state: str) -> StateValue:
        """Returns the value of a state.

        Args:
            state: its full hash.

        Raises:
            NotFound: none of these rollouts stood there.
        """
        for value in self.states:
            if value.state == state:
                return value
        raise NotFound(f"no rollout of task {self.task!r} that has a reward stood in state {state[:12]}")

    def of(self, rollout: str) -> Credit:
        """Returns what the calls of a rollout were worth.

        Args:
            rollout: its id.

        Raises:
            NotFound: it has no reward, or is of another task or epoch.
        """
        for credit in self.rollouts:
            if credit.rollout == rollout:
                return credit
        of_epoch = "" if self.epoch is None else f" in epoch {self.epoch}"
        raise NotFound(
            f"rollout {rollout} has no values: it has no reward (Rollout.grade, Rollout.record), or is not one of task "
            f"{self.task!r}{of_epoch}"
        )


class _Rewards:
    """Rewards of rollouts, each counted once, summed up without rounding: what is equal shall differ by nothing."""

    def __init__(self) -> None:
        self._of: dict[int, Fraction] = {}
        self._sum = Fraction(0)

    def add(self, number: int, reward: Fraction) -> None:
        if number not in self._of:
            self._of[number] = reward
            self._sum += reward

    def __len__(self) -> int:
        return len(self._of)

    @property
    def mean(self) -> Fraction:
        return self._sum / len(self._of)

    @property
    def variance(self) -> float | None:
        if len(self._of) == 1:
            return None
        mean = self.mean
        return float(sum((reward - mean) ** 2 for reward in self._of.values()) / (len(self._of) - 1))

    def advantage(self, some: _Rewards) -> Fraction | None:
        """Returns the mean over some of these of their rewards minus those of the others; None if there are none."""
        count = len(self)
        return None if count == 1 else (some.mean - self.mean) * count / (count - 1)

    def without(self, number: int) -> Fraction | None:
        """Returns the mean of the others; None if there are none."""
        others = len(self._of) - 1
        return (self._sum - self._of[number]) / others if others else None


def task_values(task: str, epoch: int | None, ways: Sequence[Way]) -> TaskValues:
    """Returns what states and calls were worth.

    Args:
        task: whose rollouts these are.
        epoch: likewise.
        ways: what the rollouts did, in the order in which they began.
    """
    stood: defaultdict[str, _Rewards] = defaultdict(_Rewards)
    made: defaultdict[str, defaultdict[str, _Rewards]] = defaultdict(lambda: defaultdict(_Rewards))
    calls: dict[str, ToolCall | None] = {_END: None}
    rewards = [Fraction(way.reward) for way in ways]
    for number, (way, reward) in enumerate(zip(ways, rewards, strict=True)):
        stood[way.start].add(number, reward)
        for _, state, key, call in way.passages:
            stood[state].add(number, reward)
            if key is not None:
                made[state][key].add(number, reward)
                calls[key] = calls.get(key) or call
        stood[way.end].add(number, reward)
        made[way.end][_END].add(number, reward)

    def credit(number: int, way: Way) -> Credit:
        own = rewards[number]
        at_start = stood[way.start].without(number)
        fallback = own if at_start is None else at_start

        def baseline(state: str) -> Fraction:
            others = stood[state].without(number)
            return fallback if others is None else others

        def advantage(state: str, key: str | None) -> float:
            shared = None if key is None else stood[state].advantage(made[state][key])
            return float(own - baseline(state) if shared is None else shared)

        return Credit(
            way.rollout,
            way.reward,
            float(own - fallback),
            tuple(passage.place for passage in way.passages),
            tuple(passage.state for passage in way.passages),
            tuple(len(stood[passage.state]) for passage in way.passages),
            tuple(float(baseline(passage.state)) for passage in way.passages),
            tuple(advantage(passage.state, passage.key) for passage in way.passages),
            advantage(way.end, _END),
            any(len(stood[state]) > 1 for state in (way.start, way.end, *(each.state for each in way.passages))),
        )

    def call_value(all_: _Rewards, key: str, those: _Rewards) -> CallValue:
        advantage = all_.advantage(those)
        shared = None if advantage is None else float(advantage)
        return CallValue(calls[key], len(those), float(those.mean), those.variance, shared)

    states = tuple(
        StateValue(
            *(state, len(all_), float(all_.mean), all_.variance),
            tuple(call_value(all_, key, those) for key, those in made[state].items() if key == _END or calls[key]),
        )
        for state, all_ in stood.items()
    )
    return TaskValues(task, epoch, states, tuple(credit(number, way) for number, way in enumerate(ways)))
