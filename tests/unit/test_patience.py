"""How long calls wait for others that make the same call: no longer than the promise says, and as long as it allows."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tvsnap.engine.claiming import patience
from tvsnap.engine.claiming.patience import SHORT, UNKNOWN, Forecast, Patience
from tvsnap.host.load import crowding

FREE = 0.25
DURATIONS = (0.001, 0.02, 0.2, 0.26, 0.5, 1.0, 7.0, 60.0, 600.0)  # seconds
STEP = 1e-9  # seconds: what is left below this is nothing


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FREE", FREE)
    monkeypatch.setattr(patience, "crowding", lambda: 1.0)


class Clock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def finish(arrival: float, duration: float, concluding: float, *, kept: bool, forecast: Forecast) -> tuple[float, bool]:
    """Plays a waiter, of a call that another began at 0; returns when it has a result, and if it executed the call.

    Args:
        arrival: when the waiter comes.
        duration: of each execution.
        concluding: what is left to be done after the other execution, until it is known whether its state is kept.
        kept: whether it is.
        forecast: what is known of the call.
    """
    known_at = duration + concluding
    clock = Clock(arrival)
    waiting = Patience(lambda: forecast, clock=clock)
    while clock.now < known_at:
        left = waiting.left(0.0, duration if clock.now >= duration else None)
        if left <= STEP:
            break
        until = known_at if clock.now >= duration else duration
        clock.now = min(clock.now + left, until)
    else:
        if kept:
            return known_at, False
    waiting.execute()
    began, ended = clock.now, clock.now + duration
    if kept and known_at <= ended:
        return max(known_at, began), True
    return ended, True


@pytest.mark.parametrize("duration", DURATIONS)
def test_the_slowest_of_many_is_done_in_time(duration: float) -> None:
    chance = random.Random(0)
    for count, kept, known in itertools.product((2, 5, 16, 64), (True, False), (0.0, 0.5, 1.0)):
        forecast = Forecast(duration=known * duration)
        arrivals = [0.0, *(chance.choice((0.0, 0.01, chance.random(), 1.0)) * duration for _ in range(count - 1))]
        took = [
            finish(at, duration, chance.choice((0.0, 0.02, duration)), kept=kept, forecast=forecast)[0] - at
            for at in arrivals
        ]
        assert max(took) <= max(1.5 * duration, duration + FREE) + 1e-6


@pytest.mark.parametrize("duration", DURATIONS)
def test_what_is_kept_is_waited_for_as_far_as_that_allows(duration: float) -> None:
    """A short call is executed once, and a long one by nobody who comes in its second half, or knows how long it is."""
    for kept in (True, False):
        assert finish(duration / 2, duration, 0.0, kept=kept, forecast=UNKNOWN)[1] is not kept
    assert finish(0.0, duration, 0.0, kept=True, forecast=UNKNOWN)[1] is (duration > FREE)
    if duration > FREE:
        beside = finish(0.0, duration, 0.0, kept=True, forecast=UNKNOWN)
        assert beside == (duration, True), "it has the other's result"
        clock = Clock()
        assert Patience(lambda: Forecast(duration=duration), clock=clock).left(None) == max(FREE, duration / 2)


@pytest.mark.parametrize("duration", DURATIONS)
def test_a_wait_for_what_is_cheap_ends_with_its_execution_if_that_was_short(duration: float) -> None:
    cheap, concluding = Forecast(cheap=True), 0.02
    done = finish(0.0, duration, concluding, kept=True, forecast=cheap)
    if duration < SHORT:
        assert done == (2 * duration, True)
    else:
        assert done == finish(0.0, duration, concluding, kept=True, forecast=UNKNOWN)


def test_what_is_known_to_be_in_vain_is_not_waited_for() -> None:
    assert Patience(lambda: Forecast("it has a traced process", 600.0)).left(None) <= 0
    waiting = Patience(lambda: UNKNOWN)
    assert waiting.left(None) > 0
    waiting.give_up()
    assert waiting.left(None) <= 0


def test_a_deadline_ends_the_wait() -> None:
    clock = Clock()
    waiting = Patience(lambda: Forecast(duration=100.0), 10.0, clock=clock)
    assert waiting.left(None) == 10.0
    clock.now = 10.0
    assert waiting.left(None) <= 0


def test_calls_that_lead_to_no_state_are_waited_for() -> None:
    waiting = Patience(lambda: UNKNOWN, bounded=False)
    waiting.give_up()
    assert waiting.left(None) == math.inf


def test_who_could_not_execute_it_waits_on() -> None:
    room: list[bool] = []
    waiting = Patience(lambda: Forecast("it has a traced process"), able=lambda: bool(room))
    assert waiting.left(None) > 0
    room.append(True)
    assert waiting.left(None) <= 0


def test_what_was_executed_waits_for_one_that_was_quicker() -> None:
    clock = Clock()
    waiting = Patience(lambda: UNKNOWN, clock=clock)
    clock.now = FREE
    waiting.execute()
    clock.now = FREE + 2.0
    assert waiting.left_after(clock.now, 2.0) == 0.5 - FREE
    clock.now += 0.5
    assert waiting.left_after(FREE + 2.0, 2.0) <= 0


def test_a_crowded_machine_gives_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "crowding", lambda: 3.0)
    clock = Clock()
    assert Patience(lambda: UNKNOWN, clock=clock).left(None) == 3 * FREE
    assert Patience(lambda: Forecast(duration=10.0), clock=clock).left(None) == 5.0
    assert Patience(lambda: Forecast("it is known to be lost"), clock=clock).left(None) <= 0


def test_how_crowded_this_machine_is() -> None:
    assert 1.0 <= crowding() < 1e6
