"""`tvsnap stats`: hit rates, time saved, and what is in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvsnap.host.home import resolve_home

from . import context, options
from .text import count, one_line, percent, seconds, size

DEPTHS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, 20), (21, 98), (99, 99))
"""Ranges of a call's place in its rollout; the last stands for all from 99 on, see `tvsnap.model.stats.DEEPEST`."""
BAR = 30


@options.verb("025")
def stats(as_json: options.AsJson = False) -> None:
    """Show hit rates, time saved, disk and memory in use.

    The figures are of all processes that ever used the data directory. Time saved is net of what it cost: answering,
    waiting, forks, replays and checkpoints.

    \b
    Examples:
      tvsnap stats
      tvsnap stats --json | jq .saved_s
    """
    data = collect()
    context.answer(data, as_json=as_json, show=lambda: _print(data))


def collect() -> dict[str, Any]:
    """Returns all figures as plain JSON."""
    from tvsnap.engine.keeping.budgets import free_and_reserve
    from tvsnap.model.limits import Budget
    from tvsnap.model.stats import WAYS
    from tvsnap.upkeep.maintenance import disk_usage, in_use

    path = resolve_home()
    with context.open_graph() as graph:
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


def _print(data: dict[str, Any]) -> None:
    console = context.console()
    rows = [
        ("calls", f"{data['calls']:,}", f"in {count(data['rollouts'], 'rollout')} of {count(data['tasks'], 'task')}"),
        ("hits", f"{data['hits']:,}", f"{percent(data['hits'], data['calls'])} of the calls"),
        ("coalesced", f"{data['coalesced']:,}", "waited for a rollout that was executing the same"),
        ("executed", f"{data['executed']:,}"),
        (
            "prefix hits",
            f"{data['prefix_hits']:,}",
            f"of these, {percent(data['prefix_hits'], data['executed'])}: a sandbox or snapshot was at hand",
        ),
        ("replayed", f"{data['replayed']:,}", "recorded calls run again to rebuild a state"),
        ("forks", f"{data['forks']:,}", f"and {count(data['starts'], 'fresh start')}"),
    ]
    if data["preforks"]:
        words = f"forks and starts ahead of time, {data['preforks_used']:,} of them used"
        rows.append(("preforks", f"{data['preforks']:,}", words))
    rows.append(("checkpoints", f"{data['checkpoints']:,}"))
    if data["evicted"] or data["snapshots_refused"]:
        words = f"snapshots, to make room for others; {data['snapshots_refused']:,} were not taken for want of it"
        rows.append(("evicted", f"{data['evicted']:,}", words))
    if data["audited"]:
        words = f"answers made again, {data['audit_differences']:,} of which differed"
        rows.append(("audited", f"{data['audited']:,}", words))
    spent = seconds(data["answered_s"] - data["saved_s"])
    rows += [
        ("answered", seconds(data["answered_s"]), "what the answered calls took when they were executed"),
        ("spent", spent, "on hits, waiting, forks, replays and checkpoints"),
        ("saved", seconds(data["saved_s"])),
    ]
    console.print(context.grid(rows))
    if data["by_depth"]:
        console.print("\nhit rate by a call's place in its rollout", style="bold")
        for entry in data["by_depth"]:
            console.print(_bar(entry))
    console.print("\nkept", style="bold")
    unserved = f"{data['not_shared']:,} not shared, {data['not_deterministic']:,} not deterministic"
    alive = f"of {count(data['processes'], 'process', 'processes')}, {size(data['sandbox_memory_bytes'])} of memory"
    kept = [
        ("states", f"{data['states']:,}", f"{data['private_states']:,} in private branches"),
        ("calls", f"{data['recorded_calls']:,}", unserved),
        ("snapshots", f"{data['snapshots']:,}", size(data["snapshot_bytes"])),
        ("images", size(data["image_bytes"])),
        ("database", size(data["database_bytes"])),
        ("disk", size(data["disk_bytes"]), one_line(data["home"])),
        ("free", size(data["free_bytes"]), f"no snapshots are taken below {size(data['reserve_bytes'])}"),
        ("sandboxes", f"{data['sandboxes']:,}", alive if data["processes"] else "none is alive"),
    ]
    console.print(context.grid(kept))


def _bar(entry: dict[str, int]) -> str:
    first, last = entry["from"], entry["to"]
    label = f"{first}+" if first == last == DEPTHS[-1][0] else f"{first}" if first == last else f"{first}-{last}"
    filled = round(BAR * entry["answered"] / entry["calls"])
    share = percent(entry["answered"], entry["calls"])
    return f"{label:>7}  {'█' * filled}{'░' * (BAR - filled)}  {share:>7}  of {entry['calls']:,}"
