"""Trying again what failed, and telling whether the thing itself is to blame or the machine that it was tried on.

The rule, for checkpoints and forks alike:

- What is known to be a property of the thing is raised at once: it is not tried again.
- Everything else is tried again, after pauses. What is known to be trouble of the machine (too little memory, too many
  descriptors, a process that was killed meanwhile) then says nothing of the thing.
- A reason that nobody knows is taken for the thing's own if it was the same each time, and for the machine's if not.
  As it may be wrong, whoever keeps it in mind forgets it after a while.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tvsnap.model.errors import InfrastructureError

ENOUGH = 3  # times that a reason which nobody knows must be the same, one after the other
LONGEST = 10.0  # seconds after which nothing is tried again, however few times it was

R = TypeVar("R")


class AttemptFailed(InfrastructureError):
    """What was tried failed, and may succeed when it is tried again.

    Attributes:
        machine: the reason is known to be trouble of the machine.
        kind: what kind of reason it is, by which it is told from others. It must hold nothing that a process says of
            itself, such as its command line, which may be another each time.
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
    """Tries something until it succeeds; returns what it returned.

    Args:
        attempt: raises `AttemptFailed` where it is to be tried again, or an OSError, which is the machine's doing.
        pauses: seconds between the attempts, one fewer than there are attempts; each up to half as long again.
        lasting: what to raise for a reason that was the same `ENOUGH` times, and is not known to be the machine's.
        passing: what to raise for any other, after all attempts.
    """
    began = time.monotonic()
    said: list[str] = []
    for pause in (*pauses, None):
        try:
            return attempt()
        except AttemptFailed as failure:
            last = failure
        except OSError as error:  # of this process itself, which has too few descriptors, for example
            last = AttemptFailed(str(error), machine=True)
        said = [] if last.machine else [*said, last.kind]
        if len(said) >= ENOUGH and len(set(said[-ENOUGH:])) == 1:
            raise lasting(str(last)) from last
        if pause is None or time.monotonic() - began > LONGEST:
            break
        time.sleep(pause * random.uniform(1.0, 1.5))
    raise passing(str(last)) from last
