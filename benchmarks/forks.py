"""Checkpoints and forks: of a shell, of more than a shell, many at once, and forks of forks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.figures import Figure, figure
from benchmarks.raw_criu import RawCriu
from benchmarks.workspace import IMAGE, Workspace
from tvsnap.sandboxes.local.sandbox import LocalSandbox

CHECKPOINTS = 60
FORKS = 80
ROUNDS = 6
FORKS_A_ROUND = 40
DEPTH = 20
TOGETHER = 10
JOBS = "for i in 1 2 3; do (while :; do sleep 0.5; done) & done"


def run(space: Workspace) -> Iterator[Figure]:
    """Measures all of it."""
    yield from _shell(space)
    yield from _rates(space)
    yield from _together(space)
    yield from _busier(space)
    yield from _chain(space)


def _shell(space: Workspace) -> Iterator[Figure]:
    """A shell, turn by turn with CRIU by hand. Each checkpoint comes after a call that changed a file."""
    space.tell("checkpoints and forks of a shell")
    sandbox = space.start()
    raw_criu = RawCriu(space, sandbox)
    raw, ours, frozen = [], [], []
    snapshot = ""
    for number in range(space.samples(CHECKPOINTS)):
        sandbox.run(f"n={number}; echo $n > number", timeout=10)
        space.settle()
        raw.append(raw_criu.dump())
        if snapshot:
            space.backend.delete_snapshot(snapshot)
        sandbox.run(f"n={number}; echo $n >> number", timeout=10)
        space.settle()
        began = time.perf_counter()
        info = sandbox.checkpoint()
        ours.append(time.perf_counter() - began)
        frozen.append(info.frozen)
        snapshot = info.id
    yield figure("floor_checkpoint", "`criu dump` of a shell sandbox, by hand", raw, "ms", floor=True)
    yield figure("checkpoint", "checkpoint of a shell sandbox", ours, "ms", at_most=25)
    yield figure("checkpoint_in_criu", "of which in CRIU, files included", frozen, "ms")

    raw, ours = [], []
    for _ in range(space.samples(FORKS)):
        raw.append(raw_criu.restore())
        space.settle()
        seconds, fork = _first_output(space, snapshot)
        ours.append(seconds)
        fork.close()
        space.settle()
    sandbox.close()
    space.backend.delete_snapshot(snapshot)
    yield figure("floor_fork", "`criu restore` of it, by hand", raw, "ms", floor=True)
    yield figure("fork", "fork to first output", ours, "ms", at_most=25)


def _first_output(space: Workspace, snapshot: str) -> tuple[float, LocalSandbox]:
    """Forks a shell; returns the seconds until its first output, and the fork."""
    began = time.perf_counter()
    fork = space.fork(snapshot)
    outcome = fork.run("echo $((6 * 7))", timeout=10)
    seconds = time.perf_counter() - began
    assert outcome.output == b"42\n", outcome
    return seconds, fork


def _rates(space: Workspace) -> Iterator[Figure]:
    """Forks by threads, two for each processor: half of a fork is waiting."""
    space.tell("forks on all processors")
    with _snapshot(space, lambda sandbox: None) as snapshot, ThreadPoolExecutor(2 * space.cores) as threads:
        kept, closed = [], []
        for _ in range(space.samples(ROUNDS)):
            began = time.perf_counter()
            done = list(threads.map(lambda _: _first_output(space, snapshot), range(FORKS_A_ROUND)))
            kept.append(FORKS_A_ROUND / (time.perf_counter() - began))
            list(threads.map(lambda item: item[1].close(), done))
            began = time.perf_counter()
            list(threads.map(lambda _: _first_output(space, snapshot)[1].close(), range(FORKS_A_ROUND)))
            closed.append(FORKS_A_ROUND / (time.perf_counter() - began))
    yield figure("forks_per_second", "forks to first output, all processors", kept, "1/s", at_least=60)
    yield figure("forks_closed_per_second", "the same, closing each at once", closed, "1/s")


def _together(space: Workspace) -> Iterator[Figure]:
    """Ten forks of a state of the graph in one call, turn by turn with ten threads that ask for one each."""
    space.tell("ten forks in one call")
    together: list[float] = []
    apart: list[float] = []
    with space.cache("eager") as cache, ThreadPoolExecutor(TOGETHER) as threads:
        with cache.rollout(IMAGE) as rollout:
            rollout.call("bash", {"command": "n=1"}, timeout=10)
            state = rollout.state
        for _ in range(space.samples(ROUNDS * 2)):
            space.settle()
            began = time.perf_counter()
            forks = cache.fork(state, TOGETHER)
            together.append(time.perf_counter() - began)
            forks.close()
            space.settle()
            began = time.perf_counter()
            ones = list(threads.map(lambda _: cache.fork(state), range(TOGETHER)))
            apart.append(time.perf_counter() - began)
            for one in ones:
                one.close()
    yield figure("forks_apart", f"{TOGETHER} forks of a state, by as many threads", apart, "ms")
    yield figure("forks_together", f"the same in one call, fork(state, {TOGETHER})", together, "ms")


def _busier(space: Workspace) -> Iterator[Figure]:
    """A shell with background jobs, and one with a Python that waits for keys."""
    space.tell("forks of a shell with jobs, and of a Python REPL")
    forks: list[float] = []
    checkpoints: list[float] = []
    with _snapshot(space, lambda sandbox: sandbox.run(JOBS, timeout=10), checkpoints) as snapshot:
        for _ in range(space.samples(FORKS // 2)):
            seconds, fork = _first_output(space, snapshot)
            forks.append(seconds)
            fork.close()
            space.settle()
    yield figure("checkpoint_jobs", "checkpoint with 3 background jobs", checkpoints, "ms")
    yield figure("fork_jobs", "fork of it to first output", forks, "ms")

    def python(sandbox: LocalSandbox) -> None:
        sandbox.send_keys(b"python3 -q\r", wait=5)
        _ask_python(sandbox)

    forks, checkpoints = [], []
    with _snapshot(space, python, checkpoints) as snapshot:
        for _ in range(space.samples(FORKS // 2)):
            began = time.perf_counter()
            fork = space.fork(snapshot)
            _ask_python(fork)
            forks.append(time.perf_counter() - began)
            fork.close()
            space.settle()
    yield figure("checkpoint_python", "checkpoint of a Python REPL", checkpoints, "ms")
    yield figure("fork_python", "fork of it to its first answer", forks, "ms")


def _ask_python(sandbox: LocalSandbox) -> None:
    """Has the Python in a sandbox's terminal compute something."""
    with sandbox.attach(0, 0) as terminal:
        terminal.settimeout(10)
        terminal.sendall(b"6 * 7\r")
        seen = b""
        while b"42" not in seen:
            seen += terminal.recv(4096)


def _chain(space: Workspace) -> Iterator[Figure]:
    """Forks of forks: each changes something, is checkpointed, and forked in turn."""
    space.tell("forks of forks")
    forks: list[list[float]] = [[] for _ in range(DEPTH)]
    checkpoints: list[float] = []
    for _ in range(1 if space.quick else 3):
        snapshots = []
        sandbox = space.start()
        for depth in range(DEPTH):
            sandbox.run(f"depth={depth}; echo $depth >> depths", timeout=10)
            space.settle()
            began = time.perf_counter()
            snapshots.append(sandbox.checkpoint().id)
            checkpoints.append(time.perf_counter() - began)
            sandbox.close()
            space.settle()
            seconds, sandbox = _first_output(space, snapshots[-1])
            forks[depth].append(seconds)
        seen = sandbox.run("echo $depth $(cat depths)", timeout=10).output.decode().split()
        assert seen == [str(DEPTH - 1), *map(str, range(DEPTH))], seen
        sandbox.close()
        for snapshot in snapshots:
            space.backend.delete_snapshot(snapshot)
    first, last = ([seconds for depth in part for seconds in depth] for part in (forks[:5], forks[-5:]))
    yield figure("chain_checkpoint", f"forks of forks, {DEPTH} deep: checkpoint", checkpoints, "ms")
    yield figure("chain_fork_first", "fork, the first five", first, "ms")
    yield figure("chain_fork_last", "fork, the last five", last, "ms")


@contextlib.contextmanager
def _snapshot(
    space: Workspace, prepare: Callable[[LocalSandbox], object], seconds: list[float] | None = None
) -> Iterator[str]:
    """A block with a snapshot of a sandbox that was prepared; it is gone afterwards.

    Args:
        space: the workspace.
        prepare: brings the sandbox into its state.
        seconds: gets the durations of more checkpoints of it.
    """
    sandbox = space.start()
    prepare(sandbox)
    snapshot = sandbox.checkpoint().id
    if seconds is not None:
        for _ in range(space.samples(FORKS // 4)):
            space.settle()
            info = sandbox.checkpoint()
            seconds.append(info.duration)
            space.backend.delete_snapshot(info.id)
    sandbox.close()
    try:
        yield snapshot
    finally:
        space.backend.delete_snapshot(snapshot)
