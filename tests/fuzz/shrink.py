"""Makes a case that shows a violation as small as it can be within a given time, by delta debugging."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from tests.fuzz.cases import Action, Case

Shows = Callable[[Case], bool]


def shrink(case: Case, shows: Shows, seconds: float, at: int = -1) -> Case:
    """Returns a smaller case that still shows what the given one does.

    Args:
        case: the case.
        shows: whether a case shows the violation.
        seconds: after which the smallest so far is returned.
        at: the number of the action that showed it, if that is known.
    """
    deadline = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for stage in (partial(_guessed, at=at), _fewer_actions, _fewer_steps, _simpler_actions, _simpler_rest):
            position = 0
            while (candidate := next(islice(stage(case), position, None), None)) is not None:
                if time.monotonic() > deadline:
                    return case
                if shows(candidate):  # what follows is then tried on the smaller case, from here on
                    case, smaller = candidate, True
                else:
                    position += 1
        at = -1
    return case


def _guessed(case: Case, at: int) -> Iterator[Case]:
    """Yields what most often suffices: who executes, who evicts, and the one who then saw something else."""
    if not 0 < at < len(case.actions) or len(case.actions) == 2:
        return
    last = case.actions[at]
    for keep in ({at}, {0, at}, {0, at - 1, at}, set(range(at + 1))):
        if last.kind in ("resume", "continue", "revisit") and last.of not in keep:
            continue
        found: Case | None = case
        for index in range(len(case.actions) - 1, -1, -1):
            if index not in keep and found is not None:
                found = _without_action(found, index)
        if found is not None:
            yield _tidy(found)


def _fewer_actions(case: Case) -> Iterator[Case]:
    for index in range(len(case.actions) - 1, -1, -1):
        if len(case.actions) > 1 and (found := _without_action(case, index)) is not None:
            yield _tidy(found)


def _fewer_steps(case: Case) -> Iterator[Case]:
    numbers = sorted(case.used())
    size = len(numbers) // 2
    while size >= 1:
        for begin in range(0, len(numbers), size):
            found = _tidy(case.without(numbers[begin : begin + size]))
            if found.used():
                yield found
        size //= 2


def _simpler_actions(case: Case) -> Iterator[Case]:
    for index, action in enumerate(case.actions):
        for simpler in _simpler(action):
            yield _tidy(_with_action(case, index, simpler))


def _simpler_rest(case: Case) -> Iterator[Case]:
    for name in case.options:
        yield replace(case, options={key: value for key, value in case.options.items() if key != name})
    for number in sorted(case.used()):
        step = case.steps[number]
        if step.pause:
            yield replace(case, steps={**case.steps, number: replace(step, pause=0.0)})


def _simpler(action: Action) -> Iterator[Action]:
    """Yields simpler forms of an action: fewer rollouts, fewer calls at the end of each, a plain rollout instead."""
    if len(action.plays) > 1:
        for number in range(len(action.plays)):
            yield replace(action, plays=action.plays[:number] + action.plays[number + 1 :])
    if action.kind in ("together", "processes", "kill"):
        for play in action.plays:
            yield Action("play", (play,), action.look)
    for number in range(len(action.look)):
        yield replace(action, look=action.look[:number] + action.look[number + 1 :])
    for number, play in enumerate(action.plays):
        for at in range(len(play) - 1, -1, -1):
            yield replace(
                action, plays=(*action.plays[:number], play[:at] + play[at + 1 :], *action.plays[number + 1 :])
            )


def _without_action(case: Case, gone: int) -> Case | None:
    """Returns the case without an action; None if another goes on from it."""
    actions = []
    for index, action in enumerate(case.actions):
        if index == gone:
            continue
        if action.kind in ("resume", "continue", "revisit"):
            if action.of == gone:
                return None
            action = replace(action, of=action.of - (action.of > gone))
        actions.append(action)
    return replace(case, actions=tuple(actions))


def _with_action(case: Case, index: int, action: Action) -> Case:
    return replace(case, actions=(*case.actions[:index], action, *case.actions[index + 1 :]))


def _tidy(case: Case) -> Case:
    """Returns the case without actions that do nothing, and without steps that nobody makes."""
    for index in range(len(case.actions) - 1, -1, -1):
        action = case.actions[index]
        if action.plays and not any(action.plays) and not action.look:
            case = _without_action(case, index) or case
    used = case.used()
    return replace(case, steps={number: step for number, step in case.steps.items() if number in used})
