"""The trees of a graph as rows: their order, the visible ones, and the ways from one to another."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tvsnap.graph import Outlined, RolloutRecord

from ...roots import told_apart

if TYPE_CHECKING:
    from .source import Reading

LEVELS = 16
"""Levels of branches that are drawn at most; of more, the innermost."""


class Row:
    """A state with the call that led to it, or a call that changed nothing.

    Attributes:
        key: its name, which does not change while it is in the graph.
        state: its state; of a call that changed nothing, the one that it was made in.
        call: the call; None for a root.
        parent: the row above; None for a topmost one.
        looks: rows of the calls made in the state that changed nothing, oldest first.
        children: rows of the states that follow, oldest first.
        branch: the nearest row, upwards from this one, that has siblings; None if there is none.
    """

    __slots__ = ("branch", "call", "children", "key", "looks", "parent", "state")

    def __init__(self, key: str, state: str, call: Outlined | None, parent: Row | None) -> None:
        self.key = key
        self.state = state
        self.call = call
        self.parent = parent
        self.looks: list[Row] = []
        self.children: list[Row] = []
        self.branch: Row | None = None

    @property
    def is_look(self) -> bool:
        """Whether it is a call that changed nothing."""
        return self.call is not None and self.call.next_state is None

    @property
    def beside(self) -> list[Row]:
        """The rows of the same kind below the same state, itself among them; none for a root."""
        if self.parent is None:
            return []
        return self.parent.looks if self.is_look else self.parent.children

    @property
    def failing(self) -> bool:
        """Whether the call timed out or had an exit status other than 0."""
        return self.call is not None and (self.call.timed_out or bool(self.call.exit_code))

    @property
    def answered(self) -> bool:
        """Whether the call answered others."""
        return self.call is not None and self.call.hits > 0

    @property
    def unkept(self) -> bool:
        """Whether it is a state without a snapshot."""
        return self.call is not None and not self.is_look and not self.call.kept


class Forest:
    """The trees of a graph at one time.

    Attributes:
        tops: the topmost rows, oldest first.
        rows: all rows, by key.
        order: all rows in the order in which they are drawn.
        reading: their source.
        starts: the number of rollouts that began at each root.
        apart: each root's differences from others of its image, in words.
        ended: the rollouts that ended at each state.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.tops: list[Row] = []
        self.rows: dict[str, Row] = {}
        rows = self.rows
        for state in reading.roots:
            self._top(state)
        for call in reading.calls:
            parent = rows.get(call.state) or self._top(call.state)
            if call.next_state is None:
                row = rows[f"={call.id}"] = Row(f"={call.id}", call.state, call, parent)
                parent.looks.append(row)
            else:
                row = rows[call.next_state] = Row(call.next_state, call.next_state, call, parent)
                parent.children.append(row)
        self.order = flat(self.tops)
        for row in self.order:
            parent_row = row.parent
            if parent_row is not None:
                alone = row.is_look or len(parent_row.children) == 1
                row.branch = parent_row.branch if alone else row
        self.apart = told_apart(reading.roots.values())
        self.starts = Counter(rollout.root for rollout in reading.rollouts)
        self.ended: dict[str, list[RolloutRecord]] = defaultdict(list)
        for rollout in reading.rollouts:
            if rollout.finished is not None:
                self.ended[rollout.state].append(rollout)

    def _top(self, state: str) -> Row:
        row = self.rows[state] = Row(state, state, None, None)
        self.tops.append(row)
        return row

    def reward(self, row: Row) -> float | None:
        """Returns the mean reward of the rollouts that ended at a row's state; None if there is none."""
        if row.is_look:
            return None
        rewards = [one.reward for one in self.ended.get(row.state, ()) if one.reward is not None]
        return sum(rewards) / len(rewards) if rewards else None

    def following(self, row: Row, wanted: Callable[[Row], bool], step: int = 1) -> Row | None:
        """Returns the next row that fits, in the order in which they are drawn; after the last comes the first.

        Args:
            row: the row to begin at; it comes last itself.
            wanted: whether a row fits.
            step: 1 for the next one, -1 for the one before.
        """
        at, number = self.order.index(row), len(self.order)
        return next((one for n in range(1, number + 1) if wanted(one := self.order[(at + step * n) % number])), None)


def flat(tops: Iterable[Row], closed: Iterable[str] = (), only: set[str] | None = None) -> list[Row]:
    """Returns rows with those below them, in the order in which they are drawn.

    Args:
        tops: the topmost rows.
        closed: keys of rows below which nothing is drawn.
        only: the keys of the rows to draw; None for all.
    """
    shut = set(closed)
    rows: list[Row] = []
    pending = list(tops)[::-1]
    while pending:
        row = pending.pop()
        if only is not None and row.key not in only:
            continue
        rows.append(row)
        if row.key not in shut:
            pending += row.children[::-1]
            pending += row.looks[::-1]
    return rows


def with_those_above(rows: Iterable[Row]) -> set[str]:
    """Returns the keys of rows and of all rows above them."""
    keys: set[str] = set()
    for row in rows:
        at: Row | None = row
        while at is not None and at.key not in keys:
            keys.add(at.key)
            at = at.parent
    return keys


def lines_before(row: Row) -> str:
    """Returns the lines of a tree before the text of a row."""
    parts: list[str] = []
    at = row.branch
    if row.is_look and row.parent is not None and len(row.parent.children) > 1:
        parts.append("│ ")
    while at is not None and at.parent is not None and len(parts) < LEVELS:
        last = at is at.parent.children[-1]
        parts.append(("└─" if last else "├─") if at is row else "  " if last else "│ ")
        at = at.parent.branch
    return ("…" if at is not None else "") + "".join(reversed(parts))


def along(row: Row) -> Row | None:
    """Returns the row that most rollouts came to next; None if there is none."""
    if row.is_look and row.parent is not None:
        after = row.parent.looks.index(row) + 1
        if after < len(row.parent.looks):
            return row.parent.looks[after]
        row = row.parent
    elif row.looks:
        return row.looks[0]
    return max(row.children, key=lambda child: child.call.hits if child.call else 0, default=None)


def diverged(row: Row, step: int) -> Row | None:
    """Returns the sibling of the nearest row, upwards, that has one: another rollout made another call there."""
    branch = row.branch
    if branch is None or branch.parent is None:
        return None
    siblings = branch.parent.children
    return siblings[(siblings.index(branch) + step) % len(siblings)]
