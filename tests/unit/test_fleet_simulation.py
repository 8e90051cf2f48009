"""The simulation of fleets: nothing is lost or made up in it, and it comes out the same each time."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import fleet_simulation as simulated
from benchmarks.fleet_simulation import Assumptions, Simulation

SMALL = Assumptions(
    hosts=12, rollouts=400, in_flight=120, tasks=40, calls=5, spread=4, lost_per_hour=60, noticed=3.0, back=8.0
)


def check(simulation: Simulation) -> None:
    """Looks at what must hold after each event."""
    placed = Counter(rollout.host for rollout in simulation.open.values() if rollout.host >= 0)
    for number, host in enumerate(simulation.hosts):
        assert placed[number] == len(host.rollouts) == simulation.load[f"http://host-{number}:8420"]
        assert host.alive or not (host.rollouts or host.busy or host.known or host.queue), "nothing is on a lost host"
        assert host.busy <= simulation.assumed.cores
        assert not host.queue or host.busy == simulation.assumed.cores, "nobody waits while a processor is idle"
    begun = simulation.result.finished + len(simulation.open)
    assert begun <= simulation.assumed.rollouts
    assert all(rollout.place <= len(rollout.path) <= simulation.assumed.calls for rollout in simulation.open.values())


@pytest.mark.parametrize("changed", [{}, {"store": 1e8, "push_every": 5.0}, {"bound": 1.25}, {"cores": 1}])
def test_rollouts_are_neither_lost_nor_made_up(changed: dict[str, float]) -> None:
    simulation = Simulation(replace(SMALL, **changed))  # type: ignore[arg-type]
    while simulation.step():
        check(simulation)
    found = simulation.result
    assert (found.finished, simulation.open, +simulation.load) == (SMALL.rollouts, {}, Counter())
    assert found.lost > 3
    assert found.moves >= len(found.rebuilds) > 10
    assert all(seconds >= SMALL.noticed for seconds in found.rebuilds)
    assert sum(found.answers.values()) >= SMALL.rollouts * SMALL.calls, "each call is answered; some again after a move"
    assert (sum(found.moved_bytes.values()) > 0) == ("store" in changed)


def test_without_losses_each_call_is_answered_once() -> None:
    found = Simulation(replace(SMALL, lost_per_hour=0.0)).run()
    assert (found.lost, found.moves, found.rebuilds) == (0, 0, [])
    assert sum(found.answers.values()) == SMALL.rollouts * SMALL.calls
    assert len(found.waits) == found.answers["executed"]


def test_only_rollouts_of_the_lost_host_move() -> None:
    simulation = Simulation(replace(SMALL, lost_per_hour=0.0, spread=1000))
    while simulation.result.finished < 150:
        simulation.step()
    before = {number: (rollout.host, rollout.life) for number, rollout in simulation.open.items()}
    lost = max(range(SMALL.hosts), key=lambda number: len(simulation.hosts[number].rollouts))
    moved = set(simulation.hosts[lost].rollouts)
    assert moved
    simulation.lose(lost)
    for number, rollout in simulation.open.items():
        host, life = before[number]
        assert (rollout.host, rollout.life) == ((-1, life + 1) if number in moved else (host, life))
    homes = {rollout.task: rollout.host for rollout in simulation.open.values() if rollout.host >= 0}
    while any(number in simulation.open and simulation.open[number].host < 0 for number in moved):
        simulation.step()
        for rollout in simulation.open.values():
            if rollout.host >= 0 and rollout.task in homes:
                assert rollout.host == homes[rollout.task], "a task whose host is there stays"


def test_a_warm_start_answers_what_another_host_has_executed() -> None:
    shared = replace(SMALL, rollouts=800, spread=2, lost_per_hour=0.0, push_every=1.0)
    cold, warm = Simulation(shared).run(), Simulation(replace(shared, store=1e9)).run()
    assert warm.answers["hit"] > cold.answers["hit"]
    assert sum(warm.answers.values()) == sum(cold.answers.values())


def test_figures_are_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = replace(SMALL, rollouts=100)
    monkeypatch.setattr(simulated, "variants", lambda _: {"small": base})
    told = []
    for name in ("one", "two"):
        file = tmp_path / name
        monkeypatch.setattr("sys.argv", ["fleet_simulation", "--json", str(file)])
        assert simulated.main() == 0
        told.append(json.loads(file.read_text()))
    assert told[0] == told[1]
    assert told[0]["small"]["assumptions"]["hosts"] == SMALL.hosts
    assert told[0]["small"]["figures"] != Simulation(replace(base, seed=2)).run().figures()
