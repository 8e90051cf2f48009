"""Renders the samples of `tvsnap watch`: as a screen, or as lines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .context import grid
from .text import ago, count, cut, one_line, percent, size

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60


def line(sample: dict[str, Any]) -> str:
    """Returns a sample as one line."""
    recent = sample["recent"] or {}
    words = [
        time.strftime("%H:%M:%S", time.localtime(sample["time"])),
        _doing(sample["rollouts"]),
        f"hits {_rate(sample['hit_rate'])} (now {_rate(recent.get('hit_rate'))})",
        f"{recent.get('calls_per_s', 0.0):.1f} calls/s",
        f"{recent.get('forks_per_s', 0.0):.1f} forks/s",
        f"{count(sample['sandboxes'], 'sandbox', 'sandboxes')} {size(sample['sandbox_memory_bytes'])}",
        f"{count(sample['snapshots'], 'snapshot')} {size(sample['snapshot_bytes'])}",
        f"free {size(sample['free_bytes'])}",
    ]
    words += [one_line(sample["trouble"])] if sample["trouble"] else []
    words += [sample["refusals"][-1]["words"]] if sample["refusals"] else []
    return cut("  ".join(words), 400)


def screen(samples: Sequence[dict[str, Any]]) -> RenderableType:
    """Returns a screen of the latest samples, the newest of which comes last."""
    sample = samples[-1]
    recent = sample["recent"] or {}
    calls = f"{sample['executed']:,} executed, {sample['hits']:,} answered, {sample['coalesced']:,} by waiting"
    rows = [
        ("rollouts", f"{sample['rollouts']['open']:,}", _doing(sample["rollouts"])),
        ("calls", f"{sample['calls']:,}", calls),
        ("hit rate", _rate(sample["hit_rate"]), f"of late {_rate(recent.get('hit_rate'))}"),
        ("calls a second", f"{recent.get('calls_per_s', 0.0):.1f}"),
        ("forks a second", f"{recent.get('forks_per_s', 0.0):.1f}", f"{sample['forks']:,} so far"),
        ("sandboxes", f"{sample['sandboxes']:,}", f"{size(sample['sandbox_memory_bytes'])} of memory"),
        ("processes", f"{sample['processes']:,}", "use it"),
        ("snapshots", f"{sample['snapshots']:,}", size(sample["snapshot_bytes"])),
        ("evicted", f"{sample['evicted']:,}", f"{sample['snapshots_refused']:,} not taken for want of room"),
        ("disk free", size(sample["free_bytes"]), f"no snapshots are taken below {size(sample['reserve_bytes'])}"),
    ]
    curves = Table.grid(padding=(0, 2))
    curves.add_row(Text("hit rate", "dim"), _curve([_of(one, "hit_rate") for one in samples], 1.0))
    for name, words in (("calls_per_s", "calls a second"), ("forks_per_s", "forks a second")):
        curves.add_row(Text(words, "dim"), _curve([_of(one, name) for one in samples]))
    parts: list[RenderableType] = [grid(rows), Text(), curves]
    if sample["trouble"]:
        parts += [Text(), Text(one_line(sample["trouble"]), "bold red")]
    if sample["refusals"]:
        parts += [Text(), Text("last refusals", "bold")]
    for refusal in reversed(sample["refusals"]):
        head = f"{ago(refusal['time']):>17}  {refusal['name'][:8]}  "
        parts.append(Text.assemble((head, "dim"), refusal["words"], no_wrap=True, overflow="ellipsis"))
    title = f"tvsnap watch  {one_line(sample['of'])}  {time.strftime('%H:%M:%S', time.localtime(sample['time']))}"
    return Panel(Group(*parts), title=Text(title), subtitle="Ctrl-C leaves", padding=(0, 1))


def _doing(rollouts: dict[str, int | None]) -> str:
    """Returns the activities of rollouts in words; of a data directory, only the number of executing ones is known."""
    words = [
        f"{rollouts[name]:,} {name}" for name in ("executing", "waiting", "thinking") if rollouts[name] is not None
    ]
    if rollouts["waiting"] is None:
        words.append(f"{max(0, (rollouts['open'] or 0) - (rollouts['executing'] or 0)):,} waiting or thinking")
    return ", ".join(words)


def _rate(value: float | None) -> str:
    return "-" if value is None else percent(value, 1.0)


def _of(sample: dict[str, Any], name: str) -> float | None:
    value: float | None = (sample["recent"] or {}).get(name)
    return value


def _curve(values: Sequence[float | None], most: float = 0.0) -> Text:
    """Returns a curve of the latest values; `most` is its top, or else the greatest of them."""
    latest = values[-WIDTH:]
    top = most or max((value for value in latest if value is not None), default=0.0) or 1.0
    marks = ("·" if one is None else BARS[min(len(BARS) - 1, int(one / top * len(BARS)))] for one in latest)
    return Text.assemble(("".join(marks), "cyan"), "" if most else (f"  up to {top:.1f}", "dim"))
