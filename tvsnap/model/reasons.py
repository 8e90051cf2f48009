"""Reasons why calls are executed and not answered: the kinds by which statistics count them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Kind = Literal["new", "private", "unkept", "differing", "unshared", "timeout", "waiting", "cheap", "unreadable"]


class Why(NamedTuple):
    """The reason why one call was not answered.

    Attributes:
        kind: the kind by which statistics count it.
        words: the reason in words, for people.
    """

    kind: Kind
    words: str


class Reason(NamedTuple):
    """A kind of reasons, for people.

    Attributes:
        words: the reason why several calls were executed, in words.
        advice: a way to have more of them answered.
    """

    words: str
    advice: str


REASONS: Mapping[Kind, Reason] = {
    "new": Reason(
        "were made in their state for the first time",
        "more rollouts of each task and more epochs make calls again; a salt, a time or a random name in each "
        "rollout's commands prevents it",
    ),
    "private": Reason(
        "were made in rollouts whose state had no name that others share",
        "`tvsnap show ROLLOUT` names the call from which on, and why",
    ),
    "unkept": Reason(
        "had led to states that were not kept",
        'keep more: a larger Budget.disk, or policy="eager"; `tvsnap show STATE` says why one was refused',
    ),
    "differing": Reason(
        "were seen to come to something else when they were made again",
        "`tvsnap verify` lists them; avoid what is random in them",
    ),
    "unshared": Reason(
        "have results that answer nobody, because of their tools or their grades",
        "see `cacheable`, `stochastic` and `grade_executions`",
    ),
    "timeout": Reason(
        "had been recorded with another timeout, or took longer than the present one",
        "give the same call the same timeout each time",
    ),
    "waiting": Reason(
        "were made after other waits than recorded ones, where something runs by itself",
        "stop servers and recorders that a task does not need; think for about as long each time",
    ),
    "cheap": Reason(
        "took less time than their answers would have, on busy processors",
        "nothing: they are answered once processors are idle",
    ),
    "unreadable": Reason("have records that cannot be read", "`tvsnap doctor` checks the data directory"),
}
"""All kinds, in the order in which they are shown."""
COUNTED = "reason."
"""The prefix of counters of executed calls; the kind follows."""


def of_counters(counters: Mapping[str, float]) -> dict[Kind, int]:
    """Returns the number of executed calls for each kind of reason, without kinds of none.

    Args:
        counters: sums by name, some of which begin with `COUNTED`.
    """
    counts = {kind: int(counters.get(f"{COUNTED}{kind}", 0)) for kind in REASONS}
    return {kind: count for kind, count in counts.items() if count}
