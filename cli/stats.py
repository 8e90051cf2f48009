"""`tvsnap stats`: prints hit rates, saved time, and resources in use."""

from __future__ import annotations

from typing import Any

from tvsnap.host.home import resolve_home

from . import context, options
from .text import count, one_line, percent, seconds, size

BAR = 30


@options.verb("025", url=True)
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
    from tvsnap.upkeep.figures import figures

    client = context.connected()
    if client is not None:
        with client:
            return client.figures()
    with context.open_graph() as graph:
        return figures(resolve_home(), graph)


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
    label = f"{first}+" if first == last and first > 2 else f"{first}" if first == last else f"{first}-{last}"
    filled = round(BAR * entry["answered"] / entry["calls"])
    share = percent(entry["answered"], entry["calls"])
    return f"{label:>7}  {'█' * filled}{'░' * (BAR - filled)}  {share:>7}  of {entry['calls']:,}"
