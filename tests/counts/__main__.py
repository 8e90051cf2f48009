"""Measures what operations cost, and writes `budgets.json`: `python -m tests.counts`, or `make budgets`."""

from __future__ import annotations

import argparse
import sys
from statistics import median_high

from tests.counts.budgets import Budgets, made_with
from tests.counts.measuring import functions, measure
from tests.counts.operations import OPERATIONS

ROUNDS = 5


def main() -> int:
    """Does what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.counts", description="Measures, and writes the budgets.")
    what = "show instead which functions it calls"
    parser.add_argument("--functions", metavar="OPERATION", choices=OPERATIONS, help=f"{what}: {'; '.join(OPERATIONS)}")
    options = parser.parse_args()
    if options.functions:
        for function, count in functions(options.functions).most_common():
            print(f"{count:6,}  {function}")
        return 0
    rounds = [measure() for _ in range(ROUNDS)]
    if lack := rounds[0].lack:
        print(f"error: {lack}", file=sys.stderr)
        return 1
    counts = {
        name: {what: median_high(count for it in rounds for count in it.counts[name][what]) for what in seen}
        for name, seen in rounds[0].counts.items()
    }
    before = Budgets.read().counts
    Budgets(made_with(), counts).write()
    for name, found in counts.items():
        for what, count in found.items():
            old = before.get(name, {}).get(what)
            if old != count:
                print(f"{name}: {what}: {'new' if old is None else f'{old:,}'} -> {count:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
