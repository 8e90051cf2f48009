"""Printing of the results of recorded calls that were executed again, by `verify` and by audits."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from rich.text import Text

from .text import call_line, cut, one_line, visible

if TYPE_CHECKING:
    from rich.console import Console

    from tvsnap.engine.auditing.checking import CheckReport

DIFF_LINES = 6


def print_findings(report: CheckReport, console: Console) -> None:
    """Prints the calls with differing results, and those that could not be executed again."""
    width = console.width
    for difference in report.differences:
        edge = difference.edge
        line = Text.assemble((edge.state[:8] + "  ", "yellow"), cut(call_line(edge.call), width - 10))
        console.print(line, soft_wrap=True)
        console.print(f"  {cut(visible(difference.words), width - 2)}", style="red", soft_wrap=True)
        for text in short_diff(edge.result.output, difference.seen.output):
            color = {"+": "green", "-": "red"}.get(text[:1], "dim")
            console.print(Text("    " + cut(visible(text), width - 4), color), soft_wrap=True)
    again = "leaves something else behind each time: only its snapshot answers for it"
    findings = [(edge, "dim", again) for edge in report.by_chance]
    findings += [(edge, "yellow", f"could not be made again: {one_line(reason)}") for edge, reason in report.failures]
    for edge, style, words in findings:
        console.print(f"{edge.state[:8]}  {cut(call_line(edge.call), width - 10)}", soft_wrap=True)
        console.print(f"  {words}", style=style, soft_wrap=True)


def short_diff(recorded: str, again: str) -> list[str]:
    """Returns the first lines that differ: `-` as recorded, `+` as seen now."""
    lines = difflib.unified_diff(recorded.splitlines(), again.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    more = len(changed) - DIFF_LINES
    return changed if more <= 0 else [*changed[:DIFF_LINES], f"… {more} more"]


def check_data(report: CheckReport) -> dict[str, Any]:
    """Returns a report as plain JSON."""
    from .show import edge_data

    return {
        "checked": report.checked,
        "same": report.same,
        "interrupted": report.interrupted,
        "differences": [
            {
                **edge_data(difference.edge, output=True),
                "words": difference.words,
                "seen": {
                    **difference.seen.as_json(),
                    "exit_code": difference.seen.exit_code,
                    "timed_out": difference.seen.timed_out,
                },
            }
            for difference in report.differences
        ],
        "by_chance": [edge_data(edge, output=False) for edge in report.by_chance],
        "failures": [{**edge_data(edge, output=False), "error": reason} for edge, reason in report.failures],
    }
