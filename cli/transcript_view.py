"""Prints a rollout: its record, and its calls in order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.text import Text

from .text import ago, call_line, call_text, count, cut, one_line, percent, seconds, visible

if TYPE_CHECKING:
    from rich.console import Console

    from tvsnap.graph import RolloutSummary, Step
    from tvsnap.model.credit import Credit

FAILING_LINES = 5
"""Lines of a failing call's output at most, without `output`."""
HASH_DIGITS = 8
STATE, SOURCE, EXIT, TIME = HASH_DIGITS + 2, 10, 9, 8
COLUMNS = STATE + SOURCE + EXIT + 2 * TIME
GAIN = 11
NARROWEST_TEXT = 20


class TranscriptView:
    """Prints one rollout; with `output`, the whole output of its calls."""

    def __init__(self, console: Console, *, output: bool) -> None:
        self._console = console
        self._output = output

    def print(self, summary: RolloutSummary, steps: list[Step], credit: Credit | None = None) -> None:
        """Prints the record of a rollout, and its calls, with their advantages if there is `credit`."""
        rollout = summary.rollout
        label = f" {one_line(rollout.label)}" if rollout.label else ""
        self._console.print(f"rollout {rollout.id}{label}", style="bold")
        task = one_line(rollout.task) or "none"
        self._field("task", task if rollout.epoch is None else f"{task}, epoch {rollout.epoch}")
        network = f", network {one_line(summary.network)}" if summary.network != "none" else ""
        salt = f", salt {one_line(summary.salt)}" if summary.salt else ""
        self._field("image", f"{one_line(rollout.image)}{network}{salt}")
        start = "its root" if rollout.start == rollout.root else "the state"
        self._field("began", f"{ago(rollout.started)}, at {start} {rollout.start[:12]}")
        self._ended(summary)
        if rollout.reward is not None:
            beside = "" if credit is None else f", {credit.advantage:+.3g} beside others that began there"
            self._field("reward", f"{rollout.reward:g}{beside}")
        self._figures(steps)
        if steps:
            self._steps(steps, credit)

    def _field(self, label: str, text: str, style: str = "") -> None:
        self._console.print(Text.assemble((f"{label:<9}", "dim"), (text, style)))

    def _ended(self, summary: RolloutSummary) -> None:
        rollout = summary.rollout
        if rollout.finished is None:
            missing = "; what it had not written yet is missing" if summary.ended != "running" else ""
            self._field("ended", summary.ended + missing, "red" if missing else "")
            return
        after = f"{seconds(rollout.finished - rollout.started)} later, at {rollout.state[:12]}"
        error = "" if rollout.outcome is None else f": {one_line(rollout.outcome)}"
        self._field("ended", after + error, "red" if error else "")

    def _figures(self, steps: list[Step]) -> None:
        hits, failing = sum(step.answered for step in steps), sum(step.failing for step in steps)
        words = [f"{count(len(steps), 'call')}, {hits} of them answered ({percent(hits, len(steps))})"]
        words += [f"{failing} failing"] if failing else []
        self._field("calls", ", ".join(words))
        if steps:
            waited, took = sum(step.seconds for step in steps), sum(step.duration for step in steps)
            self._field("waited", f"{seconds(waited)} for calls that take {seconds(took)} where they are executed")
        reasons = Counter(step.note for step in steps if step.note and not step.answered and step.source != "failed")
        for number, (reason, times) in enumerate(reasons.most_common()):
            self._field("" if number else "executed", f"{times}, as {one_line(str(reason))}")

    def _steps(self, steps: list[Step], credit: Credit | None) -> None:
        width = max(NARROWEST_TEXT, self._console.width - COLUMNS - 6 - (GAIN if credit else 0))
        heading = f"\n{'':4}  {'state':<{STATE}}{'call':<{width}}{'source':>{SOURCE}}{'exit':>{EXIT}}"
        heading += f"{'waited':>{TIME}}{'took':>{TIME}}"
        self._console.print(heading + (f"{'advantage':>{GAIN}}" if credit else ""), style="dim")
        gained = {} if credit is None else dict(zip(credit.places, credit.advantages, strict=True))
        reason = None
        for step in steps:
            line = self._line(step, width)
            if step.place in gained:
                line.append(f"{gained[step.place]:+.3g}".rjust(GAIN))
            self._console.print(line)
            if step.note and (step.note != reason or step.source == "failed"):
                style = "red" if step.source == "failed" else "dim"
                self._note(
                    one_line(step.note) if step.source == "failed" else f"executed: {one_line(step.note)}", style
                )
            reason = step.note
            if step.edge is not None and step.edge.reason and not step.edge.shared:
                self._note(f"not shared: {one_line(step.edge.reason)}", "magenta")
            self._printed(step)

    def _line(self, step: Step, width: int) -> Text:
        edge = step.edge
        led_to = "?" if edge is None else edge.next_state[:HASH_DIGITS] if edge.changed else "= same"
        call = "(forgotten)" if step.call is None else call_line(step.call)
        text = cut(call, width - 1)
        status = "timeout" if step.timed_out else "" if step.exit_code is None else str(step.exit_code)
        line = Text.assemble(
            (f"{step.place:4}  ", "dim"), (led_to.ljust(STATE), "yellow" if edge and edge.changed else "dim")
        )
        line.append(text, "red" if step.failing else "")
        line.append(" " * (width - Text(text).cell_len))
        line.append(step.source.rjust(SOURCE), "green" if step.answered else "red" if step.source == "failed" else "")
        line.append(status.rjust(EXIT), "red" if step.failing else "dim")
        line.append(seconds(step.seconds).rjust(TIME))
        line.append(("" if step.source == "failed" else seconds(step.duration)).rjust(TIME), "dim")
        return line

    def _note(self, words: str, style: str) -> None:
        self._console.print(Text(" " * (6 + STATE) + words, style))

    def _printed(self, step: Step) -> None:
        """Prints the output of a call; without `output` only the last lines of a failing one."""
        if self._output and step.call is not None and "\n" in call_text(step.call):
            for line in call_text(step.call).splitlines():
                self._console.print(Text("      $ " + line, "bold"))
        if step.edge is None or not (self._output or step.failing):
            return
        lines = visible(step.edge.result.output).splitlines()
        more = 0 if self._output else max(0, len(lines) - FAILING_LINES)
        if more:
            self._console.print(Text(f"      ⋮ {count(more, 'line')} before (--output)", "dim"))
        for line in lines[more:]:
            self._console.print(Text("      | " + line, "dim" if not self._output else ""))
