"""`tvsnap watch`: one screen for the host of a running trainer."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer
from typer import Option

from tvsnap.host.home import resolve_home

from . import context, options
from .text import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from tvsnap.client import Client
    from tvsnap.graph import Edge, Graph

COUNTED = (
    "hits",
    "coalesced",
    "executed",
    "forks",
    "starts",
    "checkpoints",
    "replayed",
    "evicted",
    "snapshots_refused",
)
LOOKED_AT = 300
"""Latest recorded calls that are examined for reasons why they answer no others, or why their states are not kept."""
REFUSALS = 8
KEPT = 120
"""Samples that the screen remembers."""

Sample = dict[str, Any]


@options.verb("0125", url=True)
def watch(
    interval: float = options.seconds(2.0, "--interval", "Seconds between two looks.", least=0.1),
    plain: bool = Option(False, "--plain", help="Print a line for each look, as where there is no terminal."),
    as_json: bool = Option(False, "--json", help="Print one sample as JSON, of two looks, and end."),
) -> None:
    """Watch what happens while rollouts run, in a data directory or at a server.

    It shows the numbers of rollouts that execute a call, wait or think, the hit rate so far and of late, calls and
    forks a second, sandboxes with their memory, snapshots and free disk, and the last refusals: why calls answer no
    others, why states could not be kept, and which errors ended rollouts. Ctrl-C leaves. Processes that use a data
    directory themselves write their counts within seconds or when a rollout ends.

    \b
    Examples:
      tvsnap watch
      tvsnap watch --url http://sandboxes:8420 --interval 5
      tvsnap watch --plain | tee run.log
      tvsnap watch --json | jq .recent.hit_rate
    """
    from .watch_view import line, screen

    with _watcher() as watcher:
        samples = _samples(watcher, interval)
        if as_json:
            next(samples)
            context.print_json(next(samples))
            return
        try:
            if plain or not context.is_terminal():
                for sample in samples:
                    typer.echo(line(sample))
            else:
                _show(samples, screen)
        except KeyboardInterrupt:  # how one leaves
            raise typer.Exit(options.INTERRUPTED) from None


def _show(samples: Iterator[Sample], draw: Any) -> None:
    from rich.live import Live

    recent: deque[Sample] = deque(maxlen=KEPT)
    with Live(console=context.console(), screen=True, auto_refresh=False) as live:
        for sample in samples:
            recent.append(sample)
            live.update(draw(recent), refresh=True)


def _samples(watcher: _Here | _There, interval: float) -> Iterator[Sample]:
    """Yields samples without end; each has the figures of the time since the one before."""
    before: Sample | None = None
    while True:
        sample = watcher.look()
        calls = sample["hits"] + sample["coalesced"] + sample["executed"]
        answered = sample["hits"] + sample["coalesced"]
        sample |= {"calls": calls, "hit_rate": answered / calls if calls else None, "recent": None}
        if before is not None:
            lasted = max(1e-9, sample["time"] - before["time"])
            new_calls = calls - before["calls"]
            late = answered - before["hits"] - before["coalesced"]
            sample["recent"] = {
                "seconds": lasted,
                "hit_rate": late / new_calls if new_calls else None,
                "calls_per_s": new_calls / lasted,
                "forks_per_s": (sample["forks"] - before["forks"]) / lasted,
                "starts_per_s": (sample["starts"] - before["starts"]) / lasted,
            }
        before = dict(sample)
        yield sample
        time.sleep(interval)


@contextlib.contextmanager
def _watcher() -> Iterator[_Here | _There]:
    client = context.connected()
    if client is not None:
        with client:
            yield _There(client)
        return
    with context.open_graph() as graph:
        yield _Here(resolve_home(), graph)


class _Here:
    """Looks at a data directory of this machine."""

    def __init__(self, home: Path, graph: Graph) -> None:
        self._home = home
        self._graph = graph
        self._latest = max((call.id for call in graph.outline()), default=0)

    def look(self) -> Sample:
        """Returns the present figures."""
        from tvsnap.engine.keeping.budgets import free_and_reserve
        from tvsnap.host import owners
        from tvsnap.model.limits import Budget
        from tvsnap.upkeep.maintenance import in_use

        graph, now = self._graph, in_use(self._home)
        totals, snapshots = graph.counters(), graph.snapshots()
        free, reserve = free_and_reserve(Budget(), self._home)
        living = set(owners.live_owners(self._home))
        open_ = sum(one.finished is None and one.owner in living for one in graph.rollouts())
        executing = sum(lease.owner in living for lease in graph.leases())
        return {
            "time": time.time(),
            "of": str(self._home),
            "rollouts": {"open": open_, "executing": executing, "waiting": None, "thinking": None},
            **{name: int(totals.get(name, 0)) for name in COUNTED},
            "processes": now.processes,
            "sandboxes": now.sandboxes,
            "sandbox_memory_bytes": now.memory,
            "snapshots": len(snapshots),
            "snapshot_bytes": sum(snapshot.size for snapshot in snapshots),
            "free_bytes": free,
            "reserve_bytes": reserve,
            "trouble": "no snapshots are taken: the disk is nearly full" if free < reserve else None,
            "refusals": self._refusals(),
        }

    def _refusals(self) -> list[dict[str, Any]]:
        edges: list[Edge] = []
        while True:  # those that were recorded since the last look, too
            listed = self._graph.listed(range(max(1, self._latest - LOOKED_AT), self._latest + LOOKED_AT))
            edges = sorted(listed, key=lambda edge: edge.id)
            latest = edges[-1].id if edges else 0
            if latest <= self._latest:
                break
            self._latest = latest
        refusals = []
        for edge in edges:
            refusals += [_told(edge.created, edge.state, edge.reason)] if edge.reason else []
            refusals += [_told(edge.created, edge.next_state, f"not kept: {why}") for why in edge.refusals.values()]
        refusals += _ended(self._graph)
        return sorted(refusals, key=lambda one: one["time"])[-REFUSALS:]


class _There:
    """Looks at a server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def look(self) -> Sample:
        """Returns the present figures."""
        figures, stats = self._client.figures(), self._client.stats()
        rollouts = self._client.transport.get("/v1/rollouts")["rollouts"]
        calling = sum(one["running"] for one in rollouts)
        executing = min(calling, figures["leases"])
        names = ("processes", "sandboxes", "sandbox_memory_bytes", "snapshots", "snapshot_bytes")
        return {
            "time": time.time(),
            "of": figures["home"],
            "rollouts": {
                "open": len(rollouts),
                "executing": executing,
                "waiting": calling - executing,
                "thinking": len(rollouts) - calling,
            },
            **{name: figures[name] for name in (*COUNTED, *names, "free_bytes", "reserve_bytes")},
            "trouble": stats.trouble,
            "refusals": _ended(self._client.graph),
        }


def _ended(graph: Any) -> list[dict[str, Any]]:
    """Returns the errors that ended the latest rollouts."""
    summaries = graph.summaries(failed=True, limit=REFUSALS)
    ended = [one for one in summaries if one.ended not in ("closed", "running")]
    return [
        _told(one.rollout.finished or one.rollout.started, one.rollout.id, f"rollout ended: {one.ended}")
        for one in reversed(ended)
    ]


def _told(when: float, name: str, words: str) -> dict[str, Any]:
    return {"time": when, "name": name, "words": one_line(words)}
