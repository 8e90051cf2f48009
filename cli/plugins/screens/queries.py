"""Filters of the tree, typed by a person, such as `task:fix-git exit:>0 pytest`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvsnap.model.errors import UsageError

if TYPE_CHECKING:
    from tvsnap.protocols import AnyGraph

    from .forest import Forest, Row

WORDS: dict[str, Callable[[Row], bool]] = {
    "is:failing": lambda row: row.failing,
    "is:hit": lambda row: row.answered,
    "is:unkept": lambda row: row.unkept,
}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "": operator.eq,
    "=": operator.eq,
    "!": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Query:
    """A filter of rows.

    Attributes:
        task: only calls that this task's rollouts made.
        tool: only calls of this tool.
        text: only calls with this in their arguments or output.
        exit, reward: only calls with these values, each with its comparison; None for any.
        words: of `WORDS`.
    """

    task: str | None = None
    tool: str | None = None
    text: str | None = None
    exit: tuple[str, float] | None = None
    reward: tuple[str, float] | None = None
    words: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != Query()

    def rows(self, forest: Forest, graph: AnyGraph) -> list[Row]:
        """Returns the rows that fit, in order; those of roots fit by a reward at most, because no call led there."""
        rows = [row for row in forest.order if row.call is not None or self.reward is not None]
        if self.task is not None or self.tool is not None or self.text is not None:
            ids = graph.matching(task=self.task, tool=self.tool, text=self.text)
            rows = [row for row in rows if row.call is not None and row.call.id in ids]
        if self.exit is not None:
            sign, number = self.exit
            holds = _COMPARISONS[sign]
            rows = [
                row
                for row in rows
                if row.call is not None and row.call.exit_code is not None and holds(row.call.exit_code, number)
            ]
        if self.reward is not None:
            sign, number = self.reward
            holds = _COMPARISONS[sign]
            rows = [row for row in rows if (reward := forest.reward(row)) is not None and holds(reward, number)]
        for word in self.words:
            rows = [row for row in rows if WORDS[word](row)]
        return rows


def parse(text: str) -> Query:
    """Returns the query that a person has typed.

    Args:
        text: words such as `task:NAME`, `tool:NAME`, `exit:1`, `exit:!0`, `reward:>=0.5`, `is:failing`, `is:hit` and
            `is:unkept`; all else is text that the call or its output has. Names with blanks are quoted: `task:"a b"`.

    Raises:
        UsageError: a word has a form that means nothing.
    """
    chosen: dict[str, str] = {}
    numbers: dict[str, tuple[str, float]] = {}
    words: list[str] = []
    rest: list[str] = []
    for match in re.finditer(r'(?:(task|tool|exit|reward|is):("[^"]*"?|\S*))|\S+', text):
        kind, value = match[1], (match[2] or "").strip('"')
        if kind is None:
            rest.append(match[0])
        elif not value:
            continue
        elif kind in ("task", "tool"):
            chosen[kind] = value
        elif kind == "is":
            if match[0] not in WORDS:
                raise UsageError(f"{match[0]} means nothing; have: {', '.join(WORDS)}")
            words.append(match[0])
        else:
            number = re.fullmatch(r"([<>]=?|!?=?)(-?\d+(?:\.\d+)?)", value)
            if number is None:
                raise UsageError(f"{kind}: takes a number, as {kind}:0, {kind}:!0 or {kind}:>0, not {value}")
            numbers[kind] = (number[1], float(number[2]))
    return Query(
        chosen.get("task"),
        chosen.get("tool"),
        " ".join(rest) or None,
        numbers.get("exit"),
        numbers.get("reward"),
        tuple(words),
    )
