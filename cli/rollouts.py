"""`tvsnap rollouts`: lists the rollouts that were made, newest first."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from typer import Option

from tvsnap.model.errors import NotFound, UsageError

from . import context, options
from .roots import Root, distinctions
from .text import ago, count, cut, one_line
from .tree import some

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvsnap.graph import RolloutSummary

LIMIT = 30
DIGITS = 8
LONGEST = 30
"""Cells of a task, a label, or how a rollout ended, in the table."""
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@options.verb("01235", url=True)
def rollouts(
    task: options.Task = None,
    label: str | None = Option(None, metavar="LABEL", help="Only those of this label."),
    image: options.Image = None,
    since: str | None = Option(
        None, metavar="WHEN", help="Only those that began since then: 30m, 2h or 3d ago, or 2026-01-31[T12:30]."
    ),
    failed: bool = Option(
        False, "--failed", help="Only those that an error ended, whose process died, or whose reward is 0 or less."
    ),
    limit: int = Option(LIMIT, metavar="N", min=0, help="The latest so many; 0 for all."),
    as_json: options.AsJson = False,
) -> None:
    """List the rollouts that were made, newest first.

    Each line is a rollout: its id, task, label and epoch, its beginning and end, the numbers of its calls, of those
    that were answered, of those that had an exit status other than 0 or timed out, and its reward. Empty columns are
    left out. If roots differ in limits, network or salt, a column shows that.

    \b
    Examples:
      tvsnap rollouts --task fix-git
      tvsnap rollouts --failed --since 2h
      tvsnap rollouts --label best --limit 1 --json | jq '.rollouts[0].reward'
    """
    began = None if since is None else _moment(since)
    with context.any_graph() as graph:
        summaries = graph.summaries(
            task=task, label=label, image=image, since=began, failed=failed, limit=limit or None
        )
        if not summaries and task is not None and task not in graph.tasks():
            raise NotFound(f'no rollouts of task "{task}" are known; have: {some(graph.tasks())}')
    data = {"rollouts": [summary_data(one) for one in summaries]}
    context.answer(data, as_json=as_json, show=lambda: _print(summaries, limit))


def summary_data(summary: RolloutSummary) -> dict[str, Any]:
    """Returns a rollout as plain JSON."""
    data = asdict(summary)
    return {**data.pop("rollout"), **data}


def _moment(text: str) -> float:
    """Returns a time, in seconds since the epoch, that is given by its distance from now or by its date."""
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip())
    if ago is not None:
        return time.time() - float(ago[1]) * UNITS[ago[2]]
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text.strip()).timestamp()
    raise UsageError(f"--since must be 30m, 2h, 3d or a date such as 2026-01-31 or 2026-01-31T12:30, not {text!r}")


def _print(summaries: list[RolloutSummary], limit: int) -> None:
    from rich.cells import cell_len, set_cell_size

    console = context.console(soft_wrap=True)
    if not summaries:
        console.print("no rollout was made, or none is like that")
        return
    apart = distinctions(
        Root(one.rollout.root, one.rollout.image, one.limits, one.network, one.salt) for one in summaries
    )
    columns: dict[str, tuple[Callable[[RolloutSummary], str], bool]] = {
        "rollout": (lambda one: one.rollout.id[:DIGITS], True),
        "task": (lambda one: cut(one_line(one.rollout.task), LONGEST), True),
        "label": (lambda one: cut(one_line(one.rollout.label), LONGEST), True),
        "epoch": (lambda one: "" if one.rollout.epoch is None else str(one.rollout.epoch), False),
        "image": (lambda one: cut(one_line(one.rollout.image), LONGEST), True),
        "root": (lambda one: apart[one.rollout.root], True),
        "began": (lambda one: ago(one.rollout.started), True),
        "ended": (lambda one: cut(one_line(one.ended), LONGEST), True),
        "calls": (lambda one: f"{one.calls:,}", False),
        "hits": (lambda one: f"{one.hits:,}", False),
        "failing": (lambda one: f"{one.failing:,}" if one.failing else "", False),
        "reward": (lambda one: "" if one.rollout.reward is None else f"{one.rollout.reward:g}", False),
    }
    cells = {name: [show(one) for one in summaries] for name, (show, _) in columns.items()}
    shown = [name for name, values in cells.items() if any(values)]
    widths = {name: max(map(cell_len, (name, *cells[name]))) for name in shown}
    lines = [
        {name: name for name in shown},
        *({name: cells[name][row] for name in shown} for row in range(len(summaries))),
    ]
    for number, line in enumerate(lines):
        words = [
            set_cell_size(text, widths[name]) if columns[name][1] else text.rjust(widths[name])
            for name, text in line.items()
        ]
        failed = number and summaries[number - 1].ended not in ("closed", "running")
        console.print("  ".join(words).rstrip(), style="dim" if not number else "red" if failed else "")
    if limit and len(summaries) == limit:
        console.print(f"the latest {count(limit, 'rollout')}; --limit 0 lists all", style="dim")
