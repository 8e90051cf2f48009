"""How many calls could have been guessed that no other rollout has made in the same state.

`python -m benchmarks.guessing FILE...` reads rollouts as `tvsnap replay` does. Each fifth of them, by rollout or by
task, is guessed from the other four. A call counts as answered where another rollout has made it after the same calls;
of the rest, the table says which share was among the first 1, 2 or 4 guesses, and how many of such guesses are right.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tvsnap import ToolCall
from tvsnap.guessing import NextCalls

BUDGETS = (1, 2, 4)
FOLDS = 5
CHANCES = (0.0, 0.1, 0.2, 0.3, 0.5)


class Recorded(NamedTuple):
    task: str
    calls: list[ToolCall]


class Share(NamedTuple):
    """What guessing came to: calls that nothing answered, those of them that were guessed, and all guesses."""

    missed: int
    guessed: int
    made: int


def read(file: Path) -> list[Recorded]:
    """Returns the rollouts of a file."""
    rollouts = map(json.loads, file.read_text().splitlines())
    return [
        Recorded(one["task"], [ToolCall(call["name"], call["arguments"]) for call in one["calls"]]) for one in rollouts
    ]


def folds(rollouts: Sequence[Recorded], by: str, seed: int) -> Iterator[tuple[list[Recorded], list[Recorded]]]:
    """Yields rollouts to learn from and those to guess."""
    keys = [one.task if by == "task" else str(number) for number, one in enumerate(rollouts)]
    names = sorted(set(keys))
    random.Random(seed).shuffle(names)
    for fold in range(FOLDS):
        held = set(names[fold::FOLDS])
        yield (
            [one for key, one in zip(keys, rollouts, strict=True) if key not in held],
            [one for key, one in zip(keys, rollouts, strict=True) if key in held],
        )


def measure(rollouts: Sequence[Recorded], by: str, budget: int, chance: float, seed: int) -> Share:
    """Returns what `budget` guesses of at least `chance` come to."""
    states = Counter(prefix for one in rollouts for prefix in set(_prefixes(one)))
    missed = guessed = made = 0
    for known, held in folds(rollouts, by, seed):
        next_calls = NextCalls()
        answered: dict[int, dict[str, ToolCall]] = {}
        for one in known:
            for place, call in enumerate(one.calls):
                next_calls.learn(one.task, one.calls[:place], call, 1.0)
            for before, call in zip((hash(one.task), *_prefixes(one)), one.calls, strict=False):
                answered.setdefault(before, {})[call.canonical] = call
        for one in held:
            before = hash(one.task)
            for place, (call, prefix) in enumerate(zip(one.calls, _prefixes(one), strict=True)):
                there = answered.get(before, {}).values()
                likely = next_calls.likely(one.task, one.calls[:place], budget, there)
                before = prefix
                guesses = [guess.call.canonical for guess in likely if guess.chance >= chance]
                made += len(guesses)
                if states[prefix] == 1:
                    missed += 1
                    guessed += call.canonical in guesses
    return Share(missed, guessed, made)


def _prefixes(one: Recorded) -> Iterable[int]:
    """Returns a number for each state of a rollout: the same for the same task and calls."""
    so_far = hash(one.task)
    for call in one.calls:
        so_far = hash((so_far, call.canonical))
        yield so_far


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="rollouts, one JSON object a line")
    parser.add_argument("--most", type=int, default=600, help="read no more rollouts of each file (default: 600)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    columns = ("rollouts", "held out by", "guesses", "least chance", "not answered", "guessed", "made", "of them right")
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for file in options.files:
        rollouts = read(file)[: options.most]
        for by in ("rollout", "task"):
            for budget in BUDGETS:
                for chance in CHANCES if budget == 1 else CHANCES[:1]:
                    found = measure(rollouts, by, budget, chance, options.seed)
                    print(
                        f"| {file.stem} | {by} | {budget} | {chance:g} | {found.missed:,} "
                        f"| {found.guessed / found.missed:.1%} | {found.made:,} "
                        f"| {found.guessed / max(found.made, 1):.1%} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
