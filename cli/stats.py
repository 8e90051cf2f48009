"""`tvsnap stats`: hit rates, time saved, and what is in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from . import context, options

if TYPE_CHECKING:
    from rich.console import Console

HELP = options.help_text(
    """Show hit rates, time saved, disk and memory in use.

The figures are of all processes that ever used the data directory. Time saved is net of what it cost: answering,
waiting, forks, replays and checkpoints.

\b
Examples:
  tvsnap stats
  tvsnap stats --json | jq .saved_s
""",
    s0="",
    s2="",
    s5="",
)
DEPTHS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, 20), (21, 98), (99, 99))
"""Ranges of a call's place in its rollout; the last stands for all from 99 on, see `tvsnap.model.stats.DEEPEST`."""
BAR = 30


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("stats", help=HELP)(stats)


def stats(
    as_json: options.AsJson = False,
    home: options.Home = None,
) -> None:
    """Prints the figures."""
    data = collect(home)
    if as_json:
        context.print_json(data)
    else:
        _print(data, context.console())


def collect(home: str | None) -> dict[str, Any]:
    """Returns all figures as plain JSON."""
    from tvsnap.model.limits import Budget
    from tvsnap.model.stats import WAYS
    from tvsnap.recording.budgets import free_and_reserve
    from tvsnap.upkeep.maintenance import disk_usage, in_use

    path = context.data_directory(home)
    with context.open_graph(home) as graph:
        totals = graph.counters()
        nodes = graph.tree()
        snapshots = graph.snapshots()
        rollouts = graph.rollouts()
        leases = len(graph.leases())
    now = in_use(path)
    free, reserve = free_and_reserve(Budget(), path)
    calls = [call for node in nodes for call in ((node.made_by,) if node.made_by else ()) + node.unchanging]
    counts = {
        name: int(totals.get(name, 0))
        for name in (
            *("hits", "coalesced", "executed", "prefix_hits"),
            *("replayed", "starts", "forks", "checkpoints", "preforks", "preforks_used"),
            *("audited", "audit_differences", "evicted", "snapshots_refused"),
        )
    }
    made = counts["hits"] + counts["coalesced"] + counts["executed"]
    answered = counts["hits"] + counts["coalesced"]
    costs = {
        name: totals.get(name, 0.0)
        for name in ("hit_time_s", "waited_s", "fork_time_s", "replay_time_s", "checkpoint_time_s")
    }
    return {
        "home": str(path),
        "rollouts": len(rollouts),
        "tasks": len({rollout.task for rollout in rollouts if rollout.task}),
        "states": len(nodes),
        "recorded_calls": len(calls),
        "not_shared": sum(not call.shared for call in calls),
        "not_deterministic": sum(not call.deterministic for call in calls),
        "private_states": sum(bool(node.state.private) for node in nodes),
        "calls": made,
        **counts,
        "hit_rate": answered / made if made else 0.0,
        "prefix_hit_rate": counts["prefix_hits"] / counts["executed"] if counts["executed"] else 0.0,
        "arrivals": {way: int(totals.get(f"arrivals.{way}", 0)) for way in WAYS},
        "by_depth": _by_depth(totals),
        "answered_s": totals.get("answered_s", 0.0),
        "executed_s": totals.get("tool_time_s", 0.0),
        **costs,
        "prefork_time_s": totals.get("prefork_time_s", 0.0),
        "saved_s": totals.get("answered_s", 0.0) - sum(costs.values()),
        "snapshots": len(snapshots),
        "snapshot_bytes": sum(snapshot.size for snapshot in snapshots),
        "database_bytes": sum(entry.stat().st_size for entry in path.glob(f"{context.GRAPH_FILE}*")),
        "image_bytes": disk_usage(path / "images"),
        "disk_bytes": disk_usage(path),
        "free_bytes": free,
        "reserve_bytes": reserve,
        "processes": now.processes,
        "sandboxes": now.sandboxes,
        "sandbox_memory_bytes": now.memory,
        "leases": leases,
    }


def _by_depth(totals: Mapping[str, float]) -> list[dict[str, int]]:
    rows = []
    for first, last in DEPTHS:
        calls = sum(int(totals.get(f"depth.{n}.calls", 0)) for n in range(first, last + 1))
        answered = sum(int(totals.get(f"depth.{n}.answered", 0)) for n in range(first, last + 1))
        if calls:
            rows.append({"from": first, "to": last, "calls": calls, "answered": answered})
    return rows


def _print(data: dict[str, Any], console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    from .text import count, one_line, percent, seconds, size

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(overflow="fold", style="dim")

    def row(label: str, value: str, words: str = "") -> None:
        table.add_row(label, value, Text(words))

    executed = data["executed"]
    row("calls", f"{data['calls']:,}", f"in {count(data['rollouts'], 'rollout')} of {count(data['tasks'], 'task')}")
    row("hits", f"{data['hits']:,}", f"{percent(data['hits'], data['calls'])} of the calls")
    row("coalesced", f"{data['coalesced']:,}", "waited for a rollout that was executing the same")
    row("executed", f"{executed:,}")
    row(
        "prefix hits",
        f"{data['prefix_hits']:,}",
        f"of these, {percent(data['prefix_hits'], executed)}: a sandbox or snapshot was at hand",
    )
    row("replayed", f"{data['replayed']:,}", "recorded calls run again to rebuild a state")
    row("forks", f"{data['forks']:,}", f"and {count(data['starts'], 'fresh start')}")
    if data["preforks"]:
        row(
            "preforks",
            f"{data['preforks']:,}",
            f"forks and starts ahead of time, {data['preforks_used']:,} of them used",
        )
    row("checkpoints", f"{data['checkpoints']:,}")
    if data["evicted"] or data["snapshots_refused"]:
        words = f"snapshots, to make room for others; {data['snapshots_refused']:,} were not taken for want of it"
        row("evicted", f"{data['evicted']:,}", words)
    if data["audited"]:
        row("audited", f"{data['audited']:,}", f"answers made again, {data['audit_differences']:,} of which differed")
    row("answered", seconds(data["answered_s"]), "what the answered calls took when they were executed")
    row("spent", seconds(data["answered_s"] - data["saved_s"]), "on hits, waiting, forks, replays and checkpoints")
    row("saved", seconds(data["saved_s"]))
    console.print(table)
    if data["by_depth"]:
        console.print("\nhit rate by a call's place in its rollout", style="bold")
        for entry in data["by_depth"]:
            console.print(_bar(entry))
    console.print("\nkept", style="bold")
    kept = Table.grid(padding=(0, 2))
    kept.add_column(style="dim")
    kept.add_column(justify="right")
    kept.add_column(style="dim")
    kept.add_row("states", f"{data['states']:,}", f"{data['private_states']:,} in private branches")
    unserved = f"{data['not_shared']:,} not shared, {data['not_deterministic']:,} not deterministic"
    kept.add_row("calls", f"{data['recorded_calls']:,}", unserved)
    kept.add_row("snapshots", f"{data['snapshots']:,}", size(data["snapshot_bytes"]))
    kept.add_row("images", size(data["image_bytes"]), "")
    kept.add_row("database", size(data["database_bytes"]), "")
    kept.add_row("disk", size(data["disk_bytes"]), one_line(data["home"]))
    words = f"no snapshots are taken below {size(data['reserve_bytes'])}"
    kept.add_row("free", size(data["free_bytes"]), words)
    words = f"of {count(data['processes'], 'process', 'processes')}, {size(data['sandbox_memory_bytes'])} of memory"
    kept.add_row("sandboxes", f"{data['sandboxes']:,}", words if data["processes"] else "none is alive")
    console.print(kept)


def _bar(entry: dict[str, int]) -> str:
    from .text import percent

    first, last = entry["from"], entry["to"]
    label = f"{first}+" if first == last == DEPTHS[-1][0] else f"{first}" if first == last else f"{first}-{last}"
    filled = round(BAR * entry["answered"] / entry["calls"])
    share = percent(entry["answered"], entry["calls"])
    return f"{label:>7}  {'█' * filled}{'░' * (BAR - filled)}  {share:>7}  of {entry['calls']:,}"
