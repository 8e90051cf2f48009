"""Whole rollouts, several at a time: what the cache costs where nothing is known yet, and many that part from a state.

Processor time is that of the whole machine, sandboxes and the kernel's own work included: nothing else must run on it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from benchmarks.figures import Figure, figure
from benchmarks.workspace import IMAGE, Workspace
from tvsnap.cache import Cache
from tvsnap.rollout import Rollout

AT_ONCE = 8
TURNS = 3
COLD = {0: 160, 50: 80, 500: 32}
"""By how many milliseconds a command takes: how many rollouts to make."""
WORK = (
    "mkdir -p /w && cd /w && for i in $(seq 50); do echo $i > f$i; done",
    "ls | wc -l; X=1",
    "echo {number} > mine; X={number}",
    "cat mine f1",
    "sed -i 's/1/{number}/' f1; cat f1",
    "echo $X; ls | wc -l",
)
"""The commands of a rollout; it parts from the others at the third."""
SHARED = ("mkdir -p /w && cd /w && for i in $(seq 200); do echo $i > f$i; done; X=1", "sleep 0.5; echo ready > r")
"""The commands that lead to the state at which rollouts fan out."""
FAN_OUTS = ((1, 40, 0.1), (AT_ONCE, 400, 0.0), (16, 160, 0.3), (64, 256, 0.3))
"""How many rollouts at a time, how many in all, and how long each caller thinks between calls, in seconds."""
SETTLED = 0.5  # seconds: until the state at which rollouts part has its snapshot


@dataclass(frozen=True)
class Pass:
    """What rollouts took that were made side by side.

    Attributes:
        rate: rollouts a second.
        processor: seconds of processor time of the whole machine, for each rollout.
    """

    rate: float
    processor: float


def cold(space: Workspace) -> Iterator[Figure]:
    """Measures rollouts of short commands that nobody made before, with the cache and without, by turns."""
    for milliseconds, rollouts in COLD.items():
        if space.quick and milliseconds:
            return
        space.tell(f"a cold pass of commands of {milliseconds} ms")
        passes: dict[str, list[Pass]] = {"with": [], "without": []}
        for _ in range(TURNS):
            for subject, found in passes.items():
                found.append(_cold(space, subject == "with", space.samples(rollouts), milliseconds / 1000))
        what, name = f"cold pass, commands of {milliseconds} ms", f"cold_{milliseconds}"
        for subject, found in passes.items():
            rates, processor = [each.rate for each in found], [each.processor for each in found]
            yield figure(f"{name}_{subject}", f"{what}: rollouts a second", rates, "", subject=subject)
            yield figure(f"{name}_{subject}_cpu", f"{what}: processor time each", processor, "ms", subject=subject)
        pairs = list(zip(passes["with"], passes["without"], strict=True))
        speed = [cached.rate / plain.rate for cached, plain in pairs]
        processor = [cached.processor / plain.processor for cached, plain in pairs]
        yield figure(f"{name}_speed", f"{what}: speed, with : without", speed, "times")
        yield figure(f"{name}_cpu", f"{what}: processor time, with : without", processor, "times")


def _cold(space: Workspace, use_cache: bool, rollouts: int, pause: float) -> Pass:
    salt = uuid.uuid4().hex
    before = f"sleep {pause}; " if pause else ""
    with Cache(space.home, images=space.images, use_cache=use_cache) as cache:

        def work(number: int) -> None:
            with cache.rollout(IMAGE, salt=salt) as rollout:
                for command in WORK:
                    _call(rollout, before + command.replace("{number}", str(number)))

        return _pass(work, rollouts, AT_ONCE)


def fan_out(space: Workspace) -> Iterator[Figure]:
    """Measures rollouts that are answered until one state, which has a snapshot, and go on from there apart."""
    for at_once, rollouts, thinking in FAN_OUTS:
        space.tell(f"rollouts that part from one state, {at_once} at a time")
        forks: list[float] = []
        found = _fan_out(space, at_once, space.samples(rollouts), thinking, forks)
        what, name = f"fan-out, {at_once} at a time", f"fan_out_{at_once}"
        if thinking:
            what += f", thinking {1000 * thinking:.0f} ms"
        yield figure(f"{name}_fork", f"{what}: the call that forks", forks, "ms")
        yield figure(f"{name}_rate", "... rollouts a second", [found.rate], "")
        yield figure(f"{name}_cpu", "... processor time each", [found.processor], "ms")


def _fan_out(space: Workspace, at_once: int, rollouts: int, thinking: float, forks: list[float]) -> Pass:
    """Makes the rollouts; adds to `forks` how many seconds the first call of each took that nobody made before."""
    salt = uuid.uuid4().hex
    with space.cache() as cache:
        begin = partial(cache.rollout, IMAGE, salt=salt)
        with begin() as rollout:
            for command in SHARED:
                _call(rollout, command)
        time.sleep(SETTLED)

        def work(number: int) -> None:
            with begin() as rollout:
                for command in SHARED:
                    _call(rollout, command)
                    time.sleep(thinking)
                began = time.perf_counter()
                output = _call(rollout, f"echo {number} > mine; cat r mine; X={number}")
                forks.append(time.perf_counter() - began)
                assert output.split() == ["ready", str(number)], output
                time.sleep(thinking)
                output = _call(rollout, "echo $X; cat mine")
                assert output.split() == [str(number)] * 2, output

        return _pass(work, rollouts, at_once)


def _call(rollout: Rollout, command: str) -> str:
    return rollout.call("bash", {"command": command}).output


def _pass(work: Callable[[int], None], rollouts: int, at_once: int) -> Pass:
    busy, began = _busy(), time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(work, range(rollouts)))
    seconds = time.perf_counter() - began
    return Pass(rollouts / seconds, (_busy() - busy) / rollouts)


def _busy() -> float:
    """Returns how many seconds of processor time this machine has spent since its start, waiting left out."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, interrupts, soft = map(int, file.readline().split()[1:8])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")
