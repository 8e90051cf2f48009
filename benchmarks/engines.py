"""tvsnap's backends beside Docker and Podman without tvsnap: the same work on the same image, turn by turn."""

from __future__ import annotations

import contextlib
import functools
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.contenders import ANSWER, JOB, QUESTION, BareDocker, BarePodman, Contender, Live, Ours, clear
from benchmarks.figures import Figure, figure
from benchmarks.processes import available
from benchmarks.workspace import Workspace
from scripts.docker_engine import private_engine
from scripts.room import Room
from tvsnap import Budget
from tvsnap.cache import Cache
from tvsnap.host.owners import Owner
from tvsnap.model.errors import MachineLacks
from tvsnap.plugins.docker.engine import Engine
from tvsnap.sandboxes import open_backend

ROUNDS = 16
SETTLE = 0.3  # seconds: what one leaves an engine to clean up must not be the next one's time
CALLS = 5  # in each live container
FORKS = 32
FORK_ROUNDS = 3
THREADS = 8
ARRIVALS = 3  # at a state, after which its sandboxes are forked ahead
READY = 20.0  # seconds in which that must be done
OURS, BARE = ("local", "docker"), "bare_docker"
ROWS = {
    "start": ("fresh one to first output", "ms"),
    "call": ("`true` in a live one", "ms"),
    "checkpoint": ("snapshot of an idle one", "ms"),
    "fork": ("fork of it to first output", "ms"),
    "close": ("closing it", "ms"),
    "checkpoint_job": ("snapshot with a background job", "ms"),
    "fork_job": ("fork of it to first output, the job too", "ms"),
    "forks": (f"{FORKS} forks of one state: all answered", "s"),
    "forks_close": ("closing them", "s"),
    "forks_memory": ("free memory that each of them took", "MB"),
    "disk": ("disk: snapshot of an idle one", "kB"),
    "disk_job": ("disk: snapshot with the job", "kB"),
    "known_state": ("call at a known state", "ms"),
    "hot_state": ("the same, `prefork`", "ms"),
}
"""What is measured: the figure's name, in words, and its unit."""

T = TypeVar("T")


@dataclass
class Samples:
    """What was measured of each contender: seconds or bytes by row."""

    of: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, row: str, contender: str, value: float) -> None:
        """Takes one in."""
        self.of.setdefault(row, {}).setdefault(contender, []).append(value)

    def timed(self, row: str, contender: str, work: Callable[[], T]) -> T:
        """Does some work, and takes in how long that took."""
        began = time.perf_counter()
        result = work()
        self.add(row, contender, time.perf_counter() - began)
        return result

    def times_faster(self, row: str, contender: str, other_row: str) -> float | None:
        """Returns how many times as fast as bare Docker in another row a contender is in this one, if both were."""
        ours = self.of.get(row, {}).get(contender)
        bare = self.of.get(other_row, {}).get(BARE)
        return statistics.median(bare) / statistics.median(ours) if ours and bare else None


def run(space: Workspace) -> Iterator[Figure]:
    """Measures all of it."""
    samples = Samples()
    with contextlib.ExitStack() as ends:
        compared = list(contenders(space, ends))
        titles = {contender.name: contender.title for contender in compared}
        space.tell(f"the same work by {', '.join(titles.values())}")
        for _ in range(space.samples(ROUNDS)):
            for contender in compared:
                time.sleep(SETTLE)
                _life(space, contender, samples, busy=False)
                if contender.takes_processes:
                    time.sleep(SETTLE)
                    _life(space, contender, samples, busy=True)
        space.tell(f"{FORKS} forks of one state")
        for _ in range(1 if space.quick else FORK_ROUNDS):
            for contender in compared:
                _forks(space, contender, samples)
        space.tell("calls at a known state, through the cache")
        _cached(space, [name for name in OURS if name in titles], samples)
    for row, (what, unit) in ROWS.items():
        for name, found in samples.of.get(row, {}).items():
            yield figure(f"engines_{row}_{name}", what, found, unit, subject=titles[name])
    yield from _ratios(samples)


def contenders(space: Workspace, ends: contextlib.ExitStack) -> Iterator[Contender]:
    """Yields who takes part on this machine; `ends` ends them."""
    yield Ours(space.backend, space.image)
    with contextlib.suppress(MachineLacks), _told(space):
        _find_engine(space, ends)
        ends.callback(clear, space.home)
        owner = Owner(space.home)
        ends.callback(owner.close)
        backend = open_backend("docker", space.home, owner.id)
        ends.callback(backend.close)
        docker = Ours(backend, space.image)
        docker.start().close()  # which brings the image into the engine
        yield docker
        yield _with_archive(space, lambda archive: BareDocker(archive, space.home))
    if shutil.which("podman"):
        room = Room(BarePodman.COVERED)
        ends.callback(room.close)
        yield _with_archive(space, lambda archive: BarePodman(room, archive))
    else:
        space.tell("without Podman, which is not installed (make engines)")


@contextlib.contextmanager
def _told(space: Workspace) -> Iterator[None]:
    """A block whose lack is told."""
    try:
        yield
    except MachineLacks as lack:
        space.tell(f"without Docker: {lack}")
        raise


def _find_engine(space: Workspace, ends: contextlib.ExitStack) -> None:
    """Has DOCKER_HOST point to an engine: the one that answers there, else one that `ends` ends."""
    try:
        engine = Engine()
    except MachineLacks:
        ends.enter_context(private_engine())
        engine = Engine()
    space.tell(f"Docker Engine {engine.version} at {engine.address}")
    engine.close()


def _with_archive(space: Workspace, use: Callable[..., T]) -> T:
    """Returns what is made of the image's root filesystem, a tar."""
    sandbox = space.start()
    try:
        with sandbox.archive() as archive:
            return use(archive)
    finally:
        sandbox.close()


def _life(space: Workspace, contender: Contender, samples: Samples, *, busy: bool) -> None:
    """One container's: started, used, snapshotted after a change of a file, forked."""
    name, suffix = contender.name, "_job" if busy else ""
    if busy:
        live = contender.start(JOB)
        _ask(live)
    else:
        live = samples.timed("start", name, lambda: _asked(contender.start()))
        for _ in range(CALLS):
            samples.timed("call", name, lambda: live.answer("true"))
    live.answer("echo 1 > /root/number")
    space.settle()
    snapshot = samples.timed(f"checkpoint{suffix}", name, live.checkpoint)
    samples.add(f"disk{suffix}", name, contender.size(snapshot))
    space.settle()
    fork = samples.timed(f"fork{suffix}", name, lambda: _asked(contender.fork(snapshot, busy=busy)))
    seen = fork.answer("cat /root/number")
    assert seen == b"1\n", seen
    if busy:
        fork.close()
    else:
        samples.timed("close", name, fork.close)
    live.close()
    contender.delete(snapshot)
    space.settle()


def _asked(live: Live) -> Live:
    _ask(live)
    return live


def _ask(live: Live) -> None:
    """Waits for a command's output."""
    output = live.answer(QUESTION)
    assert output == ANSWER, output


def _forks(space: Workspace, contender: Contender, samples: Samples) -> None:
    """Many forks of one idle container, by several threads."""
    live = contender.start()
    live.answer("echo 1 > /root/number")
    snapshot = live.checkpoint()
    live.close()
    space.settle()
    with ThreadPoolExecutor(THREADS) as threads:
        before = available()
        fork = functools.partial(threads.map, lambda _: _asked(contender.fork(snapshot)), range(FORKS))
        forks = samples.timed("forks", contender.name, lambda: list(fork()))
        samples.add("forks_memory", contender.name, max(0, before - available()) / FORKS)
        samples.timed("forks_close", contender.name, lambda: list(threads.map(lambda item: item.close(), forks)))
    contender.delete(snapshot)


def _cached(space: Workspace, backends: Sequence[str], samples: Samples) -> None:
    """New calls of rollouts that come to a state with a snapshot: without, and with sandboxes forked ahead of time."""
    with contextlib.ExitStack() as ends:
        caches = {
            (row, name): ends.enter_context(_cache(space, name, prefork))
            for row, prefork in (("known_state", 0), ("hot_state", 2))
            for name in backends
        }
        for (row, name), cache in caches.items():
            with cache.rollout(space.image, salt=f"{row} {name}") as rollout:
                rollout.call("bash", {"command": "echo 1 > /root/number"})
                rollout.call("bash", {"command": "echo 2 > /root/number"})  # after the snapshot of the state before
        for number in range(ARRIVALS + space.samples(ROUNDS)):
            for (row, name), cache in caches.items():
                with cache.rollout(space.image, salt=f"{row} {name}") as rollout:
                    assert rollout.call("bash", {"command": "echo 1 > /root/number"}).source == "hit"
                    if row == "hot_state" and number >= ARRIVALS:
                        _wait_until_ready(cache)
                    began = time.perf_counter()
                    result = rollout.call("bash", {"command": f"echo {number} | tee /root/number"})
                    seconds = time.perf_counter() - began
                    assert (result.source, result.output) == ("executed", f"{number}\n"), result
                if number >= ARRIVALS:
                    samples.add(row, name, seconds)


def _cache(space: Workspace, backend: str, prefork: int) -> Cache:
    """Opens a cache that parks nothing: what a rollout leaves would otherwise serve the next."""
    return Cache(
        space.home,
        backend=backend,
        policy="eager",
        prefork=prefork,
        budget=Budget(parked=0),
        images=space.images,
    )


def _wait_until_ready(cache: Cache) -> None:
    """Thinks, as an agent does, while a sandbox is forked ahead."""
    deadline = time.monotonic() + READY
    while not cache.stats().ready:
        assert time.monotonic() < deadline, "no sandbox was forked ahead"
        time.sleep(0.01)


def _ratios(samples: Samples) -> Iterator[Figure]:
    """Bare Docker's times in terms of ours: how many times as fast as it we are."""
    compared: Mapping[str, tuple[str, str, str, str, float]] = {
        "local_fork": ("local: fork", "local", "fork", "fork", 10),
        "docker_start": ("docker: fresh one", "docker", "start", "start", 1),
        "docker_call": ("docker: `true`", "docker", "call", "call", 1),
        "docker_fork_job": ("docker: fork with the job", "docker", "fork_job", "fork_job", 1),
        "docker_checkpoint_job": ("docker: snapshot with the job", "docker", "checkpoint_job", "checkpoint_job", 1),
        "docker_hot_state": ("docker `prefork`: fork / call", "docker", "hot_state", "fork", 1),
    }
    for name, (what, contender, row, other, at_least) in compared.items():
        times = samples.times_faster(row, contender, other)
        if times is not None:
            yield figure(f"engines_times_{name}", f"bare Docker / {what}", [times], "times", at_least=at_least)
