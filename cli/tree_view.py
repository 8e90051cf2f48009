"""Renders the tree of states as lines of text, for terminals of 80 columns and graphs of hundreds of states.

Only the children of a state with several children are indented; a chain of single children goes straight down.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from rich.console import Console
from rich.text import Text

from tvsnap.graph import Edge, RolloutRecord, RootInfo, Snapshot, TreeNode, served, unserved_as

from .roots import told_apart
from .text import TIMES, ago, call_line, count, cut, cut_apart, one_line, seconds, size

HASH_DIGITS = 8
CHAIN_HEAD, CHAIN_TAIL = 3, 2
"""States of a long chain that are shown at its beginning and at its end."""
BRANCHES = 8
"""Branches of one state that are shown at most."""
LINES = 200
"""Lines of a listing at most; if it would have more, the least used branches are folded."""
NARROWEST_TEXT = 16
"""The minimal width of a call's text, in cells; if the tree would leave less, its branches are folded."""
TIME, HITS, FORKS, SNAPSHOT = 7, 7, 6, 12
COLUMNS = TIME + HITS + FORKS + SNAPSHOT

FAILED = "✗"

LEGEND = (
    "● has a snapshot (F files, P processes, S shell)   ○ is reached by calls that do the same each time",
    "◌ is kept by nothing: who makes the call executes it   ~ something in it runs by itself",
    f"◇ private to one rollout   {TIMES}7 answered 7 calls   + 5 calls that changed nothing",
    f"% the load of the machine may have had a part in it   {FAILED} 1 exit status 1",
)


@dataclass
class Branch:
    """A state with all its descendants.

    Attributes:
        node: the state.
        above: its parent's branch, if that is listed.
        children: the branches of its children, oldest first.
        calls: the number of calls recorded in the state and below.
        hits: the number of calls that those answered.
        rank: its place among all branches, the most used one first, from 0 on.
    """

    node: TreeNode
    above: Branch | None
    children: list[Branch] = field(default_factory=list)
    calls: int = 0
    hits: int = 0
    rank: int = 0

    @property
    def hash(self) -> str:
        """The state's shortened hash."""
        return self.node.state.hash[:HASH_DIGITS]

    @property
    def weight(self) -> tuple[int, int]:
        """The order of branches for showing: by the calls that it answered, then by those in it."""
        return self.hits + (self.node.made_by.hits if self.node.made_by else 0), self.calls

    @cached_property
    def calls_to_children(self) -> list[str]:
        """The calls that lead to its children, each as one line."""
        return [call_line(child.node.made_by.call) for child in self.children if child.node.made_by]

    @property
    def beside(self) -> list[str]:
        """The calls that lead to it and to its siblings, each as one line."""
        return self.above.calls_to_children if self.above is not None else []

    @property
    def above_private(self) -> bool:
        """Whether the parent already belongs to a private branch."""
        return self.above is not None and bool(self.above.node.state.private)

    @property
    def active(self) -> str | None:
        """Why the state may change on its own; None if it cannot."""
        return self.node.made_by.active if self.node.made_by else None

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why the state could not be checkpointed; empty if it has a snapshot."""
        made_by = self.node.made_by
        return () if self.node.snapshots or made_by is None else tuple(dict.fromkeys(made_by.refusals.values()))


def build(nodes: Iterable[TreeNode]) -> list[Branch]:
    """Builds trees from `nodes`, which lists parents before children, and returns their topmost states."""
    branches: dict[str, Branch] = {}
    for node in nodes:
        above = branches.get(node.state.parent or "")
        branch = branches[node.state.hash] = Branch(node, above)
        if above is not None:
            above.children.append(branch)
    for branch in reversed(branches.values()):
        calls = [*branch.node.unchanging, *(child.node.made_by for child in branch.children if child.node.made_by)]
        branch.calls = len(calls) + sum(child.calls for child in branch.children)
        branch.hits = sum(call.hits for call in calls) + sum(child.hits for child in branch.children)
    for rank, branch in enumerate(sorted(branches.values(), key=lambda one: sum(one.weight), reverse=True)):
        branch.rank = rank
    return [branch for branch in branches.values() if branch.above is None]


def choose(children: list[Branch], most: int | None = None) -> tuple[list[Branch], list[Branch]]:
    """Returns the branches to show and those to fold, each oldest first.

    Args:
        children: those of one state.
        most: of several, only those with a lower rank are shown; None for all.
    """
    shown = {id(child) for child in children}
    if len(children) > BRANCHES + 1:
        shown = {id(child) for child in sorted(children, key=lambda child: child.weight, reverse=True)[:BRANCHES]}
    if most is not None and len(children) > 1:
        shown -= {id(child) for child in children if child.rank >= most}
    if len(shown) + 1 == len(children):  # a fold of one would take as much room
        return children, []
    return [c for c in children if id(c) in shown], [c for c in children if id(c) not in shown]


def fitting(fits: Callable[[int | None], bool], states: int) -> int | None:
    """Returns the number of branches, the most used ones, that a tree may have; None for all of them.

    Args:
        fits: whether there is room for a number of branches.
        states: the number of all states.
    """
    if fits(None):
        return None
    low, high = 0, states
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def print_trees(
    nodes: Iterable[TreeNode],
    roots: Mapping[str, RootInfo],
    rollouts: Iterable[RolloutRecord],
    console: Console,
    *,
    everything: bool = False,
) -> None:
    """Prints the trees of a listing with a header and a legend.

    Args:
        nodes: the listing, parents before their children.
        roots: the roots' information, by hash.
        rollouts: the rollouts that began at these roots.
        console: the console to print to.
        everything: whether to fold nothing.
    """
    by_root: dict[str, list[RolloutRecord]] = defaultdict(list)
    for rollout in rollouts:
        by_root[rollout.root].append(rollout)
    tops = build(nodes)
    infos = (roots.get(top.node.state.hash) for top in tops)
    apart = told_apart(root for root in infos if root is not None)

    def lines(most: int | None) -> Iterator[Text]:
        view = _TreeView(console.width, apart, everything=everything, most=most)
        yield view.header()
        for top in tops:
            yield from view.tree(top, roots.get(top.node.state.hash), by_root[top.node.state.hash])

    def fits(most: int | None) -> bool:
        return everything or len(list(islice(lines(most), LINES + 1))) <= LINES

    most = fitting(fits, 1 + max((branch.rank for branch in _all(tops)), default=0))
    for line in lines(most):
        console.print(line, soft_wrap=True)
    console.print()
    if most is not None:
        words = f"folded to about {LINES} lines, the least used branches first; --all shows everything"
        console.print(words, style="dim")
    for sentence in LEGEND:
        console.print(sentence, style="dim")


def _all(tops: Iterable[Branch]) -> Iterator[Branch]:
    pending = list(tops)
    while pending:
        branch = pending.pop()
        yield branch
        pending += branch.children


class _TreeView:
    """Renders trees as lines of `width` cells; with `everything`, nothing is folded."""

    def __init__(self, width: int, apart: Mapping[str, str], *, everything: bool, most: int | None) -> None:
        """`apart` has each root's differences from others of its image; `most` is that of `choose`."""
        self._apart = apart
        self._most = most
        self._head, self._tail = (CHAIN_HEAD, CHAIN_TAIL) if most is None else (1, 1)
        self._width = max(width, COLUMNS + HASH_DIGITS + NARROWEST_TEXT + 8)
        self._everything = everything

    def header(self) -> Text:
        """Returns the line above the columns."""
        labels = f"{'time':>{TIME}}{'hits':>{HITS}}{'forks':>{FORKS}}{'snapshot':>{SNAPSHOT}}"
        return Text(labels.rjust(self._width), "dim")

    def tree(self, top: Branch, info: RootInfo | None, rollouts: Sequence[RolloutRecord]) -> Iterator[Text]:
        """Yields the lines of one tree, or of the subtree of any state."""
        yield self._line("", top) if info is None else self._root_line(top, info, rollouts)
        yield from self._notes("", top)
        yield from self._children("", top)

    def _root_line(self, branch: Branch, info: RootInfo, rollouts: Sequence[RolloutRecord]) -> Text:
        tasks = {rollout.task for rollout in rollouts if rollout.task}
        words = [count(len(rollouts), "rollout")] if rollouts else []
        words += [count(len(tasks), "task")] if len(tasks) > 1 else [one_line(task) for task in tasks]
        apart = self._apart.get(info.hash, "")
        words += [apart] if apart else []
        words += [f"salt {one_line(info.salt)}"] if info.salt and f"salt {one_line(info.salt)}" not in apart else []
        words += [ago(info.created)]
        words += [f"snapshot {_snapshot_text(snapshot)}" for snapshot in branch.node.snapshots]
        line = Text.assemble(
            (_mark(branch.node) + " ", "cyan" if branch.node.snapshots else ""),
            (branch.hash + " ", "yellow"),
            (one_line(info.image_name), "bold"),
            ("  " + ", ".join(words), "dim"),
        )
        line.truncate(self._width, overflow="ellipsis")
        return line

    def _children(self, prefix: str, branch: Branch) -> Iterator[Text]:
        """Yields the lines of all descendants of a state; its own line precedes them."""
        shown, rest = (branch.children, []) if self._everything else choose(branch.children, self._most)
        if len(branch.children) == 1:
            yield from self._chain(prefix, shown[0])
            return
        least = len(prefix) + 2 + HASH_DIGITS + 3 + NARROWEST_TEXT + COLUMNS
        if shown and least > self._width and not self._everything:
            rest, shown = [*shown, *rest], []
        for number, child in enumerate(shown):
            last = number == len(shown) - 1 and not rest
            yield self._line(prefix + ("└─" if last else "├─"), child)
            below = prefix + ("  " if last else "│ ")
            yield from self._notes(below, child)
            yield from self._children(below, child)
        if rest:
            yield self._folded(prefix + "└─", rest, branch, more=bool(shown))

    def _folded(self, prefix: str, rest: Sequence[Branch], parent: Branch, *, more: bool) -> Text:
        hits = sum(branch.weight[0] for branch in rest)
        what = f"… {len(rest)} more branches" if more else f"… {count(len(rest), 'branch', 'branches')} below"
        details = [count(sum(branch.calls + 1 for branch in rest), "call")] + ([f"{TIMES}{hits}"] if hits else [])
        details += [] if more else [f"tvsnap tree {parent.hash}"]
        return Text(f"{prefix}{what} ({', '.join(details)})", "dim")

    def _chain(self, prefix: str, first: Branch) -> Iterator[Text]:
        """Yields the lines of a chain of single children, with the middle of a long one folded, and of its subtree."""
        chain = [first]
        while len(chain[-1].children) == 1:
            chain.append(chain[-1].children[0])
        head, tail = self._head, self._tail
        fold = not self._everything and len(chain) > head + tail + (2 if self._most is None else 1)
        for number, link in enumerate(chain):
            if fold and head <= number < len(chain) - tail:
                if number == head:
                    yield self._folded_links(prefix, chain[head:-tail])
                continue
            yield self._line(prefix, link)
            yield from self._notes(prefix, link)
        yield from self._children(prefix, chain[-1])

    def _folded_links(self, prefix: str, links: Sequence[Branch]) -> Text:
        unchanging = [call for link in links for call in link.node.unchanging]
        both = [*unchanging, *(link.node.made_by for link in links if link.node.made_by)]
        snapshots = sum(bool(link.node.snapshots) for link in links)
        unserved = 0 if links[0].above_private else sum(not served(call) for call in both)
        refused = sum(bool(link.refusals) for link in links)
        details = [count(len(links), "step") + (f" + {len(unchanging)}" if unchanging else "")]
        details += [count(snapshots, "snapshot")] if snapshots else []
        details += [f"{unserved} not shared"] if unserved else []
        failures = sum(bool(failure_of(call)) for call in both)
        details += [f"{failures} {FAILED}"] if failures else []
        details += [f"{refused} cannot be checkpointed"] if refused else []
        return self._columns(Text(f"{prefix}⋮ {', '.join(details)}", "dim"), both)

    def _line(self, prefix: str, branch: Branch) -> Text:
        node = branch.node
        mark_style = "cyan" if node.snapshots else "magenta" if node.state.private else ""
        line = Text.assemble((prefix, "dim"), (_mark(node) + " ", mark_style), (branch.hash + " ", "yellow"))
        text = call_line(node.made_by.call) if node.made_by else "(root)"
        failure = failure_of(node.made_by) if node.made_by else ""
        tail = f" {failure}" if failure else ""
        width = self._width - COLUMNS - line.cell_len - len(tail)
        line.append(cut_apart(text, branch.beside, width), "bold" if branch.weight[0] else "")
        line.append(tail, "red")
        return self._columns(line, [node.made_by] if node.made_by else [], node.snapshots)

    def _notes(self, prefix: str, branch: Branch) -> Iterator[Text]:
        """Yields the remarks about a state, for the lines below its own."""
        node, call = branch.node, branch.node.made_by
        bar = prefix + ("│ " if len(branch.children) > 1 else "  ")
        if call is not None and not branch.above_private and not served(call):
            yield self._note(bar, f"! {unserved_as(call)}", "magenta")  # here the shared part of the branch ends
        if call is not None and call.result.strain:
            yield self._note(bar, f"% {call.result.strain}", "yellow")
        if call is not None and call.asked:
            more = f" and {len(call.asked) - 1} more" if call.asked[1:] else ""
            yield self._note(
                bar, f"@ asked the network for {one_line(call.asked[0])}{more}, {ago(call.created)}", "cyan"
            )
        if branch.active and not (branch.above and branch.above.active == branch.active):
            yield self._note(bar, f"~ {branch.active}", "cyan")
        for refusal in branch.refusals:
            yield self._note(bar, f"! cannot be checkpointed: {refusal}", "magenta")
        if self._everything:
            for call in node.unchanging:
                line = Text(bar, "dim")
                tail = f" {failure_of(call)}" if failure_of(call) else ""
                line.append("= " + cut(call_line(call.call), self._width - COLUMNS - line.cell_len - 2 - len(tail)))
                line.append(tail, "red")
                yield self._columns(line, [call])
                if call.reason:
                    yield self._note(bar, f"  ! {unserved_as(call)}", "magenta")
                if call.result.strain:
                    yield self._note(bar, f"  % {call.result.strain}", "yellow")
        elif node.unchanging:
            line = Text(f"{bar}+ {count(len(node.unchanging), 'call')} that changed nothing", "dim")
            failures = sum(bool(failure_of(call)) for call in node.unchanging)
            line.append(f", {failures} {FAILED}" if failures else "", "red")
            yield self._columns(line, node.unchanging)
            strained = [call.result.strain for call in node.unchanging if call.result.strain]
            if strained:
                yield self._note(bar, f"% {len(strained)} of them under strain: one {strained[0]}", "yellow")
            if not node.state.private:  # otherwise a line above notes that nothing is shared from here on
                unserved = Counter(unserved_as(call) for call in node.unchanging if not served(call))
                for reason, number in sorted(unserved.items()):
                    yield self._note(bar, f"! {number} of them {reason}", "magenta")

    def _note(self, prefix: str, text: str, style: str) -> Text:
        line = Text(prefix, "dim")
        return line.append(cut(one_line(text), self._width - line.cell_len), style)

    def _columns(self, line: Text, calls: Sequence[Edge], snapshots: Sequence[Snapshot] = ()) -> Text:
        """Returns a line with its columns: duration and hits of the calls, forks and sizes of the snapshots."""
        line.truncate(self._width - COLUMNS, overflow="ellipsis", pad=True)
        duration, hits = sum(call.result.duration for call in calls), sum(call.hits for call in calls)
        heat = "dim" if duration < 0.1 else "" if duration < 5 else "red"
        line.append((seconds(duration) if calls else "").rjust(TIME), heat)
        line.append((f"{TIMES}{hits}" if hits else "").rjust(HITS), "green")
        forks = sum(snapshot.forks for snapshot in snapshots)
        line.append((str(forks) if forks else "").rjust(FORKS), "cyan")
        line.append(" ".join(map(_snapshot_text, snapshots)).rjust(SNAPSHOT), "cyan")
        line.rstrip()
        return line


def _snapshot_text(snapshot: Snapshot) -> str:
    """Returns a snapshot's size and what it captures: `48 KiB FPS`."""
    letters = (name[0].upper() for name in ("files", "processes", "shell") if getattr(snapshot.captures, name))
    return f"{size(snapshot.size)} {''.join(letters)}"


def _mark(node: TreeNode) -> str:
    if node.state.private:
        return "◇"
    if node.snapshots:
        return "●"
    return "○" if node.made_by is None or node.made_by.proven else "◌"


def failure_of(call: Edge) -> str:
    """Returns the mark of a call that timed out or had an exit status other than 0; empty for others."""
    if call.result.timed_out:
        return f"{FAILED} timeout"
    return f"{FAILED} {call.result.exit_code}" if call.result.exit_code else ""
