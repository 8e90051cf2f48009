"""Tasks that are generated from seeds: what an agent is told, how it is graded, and several ways to solve each.

They are of three families: `terminal`, in the image `terminal`; `sql`, at a shell on SQLite and with the tool `sql` on
PostgreSQL and MariaDB; and `python`, on data frames and on objects of a few applications over one database.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from tvsnap import UsageError
from tvsnap.plugins.training.tasks import apps, bills, chains, files, frames, programs, repositories, servers, sqlite
from tvsnap.plugins.training.tasks.task import TOOLS, Commands, Draft, Task

__all__ = ["KINDS", "TOOLS", "Commands", "Split", "Task", "tasks"]

Split = Literal["train", "dev", "test"]
_SHARES: Mapping[str, range] = {"train": range(8), "dev": range(8, 9), "test": range(9, 10)}

KINDS: Mapping[str, tuple[str, Callable[[random.Random], Draft]]] = {
    "file": ("terminal", files.file),
    "count": ("terminal", files.count),
    "rename": ("terminal", files.rename),
    "modes": ("terminal", files.modes),
    "readable": ("terminal", files.readable),
    "logs": ("terminal", files.logs),
    "errors": ("terminal", files.errors),
    "git": ("terminal", repositories.git),
    "merge": ("terminal", repositories.merge),
    "conflict": ("terminal", repositories.conflict),
    "failing-test": ("terminal", programs.failing_test),
    "make": ("terminal", programs.make),
    "package": ("terminal", programs.package),
    "service": ("terminal", programs.service),
    "tune": ("terminal", chains.tune),
    "question": ("sql", sqlite.question),
    "change": ("sql", sqlite.change),
    "report": ("sql", chains.report),
    "postgres-question": ("sql", servers.postgres_question),
    "postgres-change": ("sql", servers.postgres_change),
    "mariadb-question": ("sql", servers.mariadb_question),
    "mariadb-change": ("sql", servers.mariadb_change),
    "bill": ("python", bills.bill),
    "repair": ("python", chains.repair),
    "frame": ("python", frames.frame),
    "clean": ("python", frames.clean),
    "apps-pay": ("python", apps.pay),
    "apps-split": ("python", apps.split),
    "apps-reply": ("python", apps.reply),
}
"""The kinds of tasks: their family, and what draws one."""


def tasks(
    split: Split = "train", n: int = 10, seed: int = 0, *, families: Sequence[str] = (), kinds: Sequence[str] = ()
) -> list[Task]:
    """Returns generated tasks, one kind after the other, so that all kinds are about equally frequent.

    No instruction of one split occurs in another one, whatever the seeds: which split it belongs to goes by its hash.

    Args:
        split: `train`, `dev` or `test`.
        n: how many; the first ones are the same for any `n`.
        seed: other seeds give other tasks.
        families: only those of these families; empty for all.
        kinds: only those of these kinds, see `KINDS`; empty for all.

    Raises:
        UsageError: there is no such split, family or kind, or another argument makes no sense.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise UsageError(f"n must be a whole number from 0 on, not {n!r}")
    for name, names in (("families", families), ("kinds", kinds)):
        if isinstance(names, str):
            raise UsageError(f"{name} must be a list, such as [{names!r}], not {names!r}")
    if split not in _SHARES:
        raise UsageError(f"split must be one of {', '.join(_SHARES)}, not {split!r}")
    unknown = {*families} - {family for family, _ in KINDS.values()} | {*kinds} - KINDS.keys()
    if unknown:
        raise UsageError(f"no such family or kind of tasks: {', '.join(sorted(unknown))}; have: {', '.join(KINDS)}")
    chosen = [
        _of_kind(kind, split, seed)
        for kind, (family, _) in KINDS.items()
        if (not families or family in families) and (not kinds or kind in kinds)
    ]
    return [next(chosen[number % len(chosen)]) for number in range(n)]


def _of_kind(kind: str, split: Split, seed: int) -> Iterator[Task]:
    """Yields the tasks of a kind, without end; where a kind has no more, they come again."""
    family, draw = KINDS[kind]
    chance, number = random.Random(f"{seed} {kind}"), 0
    while True:
        draft = draw(chance)
        bucket = hashlib.sha256(draft.instruction.encode()).digest()[0] % 10
        if bucket not in _SHARES[split]:
            continue
        yield draft.task(f"{kind}/{number}", family)
        number += 1
