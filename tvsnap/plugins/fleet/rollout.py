"""`FleetRollout`: a rollout that goes on at another server when its own is lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tvsnap import Client, Grade, InfrastructureError, ToolResult
from tvsnap.errors import NotFound, StateLost
from tvsnap.model.arguments import outcome_of
from tvsnap.model.fetched import Fetched
from tvsnap.model.forks import Forks, reseeded
from tvsnap.model.operations.operation import Operation
from tvsnap.model.operations.rollouts import Call, ExecAll, Get, GradeState, Put, Record, RolloutMethods
from tvsnap.plugins.client.client import RemoteRollout, RemoteSandbox, is_open, known_state
from tvsnap.plugins.client.wire.errors import Unreachable
from tvsnap.plugins.fleet.nodes import LOST, Node, Nodes

_TRIES = 4
"""Nodes that a rollout is tried at, one after the other."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opening:
    """The beginning of a rollout, at any server.

    Attributes:
        key: the key by which its node counts it.
        place: returns the node at which to begin, apart from those that were tried, where it is counted already.
        begin: begins it there.
    """

    key: Hashable
    place: Callable[[set[str]], Node]
    begin: Callable[[Client], RemoteRollout]


@dataclass(slots=True)
class _Step:
    """A step of a rollout: how to do it again, and its result.

    Attributes:
        again: the operation that does it once more; the reason if it cannot be repeated.
        result: the result as the rollout saw it, in a form that can be compared.
        after: seconds that had passed since the step before.
        state: the state to which it has led, as far as that is known.
    """

    again: Operation[Any] | str
    result: object = None
    after: float = 0.0
    state: str | None = None


class FleetRollout(RolloutMethods):
    """A rollout at one of the servers of a fleet, which goes on at another if that is lost; a context manager.

    It is used by one thread at a time, but for `cancel`.

    Attributes:
        moves: the number of times that it has gone on at another server.
    """

    def __init__(self, nodes: Nodes, opening: Opening, place: tuple[Node, RemoteRollout] | None = None) -> None:
        """Begins it, unless it has `place` at a node, where it is counted."""
        self.moves = 0
        self._nodes, self._opening = nodes, opening
        self._steps: list[_Step] = []
        self._first: str | None = None  # the state in which it began
        self._rested_since = time.monotonic()  # when the last step ended
        self._moves_then = 0  # how many times it had gone on elsewhere by then
        self._tried: set[str] = set()
        self._reward: float | None = None
        self._node: Node | None = None
        self._rollout: RemoteRollout | None = None
        self._ended = False
        self._lost: StateLost | None = None  # why it cannot go on anywhere
        if place is None:
            self._begin()
        else:
            self._node, self._rollout = place
            self._first = known_state(place[1])

    # -- where it is ------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address of the server where it is."""
        assert self._node is not None
        return self._node.url

    @property
    def id(self) -> str | None:
        """Its id at that server; see `Rollout.id`."""
        return self._at_server.id

    @property
    def state(self) -> str:
        """The state at which it stands; see `Rollout.state`."""
        state = self._do(lambda rollout: rollout.state)
        if self._steps:
            self._steps[-1].state = state
        else:
            self._first = state
        if self._node is not None:
            self._nodes.seen(state, self._node)
        return state

    @property
    def root(self) -> str:
        """The state in which it began; see `Rollout.root`."""
        return self._do(lambda rollout: rollout.root)

    @property
    def depth(self) -> int:
        """The number of calls that have changed its state; see `Rollout.depth`."""
        return self._do(lambda rollout: rollout.depth)

    @property
    def private(self) -> str | None:
        """Why it is in a private branch; see `Rollout.private`."""
        return self._do(lambda rollout: rollout.private)

    @property
    def unshared(self) -> str | None:
        """Why the last call's result answers no other; see `Rollout.unshared`."""
        return self._do(lambda rollout: rollout.unshared)

    @property
    def tools(self) -> Mapping[str, Any]:
        """The tools that may be called, by name; see `Rollout.tools`."""
        return self._do(lambda rollout: rollout.tools)

    # -- what it does -----------------------------------------------------------------------------------------------

    def perform(self, operation: Operation[T]) -> T:
        """Performs an operation; see `Performs.perform`.

        A rollout that was given a file or a folder of this machine does not go on elsewhere, because that may have
        changed since. Contents that `get` does not write to a destination are read from the
        server that the rollout is at by then.

        Raises:
            StateLost: its server is lost, and its past cannot be made again elsewhere as it was.
            InfrastructureError: no server can be reached; or as `Performs.perform`.
        """
        if isinstance(operation, STEPS):
            result: T = self._take(operation)
            return result
        outcome = self._do(lambda rollout: rollout.perform(operation))
        if isinstance(operation, Record):
            self._reward = operation.reward
        return outcome

    def fork(self, n: int = 1, *, reseed: bool = False) -> Forks[FleetRollout]:
        """Begins rollouts where it stands, at the same server; see `Rollout.fork`.

        Each goes on elsewhere by itself if that server is lost.

        Args:
            n: the number of rollouts.
            reseed: give each random numbers of its own.

        Raises:
            StateLost, InfrastructureError: as `call`.
        """

        def run(rollout: RemoteRollout, passed: float) -> Sequence[RemoteRollout]:
            time.sleep(passed)
            return rollout.fork(n)

        rollouts = self._do_in_time(run)
        node = self._node
        assert node is not None
        forks = []
        for one in rollouts:
            self._nodes.count(self._opening.key, node, 1)
            fork = FleetRollout(self._nodes, self._opening, (node, one))
            fork._steps, fork._rested_since = [replace(step) for step in self._steps], self._rested_since
            fork._first = self._first
            forks.append(fork)
        return reseeded(together(forks), rollouts[0].state) if reseed else together(forks)

    def cancel(self) -> bool:
        """Ends the call that another thread is making; see `Rollout.cancel`."""
        with contextlib.suppress(*LOST):
            return self._at_server.cancel()
        return False

    def sandbox(self) -> RemoteSandbox:
        """Returns its own sandbox; see `Rollout.sandbox`.

        From then on the rollout does not go on elsewhere, because nobody knows what was done in the sandbox.
        """

        def run(rollout: RemoteRollout, passed: float) -> RemoteSandbox:
            time.sleep(passed)
            return rollout.sandbox()

        sandbox = self._do_in_time(run)
        self._steps.append(_Step("nobody knows what was done in its sandbox"))
        return sandbox

    def close(self, outcome: str | None = None) -> None:
        """Ends it; safe to repeat. See `Rollout.close`.

        Args:
            outcome: the error that ended it; None if none did.
        """
        if self._ended:
            return
        self._ended = True
        try:
            if self._lost is None:
                with contextlib.suppress(*LOST):  # it ends with its server
                    self._at_server.close(outcome)
        finally:
            self._leave()

    def __enter__(self) -> FleetRollout:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.close(outcome_of(error))

    # -- moving -----------------------------------------------------------------------------------------------------

    @property
    def _at_server(self) -> RemoteRollout:
        assert self._rollout is not None
        return self._rollout

    def _begin(self) -> None:
        """Begins at its node, or at the next one if that cannot be reached, with the calls made so far."""
        for _ in range(_TRIES):
            node = self._opening.place(self._tried)
            try:
                rollout = self._opening.begin(self._nodes.client(node))
                try:
                    self._replay(rollout, node.url)
                except BaseException:
                    with contextlib.suppress(InfrastructureError):
                        rollout.close("moved")
                    raise
            except LOST as error:
                self._nodes.count(self._opening.key, node, -1)
                self._nodes.mark_lost(node, error)
                self._tried.add(node.url)
                last = error
                continue
            except BaseException:
                self._nodes.count(self._opening.key, node, -1)
                raise
            self._node, self._rollout = node, rollout
            return
        raise Unreachable(f"no server that was tried can be reached, the last for: {last}")

    def _replay(self, rollout: RemoteRollout, url: str) -> None:
        """Repeats its steps, with the time that passed between them, and compares what is seen."""
        self._first = self._same(self._first, rollout, "the state in which it began", url)
        for place, step in enumerate(self._steps, 1):
            if isinstance(step.again, str):
                raise StateLost(
                    f"the rollout's server is lost, and its step {place} cannot be made again at {url}, as "
                    f"{step.again}: begin a new one"
                )
            if _comparable(_perform(rollout, step.again, step.after)) != step.result:
                raise StateLost(
                    f"the rollout's server is lost, and its step {place}, made again at {url}, came to something else: "
                    "begin a new one"
                )
            step.state = self._same(step.state, rollout, f"the state after its step {place}", url)
        if self._reward is not None:
            rollout.record(self._reward)

    def _same(self, before: str | None, rollout: RemoteRollout, what: str, url: str) -> str | None:
        """Returns the state that it has come to, which is the same as before if somebody has looked into that."""
        if before is None or not self._nodes.was_looked_at(before):
            return known_state(rollout)
        if rollout.state != before:
            raise StateLost(
                f"the rollout's server is lost, and {what}, into which was looked, is another one at {url}: "
                "begin a new one"
            )
        return before

    def _leave(self) -> None:
        if self._node is not None:
            self._nodes.count(self._opening.key, self._node, -1)
            self._node = None

    def _do(self, function: Callable[[RemoteRollout], T]) -> T:
        """Does something with the rollout at its server, and at another one if that is lost meanwhile."""
        if self._lost is not None:
            raise self._lost
        for _ in range(_TRIES):
            result = self._tried_once(function)
            if result is not None:
                return result[0]
        return function(self._at_server)

    def _tried_once(self, function: Callable[[RemoteRollout], T]) -> tuple[T] | None:
        """Does something at its server; None if that is lost, and it stands at another one now.

        A server that was started anew since has lost the rollout, too, which may begin there again.
        """
        try:
            return (function(self._at_server),)
        except (*LOST, NotFound) as error:
            if self._ended or self._node is None or self._has(self._node, error):
                raise
        self._leave()
        try:
            self._begin()
        except (NotFound, StateLost) as error:
            self._lost = error if isinstance(error, StateLost) else StateLost(f"the rollout's server is lost: {error}")
            raise self._lost from None
        self.moves += 1
        return None

    def _has(self, node: Node, error: Exception) -> bool:
        """Returns whether the server still has the rollout, so that an error tells of something else."""
        try:
            if isinstance(error, NotFound):
                return is_open(self._at_server)
        except LOST as lost:
            error = lost
        self._nodes.mark_lost(node, error)
        self._tried.add(node.url)
        return False

    def _take(self, operation: Operation[Any]) -> Any:
        """Takes a step, and keeps what is needed to repeat it."""
        after = time.monotonic() - self._rested_since
        if isinstance(operation, Call) and isinstance(operation.arguments, Mapping):
            operation = replace(operation, arguments=dict(operation.arguments))  # its caller may change them
        result = self._do_in_time(lambda rollout, passed: _perform(rollout, operation, passed))
        self._steps.append(_Step(_again(operation), _comparable(result), after, known_state(self._at_server)))
        self._rested_since, self._moves_then = time.monotonic(), self.moves
        return result

    def _do_in_time(self, function: Callable[[RemoteRollout, float], T]) -> T:
        """Does something that depends on how many seconds have passed since the last step, which it is told.

        At the server where the last step was made, they have passed; elsewhere, it was only just repeated.
        """
        after = time.monotonic() - self._rested_since
        return self._do(lambda rollout: function(rollout, after if self.moves > self._moves_then else 0.0))


def together(rollouts: Sequence[FleetRollout]) -> Forks[FleetRollout]:
    """Returns rollouts that are closed together."""

    def end() -> None:
        for one in rollouts:
            one.close()

    return Forks(rollouts, end)


STEPS = (Call, ExecAll, Put, Get, GradeState)
"""Operations that are made again at another server, in the same order."""


def _perform(rollout: RemoteRollout, operation: Operation[Any], passed: float) -> Any:
    """Performs an operation, so many seconds after the last one."""
    if isinstance(operation, (Call, ExecAll)):
        later: Operation[Any] = replace(operation, after=max(operation.after, passed)) if passed else operation
        return rollout.perform(later)
    time.sleep(passed)  # only of calls a server is told how much time has passed
    return rollout.perform(operation)


def _again(operation: Operation[Any]) -> Operation[Any] | str:
    """Returns the operation that does something once more at another server; the reason if none can."""
    if isinstance(operation, Put) and not isinstance(operation.source, bytes):
        return "it put a file or folder of this machine, which may have changed since"
    return replace(operation, destination=None) if isinstance(operation, Get) else operation


def _comparable(result: object) -> object:
    """Returns what a caller sees of a result, and what is compared when a step is repeated."""
    if isinstance(result, ToolResult):
        return result.parts, result.exit_code, result.timed_out, result.truncated
    if isinstance(result, Fetched):
        return _comparable(result.result), result.kind, result.digest
    if isinstance(result, Grade):
        return result.reward, dict(result.tests)
    return [_comparable(one) for one in result] if isinstance(result, list) else result
