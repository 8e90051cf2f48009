"""`tvsnap stats`: prints hit rates, saved time, and resources in use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from typer import Option

from tvsnap.host.home import resolve_home
from tvsnap.model.errors import NotFound

from . import context, options
from .text import costs, count, cut, one_line, percent, place_words, seconds, size
from .tree import some

if TYPE_CHECKING:
    from tvsnap.graph import Tally

BAR = 30
LONGEST = 30
"""Cells of a name at most, like in the table of `tvsnap rollouts`."""
NAME = 24
"""Cells for names at least, if they are that long."""
LESS_NEEDED = ("processor", "failing", "took", "reward", "rollouts")
"""Columns that a narrow terminal lacks, the first one first."""
SAVED = "what was answered, minus what was spent; sums of all rollouts, in wall time"
NOT_SAVED = "by which more was spent than answered; sums of all rollouts, in wall time"
OF_TALLIES = (
    "",
    "waited: for which rollouts waited for their calls; took: what these calls take where they are executed, by "
    "them or by others; saved: the difference, in wall time (`more`: they waited longer than without the cache).",
    "processor: the processor time that the answered calls took where they were executed; what looks, snapshots and "
    "forks cost is not subtracted.",
)


@options.verb("0235", url=True)
def stats(
    task: options.Task = None,
    label: str | None = Option(None, metavar="LABEL", help="Only rollouts of this label."),
    by: str | None = Option(None, metavar="WHAT", help="Count rollouts by epoch, task or label."),
    as_json: options.AsJson = False,
) -> None:
    """Show hit rates, time saved, disk and memory in use.

    The figures are of all processes that ever used the data directory. Time saved is net of the cost of answering,
    waiting, forks, replays and checkpoints. Sandboxes outside of rollouts, for graders and for people who look at
    states, are counted by themselves.

    With --task, --label or --by, they are of rollouts alone: the calls that were answered, the time that rollouts
    waited for calls, the time that these take if they are executed, and the processor time of the answered ones.

    \b
    Examples:
      tvsnap stats
      tvsnap stats --by epoch --task fix-git
      tvsnap stats --json | jq .saved_s
    """
    if task is not None or label is not None or by is not None:
        with context.any_graph() as graph:
            tallies = graph.tallies(by, task=task, label=label)
            if not tallies and task is not None and task not in graph.tasks():
                raise NotFound(f'no rollouts of task "{task}" are known; have: {some(graph.tasks())}')
        groups = [{**asdict(one), "hit_rate": one.hit_rate, "saved_s": one.saved_s} for one in tallies]
        context.answer({"by": by, "groups": groups}, as_json=as_json, show=lambda: _print_tallies(by, tallies))
        return
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


def advice(reasons: Sequence[Mapping[str, Any]], calls: int, executed: int) -> str:
    """Returns advice in a line for more answered calls, if more than half of them are executed; else nothing.

    Args:
        reasons: as `figures` returns them, the most frequent first.
        calls: the number of calls.
        executed: the number of those that were executed.
    """
    return f"for more answers: {reasons[0]['advice']}" if reasons and 2 * executed > calls else ""


def _print(data: dict[str, Any]) -> None:
    console = context.console()
    console.print(context.grid([*_call_rows(data), *_snapshot_rows(data), *_time_rows(data)]))
    if hint := advice(data.get("reasons", ()), data["calls"], data["executed"]):
        console.print(hint, style="dim")
    if data["by_depth"]:
        console.print("\nhit rate by a call's place in its rollout", style="bold")
        for entry in data["by_depth"]:
            console.print(_bar(entry))
    console.print("\nkept", style="bold")
    console.print(context.grid(_storage_rows(data)))


def _call_rows(data: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields rows about calls and forks: a name, a figure, a remark."""
    yield "calls", f"{data['calls']:,}", f"in {count(data['rollouts'], 'rollout')} of {count(data['tasks'], 'task')}"
    yield "hits", f"{data['hits']:,}", f"{percent(data['hits'], data['calls'])} of the calls"
    waited = f"{percent(data['coalesced'], data['calls'])}: waited for a rollout that was executing the same"
    yield "coalesced", f"{data['coalesced']:,}", waited
    yield "executed", f"{data['executed']:,}"
    for one in data.get("reasons", ()):  # unknown to earlier servers
        yield "", f"{one['count']:,}", one["reason"]
    at_hand = f"of these, {percent(data['prefix_hits'], data['executed'])}: a sandbox or snapshot was at hand"
    yield "prefix hits", f"{data['prefix_hits']:,}", at_hand
    yield "replayed", f"{data['replayed']:,}", "recorded calls run again to rebuild a state"
    yield "forks", f"{data['forks']:,}", f"and {count(data['starts'], 'fresh start')}"


def _snapshot_rows(data: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields rows about work beside the calls."""
    if data["preforks"]:
        words = f"forks and starts ahead of time, {data['preforks_used']:,} of them used"
        yield "preforks", f"{data['preforks']:,}", words
    yield "checkpoints", f"{data['checkpoints']:,}"
    if data["evicted"] or data["snapshots_refused"]:
        words = f"snapshots, to make room for others; {data['snapshots_refused']:,} were not taken for want of it"
        yield "evicted", f"{data['evicted']:,}", words
    if data["audited"]:
        words = f"answers made again, {data['audit_differences']:,} of which differed"
        yield "audited", f"{data['audited']:,}", words


def _time_rows(data: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields rows about time and cost."""
    spent, saved = seconds(data["answered_s"] - data["saved_s"]), data["saved_s"]
    yield "answered", seconds(data["answered_s"]), "what the answered calls took when they were executed"
    yield "spent", spent, "on hits, waiting, forks, replays and checkpoints, these also while callers thought"
    yield "saved" if saved >= 0 else "not saved", seconds(abs(saved)), SAVED if saved >= 0 else NOT_SAVED
    if data.get("saved_cost"):  # like the next one, unknown to earlier servers
        yield "cost saved", costs(data["saved_cost"]), "what the answered calls had cost, as their tools say"
    if data.get("aside_time_s"):
        yield "aside", seconds(data["aside_time_s"]), "sandboxes outside of rollouts: graders, and people who look"


def _storage_rows(data: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields rows about states, disk and memory."""
    unserved = f"{data['not_shared']:,} not shared, {data['not_deterministic']:,} not deterministic"
    alive = f"of {count(data['processes'], 'process', 'processes')}, {size(data['sandbox_memory_bytes'])} of memory"
    yield "states", f"{data['states']:,}", f"{data['private_states']:,} in private branches"
    yield "calls", f"{data['recorded_calls']:,}", unserved
    snapshots = f"{size(data['snapshot_bytes'])}, each with what it shares with others"
    yield "snapshots", f"{data['snapshots']:,}", snapshots
    if data.get("pool_bytes"):  # unknown to earlier servers, and if the disk itself is a btrfs
        yield "pool", size(data["pool_bytes"]), "what snapshots and sandboxes take on the disk"
    yield "images", size(data["image_bytes"])
    yield "database", size(data["database_bytes"])
    yield "disk", size(data["disk_bytes"]), one_line(data["home"])
    yield "free", size(data["free_bytes"]), f"no snapshots are taken below {size(data['reserve_bytes'])}"
    yield "sandboxes", f"{data['sandboxes']:,}", alive if data["processes"] else "none is alive"


def _print_tallies(by: str | None, tallies: list[Tally]) -> None:
    from rich.cells import cell_len

    console = context.console(soft_wrap=True)
    if not tallies:
        console.print("no rollout was made, or none is like that")
        return
    rows = [
        {
            "rollouts": f"{one.rollouts:,}",
            "reward": "" if one.reward is None else f"{one.reward:.3g}",
            "calls": f"{one.calls:,}",
            "hits": percent(one.hits + one.coalesced, one.calls),
            "failing": f"{one.failing:,}" if one.failing else "",
            "waited": seconds(one.waited_s),
            "took": seconds(one.took_s),
            "saved": _saved(one.saved_s),
            "processor": _saved(one.saved_processor_s),
        }
        for one in tallies
    ]
    names = [cut(one_line(one.key or ("none" if by else "all")), LONGEST) for one in tallies]
    left_out = []
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) + 2 for name in rows[0]}
    longest = max(cell_len(name) for name in (by or "", *names))
    room = console.width if console.is_terminal else longest + sum(widths.values())
    for name in LESS_NEEDED:
        if room - sum(widths.values()) < min(longest, NAME):
            left_out.append(name)
            del widths[name]
    table = context.table(by or "", *widths)
    for name, row in zip(names, rows, strict=True):
        table.add_row(cut(name, max(1, room - sum(widths.values()))), *(row[column] for column in widths))
    console.width = room
    console.print(table)
    if left_out:
        console.print(f"\nLeft out, as the terminal is narrow: {', '.join(left_out)}; --json has all.", style="dim")
    for sentence in OF_TALLIES:
        console.print(sentence, style="dim")
    unmeasured = sum(one.unmeasured for one in tallies)
    if unmeasured:
        console.print(f"The processor time of {count(unmeasured, 'call')} is not known.", style="dim")


def _saved(value: float) -> str:
    return seconds(value) if value >= 0 else f"{seconds(-value)} more"


def _bar(entry: dict[str, int]) -> str:
    first, last = entry["from"], entry["to"]
    label = place_words(first, last)
    filled = round(BAR * entry["answered"] / entry["calls"])
    share = percent(entry["answered"], entry["calls"])
    return f"{label:>7}  {'█' * filled}{'░' * (BAR - filled)}  {share:>7}  of {entry['calls']:,}"
