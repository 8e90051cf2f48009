"""The tree of states as lines of text, for terminals of 80 columns and graphs of hundreds of states.

Only a state with several children moves its children to the right; a chain of single children goes straight down.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from tvsnap.graph import CallSummary, RolloutRecord, RootInfo, Snapshot, TreeNode
from tvsnap.model.observations import Captures

from .text import TIMES, ago, call_line, count, cut, one_line, seconds, size

HASH_DIGITS = 8
CHAIN_HEAD, CHAIN_TAIL = 3, 2
"""How many states of a long chain are shown at its beginning and at its end."""
BRANCHES = 8
"""How many branches of one state are shown."""
NARROWEST_TEXT = 16
"""Cells that a call's text has at least; where the tree would leave less, it is cut."""
TIME, HITS, FORKS, SNAPSHOT = 7, 7, 6, 11
COLUMNS = TIME + HITS + FORKS + SNAPSHOT

LEGEND = (
    "● has a snapshot (F files, P processes, S shell)   ○ is reached by calls that do the same each time",
    "◌ is kept by nothing: who makes the call executes it   ~ something in it runs by itself",
    f"◇ private to one rollout   {TIMES}7 answered 7 calls   + 5 calls that changed nothing",
)


Tree = tuple["Branch", RootInfo | None, Sequence[RolloutRecord]]
"""A tree to print: its topmost state, what is known of it if that is a root, and the rollouts that began there."""


@dataclass
class Branch:
    """A state with all that came of it.

    Attributes:
        node: the state.
        children: oldest first.
        calls: how many calls are recorded in it and below.
        hits: how many calls those answered.
        seconds: what those took.
        snapshots: how many of the states below have one.
        above_private: the state above is in a private branch already.
        above_active: why the state above may change by itself; None if it may not.
    """

    node: TreeNode
    children: list[Branch] = field(default_factory=list)
    calls: int = 0
    hits: int = 0
    seconds: float = 0.0
    snapshots: int = 0
    above_private: bool = False
    above_active: str | None = None

    @property
    def weight(self) -> tuple[int, int]:
        """What makes a branch worth showing: how much it was used, and how much came of it."""
        return self.hits + _hits(self.node), self.calls


def build(nodes: Iterable[TreeNode]) -> dict[str, Branch]:
    """Returns the states of a listing by their hashes, joined to trees; `nodes` has parents before children."""
    branches: dict[str, Branch] = {}
    for node in nodes:
        branch = branches[node.state.hash] = Branch(node)
        above = branches.get(node.state.parent or "")
        if above is not None:
            above.children.append(branch)
            branch.above_private = bool(above.node.state.private)
            branch.above_active = _active(above.node)
    for branch in reversed(branches.values()):
        _add(branch, branch.node.unchanging)
        for child in branch.children:
            _add(branch, [child.node.made_by] if child.node.made_by else [])
            branch.calls += child.calls
            branch.hits += child.hits
            branch.seconds += child.seconds
            branch.snapshots += child.snapshots + bool(child.node.snapshots)
    return branches


def _add(branch: Branch, calls: Sequence[CallSummary]) -> None:
    branch.calls += len(calls)
    branch.hits += sum(call.hits for call in calls)
    branch.seconds += sum(call.duration for call in calls)


def _hits(node: TreeNode) -> int:
    return node.made_by.hits if node.made_by else 0


def print_trees(trees: Iterable[Tree], console: Console, *, everything: bool = False) -> None:
    """Prints trees with a header and a legend.

    Args:
        trees: what to print.
        console: where to.
        everything: fold nothing.
    """
    view = TreeView(console.width, everything=everything)
    console.print(view.header(), soft_wrap=True)
    for branch, info, rollouts in trees:
        for line in view.root(branch, info, rollouts):
            console.print(line, soft_wrap=True)
    console.print()
    for sentence in LEGEND:
        console.print(sentence, style="dim")


class TreeView:
    """Renders trees as lines.

    Args:
        width: cells of a line.
        everything: fold nothing.
    """

    def __init__(self, width: int, *, everything: bool = False) -> None:
        self._width = max(width, COLUMNS + HASH_DIGITS + NARROWEST_TEXT + 8)
        self._everything = everything

    def header(self) -> Text:
        """Returns the line above the columns."""
        labels = f"{'time':>{TIME}}{'hits':>{HITS}}{'forks':>{FORKS}}{'snapshot':>{SNAPSHOT}}"
        return Text(labels.rjust(self._width), "dim")

    def root(self, branch: Branch, info: RootInfo | None, rollouts: Sequence[RolloutRecord]) -> Iterator[Text]:
        """Yields the lines of one tree, or of the part of it below any state."""
        if info is None:
            yield self._line("", branch, branch.node)
        else:
            yield self._root_line(branch, info, rollouts)
        yield from self._notes("", branch)
        yield from self._children("", branch)

    def _root_line(self, branch: Branch, info: RootInfo, rollouts: Sequence[RolloutRecord]) -> Text:
        tasks = {rollout.task for rollout in rollouts if rollout.task}
        words = [count(len(rollouts), "rollout")] if rollouts else []
        words += [count(len(tasks), "task")] if len(tasks) > 1 else [one_line(task) for task in tasks]
        words += [f"salt {one_line(info.salt)}"] if info.salt else []
        words += [ago(info.created)]
        words += [f"snapshot {snapshot_text(snapshot)}" for snapshot in branch.node.snapshots]
        line = Text(_mark(branch.node) + " ", "cyan" if branch.node.snapshots else "")
        line.append(info.hash[:HASH_DIGITS] + " ", "yellow")
        line.append(one_line(info.image_name), "bold")
        line.append("  " + ", ".join(words), "dim")
        line.truncate(self._width, overflow="ellipsis")
        return line

    def _children(self, prefix: str, branch: Branch) -> Iterator[Text]:
        """Yields the lines of all that is below a state whose own line has been yielded."""
        shown, rest = self._choose(branch.children)
        if len(branch.children) == 1:
            yield from self._chain(prefix, shown[0])
            return
        if shown and not self._fits(prefix + "├─"):
            rest, shown = [*shown, *rest], []
        for number, child in enumerate(shown):
            last = number == len(shown) - 1 and not rest
            yield self._line(prefix + ("└─" if last else "├─"), child, child.node)
            below = prefix + ("  " if last else "│ ")
            yield from self._notes(below, child)
            yield from self._children(below, child)
        if rest:
            yield self._folded(prefix + "└─", rest, branch, more=bool(shown))

    def _choose(self, children: list[Branch]) -> tuple[list[Branch], list[Branch]]:
        """Returns the branches to show and those to fold, each oldest first."""
        if self._everything or len(children) <= BRANCHES + 1:
            return children, []
        heaviest = sorted(children, key=lambda child: child.weight, reverse=True)[:BRANCHES]
        kept = {id(child) for child in heaviest}
        return [c for c in children if id(c) in kept], [c for c in children if id(c) not in kept]

    def _fits(self, prefix: str) -> bool:
        if self._everything:
            return True
        return len(prefix) + HASH_DIGITS + 3 + NARROWEST_TEXT + COLUMNS <= self._width

    def _folded(self, prefix: str, rest: Sequence[Branch], parent: Branch, *, more: bool) -> Text:
        line = Text(prefix, "dim")
        calls = sum(branch.calls + 1 for branch in rest)
        hits = sum(branch.weight[0] for branch in rest)
        what = f"… {len(rest)} more branches" if more else f"… {count(len(rest), 'branch', 'branches')} below"
        details = [count(calls, "call")] + ([f"{TIMES}{hits}"] if hits else [])
        if not more:
            details.append(f"tvsnap tree {parent.node.state.hash[:HASH_DIGITS]}")
        line.append(f"{what} ({', '.join(details)})", "dim")
        return line

    def _chain(self, prefix: str, first: Branch) -> Iterator[Text]:
        """Yields the lines of a chain of single children, the middle of a long one folded, and of what ends it."""
        chain = [first]
        while len(chain[-1].children) == 1:
            chain.append(chain[-1].children[0])
        fold = not self._everything and len(chain) > CHAIN_HEAD + CHAIN_TAIL + 2
        for number, link in enumerate(chain):
            if fold and CHAIN_HEAD <= number < len(chain) - CHAIN_TAIL:
                if number == CHAIN_HEAD:
                    yield self._folded_links(prefix, chain[CHAIN_HEAD:-CHAIN_TAIL])
                continue
            yield self._line(prefix, link, link.node)
            yield from self._notes(prefix, link)
        yield from self._children(prefix, chain[-1])

    def _folded_links(self, prefix: str, links: Sequence[Branch]) -> Text:
        calls = [call for link in links for call in link.node.unchanging]
        steps = [link.node.made_by for link in links if link.node.made_by]
        both = [*calls, *steps]
        snapshots = sum(bool(link.node.snapshots) for link in links)
        unserved = 0 if links[0].above_private else sum(not _served(call) for call in both)
        details = [count(len(links), "step") + (f" + {len(calls)}" if calls else "")]
        details += [count(snapshots, "snapshot")] if snapshots else []
        details += [f"{unserved} not shared"] if unserved else []
        refused = sum(bool(_refusals(link.node)) for link in links)
        details += [f"{refused} cannot be checkpointed"] if refused else []
        line = Text(prefix + "⋮ ", "dim")
        line.append(", ".join(details), "dim")
        return self._columns(line, sum(call.duration for call in both), sum(call.hits for call in both), ())

    def _line(self, prefix: str, branch: Branch, node: TreeNode) -> Text:
        line = Text(prefix, "dim")
        line.append(_mark(node) + " ", "cyan" if node.snapshots else "magenta" if node.state.private else "")
        line.append(node.state.hash[:HASH_DIGITS] + " ", "yellow")
        room = self._width - COLUMNS - line.cell_len
        text = call_line(node.made_by.call) if node.made_by else "(root)"
        line.append(cut(text, room), "bold" if branch.weight[0] else "")
        return self._with_columns(line, node.made_by, node.snapshots)

    def _notes(self, prefix: str, branch: Branch) -> Iterator[Text]:
        """Yields what there is to say about a state below its line."""
        node = branch.node
        bar = prefix + ("│ " if len(branch.children) > 1 else "  ")
        reason = _why_not_shared(branch)
        if reason:
            yield self._note(bar, f"! {reason}", "magenta")
        active = _active(node)
        if active and active != branch.above_active:
            yield self._note(bar, f"~ {active}", "cyan")
        for refusal in _refusals(node):
            yield self._note(bar, f"! cannot be checkpointed: {refusal}", "magenta")
        if self._everything:
            for call in node.unchanging:
                line = Text(bar, "dim")
                line.append("= " + cut(call_line(call.call), self._width - COLUMNS - line.cell_len - 2))
                yield self._with_columns(line, call, ())
                if call.reason:
                    yield self._note(bar, f"  ! {_unserved(call)}", "magenta")
        elif node.unchanging:
            line = Text(f"{bar}+ {count(len(node.unchanging), 'call')} that changed nothing", "dim")
            unserved = Counter(_unserved(call) for call in node.unchanging if not _served(call))
            if node.state.private:
                unserved.clear()  # that nothing is shared from here on has been said
            yield self._columns(
                line,
                sum(call.duration for call in node.unchanging),
                sum(call.hits for call in node.unchanging),
                (),
            )
            for reason, number in sorted(unserved.items()):
                yield self._note(bar, f"! {number} of them {reason}", "magenta")

    def _note(self, prefix: str, text: str, style: str) -> Text:
        line = Text(prefix, "dim")
        line.append(cut(one_line(text), self._width - line.cell_len), style)
        return line

    def _with_columns(self, line: Text, call: CallSummary | None, snapshots: Sequence[Snapshot]) -> Text:
        return self._columns(line, call.duration if call else None, call.hits if call else 0, snapshots)

    def _columns(self, line: Text, duration: float | None, hits: int, snapshots: Sequence[Snapshot]) -> Text:
        room = self._width - COLUMNS
        line.truncate(room, overflow="ellipsis", pad=True)
        line.append(("" if duration is None else seconds(duration)).rjust(TIME), _heat(duration))
        line.append((f"{TIMES}{hits}" if hits else "").rjust(HITS), "green")
        forks = sum(snapshot.forks for snapshot in snapshots)
        line.append((str(forks) if forks else "").rjust(FORKS), "cyan")
        line.append(" ".join(map(snapshot_text, snapshots)).rjust(SNAPSHOT), "cyan")
        line.rstrip()
        return line


def snapshot_text(snapshot: Snapshot) -> str:
    """Returns a snapshot's size and what it captures: `48 kB FPS`."""
    return f"{size(snapshot.size)} {capture_letters(snapshot.captures)}"


def capture_letters(captures: Captures) -> str:
    """Returns what a snapshot captures as letters: F files, P processes, S the shell."""
    return ("F" if captures.files else "") + ("P" if captures.processes else "") + ("S" if captures.shell else "")


def group_rollouts(rollouts: Iterable[RolloutRecord]) -> Mapping[str, list[RolloutRecord]]:
    """Returns rollouts by the root that they started at."""
    groups: dict[str, list[RolloutRecord]] = defaultdict(list)
    for rollout in rollouts:
        groups[rollout.root].append(rollout)
    return groups


def _mark(node: TreeNode) -> str:
    if node.state.private:
        return "◇"
    if node.snapshots:
        return "●"
    return "○" if node.made_by is None or node.made_by.proven else "◌"


def _active(node: TreeNode) -> str | None:
    """Returns why a state may change by itself; None if it may not."""
    return node.made_by.active if node.made_by else None


def _why_not_shared(branch: Branch) -> str:
    """Returns the reason if this is where a branch stops being shared, else nothing."""
    call = branch.node.made_by
    return "" if call is None or branch.above_private or _served(call) else _unserved(call)


def _refusals(node: TreeNode) -> tuple[str, ...]:
    """Returns why a state without a snapshot could not be checkpointed."""
    return () if node.snapshots or node.made_by is None else tuple(dict.fromkeys(node.made_by.refusals.values()))


def _served(call: CallSummary) -> bool:
    return call.shared and call.deterministic


def _unserved(call: CallSummary) -> str:
    reason = call.reason or ("timed out" if call.timed_out else "no reason given")
    return f"not shared: {reason}" if not call.shared else f"not deterministic: {reason}"


def _heat(duration: float | None) -> str:
    if duration is None or duration < 0.1:
        return "dim"
    return "" if duration < 5 else "red"
