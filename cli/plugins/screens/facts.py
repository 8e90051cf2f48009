"""The lines of the panes about a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from tvsnap.graph import Edge, Outlined, RolloutRecord, RootInfo, Snapshot, Step, served, unserved_as

from ...text import TIMES, ago, call_line, call_text, count, cut, cut_apart, one_line, seconds, size, visible
from ...tree_view import FAILED, failure_of
from .forest import Forest, Row, lines_before

if TYPE_CHECKING:
    from tvsnap.model.observations import FileChange, Process

HASH_DIGITS = 8
LABEL = 1_000
"""Characters of a call that a row shows at most."""
FIGURES = 22
"""Cells of a row that its figures take."""
LONGEST_CALL = 100_000
"""Characters of a call that the pane shows."""

Lines = Sequence[Text | str]


@dataclass(frozen=True)
class Live:
    """A look at a fork of a state.

    Attributes:
        processes: its processes.
        shell: the state of its shell.
        files: its differences from its image, by path.
    """

    processes: Sequence[Process]
    shell: Mapping[str, str]
    files: Mapping[str, FileChange]


def label(edge: Edge) -> str:
    """Returns a call as one harmless line of bounded length."""
    return call_line(edge.call)[:LABEL]


def _mark(call: Outlined | None) -> str:
    """Returns the mark in `tvsnap tree` of the state that a call led to; `call` is None for a root."""
    if call is None:
        return "○"
    return "◇" if call.private else "●" if call.kept else "○" if call.proven else "◌"


def row_line(
    forest: Forest, row: Row, text: str, beside: Sequence[str], width: int, *, closed: bool, marked: bool, pale: bool
) -> Text:
    """Returns the line of a row of the tree.

    Args:
        forest: the trees.
        row: the row.
        text: its call, as one line.
        beside: the calls beside it in the same way, to show the difference from them.
        width: cells of the list.
        closed: whether the rows below it are hidden.
        marked: whether it was marked to be compared.
        pale: whether it is only shown because something below it fits the filter.
    """
    call = row.call
    line = Text(lines_before(row), "dim")
    if call is None:
        info = forest.reading.roots.get(row.state)
        apart = forest.apart.get(row.state)
        text = f"{one_line(info.image_name) if info else '(root)'}  {count(forest.starts[row.state], 'rollout')}"
        text += f", {apart}" if apart else ""
    mark = "=" if row.is_look else _mark(call)
    style = "cyan" if call and call.kept else "magenta" if call and call.private else ""
    hidden = closed and bool(row.children or row.looks)
    line.append("▸" if hidden else mark, "bold yellow" if hidden else style)
    line.append("*" if marked else " ", "bold yellow")
    if not row.is_look:
        line.append(f"{row.state[:HASH_DIGITS]} ", "yellow")
    tail = "" if call is None else f" {FAILED} timeout" if call.timed_out else ""
    tail = f" {FAILED} {call.exit_code}" if call and call.exit_code and not tail else tail
    reward = forest.reward(row)
    tail += "" if reward is None else f" [{reward:.3g}]"
    room = max(8, width - FIGURES - line.cell_len - len(tail))
    line.append(cut_apart(text, beside, room), "dim" if pale else "bold" if call is None or call.hits else "")
    line.append(tail, "red" if row.failing else "green")
    if call is not None:
        line.truncate(max(8, width - FIGURES), overflow="ellipsis", pad=True)
        line.append("" if call.served else "!", "magenta")
        line.append(seconds(call.duration).rjust(9 if call.served else 8), "dim" if call.duration < 5 else "red")
        line.append((f"{TIMES}{call.hits}" if call.hits else "").rjust(9), "green")
    return line


def call_lines(forest: Forest, row: Row, edge: Edge | None, snapshots: Sequence[Snapshot]) -> list[Text | str]:
    """Returns the lines of the pane of a call.

    Args:
        forest: the trees.
        row: the row.
        edge: its call; None for a root.
        snapshots: those of its state.
    """
    lines: list[Text | str] = [_fact("state", row.state)]
    if edge is None:
        lines += _root_lines(forest.reading.roots.get(row.state))
    else:
        result = edge.result
        lines += [_fact("made in", edge.state), _fact("", "it changed nothing")] if row.is_look else []
        status = "timed out" if result.timed_out else "no exit status"
        status = status if result.exit_code is None else f"{status}, " * result.timed_out + f"exit {result.exit_code}"
        lines.append(_fact("ended", status, "red" if failure_of(edge) else "green"))
        lines.append(_fact("took", f"{seconds(result.duration)}, {ago(edge.created)}"))
        lines.append(_fact("answered", count(edge.hits, "later call")))
        lines += [] if served(edge) else [_fact("", one_line(unserved_as(edge)), "magenta")]
        lines += [_fact("strain", f"it {one_line(result.strain)}", "yellow")] if result.strain else []
        lines += [_fact("asked", one_line(", ".join(edge.asked)), "cyan")] if edge.asked else []
        lines += [_fact("active", one_line(edge.active), "cyan")] if edge.active else []
        lines += [_fact("grade", one_line(edge.grade))] if edge.grade else []
        if not row.is_look:
            lines += [_fact("", f"cannot be kept: {one_line(why)}", "magenta") for why in edge.refusals.values()]
    for snapshot in snapshots:
        words = f"{size(snapshot.size)}, {count(snapshot.forks, 'fork')}, taken in {seconds(snapshot.checkpoint_s)}"
        lines.append(_fact("snapshot", words, "cyan"))
    lines += [_fact("ended here", _ended_words(one)) for one in forest.ended.get(row.state, ())[:20]]
    if edge is not None:
        lines += ["", *_whole(call_text(edge.call))]
    return lines


def _ended_words(rollout: RolloutRecord) -> str:
    words = [rollout.id[:HASH_DIGITS], one_line(rollout.task), one_line(rollout.label)]
    words += [] if rollout.reward is None else [f"reward {rollout.reward:.3g}"]
    return " ".join(filter(None, words))


def _root_lines(info: RootInfo | None) -> list[Text | str]:
    if info is None:
        return []
    facts = {"image": info.image_name, "digest": info.image_digest, "environment": info.environment}
    facts |= {"network": info.network, "salt": info.salt, "limits": info.limits}
    return [_fact(name, one_line(value)) for name, value in facts.items() if value]


def _whole(text: str) -> list[str]:
    more = len(text) - LONGEST_CALL
    return [*text[:LONGEST_CALL].split("\n"), *([f"… {more:,} more characters"] if more > 0 else [])]


def _fact(name: str, value: str, style: str = "") -> Text:
    return Text.assemble((f"{name:<11} ", "dim"), (visible(value), style))


def process_lines(live: Live | None, snapshots: Sequence[Snapshot]) -> Lines:
    """Returns the lines of the pane of processes: those of a fork, or those recorded in a snapshot."""
    if live is not None:
        lines: list[Text | str] = [
            Text.assemble((f"{one.pid:>7} ", "dim"), one_line(one.command)) for one in live.processes
        ]
        return lines or [Text("none besides the shell", "dim")]
    commands = [one_line(command) for snapshot in snapshots for command in snapshot.processes]
    if commands:
        return [*commands, "", Text("as its snapshot has them; l looks at them in a fork", "dim")]
    return [_ask()]


def shell_lines(live: Live | None) -> Lines:
    """Returns the lines of the pane of the shell."""
    if live is None:
        return [_ask()]
    return [
        Text.assemble((f"{one_line(name)}: ", "dim"), cut(one_line(value[:4000]), 2000))
        for name, value in sorted(live.shell.items())
    ]


def file_lines(live: Live | None) -> Lines:
    """Returns the lines of the pane of files: the differences from the image."""
    if live is None:
        return [_ask()]
    lines: list[Text | str] = []
    for path, change in sorted(live.files.items()):
        style = "red" if change.kind == "deleted" else "cyan" if change.kind == "directory" else ""
        about = size(change.size) if change.kind == "file" else change.kind
        lines.append(Text.assemble((f"{about:>10}  ", "dim"), (one_line(path), style)))
    return lines or [Text("no file differs from the image", "dim")]


def _ask() -> Text:
    return Text("l looks at it in a fork", "dim")


def step_line(step: Step, width: int) -> Text:
    """Returns the line of a call of a rollout."""
    line = Text(f"{step.place:>4}  ", "dim")
    line.append(f"{step.source:<10}", "green" if step.answered else "yellow")
    text = call_line(step.call)[:LABEL] if step.call is not None else "(its record was deleted)"
    tail = f" {FAILED} {'timeout' if step.timed_out else step.exit_code}" if step.failing else ""
    line.append(cut(text, max(8, width - 10 - line.cell_len - len(tail))))
    line.append(tail, "red")
    line.truncate(max(8, width - 9), overflow="ellipsis", pad=True)
    return line.append(seconds(step.seconds).rjust(8), "dim")


def rollout_line(rollout: RolloutRecord) -> Text:
    """Returns the line of a rollout."""
    line = Text(f"{rollout.id[:HASH_DIGITS]}  ", "yellow")
    line.append(f"{cut(one_line(rollout.task), 30):<30}  ")
    line.append(cut(one_line(rollout.label), 20), "dim")
    state = "running" if rollout.finished is None else ago(rollout.finished)
    line.append(f"  {state}", "green" if rollout.finished is None else "dim")
    line.append("" if rollout.reward is None else f"  reward {rollout.reward:.3g}")
    line.append("" if rollout.outcome is None else f"  {cut(one_line(rollout.outcome), 60)}", "red")
    return line
