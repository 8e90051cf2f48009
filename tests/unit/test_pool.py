"""The pool: who is taken, who is closed, who waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.fakes import inside
from tests.fakes.backend import FakeBackend, Faults, fake_image
from tests.fakes.caches import eventually, threads
from tvsnap.engine.live_sandbox import LiveSandbox, Origin
from tvsnap.engine.supply.pool import SandboxPool
from tvsnap.model.errors import InfrastructureError, SandboxDied
from tvsnap.model.limits import MIB, Budget, Limits
from tvsnap.sandboxes.protocol import Sandbox


class Lab:
    """A pool, and the backend that its sandboxes come from."""

    def __init__(self, patience: float = 60.0, sandboxes: int = 4, **limits: int) -> None:
        self.backend = FakeBackend()
        self.pool = SandboxPool(Budget(sandboxes=sandboxes, **limits), patience=patience)

    def make(self) -> Sandbox:
        return self.backend.start(fake_image(), Limits())

    def open(self, state: str = "s") -> LiveSandbox:
        return self.pool.open(self.make, state)

    def parked(self, state: str) -> LiveSandbox:
        live = self.open(state)
        self.pool.park(live)
        eventually(lambda: live.memory and live in inside.parked(self.pool))
        return live

    def open_ahead(self) -> LiveSandbox | None:
        return self.pool.open_ahead(lambda: LiveSandbox(self.make(), ""))

    def ready(self, origin: Origin) -> LiveSandbox:
        live = self.open_ahead()
        assert live is not None
        live.memory = live.sandbox.memory()
        assert self.pool.keep_ready(live, origin)
        return live

    def alive(self, live: LiveSandbox) -> bool:
        return live.sandbox.id in self.backend.live


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    lab.pool.close()
    assert lab.backend.live == {}


def test_a_parked_sandbox_is_taken_once(lab: Lab) -> None:
    live = lab.parked("s")
    assert lab.pool.take("other") is None
    assert lab.pool.take("s") is live
    assert lab.pool.take("s") is None
    assert (lab.pool.live, lab.pool.parked) == (1, 0)


def test_the_one_used_last_is_taken_first(lab: Lab) -> None:
    first, second = lab.parked("s"), lab.parked("s")
    assert lab.pool.take("s") is second
    assert lab.pool.take("s") is first


def test_what_is_parked_beyond_the_count_is_closed_oldest_first() -> None:
    lab = Lab(sandboxes=10, parked=2)
    one, two, three = (lab.parked(state) for state in "abc")
    eventually(lambda: not lab.alive(one))
    assert lab.alive(two)
    assert lab.alive(three)
    assert lab.pool.take("a") is None
    lab.pool.close()


def test_what_is_parked_beyond_the_memory_is_closed_oldest_first() -> None:
    lab = Lab(sandboxes=10, parked_memory=11 * MIB)  # a fake sandbox weighs 5 MiB
    one, two, three = (lab.open(state) for state in "abc")
    for live in (one, two, three):
        lab.pool.park(live)
        eventually(lambda live=live: live.memory)  # type: ignore[misc]
    eventually(lambda: not lab.alive(one))
    assert lab.pool.parked == 2
    lab.pool.close()


def test_what_cannot_be_weighed_is_closed(lab: Lab) -> None:
    lab.backend.faults = Faults().fail("memory", SandboxDied("killed"))
    live = lab.open()
    lab.pool.park(live)
    eventually(lambda: lab.pool.live == 0)


def test_what_is_not_quiet_is_closed(lab: Lab) -> None:
    live = lab.open()
    live.sandbox.run("sleep 1000 &", timeout=5)
    lab.pool.park(live)
    eventually(lambda: lab.pool.live == 0)


def test_a_parked_sandbox_makes_room(lab: Lab) -> None:
    parked = [lab.parked(str(number)) for number in range(4)]
    lab.open("new")
    assert len(lab.backend.live) == 4
    assert [lab.alive(live) for live in parked] == [False, True, True, True]


def test_a_resting_sandbox_makes_room_if_no_parked_one_does(lab: Lab) -> None:
    resting, used, kept = lab.open(), lab.open(), lab.open()
    parked = lab.parked("p")
    lab.pool.rest(resting)
    kept.expendable = False
    lab.pool.rest(kept)
    lab.open("new")
    assert not lab.alive(parked)
    assert lab.alive(resting)
    lab.open("newer")
    assert not lab.pool.claim(resting)
    assert lab.alive(used)
    assert lab.pool.claim(used)
    assert lab.pool.claim(kept)


def test_a_claimed_sandbox_is_not_closed(lab: Lab) -> None:
    live = lab.open()
    lab.pool.rest(live)
    assert lab.pool.claim(live)
    for _ in range(3):
        lab.open()
    with threads(1) as pool:
        waiting = pool.submit(lab.open)
        time.sleep(0.05)
        assert not waiting.done()
        assert lab.alive(live)
        lab.pool.rest(live)
        waiting.result(60)
    assert not lab.pool.claim(live)


def test_ready_ones_are_taken_by_origin_oldest_first(lab: Lab) -> None:
    image, snapshot = Origin("image", Limits()), Origin("image", Limits(), "snapshot")
    first, second, other = lab.ready(image), lab.ready(image), lab.ready(snapshot)
    assert lab.pool.ready_by_origin() == {image: 2, snapshot: 1}
    assert lab.pool.take("") is None
    assert lab.pool.take_ready(Origin("image", Limits(memory=64 * MIB))) is None
    assert lab.pool.take_ready(image) is first
    assert lab.pool.take_ready(image) is second
    assert lab.pool.take_ready(image) is None
    assert lab.pool.take_ready(snapshot) is other
    assert (lab.pool.live, lab.pool.ready) == (3, 0)


def test_ready_ones_beyond_the_plan_are_closed_oldest_first(lab: Lab) -> None:
    image, snapshot = Origin("image", Limits()), Origin("image", Limits(), "snapshot")
    first, second, other = lab.ready(image), lab.ready(image), lab.ready(snapshot)
    lab.pool.keep_ready_at_most({image: 1})
    eventually(lambda: lab.pool.live == 1)
    assert not lab.alive(first)
    assert not lab.alive(other)
    assert lab.pool.take_ready(image) is second


def test_nothing_is_made_ahead_without_room_to_spare(lab: Lab) -> None:
    used = [lab.open() for _ in range(4)]
    assert lab.open_ahead() is None
    with threads(1) as pool:
        waiting = pool.submit(lab.open)
        eventually(lambda: len(inside.waiting(lab.pool)) == 1)
        assert lab.open_ahead() is None
        lab.pool.discard(used[0])
        waiting.result(60)
    lab.pool.close()
    assert lab.open_ahead() is None


def test_parked_ones_make_room_before_ready_ones_and_those_before_resting_ones(lab: Lab) -> None:
    resting, parked = lab.open(), lab.parked("p")
    ready = lab.ready(Origin("image", Limits()))
    lab.pool.rest(resting)
    lab.open()
    gone = []
    for _ in range(3):
        lab.open()
        gone.append([lab.alive(live) for live in (parked, ready, resting)])
    assert gone == [[False, True, True], [False, False, True], [False, False, False]]


def test_what_is_ready_has_its_part_of_the_memory_first() -> None:
    lab = Lab(sandboxes=10, parked_memory=11 * MIB)
    parked = [lab.parked(state) for state in "ab"]
    origin = Origin("image", Limits())
    ready = lab.ready(origin)
    eventually(lambda: not lab.alive(parked[0]))
    assert lab.alive(parked[1])
    another = lab.ready(origin)
    eventually(lambda: not lab.alive(parked[1]))
    one_more = lab.open()
    one_more.memory = 5 * MIB
    assert not lab.pool.keep_ready(one_more, origin)
    assert not lab.pool.keep_ready(one_more, origin)
    assert lab.pool.take_ready(origin) is ready
    assert lab.pool.take_ready(origin) is another
    lab.pool.close()


def test_one_that_is_discarded_while_ready_is_not_taken(lab: Lab) -> None:
    origin = Origin("image", Limits())
    live = lab.ready(origin)
    lab.pool.discard(live)
    assert lab.pool.take_ready(origin) is None
    assert not lab.pool.keep_ready(live, origin)


def test_who_waits_is_served_in_order(lab: Lab) -> None:
    used = [lab.open() for _ in range(4)]
    order: list[int] = []

    def wait(number: int) -> None:
        lab.open(str(number))
        order.append(number)

    waiting = []
    for number in range(3):
        waiting.append(threading.Thread(target=wait, args=(number,)))
        waiting[-1].start()
        eventually(lambda number=number: len(inside.waiting(lab.pool)) == number + 1)  # type: ignore[misc]
    for number in range(3):
        lab.pool.discard(used[number])
        eventually(lambda number=number: len(order) == number + 1)  # type: ignore[misc]
    for thread in waiting:
        thread.join(60)
    assert order == [0, 1, 2]
    assert len(lab.backend.live) == 4


def test_nothing_is_parked_while_someone_waits(lab: Lab) -> None:
    used = [lab.open() for _ in range(4)]
    with threads(1) as pool:
        waiting = pool.submit(lab.open)
        eventually(lambda: len(inside.waiting(lab.pool)) == 1)
        lab.pool.park(used[0])
        waiting.result(60)
    assert not lab.alive(used[0])


def test_waiting_has_an_end() -> None:
    lab = Lab(sandboxes=1, patience=0.05)
    live = lab.open()
    with pytest.raises(InfrastructureError, match=r"all 1 sandboxes have been in use for 0\.05 s; .*Budget\.sandboxes"):
        lab.open()
    lab.pool.discard(live)
    eventually(lambda: not lab.alive(live))
    lab.open()
    lab.pool.close()


def test_a_sandbox_that_could_not_be_made_takes_no_room(lab: Lab) -> None:
    lab.backend.faults.fail("start", InfrastructureError("no memory"), times=10)
    for _ in range(10):
        with pytest.raises(InfrastructureError, match="no memory"):
            lab.open()
    for _ in range(4):
        lab.open()


def test_closing_while_others_wait_or_open() -> None:
    lab = Lab(sandboxes=2)
    lab.open()
    making, go = threading.Event(), threading.Event()

    def make() -> Sandbox:
        making.set()
        assert go.wait(60)
        return lab.make()

    with threads(3) as pool:
        opening = pool.submit(lab.pool.open, make, "s")
        assert making.wait(60)
        waiting = pool.submit(lab.open)
        eventually(lambda: len(inside.waiting(lab.pool)) == 1)
        closing = pool.submit(lab.pool.close)
        with pytest.raises(InfrastructureError, match="closed"):
            waiting.result(60)
        assert not closing.done(), "it does not wait for the one that is being made"
        go.set()
        closing.result(60)
        with pytest.raises(InfrastructureError, match="closed"):
            opening.result(60)
    assert lab.backend.live == {}
    with pytest.raises(InfrastructureError, match="closed"):
        lab.open()
    lab.pool.close()


def test_closed_sandboxes_are_not_parked_rested_or_closed_again(lab: Lab) -> None:
    live = lab.open()
    lab.pool.discard(live)
    lab.pool.discard(live)
    lab.pool.park(live)
    lab.pool.rest(live)
    assert not lab.pool.claim(live)
    eventually(lambda: lab.pool.live == 0)
    assert lab.pool.take("s") is None


def test_many_at_once() -> None:
    lab = Lab(sandboxes=8, patience=30.0)
    most = 0

    def use(number: int) -> None:
        nonlocal most
        state = str(number % 5)
        live = lab.pool.take(state) or lab.open(state)
        most = max(most, len(lab.backend.live))
        (lab.pool.park if number % 3 else lab.pool.discard)(live)

    with threads(24) as pool:
        list(pool.map(use, range(600)))
    assert most <= 8
    lab.pool.close()
    assert lab.backend.live == {}


def test_one_in_which_something_runs_is_closed_last(lab: Lab) -> None:
    """Another one would have to run for as long, while its rollout waits."""
    runs, later, idle, used = (lab.open() for _ in range(4))
    for live in (runs, later, idle):
        live.observation = replace(live.sandbox.observe(), active=None if live is idle else "a loop is running")
        lab.pool.rest(live)
    runs.since -= 100.0
    later.since -= 0.5
    assert lab.pool.has_room
    lab.open()
    assert not lab.alive(idle)
    assert not lab.pool.has_room, "a rollout would have to wait"
    began = time.monotonic()
    lab.open()
    assert time.monotonic() - began >= 0.5, "others might have ended meanwhile"
    assert not lab.alive(later)
    with threads(1) as others:
        waiting = others.submit(lab.open)
        eventually(lambda: lab.pool.full)
        lab.pool.discard(used)
        waiting.result(60)
    assert lab.alive(runs)
