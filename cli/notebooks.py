"""Rollouts, states, calls, trees and statistics for people: as HTML in notebooks, as text by `print`."""

from __future__ import annotations

import html as markup
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvsnap.graph import Edge, Listing, RolloutRecord, RolloutSummary, State, Step, Tally, TreeNode, served, unserved_as
from tvsnap.model.stats import Stats

from . import tree_picture, tree_svg
from .report_view import table
from .text import ago, call_line, call_text, count, cut, one_line, percent, seconds, size, visible
from .tree_view import failure_of

if TYPE_CHECKING:
    from tvsnap.protocols import AnyRollout

SHOWN = 200
"""Rows of a table at most."""
LONGEST = 20_000
"""Characters of a text that are shown."""
HEIGHT = 480
"""Height of the picture of a tree, in pixels."""


@dataclass(frozen=True)
class _Facts:
    """The description of a value: a title, named facts, and further HTML."""

    title: str
    rows: Iterable[tuple[str, str]]
    more: str = ""


def html(value: Any) -> str:
    """Returns a notebook's view of a value: HTML that is complete by itself.

    All texts are escaped, and control characters in the output of sandboxes are made visible. Pictures are in a frame
    that shares nothing with the notebook, because they have a script and a style of their own.

    Args:
        value: a rollout, a `State`, `Edge`, `Step`, `RolloutRecord`, `RolloutSummary`, `Tally`, `Stats`, or the states
            that `Graph.tree` returns.
    """
    if isinstance(value, Listing):
        return _tree(value)
    facts = _facts(value)
    shown = [(name, words) for name, words in facts.rows if words]
    return f"<div><b>{_text(facts.title)}</b>{table(('', ''), shown)}{facts.more}</div>"


def text(value: Any) -> str:
    """Returns the text of a value for `print`: its title, and below it a line for each fact.

    Args:
        value: as for `html`, but for the states that `Graph.tree` returns.
    """
    facts = _facts(value)
    shown = [(one_line(name), one_line(words)) for name, words in facts.rows if words]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join([one_line(facts.title), *(f"  {name:<{width}}  {words}" for name, words in shown)])


def _facts(value: Any) -> _Facts:
    if isinstance(value, Edge):
        return _call(value)
    if isinstance(value, Stats):
        return _stats(value)
    if isinstance(value, RolloutSummary):
        return _Facts(
            f"rollout {value.rollout.id}",
            [
                *_of_record(value.rollout),
                ("ended", value.ended),
                ("calls", f"{value.calls:,}"),
                ("answered", f"{value.hits:,} ({percent(value.hits, value.calls)})"),
                ("failing", f"{value.failing:,}"),
                ("waited", seconds(value.seconds)),
            ],
        )
    if isinstance(value, RolloutRecord):
        return _Facts(f"rollout {value.id}", _of_record(value))
    if isinstance(value, State):
        return _state(value)
    if isinstance(value, Step):
        call = "(its record was deleted)" if value.call is None else call_line(value.call)
        took = [("waited", seconds(value.seconds)), ("took", seconds(value.duration))]
        return _Facts(f"{value.place}: {cut(call, 200)}", [("source", value.source), *took, ("note", value.note or "")])
    if isinstance(value, Tally):
        return _tally(value)
    return _rollout(value)


def _of_record(rollout: RolloutRecord) -> list[tuple[str, str]]:
    return [
        ("task", rollout.task),
        ("label", rollout.label),
        ("epoch", "" if rollout.epoch is None else str(rollout.epoch)),
        ("image", rollout.image),
        ("began", ago(rollout.started)),
        ("state", rollout.state[:12]),
        ("reward", "" if rollout.reward is None else f"{rollout.reward:.3g}"),
        ("error", rollout.outcome or ""),
    ]


def _rollout(rollout: AnyRollout) -> _Facts:
    """Returns the description of a rollout that was begun here, or at a server: its state, and its calls."""
    rows = [("stands at", rollout.state[:12]), ("private", rollout.private or "")]  # waits for the last call's record
    steps = rollout._steps()
    rows.append(("calls", f"{len(steps):,}, {sum(step.answered for step in steps):,} of them answered"))
    lines = [
        (
            str(step.place),
            "(its record was deleted)" if step.call is None else cut(call_line(step.call)[:400], 100),
            step.source,
            "timeout" if step.timed_out else "" if step.exit_code is None else str(step.exit_code),
            seconds(step.seconds),
        )
        for step in steps[-SHOWN:]
    ]
    calls = table(("", "call", "source", "exit", "waited"), lines) if lines else ""
    return _Facts(f"rollout {rollout.id or '(not recorded)'}", rows, calls)


def _state(state: State) -> _Facts:
    rows = [
        ("root", state.root[:12]),
        ("parent", (state.parent or "")[:12]),
        ("depth", f"{state.depth:,}"),
        ("private", state.private or ""),
        ("reached", ago(state.created)),
    ]
    return _Facts(f"state {state.hash}", rows)


def _call(edge: Edge) -> _Facts:
    result = edge.result
    status = "timed out" if result.timed_out else "" if result.exit_code is None else str(result.exit_code)
    rows = [
        ("state", f"{edge.state[:12]} → {edge.next_state[:12]}" if edge.changed else f"{edge.state[:12]}, unchanged"),
        ("exit status", status + (" ✗" if failure_of(edge) else "")),
        ("took", seconds(result.duration)),
        ("answered", count(edge.hits, "later call")),
        ("", "" if served(edge) else unserved_as(edge)),
        ("grade", edge.grade or ""),
    ]
    texts = f"<pre>{_block(call_text(edge.call))}</pre>"
    if result.output:
        texts += f"<details open><summary>output</summary><pre>{_block(visible(result.output))}</pre></details>"
    return _Facts(cut(call_line(edge.call)[:400], 100), rows, texts)


def _stats(stats: Stats) -> _Facts:
    rows = [
        ("rollouts", f"{stats.rollouts:,}"),
        ("calls", f"{stats.calls:,}"),
        ("answered from the graph", f"{stats.hits:,} ({percent(stats.hits, stats.calls)})"),
        ("answered by waiting", f"{stats.coalesced:,} ({percent(stats.coalesced, stats.calls)})"),
        ("executed", f"{stats.executed:,}"),
        ("forks", f"{stats.forks:,}"),
        ("snapshots taken", f"{stats.checkpoints:,}"),
        ("time of the answered calls", seconds(stats.answered_s)),
        ("saved", seconds(stats.saved_s)),
        ("sandboxes", f"{stats.sandboxes:,}"),
        ("trouble", stats.trouble or ""),
    ]
    for name, (used, limit) in stats.budget.items():
        words = (lambda value: f"{value:,}") if name in ("snapshots", "sandboxes") else size
        rows.append((f"{name} in use", words(used) + ("" if limit is None else f" of {words(limit)}")))
    return _Facts("tvsnap: what this cache has done", rows)


def _tally(tally: Tally) -> _Facts:
    rows = [
        ("rollouts", f"{tally.rollouts:,}"),
        ("reward", "" if tally.reward is None else f"{tally.reward:.3g}"),
        ("calls", f"{tally.calls:,}"),
        ("answered", percent(tally.hits + tally.coalesced, tally.calls)),
        ("failing", f"{tally.failing:,}"),
        ("waited", seconds(tally.waited_s)),
        ("took", seconds(tally.took_s)),
        ("saved", seconds(tally.saved_s)),
    ]
    return _Facts(tally.key or "all rollouts", rows)


def _tree(nodes: Sequence[TreeNode]) -> str:
    if not nodes:
        return "<div>no states</div>"
    picture = tree_picture.draw(nodes, {}, [], {}, colour="source", everything=False)
    page = markup.escape(tree_svg.page(picture, f"tvsnap tree: {count(picture.states, 'state')}"))
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{page}" width="100%" height="{HEIGHT}" '
        f'title="tree of states" loading="lazy" style="border: 1px solid #d0d7de"></iframe>'
    )


def _block(text: str) -> str:
    more = len(text) - LONGEST
    return markup.escape(text[:LONGEST]) + (f"\n… {more:,} more characters" if more > 0 else "")


def _text(text: str) -> str:
    return markup.escape(one_line(text))
