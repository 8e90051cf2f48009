"""What operations may cost: `budgets.json`, and how counts are held to it."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).with_name("budgets.json")
WAVER, WAVER_OF_SYSTEM_CALLS = 0.01, 0.02
"""The part of its budget by which a count may be above it: at a load of 20, 196 system calls were 198 in all
repetitions."""
LESS, FEW = 0.1, 4
"""A count is far below its budget where more than this part of the budget, and than so few, is left of it."""
ELSEWHERE = 0.5
"""As `WAVER`, where budgets were measured with another Python or processor; no count is too low then."""


@dataclass(frozen=True)
class Budgets:
    """What `make budgets` measured.

    Attributes:
        made_with: the version of Python and the kind of processor, as `made_with` returns them.
        counts: by operation, then by what is counted: what most repetitions came to.
    """

    made_with: str
    counts: Mapping[str, Mapping[str, int]]

    @classmethod
    def read(cls) -> Budgets:
        return cls(**json.loads(FILE.read_text(encoding="utf-8")))

    def write(self) -> None:
        FILE.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    def complaints(self, operation: str, counts: Mapping[str, int], made_with: str) -> Iterator[str]:
        """Yields what is wrong with counts of an operation that were made with `made_with`, and what to do about it."""
        here = made_with == self.made_with
        budgets = self.counts.get(operation, {})
        for what, count in counts.items():
            waver = WAVER_OF_SYSTEM_CALLS if what == "system calls" else WAVER
            budget = budgets.get(what)
            told = f"{operation}: {count:,} {what}, budget {budget or 0:,}"
            if budget is None:
                yield f"{operation}: there is no budget for {what}; record one by `make budgets`"
            elif count > budget + int(budget * (waver if here else ELSEWHERE)):
                yield (
                    f"{told}: make it cheaper (`python -m tests.counts --functions {operation!r}` shows what it "
                    "calls), or record the new budget by `make budgets` in the same commit, and say there why"
                )
            elif here and budget - count > max(FEW, LESS * budget):
                yield f"{told}: it has become cheaper; record that by `make budgets` in the same commit"


def made_with() -> str:
    """Returns what budgets are measured with here."""
    return f"Python {'.'.join(platform.python_version_tuple()[:2])}, {platform.machine()}"
