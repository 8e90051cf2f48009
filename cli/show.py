"""`tvsnap show`: prints everything about one state, or the calls of a rollout."""

from __future__ import annotations

import contextlib
import math
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from rich.cells import cell_len
from rich.text import Text
from typer import Argument, Option

from tvsnap.model.errors import NotFound, UsageError

from . import completion, context, options
from .rollouts import summary_data
from .text import TIMES, ago, call_line, call_text, count, cut, first_lines, one_line, seconds, size, visible
from .transcript_view import TranscriptView
from .tree import call_data

if TYPE_CHECKING:
    from rich.console import Console

    from tvsnap.graph import Edge, RolloutRecord, RootInfo, Snapshot, State, Step
    from tvsnap.model.credit import Credit
    from tvsnap.protocols import AnyGraph

LINES_SHOWN = 20
LINEAGE_SHOWN = 30
CALLS_SHOWN = 20


@options.verb("025", url=True, s3="no such state or rollout, or a prefix that fits several")
def show(
    name: str = Argument(
        metavar="STATE|ROLLOUT|LABEL",
        help="A state's hash or a prefix of it (PREFIX~2 is two steps up); or a rollout's id, a prefix of it, or its "
        "label. Of several with the label, the latest.",
        autocompletion=completion.states,
    ),
    output: bool = Option(
        False,
        "--output",
        help="Print the whole output of the state's call, and nothing else; of a rollout, of each call.",
    ),
    everything: bool = Option(False, "--all", help="Cut and fold nothing."),
    as_json: options.AsJson = False,
) -> None:
    """Show a rollout's calls, or a state: how it came about.

    Of a state: the calls that led to it, the last one's output, the parts of its snapshot, and the calls made in it.

    Of a rollout: every call in order, also if it changed nothing, with the state that it led to, the source of its
    result, its exit status, the time that the rollout waited, the time of its execution, and the reason for that. If
    it and others of its task and epoch have rewards, the advantage of each call, too: how much more was gained by the
    rollouts that made it than by others in the same state (not with --url). A name that fits a state and the beginning
    of a rollout's id is taken for the state.

    \b
    Examples:
      tvsnap show 3fa9c1
      tvsnap show 3fa9c1~2 --output     the whole output of the call two steps up
      tvsnap show 0b51c9d3f8a2e467      what a rollout did (tvsnap rollouts)
      tvsnap show best --output         with all that its calls printed
    """
    if not name:
        raise UsageError(
            "the name is empty: give a state, or a rollout's id or label (rollouts without a label: "
            "tvsnap rollouts --label '')"
        )
    with context.any_graph() as graph:
        rollout = _rollout_named(graph, name)
        if rollout is not None:
            transcript = TranscriptView(context.console(soft_wrap=True), output=output or everything)
            _answer_rollout(graph, rollout, transcript, as_json=as_json)
            return
        record = _state_named(graph, name)
        lineage = graph.lineage(record.hash)
        calls = graph.out_edges(record.hash)
        snapshots = graph.snapshots_of(record.hash)
        root = graph.root_of(record.hash)
    if output and not as_json:
        text = lineage[-1].result.output if lineage else ""
        typer.echo(visible(text), nl=bool(text) and not text.endswith("\n"))
        return
    data = _state_data(record, root, lineage, calls, snapshots)
    view = _View(context.console(soft_wrap=True), everything=everything)
    context.answer(data, as_json=as_json, show=lambda: view.print(record, root, lineage, calls, snapshots))


def _state_data(
    record: State, root: RootInfo, lineage: list[Edge], calls: list[Edge], snapshots: list[Snapshot]
) -> dict[str, Any]:
    """Returns a state as plain JSON."""
    return {
        **asdict(record),
        "state": record.hash,
        "root": asdict(root),
        "call": edge_data(lineage[-1], output=True) if lineage else None,
        "lineage": [edge_data(edge, output=False) for edge in lineage],
        "calls": [edge_data(edge, output=False) for edge in calls],
        "snapshots": [asdict(snapshot) for snapshot in snapshots],
        "refusals": refusals_of(lineage),
    }


def _answer_rollout(graph: AnyGraph, rollout: RolloutRecord, view: TranscriptView, *, as_json: bool) -> None:
    """Prints the calls of a rollout, or writes them as JSON."""
    (summary,) = graph.summaries(id=rollout.id)
    steps = graph.steps(rollout.id)
    credit = _credit_of(graph, rollout)
    gained = {} if credit is None else dict(zip(credit.places, credit.advantages, strict=True))
    data = {
        "rollout": summary_data(summary),
        "steps": [{**step_data(step), "advantage": gained.get(step.place)} for step in steps],
        "end_advantage": None if credit is None else credit.end,
    }
    context.answer(data, as_json=as_json, show=lambda: view.print(summary, steps, credit))


def _rollout_named(graph: AnyGraph, name: str) -> RolloutRecord | None:
    """Returns the rollout with this name; None if it is a state's."""
    try:
        rollout = graph.find_rollout(name)
    except NotFound:
        with contextlib.suppress(NotFound):
            graph.resolve(name)
            return None
        raise
    if rollout is None or name in (rollout.id, rollout.label):
        return rollout
    with contextlib.suppress(NotFound, UsageError):
        graph.resolve(name)
        return None
    return rollout


def _credit_of(graph: AnyGraph, rollout: RolloutRecord) -> Credit | None:
    """Returns the advantages of a rollout's calls; None if there is no reward, or nothing to compare it with."""
    from tvsnap.graph import Graph

    if rollout.reward is None or not rollout.task or not isinstance(graph, Graph):
        return None
    credit = graph.values(rollout.task, epoch=rollout.epoch).of(rollout.id)
    return credit if credit.compared else None


def _state_named(graph: AnyGraph, name: str) -> State:
    """Returns the state with this name, which is no rollout's."""
    try:
        return graph.resolve(name)
    except (NotFound, UsageError) as error:
        if " fits several " in str(error):
            raise
        raise type(error)(f"{error}; nor is there a rollout of this id or label (tvsnap rollouts)") from None


class _View:
    def __init__(self, console: Console, *, everything: bool) -> None:
        self._console = console
        self._everything = everything

    def print(
        self, state: State, root: RootInfo, lineage: list[Edge], calls: list[Edge], snapshots: list[Snapshot]
    ) -> None:
        self._console.print(f"state {state.hash}", style="bold")
        network = f", network {one_line(root.network)}" if root.network != "none" else ""
        salt = f", salt {one_line(root.salt)}" if root.salt else ""
        digest = f" ({root.image_digest[:12]})" if root.image_digest else ""
        image = f"{one_line(root.image_name)}{digest}, environment {root.environment}{network}{salt}"
        self._field("image", image)
        self._field("reached", f"{ago(state.created)}, {count(state.depth, 'call')} from its root {root.hash[:12]}")
        if state.private:
            self._field("private", one_line(state.private), "magenta")
        made_by = lineage[-1] if lineage else None
        if made_by is not None and made_by.on_host:
            self._field(
                "snapshot", "none: the call was made elsewhere, by a client of TVCache, which may keep the state"
            )
        else:
            self._snapshots(snapshots, refusals_of(lineage), proven=made_by is None or made_by.proven)
        if made_by is not None and made_by.asked:
            hosts = one_line(", ".join(made_by.asked))
            self._field("network", f"{ago(made_by.created)}, the call asked for {hosts}", "cyan")
        if made_by is not None and made_by.active:
            self._field("by itself", one_line(made_by.active))
            words = "how long a rollout waits always counts"
            if 0 < made_by.quiet_s < math.inf:
                quiet = seconds(made_by.quiet_s)
                words = f"nothing changes for {quiet} after the call; beyond that, how long a rollout waits counts"
            self._field("", words, "dim")
        if lineage:
            self._lineage(lineage)
            self._last_call(lineage[-1])
        self._made_here(calls)

    def _field(self, label: str, text: str, style: str = "") -> None:
        self._console.print(Text.assemble((f"{label:<12}", "dim"), (text, style)))

    def _snapshots(self, snapshots: list[Snapshot], refusals: dict[str, str], *, proven: bool) -> None:
        if not snapshots:
            how = "reached by calls that are known to do the same each time"
            self._field("snapshot", f"none: {how if proven else 'nothing that follows from this state is answered'}")
        for backend, reason in refusals.items():
            self._field("", f"cannot be checkpointed ({backend}): {one_line(reason)}", "magenta")
        for snapshot in snapshots:
            what = [name for name in ("files", "processes", "shell") if getattr(snapshot.captures, name)]
            what = [", ".join(what[:-1]), what[-1]] if what[1:] else what
            creation = f"taken {ago(snapshot.created)} in {seconds(snapshot.checkpoint_s)} ({snapshot.backend})"
            self._field("snapshot", f"{size(snapshot.size)} of {' and '.join(what)}, {creation}", "cyan")
            latest = "" if snapshot.fork_s is None else f", the latest took {seconds(snapshot.fork_s)}"
            self._field("", count(snapshot.forks, "fork") + latest)
            if snapshot.pinned:
                self._field("", "kept by hand: only `tvsnap forget` deletes it")
            for process in snapshot.processes:
                self._field("process", one_line(process))

    def _lineage(self, lineage: list[Edge]) -> None:
        self._console.print("\nlineage", style="bold")
        folded = 0 if self._everything else max(0, len(lineage) - LINEAGE_SHOWN)
        for number, edge in enumerate(lineage, 1):
            if 5 < number <= 5 + folded:
                if number == 6:
                    self._console.print(f"      ⋮ {folded} more (--all)", style="dim")
                continue
            line = Text.assemble((f"{number:4}  ", "dim"), (edge.next_state[:8] + "  ", "yellow"))
            room = self._console.width - line.cell_len - 14
            text = call_line(edge.call) if self._everything else cut(call_line(edge.call), room)
            line.append(text + " " * max(0, room - cell_len(text)))
            line.append(f" {seconds(edge.result.duration):>7}", "dim")
            line.append(f" {TIMES}{edge.hits}".rjust(6) if edge.hits else "", "green")
            self._console.print(line)

    def _last_call(self, edge: Edge) -> None:
        result, limit = edge.result, sys.maxsize if self._everything else LINES_SHOWN
        self._console.print("\ncall", style="bold")
        text, more = first_lines(call_text(edge.call), limit)
        self._console.print(text + (f"\n… {count(more, 'more line')} (--all)" if more else ""))
        words = ["timed out"] if result.timed_out else []
        words += [f"exit {result.exit_code}"] if result.exit_code is not None else []
        words += [f"took {seconds(result.duration)}", f"answered {count(edge.hits, 'later call')}"]
        words += ["output cut in the middle"] if result.truncated else []
        self._console.print("-- " + ", ".join(words), style="dim")
        if edge.grade:
            self._console.print(f"-- its grade: {one_line(edge.grade)}", style="dim")
        if result.strain:
            self._console.print(f"-- under strain: it {one_line(result.strain)}", style="yellow")
        if edge.reason:
            kind = "not deterministic" if not edge.deterministic else "not shared"
            self._console.print(f"-- {kind}: {one_line(edge.reason)}", style="magenta")
        self._console.print("\noutput", style="bold")
        text, more = first_lines(result.output, limit)
        self._console.print(visible(text) if text else "(none)")
        if more:
            self._console.print(f"… {count(more, 'more line')} (--output)", style="dim")
        for part in result.attachments:
            self._console.print(f"({part.media_type}, {size(len(part.data))}: --json has it)", style="dim")

    def _made_here(self, calls: list[Edge]) -> None:
        if not calls:
            return
        self._console.print(f"\n{count(len(calls), 'call')} made here", style="bold")
        shown = calls if self._everything else calls[:CALLS_SHOWN]
        for edge in shown:
            tail = f"  {TIMES}{edge.hits}" if edge.hits else ""
            led_to = (edge.next_state[:8], "yellow") if edge.changed else ("= same  ", "dim")
            words = cut(call_line(edge.call), self._console.width - 12 - len(tail))
            self._console.print(Text.assemble("  ", led_to, "  " + words, (tail, "green")))
        if len(calls) > len(shown):
            self._console.print(f"  … {len(calls) - len(shown)} more (--all)", style="dim")


def refusals_of(lineage: list[Edge]) -> dict[str, str]:
    """Returns, by backend, why the last state of a lineage could not be checkpointed; empty if it could be."""
    return dict(lineage[-1].refusals) if lineage else {}


def edge_data(edge: Edge, *, output: bool) -> dict[str, Any]:
    """Returns a recorded call as plain JSON, optionally with its output."""
    return {
        **call_data(edge),
        "state": edge.state,
        "next_state": edge.next_state,
        "blocked": edge.result.blocked,
        "quiet_s": None if edge.quiet_s == math.inf else edge.quiet_s,
        **(edge.result.as_json() if output else {}),
    }


def step_data(step: Step) -> dict[str, Any]:
    """Returns a call of a rollout as plain JSON, with its output."""
    names = ("place", "source", "ended", "seconds", "duration", "processor_s", "exit_code", "timed_out", "note")
    call = None if step.call is None else {"name": step.call.name, "arguments": dict(step.call.arguments)}
    record = None if step.edge is None else edge_data(step.edge, output=True)
    return {**{name: getattr(step, name) for name in names}, "call": call, "record": record}
