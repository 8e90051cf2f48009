"""Repeats failed attempts, and decides whether the snapshot or sandbox is to blame, or the machine.

The rule, for checkpoints and forks alike:

- A failure that is known to be a property of the snapshot or sandbox is raised at once, without another attempt.
- Everything else is tried again, after pauses. A failure that is known to be a fault of the machine (too little memory,
  too many descriptors, a process that was killed meanwhile) says nothing about the snapshot or sandbox.
- An unknown reason is attributed to the snapshot or sandbox if it was the same each time, and otherwise to the machine.
  That may be wrong, so callers that remember it forget it after a while.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tvsnap.model.errors import InfrastructureError

ENOUGH = 3  # times that an unknown reason must be the same, one after the other
LONGEST = 10.0  # seconds after which nothing is tried again, even after few attempts

R = TypeVar("R")


class AttemptFailed(InfrastructureError):
    """An attempt failed, and may succeed when it is repeated.

    Attributes:
        machine: the reason is known to be a fault of the machine.
        kind: identifies the kind of reason. It must not contain a process's own data, such as its command line, which
            may differ each time.
    """

    def __init__(self, reason: str, *, machine: bool = False, kind: str = "") -> None:
        super().__init__(reason)
        self.machine = machine
        self.kind = kind or re.sub(r"\d+|\.criu\.\S+", "", reason)


def repeat(
    attempt: Callable[[], R],
    pauses: Sequence[float],
    *,
    lasting: type[InfrastructureError],
    passing: type[InfrastructureError],
) -> R:
    """Repeats an attempt until it succeeds; returns its result.

    Args:
        attempt: raises `AttemptFailed` to be repeated, or an OSError, which is attributed to the machine.
        pauses: seconds between the attempts, one fewer than there are attempts; each is extended by up to a half.
        lasting: the error for a reason that was the same `ENOUGH` times, and is not known to be the machine's.
        passing: the error for any other reason, after all attempts.
    """
    began = time.monotonic()
    kinds: list[str] = []
    for pause in (*pauses, None):
        try:
            return attempt()
        except AttemptFailed as failure:
            last = failure
        except OSError as error:  # of this process itself, which has too few descriptors, for example
            last = AttemptFailed(str(error), machine=True)
        kinds = [] if last.machine else [*kinds, last.kind]
        if len(kinds) >= ENOUGH and len(set(kinds[-ENOUGH:])) == 1:
            raise lasting(str(last)) from last
        if pause is None or time.monotonic() - began > LONGEST:
            break
        time.sleep(pause * random.uniform(1.0, 1.5))
    raise passing(str(last)) from last
