"""What is counted: operations, each repeated. What prepares a repetition or clears up after it is not counted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from unittest import mock

from benchmarks.workspace import IMAGE, Workspace
from tvsnap.cache import Cache
from tvsnap.graph import NewEdge, StepRow
from tvsnap.guest.protocol import Guest
from tvsnap.model.calls import ToolCall, ToolResult, next_state
from tvsnap.model.limits import Limits
from tvsnap.model.operations.rollouts import Call
from tvsnap.rollout import Rollout
from tvsnap.sandboxes.local.sandbox import LocalSandbox

REPETITIONS, FEWER = 8, 5
"""How often an operation is counted; fewer times where it takes long to prepare."""
USUAL = 2
"""How often it is done before it is counted, where the first times do more than others."""
TIMEOUT = 60.0  # seconds
MOST_TRIES = 20  # snapshots, until one is of a shell at rest
MOMENT = 0.03
"""Seconds in which a new sandbox gets ready to answer, mostly."""
WRITING = "echo {} > file"


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Step:
    """One repetition.

    Attributes:
        operate: what is counted.
        settle: waits until other threads have done what `operate` left to them, which is counted, too.
    """

    operate: Callable[[], object] = _nothing
    settle: Callable[[], object] = _nothing


def nothing(space: Workspace) -> Iterator[Step]:
    """What counting costs."""
    for _ in range(REPETITIONS):
        yield Step()


def hit(space: Workspace) -> Iterator[Step]:
    """A call that is answered from the graph, and leads to another state."""
    commands = [WRITING.format(number) for number in range(REPETITIONS)]
    with space.cache("eager") as cache:
        with cache.rollout(IMAGE, salt="hit") as rollout:
            for command in commands:
                _call(rollout, command)
                _settle(rollout)
        with cache.rollout(IMAGE, salt="hit") as rollout:
            for command in commands:
                yield Step(partial(_call, rollout, command, "hit"))


def no_hit(space: Workspace) -> Iterator[Step]:
    """A look for an answer that is not there."""
    with space.cache("never") as cache, cache.rollout(IMAGE, salt="no hit") as rollout:
        for number in range(REPETITIONS):
            yield Step(partial(_find_nothing, rollout, WRITING.format(number)))


def executed(space: Workspace, command: str, after: int) -> Iterator[Step]:
    """A call in the rollout's own sandbox that nobody made before, until it is recorded; no snapshot is taken.

    Args:
        space: the workspace.
        command: what is called, with a number in it.
        after: how many calls the rollout has made before.
    """
    with space.cache("never") as cache:
        for number in range(FEWER if after > USUAL else REPETITIONS):
            with cache.rollout(IMAGE, salt=f"{command} after {after}, {number}") as rollout:
                for earlier in range(after):
                    _call(rollout, command.format(f"-{earlier}"))
                    _settle(rollout)
                yield Step(partial(_call, rollout, command.format(number)), partial(_settle, rollout))


def uncached(space: Workspace) -> Iterator[Step]:
    """The same without the cache."""
    with Cache(space.home, images=space.images, use_cache=False) as cache, cache.rollout(IMAGE) as rollout:
        _call(rollout, "true")
        for number in range(REPETITIONS):
            yield Step(partial(_call, rollout, WRITING.format(number)))


def digest(space: Workspace) -> Iterator[Step]:
    """A digest after the observation of a command that changed a file."""
    with contextlib.closing(space.start()) as sandbox:
        for number in range(USUAL + REPETITIONS):
            sandbox.run(WRITING.format(number), timeout=TIMEOUT)
            sandbox.observe()
            if number < USUAL:
                sandbox.digest()
            else:
                yield Step(sandbox.digest)


def record(space: Workspace) -> Iterator[Step]:
    """The record of a call in the graph, as a step of a rollout."""
    result = ToolResult.of_text("", 0, 0.01)
    with space.cache("never") as cache, cache.rollout(IMAGE, salt="record") as rollout:
        graph, state = rollout._engine._services.graph, rollout._engine.root
        for number in range(USUAL + REPETITIONS):
            call = ToolCall("bash", {"command": WRITING.format(number)})
            step = StepRow(rollout.id or "", number, None, "executed", 0.0, 0.01, 0.01, None, 0, False, "new", None)
            after = next_state(state, call)
            recording = partial(graph.record, NewEdge(state, call, result, after, proven=True, step=step))
            if number < USUAL:
                recording()
            else:
                yield Step(recording)


def observation(space: Workspace) -> Iterator[Step]:
    """A look at an idle shell after a command that changed nothing."""
    with contextlib.closing(space.start()) as sandbox:
        for number in range(USUAL + REPETITIONS):
            sandbox.run("true", timeout=TIMEOUT)
            if number < USUAL:
                sandbox.observe()
            else:
                yield Step(sandbox.observe)


def checkpoint(space: Workspace) -> Iterator[Step]:
    """A snapshot of an idle shell after a command that changed a file."""
    with contextlib.closing(space.start()) as sandbox:
        for number in range(REPETITIONS):
            sandbox.run(WRITING.format(number), timeout=TIMEOUT)
            yield Step(sandbox.checkpoint)


def fork(space: Workspace) -> Iterator[Step]:
    """A fork of such a snapshot until its first answer."""
    snapshot = _of_rest(space)
    yield from _answering(partial(space.backend.fork, snapshot, space.image, Limits()))
    space.backend.delete_snapshot(snapshot)


def _of_rest(space: Workspace) -> str:
    """Returns a snapshot of a shell at rest: of another one, as a busy machine may take, forks are not recorded."""
    with contextlib.closing(space.start()) as sandbox:
        assert isinstance(sandbox, LocalSandbox)
        for number in range(MOST_TRIES):
            sandbox.run(WRITING.format(number), timeout=TIMEOUT)
            sandbox.observe()
            snapshot = sandbox.checkpoint().id
            if sandbox.base is not None:
                return snapshot
            space.backend.delete_snapshot(snapshot)
    raise AssertionError(f"the shell was not at rest in {MOST_TRIES} snapshots")


def start(space: Workspace) -> Iterator[Step]:
    """A fresh sandbox until its first answer."""
    yield from _answering(partial(space.backend.start, space.image, Limits()))


def close(space: Workspace) -> Iterator[Step]:
    """The end of a sandbox."""
    for number in range(REPETITIONS):
        sandbox = space.start()
        sandbox.run(WRITING.format(number), timeout=TIMEOUT)
        yield Step(sandbox.close)


OPERATIONS: Mapping[str, Callable[[Workspace], Iterator[Step]]] = {
    "hit": hit,
    "no hit": no_hit,
    "executed call": partial(executed, command=WRITING, after=USUAL),
    "executed call, the rollout's 20th": partial(executed, command=WRITING, after=19),
    "executed call that changes nothing": partial(executed, command="true; : {}", after=USUAL),
    "uncached call": uncached,
    "observation": observation,
    "digest": digest,
    "record": record,
    "checkpoint": checkpoint,
    "fork": fork,
    "start": start,
    "close": close,
}


def _call(rollout: Rollout, command: str, source: str = "executed") -> None:
    result = rollout.call("bash", {"command": command}, TIMEOUT)
    assert result.source == source, result


def _find_nothing(rollout: Rollout, command: str) -> None:
    assert rollout._engine.try_hit(Call("bash", {"command": command})) is None


def _settle(rollout: Rollout) -> None:
    """Waits until nothing of the last call is left to be done."""
    settling, freed = rollout._engine.pending(), rollout._engine._own._freed
    for future in (settling, freed):
        if future is not None:
            future.result()


def _answering(make: Callable[[], LocalSandbox]) -> Iterator[Step]:
    """Counts how sandboxes are made, and answer for the first time.

    Each is left alone for a moment before it is connected to: else it is asked again and again until it is ready.
    """
    connect = LocalSandbox._connect

    def later(sandbox: LocalSandbox) -> Guest:
        time.sleep(MOMENT)
        return connect(sandbox)

    def first_answer(made: list[LocalSandbox]) -> None:
        made.append(make())
        made[0].run("echo", timeout=TIMEOUT)

    with mock.patch.object(LocalSandbox, "_connect", later):
        for _ in range(REPETITIONS):
            made: list[LocalSandbox] = []
            yield Step(partial(first_answer, made))
            made[0].close()
