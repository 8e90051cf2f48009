"""When processors are short: by how busy they have been, and by how many threads want them."""

from __future__ import annotations

import os

from tvsnap.host.load import BUSY, CROWDED, LOOK_AGAIN, STEADY, Processors

short = Processors.__dict__["short"]
"""The property itself: other tests replace it, so as not to depend on the machine."""
PROCESSORS = os.cpu_count() or 1


class Machine:
    """A machine with a clock, as busy as it is told to be."""

    def __init__(self) -> None:
        self.now = self.busy_s = 0.0
        self.crowding = 1.0
        self.processors = Processors(
            busy_seconds=lambda: self.busy_s, crowding=lambda: self.crowding, clock=lambda: self.now
        )

    def run(self, seconds: float, busy: float, crowding: float = 1.0) -> bool:
        """Lets time pass; returns whether the processors are short then."""
        self.crowding = crowding
        for _ in range(round(seconds / LOOK_AGAIN)):
            self.now += LOOK_AGAIN * 1.001
            self.busy_s += LOOK_AGAIN * 1.001 * busy * PROCESSORS
            found = short.fget(self.processors)
        return bool(found)


def test_busy_processors_become_short_in_a_while_and_idle_ones_are_not() -> None:
    machine = Machine()
    assert not machine.run(10 * STEADY, BUSY - 0.05)
    assert not machine.run(LOOK_AGAIN, 1.0)
    assert machine.run(4 * STEADY, 1.0)
    assert not machine.run(4 * STEADY, 0.1)


def test_crowded_processors_are_short_at_once() -> None:
    machine = Machine()
    assert machine.run(LOOK_AGAIN, 0.2, crowding=CROWDED)
    assert not machine.run(LOOK_AGAIN, 0.2)


def test_the_machine_is_looked_at_now_and_then_only() -> None:
    machine = Machine()
    machine.crowding = CROWDED
    assert not short.fget(machine.processors)
    machine.now = LOOK_AGAIN
    assert short.fget(machine.processors)
