"""Would guessing the next call while the model thinks hide misses? `python -m benchmarks.guessing ROLLOUTS...`

A simulation; no sandbox runs. The rollouts come one after the other, in random order. A call that was recorded at the
state before is a hit; at every other, the question is whether it is among the calls that were guessed. What is recorded
at a state needs no guess, so guesses come from other states: what followed the last three calls elsewhere, else the
last two, else the last one, most frequent first. Where nothing followed it, nothing is guessed.

States are told apart by the calls that led to them; a SQL statement that only reads leads nowhere. Guesses learn from
all rollouts before (`by rollout`), or from those of other tasks only (`by task`).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tvsnap.model.errors import TvsnapError
from tvsnap.upkeep.rollout_files import PlannedRollout, read_rollouts

BUDGETS = (1, 2, 4)
ORDER = 3
SEEDS = 5
READS = ("select", "show", "desc", "explain", "with")
Context = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """What guessing came to, the mean over orders.

    Attributes:
        held_out: what the guesses did not learn from: `rollout` (the one that runs) or `task` (all of its task).
        budget: how many guesses are made for a call at most.
        calls: of all rollouts.
        misses: the share of calls that were not recorded at their state.
        hidden: the share of misses that were guessed.
        guesses: how many guesses are executed for each miss that is hidden; None where none is.
    """

    held_out: str
    budget: int
    calls: int
    misses: float
    hidden: float
    guesses: float | None


class Counts:
    """What followed the last calls, by task."""

    def __init__(self) -> None:
        self._all: defaultdict[Context, Counter[str]] = defaultdict(Counter)
        self._of: defaultdict[str, defaultdict[Context, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))

    def learn(self, task: str, calls: Sequence[str]) -> None:
        """Counts a rollout."""
        for place, call in enumerate(calls):
            for context in _contexts(calls[:place]):
                self._all[context][call] += 1
                self._of[task][context][call] += 1

    def likeliest(self, before: Sequence[str], without: str | None) -> Iterator[str]:
        """Yields calls, the likeliest first, each once.

        Args:
            before: the calls that were made.
            without: the task whose rollouts do not count; None for none.
        """
        told: set[str] = set()
        for context in _contexts(before):
            counts = self._all.get(context)
            if counts is None:
                continue
            own = self._of[without].get(context, Counter()) if without is not None else Counter[str]()
            for call, _ in (counts - own).most_common():
                if call not in told:
                    told.add(call)
                    yield call


def _contexts(before: Sequence[str]) -> Iterator[Context]:
    """Yields the last calls, most of them first; what begins a rollout has a context of its own."""
    for length in range(min(ORDER, len(before)), 0, -1):
        yield tuple(before[-length:])
    if not before:
        yield ()


def simulate(rollouts: Sequence[PlannedRollout], seed: int) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """Returns calls, misses, misses that were guessed, and guesses, by what is held out and budget."""
    ordered = list(rollouts)
    random.Random(seed).shuffle(ordered)
    counts = Counts()
    recorded: defaultdict[tuple[str, Context], set[str]] = defaultdict(set)
    found = {(held_out, budget): [0, 0, 0, 0] for held_out in ("rollout", "task") for budget in BUDGETS}
    for rollout in ordered:
        start = str(rollout.extra.get("database", rollout.image or ""))
        made = [rollout.made(step) for step in rollout.calls]
        calls = [json.dumps([call.name, call.arguments], sort_keys=True) for call in made]
        state: Context = ()
        for place, call in enumerate(calls):
            known = recorded[start, state]
            for held_out in ("rollout", "task"):
                likely = counts.likeliest(calls[:place], rollout.task if held_out == "task" else None)
                guesses = _first((each for each in likely if each not in known), max(BUDGETS))
                for budget in BUDGETS:
                    row = found[held_out, budget]
                    row[0] += 1
                    row[1] += call not in known
                    row[2] += call not in known and call in guesses[:budget]
                    row[3] += len(guesses[:budget])
            known.add(call)
            query = str(made[place].arguments.get("query", "")).strip().lower()
            if not query.startswith(READS):
                state = (*state, call)
        counts.learn(rollout.task, calls)
    return {key: (row[0], row[1], row[2], row[3]) for key, row in found.items()}


def _first(calls: Iterator[str], count: int) -> list[str]:
    return [call for call, _ in zip(calls, range(count), strict=False)]


def measure(rollouts: Sequence[PlannedRollout], seeds: int) -> list[Row]:
    """Returns a row for each way to hold out and each budget."""
    runs = [simulate(rollouts, seed) for seed in range(seeds)]
    rows = []
    for key in runs[0]:
        calls, misses, hidden, guesses = (sum(run[key][column] for run in runs) for column in range(4))
        rows.append(
            Row(
                *key,
                calls // seeds,
                misses / calls,
                hidden / misses if misses else 0.0,
                guesses / hidden if hidden else None,
            )
        )
    return rows


def main() -> int:
    """Simulates; returns the exit status: 0 done, 2 bad usage."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guessing",
        description="Says how many misses would be hidden by executing guesses while the model thinks.",
        epilog="example: python -m benchmarks.guessing rollouts.jsonl --seeds 3 --json",
    )
    parser.add_argument("rollouts", nargs="+", help="rollout files (JSON Lines)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many orders of the rollouts ({SEEDS})")
    parser.add_argument("--json", action="store_true", help="write the rows as JSON")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error("--seeds must be at least 1")
    try:
        planned, _ = read_rollouts(Path(each) for each in options.rollouts)
    except TvsnapError as error:
        Console(stderr=True).print(f"error: {error}", highlight=False)
        return error.exit_status
    rows = measure(planned, options.seeds)
    if options.json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
        return 0
    table = Table(box=None, pad_edge=False)
    for title in ("held out", "guesses at most", "calls", "misses", "of these hidden", "guesses for each"):
        table.add_column(title, justify="right" if title != "held out" else "left")
    for row in rows:
        each = "" if row.guesses is None else f"{row.guesses:.1f}"
        table.add_row(row.held_out, f"{row.budget}", f"{row.calls:,}", f"{row.misses:.0%}", f"{row.hidden:.1%}", each)
    Console(highlight=False).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
