"""`Fleet`: what `tvsnap.connect` gives of one server, of many."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tvsnap import (
    Client,
    Command,
    Grade,
    InfrastructureError,
    NotFound,
    StateLost,
    Stats,
    ToolResult,
    UsageError,
    Verifier,
    connect,
)
from tvsnap.client.client import RemoteForks, RemoteRollout, RemoteSandbox
from tvsnap.fleet.routing import choose, ranking
from tvsnap.wire.errors import Unreachable, WorkerDied

SPREAD = 64
"""Open rollouts of a task that one node has, before the task spreads to another."""
AGAIN = 10.0
"""Seconds after which a node that could not be reached is tried again."""
_TRIES = 4
"""Nodes that a rollout is tried at, one after the other."""
_LOST = (Unreachable, WorkerDied, ConnectionError)
"""What tells that a rollout's node, or its process there, is gone."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A server of a fleet.

    Attributes:
        url: its address.
        rollouts: open rollouts of this fleet that are there.
        lost: why it could not be reached lately; None if it could.
    """

    url: str
    rollouts: int
    lost: str | None


@dataclass(slots=True)
class _Node:
    url: str
    client: Client | None = None
    lost: str | None = None
    until: float = 0.0  # when it is tried again, by time.monotonic()


@dataclass(slots=True)
class _Step:
    """What a rollout has done: how to do it again, and what was seen of it.

    Attributes:
        repeat: does it once more, so many seconds after the last step, and returns what is seen of it; None where it
            cannot be repeated.
        seen: what was seen of it.
        after: seconds that had passed since the step before.
    """

    repeat: Callable[[RemoteRollout, float], object] | None
    seen: object = None
    after: float = 0.0


class Fleet:
    """Many tvsnap servers, each on a data directory of its own, as one cache; a context manager. Thread-safe.

    A task's rollouts are at one server, so that they share states; a task that many rollouts are made of spreads. When
    a server is lost, its tasks go to others, and the rollouts that it had go on there: their calls are made again (or
    answered, where others made them), and compared with what they have been shown. Where something else comes out, the
    rollout ends with `StateLost`: what a rollout was shown is the past of the state that it goes on from.
    """

    def __init__(
        self, urls: Iterable[str], *, token: str | None = None, spread: int = SPREAD, patience: float = 60.0
    ) -> None:
        """
        Args:
            urls: the servers' addresses, as `tvsnap.connect` takes them. They are reached when they are needed.
            token: what the servers let in with; None where they ask for none.
            spread: open rollouts of a task that one server has, before the task spreads to another.
            patience: seconds to wait while a server's sandboxes are used up.

        Raises:
            UsageError: there are no addresses, or one is there twice.
        """
        if not isinstance(spread, int) or spread < 1:
            raise UsageError(f"spread must be a whole number of at least 1, not {spread!r}")
        self._token, self._spread, self._patience = token, spread, patience
        self._lock = threading.Lock()
        self._nodes: dict[str, _Node] = {}
        self._by_task: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._load: Counter[str] = Counter()
        self._states: dict[str, str] = {}  # at which node a state was seen
        self._closed = False
        for url in urls:
            self.add(url)
        if not self._nodes:
            raise UsageError("a fleet needs at least one server")

    # -- nodes ------------------------------------------------------------------------------------------------------

    def add(self, url: str) -> None:
        """Adds a server; from then on, it has its part of the tasks.

        Args:
            url: its address.

        Raises:
            UsageError: it is there already.
        """
        with self._lock:
            if url in self._nodes:
                raise UsageError(f"{url} is in the fleet already")
            self._nodes[url] = _Node(url)

    def remove(self, url: str) -> None:
        """Takes a server out: no rollout begins there any more, and those that are there end as they would.

        Args:
            url: its address.

        Raises:
            NotFound: it is not in the fleet.
            UsageError: it is the last one.
        """
        with self._lock:
            if url not in self._nodes:
                raise NotFound(f"{url} is not in the fleet")
            if len(self._nodes) == 1:
                raise UsageError("a fleet needs at least one server")
            del self._nodes[url]

    @property
    def nodes(self) -> list[NodeInfo]:
        """The servers."""
        with self._lock:
            return [NodeInfo(one.url, self._load[one.url], one.lost) for one in self._nodes.values()]

    def _client(self, node: _Node) -> Client:
        """Returns the connection to a node; raises what `tvsnap.connect` does."""
        if node.client is None:
            made = connect(node.url, self._token, patience=self._patience)
            with self._lock:
                node.client, made = (node.client, made) if node.client else (made, None)  # type: ignore[assignment]
            if made is not None:
                made.close()
        assert node.client is not None
        return node.client

    def _mark_lost(self, node: _Node, error: Exception) -> None:
        with self._lock:
            node.lost, node.until = str(error), time.monotonic() + AGAIN

    def _reachable(self, apart_from: Iterable[str] = ()) -> list[_Node]:
        """Returns the nodes that are not known to be lost; all, where that would be none."""
        with self._lock:
            now, avoided = time.monotonic(), set(apart_from)
            nodes = [node for node in self._nodes.values() if node.url not in avoided]
            return [node for node in nodes if node.lost is None or now >= node.until] or nodes

    def _assign(self, image: str, task: str, apart_from: Iterable[str] = ()) -> _Node:
        """Returns the node for one more rollout of a task, which is counted there."""
        there = {node.url: node for node in self._reachable(apart_from)}
        if not there:
            raise Unreachable("no server of the fleet can be reached")
        with self._lock:
            here = self._by_task[image, task]
            url = choose(ranking(image, task, there), here, self._load, self._spread)
            here[url] += 1
            self._load[url] += 1
        return there[url]

    def _release(self, image: str, task: str, url: str) -> None:
        """Takes note that a rollout is not at a node any more."""
        with self._lock:
            self._by_task[image, task][url] -= 1
            self._load[url] -= 1

    # -- rollouts ---------------------------------------------------------------------------------------------------

    def rollout(
        self, image: str, task: str = "", salt: str | None = None, label: str | None = None, **options: Any
    ) -> FleetRollout:
        """Begins a rollout at the task's server; see `Cache.rollout`.

        Args:
            image: the image's name or digest, as the servers know it.
            task: the task that the rollout is of; with the image, it decides where the rollout is.
            salt: a text that keeps rollouts apart.
            label: what people call this rollout.
            options: `limits`, `network`, `deadline` and `epoch`, as in `Cache.rollout`.

        Raises:
            NotFound: the server has no such image.
            UsageError: an argument makes no sense, or the fleet is closed.
            Unreachable: none of the servers that were tried can be reached.
        """
        if self._closed:
            raise UsageError("the fleet has been closed")
        return FleetRollout(self, image, task, {"salt": salt, "label": label, **options})

    def group(self, image: str, task: str = "", n: int = 8, **options: Any) -> list[FleetRollout]:
        """Begins several rollouts of a task; see `Cache.group`.

        Args:
            image: the image's name or digest, as the servers know it.
            task: the task.
            n: how many.
            options: as in `rollout`.

        Raises:
            NotFound, UsageError, Unreachable: as `rollout`. None is open then.
        """
        if not isinstance(n, int) or n < 1:
            raise UsageError(f"n must be a whole number of at least 1, not {n!r}")
        with contextlib.ExitStack() as undo:
            rollouts = [undo.enter_context(self.rollout(image, task, **options)) for _ in range(n)]
            undo.pop_all()
            return rollouts

    # -- states -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def materialise(self, state: str, *, after: float = 0.0) -> Iterator[RemoteSandbox]:
        """Returns a context manager with a sandbox in any state, at a server that knows it; see `Cache.materialise`.

        Args:
            state: the state's full hash.
            after: seconds that the sandbox is to have run in the state before it is given out.

        Raises:
            NotFound: no server that can be reached knows the state.
            StateLost: what kept the state is gone, and nothing else leads to it.
        """
        with self._knowing(state).materialise(state, after=after) as sandbox:
            yield sandbox

    def fork(self, state: str, n: int = 1) -> RemoteForks[RemoteSandbox]:
        """Returns several sandboxes that stand at any state, to be closed together; see `Cache.fork`.

        Args:
            state: the state's full hash.
            n: how many.

        Raises:
            NotFound: no server that can be reached knows the state.
            StateLost: what kept the state is gone, and nothing else leads to it.
        """
        return self._knowing(state).fork(state, n)

    def _knowing(self, state: str) -> Client:
        """Returns the connection to a server that knows a state."""
        nodes = self._reachable()
        first = self._states.get(state)
        for node in sorted(nodes, key=lambda one: one.url != first):
            try:
                client = self._client(node)
                client.graph.resolve(state)
            except NotFound:
                continue
            except _LOST as error:
                self._mark_lost(node, error)
                continue
            return client
        raise NotFound(f"no server of the fleet that can be reached knows state {state[:12]}")

    def stats(self) -> dict[str, Stats]:
        """Returns what the servers that can be reached have done, by address; see `Cache.stats`."""
        asked = {node.url: self._stats(node) for node in self._reachable()}
        return {url: found for url, found in asked.items() if found is not None}

    def _stats(self, node: _Node) -> Stats | None:
        try:
            return self._client(node).stats()
        except _LOST as error:
            self._mark_lost(node, error)
            return None

    def close(self) -> None:
        """Ends its rollouts at all servers, and closes the connections; safe to repeat."""
        self._closed = True
        with self._lock:
            clients = [node.client for node in self._nodes.values() if node.client is not None]
        for client in clients:
            with contextlib.suppress(*_LOST):
                client.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FleetRollout:
    """A rollout at one of the servers of a fleet, which goes on at another if that is lost; a context manager.

    It is used by one thread at a time.

    Attributes:
        moves: how many times it has gone on at another server.
    """

    def __init__(self, fleet: Fleet, image: str, task: str, options: Mapping[str, Any]) -> None:
        self.moves = 0
        self._fleet, self._image, self._task, self._options = fleet, image, task, options
        self._steps: list[_Step] = []
        self._rested_since = time.monotonic()  # when the last step ended
        self._tried: set[str] = set()
        self._reward: float | None = None
        self._node: _Node | None = None
        self._rollout: RemoteRollout | None = None
        self._ended = False
        self._begin()

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
        found = self._do(lambda rollout: rollout.state)
        self._fleet._states[found] = self.url
        return found

    @property
    def root(self) -> str:
        """Where it began; see `Rollout.root`."""
        return self._do(lambda rollout: rollout.root)

    @property
    def depth(self) -> int:
        """How many calls have changed its state; see `Rollout.depth`."""
        return self._do(lambda rollout: rollout.depth)

    @property
    def private(self) -> str | None:
        """Why it is in a private branch; see `Rollout.private`."""
        return self._do(lambda rollout: rollout.private)

    @property
    def tools(self) -> Mapping[str, Any]:
        """The tools that may be called, by name; see `Rollout.tools`."""
        return self._do(lambda rollout: rollout.tools)

    # -- what it does -----------------------------------------------------------------------------------------------

    def call(self, name: str, arguments: Mapping[str, Any], timeout: float | None = 30.0, **options: Any) -> ToolResult:
        """Makes a tool call; see `Rollout.call`.

        Args:
            name: of the tool.
            arguments: for the tool.
            timeout: seconds; None for none.
            options: `after`, `deadline` and `grade`, as in `Rollout.call`.

        Raises:
            StateLost: its server is lost, and its past cannot be made again elsewhere as it was.
            InfrastructureError: no server can be reached; or as `Rollout.call`.
        """
        given, least = dict(arguments), float(options.pop("after", 0.0))

        def run(rollout: RemoteRollout, after: float) -> ToolResult:
            return rollout.call(name, given, timeout, after=max(least, after), **options)

        return self._take(run, _seen)

    def exec_all(
        self, commands: Sequence[Command | str], timeout: float | None = 30.0, *, user: str | None = None
    ) -> list[ToolResult]:
        """Runs several commands side by side, as one call; see `Rollout.exec_all`.

        Args:
            commands: the commands.
            timeout: seconds for all; None for none.
            user: who runs them, where a command does not say.

        Raises:
            StateLost, InfrastructureError: as `call`.
        """

        def run(rollout: RemoteRollout, after: float) -> list[ToolResult]:
            return rollout.exec_all(commands, timeout, user=user, after=after)

        return self._take(run, lambda results: [_seen(one) for one in results])

    def put(self, source: Any, path: str, **options: Any) -> ToolResult:
        """Copies bytes, a file or a folder of this machine into the sandbox; see `Rollout.put`.

        A rollout that was given a file or a folder does not go on elsewhere, as that may have changed since.

        Args:
            source: the bytes, or the path.
            path: what they become in the sandbox.
            options: as in `Rollout.put`.

        Raises:
            StateLost, InfrastructureError: as `call`.
        """

        def run(rollout: RemoteRollout, after: float) -> ToolResult:
            time.sleep(after)  # of a put, a server is not told how much time has passed
            return rollout.put(source, path, **options)

        result = self._take(run, _seen)
        if not isinstance(source, bytes):
            self._steps[-1].repeat = None
        return result

    def grade(self, verifier: Verifier | str) -> Grade:
        """Grades the state at which it stands; see `Rollout.grade`.

        Args:
            verifier: a command that grades; see `Verifier`.

        Raises:
            GradingFailed: the verifier failed.
            StateLost, InfrastructureError: as `call`.
        """
        return self._take(lambda rollout, _: rollout.grade(verifier), lambda grade: (grade.reward, dict(grade.tests)))

    def record(self, reward: float) -> None:
        """Records its reward; see `Rollout.record`.

        Args:
            reward: the reward.
        """
        self._reward = reward
        self._do(lambda rollout: rollout.record(reward))

    def sandbox(self) -> RemoteSandbox:
        """Returns its own sandbox; see `Rollout.sandbox`.

        From then on the rollout does not go on elsewhere, as nobody knows what was done in the sandbox.
        """
        found = self._do(lambda rollout: rollout.sandbox())
        self._steps.append(_Step(None))
        return found

    def close(self, outcome: str | None = None) -> None:
        """Ends it; safe to repeat. See `Rollout.close`.

        Args:
            outcome: the error that ended it; None if none did.
        """
        if self._ended:
            return
        self._ended = True
        try:
            with contextlib.suppress(*_LOST):  # it ends with its server
                self._at_server.close(outcome)
        finally:
            self._leave()

    def __enter__(self) -> FleetRollout:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.close(None if error is None else f"{type(error).__name__}: {error}")

    # -- moving -----------------------------------------------------------------------------------------------------

    @property
    def _at_server(self) -> RemoteRollout:
        assert self._rollout is not None
        return self._rollout

    def _begin(self) -> None:
        """Begins at the task's node, or at the next one if that cannot be reached, with the calls made so far."""
        for _ in range(_TRIES):
            node = self._fleet._assign(self._image, self._task, self._tried)
            try:
                rollout = self._fleet._client(node).rollout(self._image, self._task, **self._options)
                try:
                    rollout.id  # noqa: B018  # the server begins it with its first use
                    self._replay(rollout, node.url)
                except BaseException:
                    with contextlib.suppress(InfrastructureError):
                        rollout.close("moved")
                    raise
            except _LOST as error:
                self._fleet._release(self._image, self._task, node.url)
                self._fleet._mark_lost(node, error)
                self._tried.add(node.url)
                last = error
                continue
            except BaseException:
                self._fleet._release(self._image, self._task, node.url)
                raise
            self._node, self._rollout = node, rollout
            return
        raise Unreachable(f"no server that was tried can be reached, the last for: {last}")

    def _replay(self, rollout: RemoteRollout, url: str) -> None:
        """Repeats its steps, with the time that passed between them, and compares what is seen."""
        for place, step in enumerate(self._steps, 1):
            if step.repeat is None:
                raise StateLost(
                    f"the rollout's server is lost, and its step {place} cannot be made again at {url}: begin a new one"
                )
            if step.repeat(rollout, step.after) != step.seen:
                raise StateLost(
                    f"the rollout's server is lost, and its step {place}, made again at {url}, came to something else: "
                    "begin a new one"
                )
        if self._reward is not None:
            rollout.record(self._reward)

    def _leave(self) -> None:
        if self._node is not None:
            self._fleet._release(self._image, self._task, self._node.url)
            self._node = None

    def _do(self, function: Callable[[RemoteRollout], T]) -> T:
        """Does something with the rollout at its server, and at another one if that is lost meanwhile."""
        for _ in range(_TRIES):
            found = self._tried_once(function)
            if found is not None:
                return found[0]
        return function(self._at_server)

    def _tried_once(self, function: Callable[[RemoteRollout], T]) -> tuple[T] | None:
        """Does something at its server; None if that is lost, and it stands at another one now."""
        try:
            return (function(self._at_server),)
        except _LOST as error:
            if self._ended or self._node is None:
                raise
            self._fleet._mark_lost(self._node, error)
            self._tried.add(self._node.url)
        self._leave()
        self._begin()
        self.moves += 1
        return None

    def _take(self, perform: Callable[[RemoteRollout, float], T], seen: Callable[[T], object]) -> T:
        """Takes a step, and keeps what is needed to repeat it.

        Args:
            perform: takes it, so many seconds after the last one.
            seen: returns what a caller sees of its result, and what is compared when it is repeated.
        """
        after = time.monotonic() - self._rested_since
        moves = self.moves
        # At the server where it is, that time has passed; elsewhere, the steps before it were only just repeated.
        result = self._do(lambda rollout: perform(rollout, after if self.moves > moves else 0.0))
        self._steps.append(_Step(lambda rollout, after: seen(perform(rollout, after)), seen(result), after))
        self._rested_since = time.monotonic()
        return result


def _seen(result: ToolResult) -> tuple[object, ...]:
    """Returns what a model is shown of a result."""
    return result.parts, result.exit_code, result.timed_out, result.truncated
