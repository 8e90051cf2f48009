"""The values of calls, by the states in which rollouts made them.

The advantage of a rollout is its reward minus the mean of the others, as in LOOP (arXiv 2502.01600). The advantage of a
call in a state compares with those that stood in the same state, and is averaged over the rollouts that made the same
call there. Of n rollouts that stood there, this is n / (n - 1) times (Q - V): Q is the mean reward of those that made
the call, V that of all. Q and V are those of Rollout-Tree Monte Carlo (RTMC, arXiv 2604.11037): a rollout that comes to
a state more than once counts there once, because its reward comes at its end (first-visit Monte Carlo).

Differences from the papers:

- RTMC recognises states by signatures of earlier actions. Here they are the graph's: rollouts are in one state if the
  same calls changed their sandboxes in the same order, with the same results.
- The factor n / (n - 1) comes from leaving a rollout out of the mean with which it is compared. Such a mean does not
  depend on the rollout's actions there, so the gradient keeps its expectation; with V itself it would be smaller, the
  fewer rollouts stood there.
- The average over those that made the same call does not change the gradient if they came to it by the same words. If
  not, the words get no credit for later events that are due to chance: if all make the same call, it has the
  advantage 0.
- Values are plain means, without a prior.
- If a rollout stood alone, its advantage is LOOP's: its reward minus the mean of the others that stood where it began.
  Whether it stood alone does not depend on its actions there, so this is no bias, either.
- To end is a choice like a call: it has a value in each state where rollouts ended.
- A rollout that began in a state counts there and below, and not in the states above, whose policy did not choose it.

So the gradient has the expectation of LOOP's if the agent decides by the state alone. It varies less in large groups,
and may vary more in small ones, in which the mean of the others is that of one or two. Calls that change nothing do not
change the state, though the agent knows more afterwards, and its own words do not either: Q then is a mean over
different knowledge, and moves towards the results of the others with the call. The means of the others remain free of
bias.
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
"""The key of a rollout's end, in place of a call."""


class Passage(NamedTuple):
    """A call that a rollout made in a state.

    Attributes:
        place: its place in the rollout, from 1 on.
        state: the state in which it was made.
        key: that of the call; None if it is not known any more.
        call: the call; None if it is not known any more.
    """

    place: int
    state: str
    key: str | None
    call: ToolCall | None


class Way(NamedTuple):
    """The way of a rollout through the graph, and its reward.

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
    """The rewards of rollouts that made a call in a state.

    Attributes:
        call: the call; None for having ended there.
        rollouts: the number of rollouts that made it there, each counted once.
        mean: that of their rewards.
        variance: that of their rewards, estimated from them (divided by their number less one); None for one rollout.
        advantage: that of the call in this state; None if only one rollout stood there.
    """

    call: ToolCall | None
    rollouts: int
    mean: float
    variance: float | None
    advantage: float | None


@dataclass(frozen=True, slots=True)
class StateValue:
    """The rewards of rollouts that stood in a state.

    Attributes:
        state: its hash.
        rollouts: the number of rollouts that stood there, each counted once.
        mean: that of their rewards.
        variance: that of their rewards, as in `CallValue`.
        calls: the calls that they made there, in the order in which they were first made; without calls whose records
            are gone.
    """

    state: str
    rollouts: int
    mean: float
    variance: float | None
    calls: tuple[CallValue, ...]


@dataclass(frozen=True, slots=True)
class Credit:
    """The advantages of a rollout's calls over those of others. The tuples have an item for each call.

    Attributes:
        rollout: its id.
        reward: its reward.
        advantage: that of the whole rollout: its reward minus the mean reward of the others that stood where it began;
            0 if there are none.
        places: the places of its calls in the rollout, from 1 on. Calls that came to no result are left out.
        states: the states in which it made them.
        stood: the numbers of rollouts that stood in these states, itself included.
        baselines: the mean rewards of the others that stood there; if it stood alone, of the others that stood where it
            began; if it was alone there, too, its own reward.
        advantages: its reward minus the baseline, averaged over the rollouts that made the same call in the state.
        end: the advantage of its end, likewise. It belongs to the agent's last turn if that made no call, and to
            nothing if its turns were used up.
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
            turns: the number of turns. The last may be one in which the agent made no call.
            setup: the number of calls before the first turn, which set the task up.
            ended: whether the agent ended the rollout in such a last turn. If not, because its turns were used up, the
                turn has the advantage of the whole rollout, and so has one whose call came to no result.

        Raises:
            UsageError: there are fewer turns than calls.
        """
        by_place = dict(zip(self.places, self.advantages, strict=True))
        calls = max(self.places, default=0) - setup
        if turns < calls:
            raise UsageError(f"rollout {self.rollout} has {calls} calls after the setup, more than {turns} turns")
        values = [by_place.get(setup + turn, self.advantage) for turn in range(1, turns + 1)]
        if ended and turns > max(calls, 0):
            values[-1] = self.end
        return tuple(values)

    def by_token(
        self, turns: Sequence[tuple[int, int]], tokens: int, *, setup: int = 0, ended: bool = True
    ) -> list[float]:
        """Returns an advantage for each token of a rollout: that of its turn, and 0 for those of the task and of tools.

        It is the row of a batch for trainers that take an advantage for each token.

        Args:
            turns: the agent's tokens, turn by turn: the first one, and the one after the last.
            tokens: the number of tokens. If the trainer cuts a rollout off, its turns are to be cut off, too.
            setup: see `by_turn`.
            ended: see `by_turn`.

        Raises:
            UsageError: turns overlap, are not in order, or end after the last token; or see `by_turn`.
        """
        at = 0
        for first, end in turns:
            if not at <= first <= end <= tokens:
                raise UsageError(
                    f"turns must be in order and end at {tokens} at most, where the tokens end; not {list(turns)}"
                )
            at = end
        values = [0.0] * tokens
        for (first, end), advantage in zip(turns, self.by_turn(len(turns), setup=setup, ended=ended), strict=True):
            values[first:end] = [advantage] * (end - first)
        return values


@dataclass(frozen=True, slots=True)
class TaskValues:
    """The values of states and calls of a task.

    Attributes:
        task: the task.
        epoch: that of the rollouts; None for all.
        states: the states in which rollouts stood, in the order of their arrival, rollout by rollout.
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
        """Returns the advantages of the calls of a rollout.

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
    """Rewards of rollouts, each counted once, summed up without rounding, so that equal ones do not differ."""

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
    """Returns the values of states and calls.

    Args:
        task: the task of the rollouts.
        epoch: their epoch; None for all.
        ways: the ways of the rollouts, in the order in which they began.
    """
    by_state: defaultdict[str, _Rewards] = defaultdict(_Rewards)
    by_call: defaultdict[str, defaultdict[str, _Rewards]] = defaultdict(lambda: defaultdict(_Rewards))
    calls: dict[str, ToolCall | None] = {_END: None}
    rewards = [Fraction(way.reward) for way in ways]
    for number, (way, reward) in enumerate(zip(ways, rewards, strict=True)):
        by_state[way.start].add(number, reward)
        for _, state, key, call in way.passages:
            by_state[state].add(number, reward)
            if key is not None:
                by_call[state][key].add(number, reward)
                calls[key] = calls.get(key) or call
        by_state[way.end].add(number, reward)
        by_call[way.end][_END].add(number, reward)

    def credit(number: int, way: Way) -> Credit:
        own, at_start = rewards[number], by_state[way.start].without(number)
        fallback = own if at_start is None else at_start

        def baseline(state: str) -> Fraction:
            others = by_state[state].without(number)
            return fallback if others is None else others

        def advantage(state: str, key: str | None) -> float:
            shared = None if key is None else by_state[state].advantage(by_call[state][key])
            return float(own - baseline(state) if shared is None else shared)

        return Credit(
            way.rollout,
            way.reward,
            float(own - fallback),
            tuple(passage.place for passage in way.passages),
            tuple(passage.state for passage in way.passages),
            tuple(len(by_state[passage.state]) for passage in way.passages),
            tuple(float(baseline(passage.state)) for passage in way.passages),
            tuple(advantage(passage.state, passage.key) for passage in way.passages),
            advantage(way.end, _END),
            any(len(by_state[state]) > 1 for state in (way.start, way.end, *(each.state for each in way.passages))),
        )

    def call_value(all_: _Rewards, key: str, those: _Rewards) -> CallValue:
        shared = all_.advantage(those)
        advantage = None if shared is None else float(shared)
        return CallValue(calls[key], len(those), float(those.mean), those.variance, advantage)

    states = tuple(
        StateValue(
            *(state, len(all_), float(all_.mean), all_.variance),
            tuple(call_value(all_, key, those) for key, those in by_call[state].items() if key == _END or calls[key]),
        )
        for state, all_ in by_state.items()
    )
    return TaskValues(task, epoch, states, tuple(credit(number, way) for number, way in enumerate(ways)))
