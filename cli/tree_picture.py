"""Lays out a picture of the tree of states: the marks, their places, widths, shades and texts.

The tree grows to the right: each leaf has a row, each parent is in the middle of its children. Chains of single
children and rarely used branches are folded, like in the listing for terminals.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tvsnap.graph import Edge, RolloutRecord, RootInfo, TreeNode, served, unserved_as

from .roots import told_apart
from .text import TIMES, call_line, call_text, count, cut, cut_apart, one_line, seconds, size, visible
from .tree_view import FAILED, HASH_DIGITS, Branch, build, choose, failure_of, fitting

Colour = Literal["source", "reward"]
Kind = Literal["root", "kept", "bare", "private", "folded"]

LABEL = 29
"""The width of a label, in characters."""
CHAIN = 3
"""States of a chain, besides its first and its last, from which on it is folded."""
ROWS = 150
"""Rows of a picture at most; if it would have more, the least used branches are folded."""
SHADES = 5
LISTED = 30
"""Calls in the text of a mark at most."""
LONGEST = 4000
"""Characters of a call in the text of a mark at most."""


class Rewards(NamedTuple):
    """The rewards of rollouts that ended in a state or below it: their sum and number."""

    total: float = 0.0
    number: int = 0

    def plus(self, other: Rewards) -> Rewards:
        """Returns the rewards of both."""
        return Rewards(self.total + other.total, self.number + other.number)

    @property
    def text(self) -> str:
        """The mean in words, or nothing if there are none."""
        if not self.number:
            return ""
        of = f", the mean of {self.number}" if self.number > 1 else ""
        return f"reward {self.total / self.number:.3g}{of}"


@dataclass
class Mark:
    """One thing that is drawn: a state, or several folded into one. Its texts are harmless, but not escaped.

    Attributes:
        kind: its form: the root, a state with a snapshot, without one, or of a private branch; or several states.
        label: its call, cut.
        failure: how the call failed; empty if it did not.
        note: of a root, its differences from others of its image; the calls made there that changed nothing.
        title: its full description, of several lines.
        visits: the number of times that rollouts came to it, at least.
        shade: which of `SHADES` colours it has, from 0 on; None for no colour.
        shared: whether the call answers others.
        parent: the place of its parent in the list of marks; None if it has none.
        children: the places of its children.
        column, row: its place; a row is a fraction for a mark between two rows.
    """

    kind: Kind
    label: str
    title: str
    failure: str = ""
    note: str = ""
    visits: int = 1
    shade: int | None = None
    shared: bool = True
    parent: int | None = None
    children: list[int] = field(default_factory=list)
    column: int = 0
    row: float = 0.0


@dataclass(frozen=True)
class Picture:
    """A picture that is laid out.

    Attributes:
        marks: from the top to the bottom and from the left to the right, parents before their children.
        shades: the meanings of the shades in words, by their numbers.
        states: the number of states in it.
    """

    marks: Sequence[Mark]
    shades: Sequence[str]
    states: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(not mark.children for mark in self.marks)

    @property
    def columns(self) -> int:
        """The number of columns."""
        return 1 + max(mark.column for mark in self.marks)


def rewards_by_state(nodes: Sequence[TreeNode], rollouts: Iterable[RolloutRecord]) -> dict[str, Rewards]:
    """Returns the rewards of the rollouts that ended in each state or below it.

    Args:
        nodes: the states, parents before their children.
        rollouts: the rollouts.
    """
    listed = {node.state.hash for node in nodes}
    rewards: dict[str, Rewards] = defaultdict(Rewards)
    for rollout in rollouts:
        if rollout.state in listed and rollout.reward is not None and math.isfinite(rollout.reward):
            rewards[rollout.state] = rewards[rollout.state].plus(Rewards(rollout.reward, 1))
    for node in reversed(nodes):
        if node.state.parent is not None and node.state.hash in rewards:
            rewards[node.state.parent] = rewards[node.state.parent].plus(rewards[node.state.hash])
    return dict(rewards)


def draw(
    nodes: Sequence[TreeNode],
    roots: Mapping[str, RootInfo],
    rollouts: Sequence[RolloutRecord],
    rewards: Mapping[str, Rewards],
    *,
    colour: Colour = "source",
    everything: bool = False,
) -> Picture:
    """Returns a picture of a listing of states.

    Args:
        nodes: the listing, parents before their children.
        roots: the roots' information, by hash.
        rollouts: the rollouts that began at these roots.
        rewards: those of the rollouts that ended in each state or below it.
        colour: the meaning of the shades: the sources of results, or the rewards.
        everything: whether to fold nothing.
    """
    drawing = _Drawing(roots, rollouts, rewards, colour, everything=everything)
    tops = build(nodes)

    def fits(most: int | None) -> bool:
        drawing.fold(tops, most)
        return everything or sum(not mark.children for mark in drawing.marks) <= max(ROWS, 2 * len(tops))

    drawing.fold(tops, fitting(fits, len(nodes)))
    drawing.place()
    return Picture(drawing.marks, drawing.shades(), len(nodes))


class _Pending(NamedTuple):
    """A mark to come."""

    branches: Sequence[Branch]
    parent: int | None
    fold: Literal["", "chain", "branches"] = ""


class _Drawing:
    """Makes the marks of one picture."""

    def __init__(
        self,
        roots: Mapping[str, RootInfo],
        rollouts: Sequence[RolloutRecord],
        rewards: Mapping[str, Rewards],
        colour: Colour,
        *,
        everything: bool,
    ) -> None:
        self.marks: list[Mark] = []
        self._roots, self._rewards, self._colour, self._everything = roots, rewards, colour, everything
        self._begun: dict[str, list[RolloutRecord]] = defaultdict(list)
        for rollout in rollouts:
            self._begun[rollout.root].append(rollout)
        values = [one.reward for one in rollouts if one.reward is not None and one.state in rewards]
        values = [value for value in values if math.isfinite(value)]
        self._lowest, self._highest = min(values, default=0.0), max(values, default=0.0)
        self._apart = told_apart(roots.values())

    def shades(self) -> list[str]:
        """Returns the meanings of the shades."""
        if self._colour == "source":
            return ["executed once", "answered up to half", "up to 3 in 4", "up to 9 in 10", "more"]
        if not self._rewards:
            return ["no reward was recorded"]
        low, high = self._lowest, self._highest
        if low == high:
            return [f"reward {low:.3g}"]
        return [f"{'reward ' if n == 0 else ''}{low + (high - low) * n / (SHADES - 1):.3g}" for n in range(SHADES)]

    def fold(self, tops: Sequence[Branch], most: int | None) -> None:
        """Makes all marks, without recursion: trees may be deeper than Python's stack. `most` is that of `choose`."""
        self.marks = []
        pending = [_Pending([top], None) for top in reversed(tops)]
        while pending:
            item = pending.pop()
            place = len(self.marks)
            if item.fold == "branches":
                above = item.branches[0].above
                more = "more " if above is not None and len(above.children) > len(item.branches) else ""
                words = count(len(item.branches), f"{more}branch", f"{more}branches")
                self._add(self._folded(item.branches, f"… {words}"), item)
            elif item.fold == "chain":
                self._add(self._folded(item.branches, f"⋮ {count(len(item.branches), 'call')}"), item)
                pending.append(_Pending(item.branches[-1].children, place))
            else:
                (branch,) = item.branches
                self._add(self._state(branch), item)
                pending += reversed(self._below(branch, place, most, top=item.parent is None))

    def place(self) -> None:
        """Gives each leaf the next row, and each parent the middle of its first and its last child."""
        row = 0
        for mark in self.marks:
            mark.column = 0 if mark.parent is None else self.marks[mark.parent].column + 1
            if not mark.children:
                mark.row, row = float(row), row + 1
        for mark in reversed(self.marks):
            if mark.children:
                mark.row = (self.marks[mark.children[0]].row + self.marks[mark.children[-1]].row) / 2

    def _add(self, mark: Mark, item: _Pending) -> None:
        mark.parent = item.parent
        if item.parent is not None:
            self.marks[item.parent].children.append(len(self.marks))
        self.marks.append(mark)

    def _below(self, branch: Branch, place: int, most: int | None, *, top: bool) -> list[_Pending]:
        """Returns the successors of a state with its mark at `place`."""
        children = branch.children
        if len(children) == 1 and not (top or self._everything):
            chain = [children[0]]
            while len(chain[-1].children) == 1:
                chain.append(chain[-1].children[0])
            if len(chain) > CHAIN:
                return [_Pending(chain[:-1], place, "chain")]
        shown, rest = (children, []) if self._everything else choose(children, most)
        return [*(_Pending([child], place) for child in shown), *([_Pending(rest, place, "branches")] if rest else [])]

    def _state(self, branch: Branch) -> Mark:
        node, call = branch.node, branch.node.made_by
        ended = self._rewards.get(node.state.hash, Rewards())
        facts = [f"state {node.state.hash[:12]}"]
        if call is not None:
            facts += [seconds(call.result.duration)] + ([f"answered {count(call.hits, 'call')}"] if call.hits else [])
        facts += [f"snapshot of {size(one.size)}" for one in node.snapshots]
        facts += [ended.text] if ended.number else []
        kind: Kind = "private" if node.state.private else "kept" if node.snapshots else "bare"
        if call is None:
            info = self._roots.get(node.state.hash)
            words = self._root_words(info) if info else ["(root)"]
            apart = self._apart.get(node.state.hash, "")
            mark = Mark("root", " ".join(words), "\n".join([*words, *filter(None, [apart]), ", ".join(facts)]))
            mark.note = cut(apart, LABEL)
            mark.visits = max(1, len(self._begun[node.state.hash]))
        else:
            lines = [_whole(call), "", ", ".join(facts)]
            lines += [_ending(call)] if failure_of(call) else []
            lines += [] if served(call) else [visible(unserved_as(call))]
            mark = Mark(kind, call_line(call.call), "\n".join(lines), failure_of(call), shared=served(call))
            mark.visits = 1 + call.hits
        width = LABEL - (len(mark.failure) + 1 if mark.failure else 0)
        mark.label = cut_apart(mark.label, branch.beside, width)
        mark.shade = self._shade([call] if call else [], ended)
        if node.unchanging:
            failing = sum(bool(failure_of(one)) for one in node.unchanging)
            unchanging = f"+ {count(len(node.unchanging), 'call')}" + (f", {failing} {FAILED}" if failing else "")
            mark.note = ", ".join(filter(None, [mark.note, unchanging]))
            mark.title += "\n\n" + "\n".join(
                [f"{count(len(node.unchanging), 'call')} that changed nothing:", *_list(node.unchanging)]
            )
        return mark

    def _folded(self, branches: Sequence[Branch], label: str) -> Mark:
        """Returns the mark of several states: a chain, or whole branches."""
        calls = [branch.node.made_by for branch in branches if branch.node.made_by]
        failing = sum(bool(failure_of(call)) for call in calls)
        title = "\n".join([label, *_list(calls)])
        mark = Mark("folded", label, title, f"{failing} {FAILED}" if failing else "")
        chain = len(branches) > 1 and branches[1].above is branches[0]
        ended = [self._rewards.get(branch.node.state.hash, Rewards()) for branch in branches]
        visits = [1 + call.hits for call in calls]
        mark.visits = max(visits) if chain else sum(visits)
        total = ended[0]
        for one in [] if chain else ended[1:]:
            total = total.plus(one)
        mark.title += f"\n\n{total.text}" if total.number else ""
        mark.shade = self._shade(calls, total)
        return mark

    def _shade(self, calls: Sequence[Edge], ended: Rewards) -> int | None:
        if self._colour == "reward":
            if not ended.number:
                return None
            if self._lowest == self._highest:
                return 0
            mean = ended.total / ended.number
            part = (mean - self._lowest) / (self._highest - self._lowest)
            return min(SHADES - 1, max(0, round((SHADES - 1) * part)))
        if not calls:
            return None
        hits = sum(call.hits for call in calls)
        share = hits / (hits + len(calls))
        return 0 if not hits else next((n for n, most in enumerate((0.5, 0.75, 0.9), 1) if share <= most), SHADES - 1)

    def _root_words(self, info: RootInfo) -> list[str]:
        started = self._begun[info.hash]
        tasks = Counter(rollout.task for rollout in started if rollout.task)
        words = [one_line(info.image_name)]
        words += [one_line(task) for task in tasks] if len(tasks) < 2 else [count(len(tasks), "task")]
        words += [f"{TIMES}{len(started)}"] if started else []
        return words


def _whole(call: Edge) -> str:
    text = call_text(call.call)
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}…\n({len(text) - LONGEST:,} more characters: tvsnap show {call.next_state[:HASH_DIGITS]})"


def _ending(call: Edge) -> str:
    return "timed out" if call.result.timed_out else f"exit status {call.result.exit_code}"


def _list(calls: Sequence[Edge]) -> list[str]:
    lines = [
        cut(call_line(call.call)[:200], 100) + (f" {failure_of(call)}" if failure_of(call) else "")
        for call in calls[:LISTED]
    ]
    return lines + ([f"… and {len(calls) - LISTED} more"] if len(calls) > LISTED else [])
