"""The figures of `tvsnap stats`: the work of a data directory's processes, and its size."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tvsnap.engine.keeping.budgets import free_and_reserve
from tvsnap.graph import Graph, served, unserved_as
from tvsnap.model.limits import Budget
from tvsnap.model.reasons import REASONS, Kind, of_counters
from tvsnap.model.stats import DEEPEST, SAVED, WAYS
from tvsnap.sandboxes.local.storage.layers import POOL_FILE
from tvsnap.upkeep.maintenance import disk_usage, in_use

DEPTHS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, 20), (21, DEEPEST - 1), (DEEPEST, DEEPEST))
"""Ranges of a call's place in its rollout; the last stands for all from there on."""

MOST = 30
"""Reasons that are listed at most."""

SHARE = 50
"""Times the duration of a measurement of a folder's size, during which it is not measured again."""
_measured: dict[Path, tuple[int, float]] = {}  # bytes, and until when they hold, by time.monotonic()


def figures(path: Path, graph: Graph) -> dict[str, Any]:
    """Returns all figures of the data directory `path` as plain JSON."""
    totals = graph.counters()
    nodes = graph.tree()
    snapshots = graph.snapshots()
    rollouts = graph.rollouts()
    leases = len(graph.leases())
    now = in_use(path)
    free, reserve = free_and_reserve(Budget(), path)
    calls = [call for node in nodes for call in ((node.made_by,) if node.made_by else ()) + node.unchanging]
    return {
        "home": str(path),
        "rollouts": len(rollouts),
        "tasks": len({rollout.task for rollout in rollouts if rollout.task}),
        "states": len(nodes),
        "recorded_calls": len(calls),
        "not_shared": sum(not call.shared for call in calls),
        "not_deterministic": sum(not call.deterministic for call in calls),
        "unshared": _most(unserved_as(call) for call in calls if not served(call)),
        "without_snapshot": _most(
            reason
            for node in nodes
            if node.made_by and not node.snapshots
            for reason in dict.fromkeys(node.made_by.refusals.values())
        ),
        "private_states": sum(bool(node.state.private) for node in nodes),
        **_call_figures(totals),
        "snapshots": len(snapshots),
        "snapshot_bytes": sum(snapshot.size for snapshot in snapshots),
        "pool_bytes": _pool_bytes(path),
        "database_bytes": sum(entry.stat().st_size for entry in path.glob("tvsnap.db*")),
        "image_bytes": _disk_usage(path / "images"),
        "disk_bytes": _disk_usage(path),
        "free_bytes": free,
        "reserve_bytes": reserve,
        "processes": now.processes,
        "sandboxes": now.sandboxes,
        "sandbox_memory_bytes": now.memory,
        "leases": leases,
    }


def _call_figures(totals: Mapping[str, float]) -> dict[str, Any]:
    """Returns the figures of calls and of the time that they took, from the counters of all processes."""
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
        "calls": made,
        **counts,
        "hit_rate": answered / made if made else 0.0,
        "reasons": reasons(of_counters(totals)),
        "prefix_hit_rate": counts["prefix_hits"] / counts["executed"] if counts["executed"] else 0.0,
        "arrivals": {way: int(totals.get(f"arrivals.{way}", 0)) for way in WAYS},
        "by_depth": _by_depth(totals),
        "answered_s": totals.get("answered_s", 0.0),
        "executed_s": totals.get("tool_time_s", 0.0),
        **costs,
        "prefork_time_s": totals.get("prefork_time_s", 0.0),
        "aside_time_s": totals.get("aside_time_s", 0.0),
        "saved_s": totals.get("answered_s", 0.0) - sum(costs.values()),
        "saved_cost": {
            name.removeprefix(SAVED): number for name, number in sorted(totals.items()) if name.startswith(SAVED)
        },
    }


def reasons(counts: Mapping[Kind, int]) -> list[dict[str, Any]]:
    """Returns the reasons why calls were executed, the most frequent kind first, each with advice.

    Args:
        counts: the number of executed calls for each kind of reason.
    """
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return [
        {"kind": kind, "count": count, "reason": REASONS[kind].words, "advice": REASONS[kind].advice}
        for kind, count in ordered
    ]


def _pool_bytes(path: Path) -> int | None:
    """Returns the bytes that the file with all snapshots and sandboxes takes on the disk; None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return (path / POOL_FILE).stat().st_blocks * 512
    return None


def _disk_usage(path: Path) -> int:
    """Returns the bytes that a folder takes, from a recent measurement: a new one may take a second."""
    measured = _measured.get(path)
    if measured is None or time.monotonic() > measured[1]:
        began = time.monotonic()
        used = disk_usage(path)
        ended = time.monotonic()
        measured = _measured[path] = used, ended + SHARE * (ended - began)
    return measured[0]


def _most(reasons: Iterable[str]) -> list[dict[str, Any]]:
    """Returns the most frequent reasons with their numbers."""
    return [{"reason": reason, "count": count} for reason, count in Counter(reasons).most_common(MOST)]


def _by_depth(totals: Mapping[str, float]) -> list[dict[str, int]]:
    return by_place(
        {
            place: (int(calls), int(totals.get(f"depth.{place}.answered", 0)))
            for place in range(1, DEEPEST + 1)
            if (calls := totals.get(f"depth.{place}.calls", 0))
        }
    )


def by_place(counts: Mapping[int, tuple[int, int]]) -> list[dict[str, int]]:
    """Returns the numbers of calls and of answered calls for ranges of places in rollouts.

    Args:
        counts: calls and answered calls by their place, of which `DEEPEST` stands for all from there on. None is 0.

    Returns:
        Each range in which there were calls, up to the last place that had one.
    """
    rows = []
    for first, last in DEPTHS:
        there = {place: count for place, count in counts.items() if first <= place <= last}
        if there:
            calls, answered = (sum(numbers) for numbers in zip(*there.values(), strict=True))
            rows.append({"from": first, "to": max(there), "calls": calls, "answered": answered})
    return rows
