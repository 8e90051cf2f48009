"""Checks of a caller's question, and the form in which the file has it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from tvsnap import UsageError
from tvsnap.plugins.priors.store import Question, state_digest


def goal_of(model: str, goal: str) -> str:
    """Returns the goal by which the file has answers of a model.

    Args:
        model: the model's name; empty if it has none.
        goal: the agent's goal.

    Raises:
        UsageError: the goal is no text.
    """
    _check_text("goal", goal)
    return json.dumps([model, goal]) if model else goal


def question_of(
    model: str, goal: str, actions: Iterable[str], state: str | None, text: str | None
) -> tuple[tuple[str, ...], Question]:
    """Returns the actions in their order, and the question.

    Args:
        model: the name of the model; empty if it has none.
        goal: the agent's goal.
        actions: the admissible ones.
        state: the hash of the state.
        text: an abstraction of the state in words.

    Raises:
        UsageError: the question makes no sense.
    """
    if isinstance(actions, str):
        raise UsageError(f"actions must be several texts, not one: {actions[:60]!r}")
    ordered = tuple(actions)
    for name, value in (("goal", goal), ("state", state), ("text", text), *(("action", each) for each in ordered)):
        if value is not None or name not in ("state", "text"):
            _check_text(name, value)
    if state is None and text is None:
        raise UsageError("a question needs the state: give its hash (state=), an abstraction in words (text=), or both")
    if not ordered:
        raise UsageError("a question needs at least one admissible action")
    if len(set(ordered)) < len(ordered):
        twice = next(action for action, times in Counter(ordered).items() if times > 1)
        raise UsageError(f"the action {twice!r:.60} is given twice; give each admissible action once")
    digest = state_digest("state", state) if state is not None else state_digest("text", text or "")
    return ordered, Question(goal_of(model, goal), tuple(sorted(ordered)), digest)


def _check_text(name: str, value: object) -> None:
    """Raises `UsageError`, which names the value, unless it is a text that UTF-8 can write."""
    if not isinstance(value, str):
        raise UsageError(f"the {name} must be a text, not {value!r:.60}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the {name} {value[:60]!r} has a surrogate by itself, which no text can have") from None
