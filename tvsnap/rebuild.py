"""Getting a live sandbox into a given state, by the cheapest way there is."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tvsnap.backends.base import Backend, Limits, Sandbox
from tvsnap.calls import ToolResult
from tvsnap.environments.base import Environment
from tvsnap.errors import InfrastructureError, SnapshotUnusable, TvsnapError, UsageError
from tvsnap.graph import Edge, Graph, Snapshot
from tvsnap.images import Image
from tvsnap.policy import Costs
from tvsnap.pool import LiveSandbox, SandboxPool
from tvsnap.preforking import Preforker, Source
from tvsnap.snapshots import Snapshotter
from tvsnap.stats import Meter, Way

REPLAY_TIMEOUT = 60.0  # seconds, at least, for a call that once ended by itself
SLOWER = 10.0  # or so many times what it took then
LONG_REPLAY = 1.0  # seconds
ON_ITS_WAY = 0.5  # seconds after a call was recorded in which another process may be snapshotting what it led to
POLL = 0.02  # seconds


@dataclass(frozen=True, slots=True)
class Place:
    """What sandboxes of one root have in common: their image, what calls mean in them, and their limits."""

    image: Image
    environment: Environment
    limits: Limits

    def source(self, snapshot: Snapshot | None) -> Source:
        """Returns what a sandbox is made from: a snapshot, or just the image."""
        return Source(self.image, self.environment, self.limits, snapshot)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A sandbox that was brought into a state.

    Attributes:
        live: the sandbox.
        way: how: it was parked there, or made ready ahead of time, or forked there, started (at a root), or calls were
            replayed.
        departed: empty if it stands just where it should; else the calls replayed, with what they returned now, from
            the first on that returned something else than was recorded.
    """

    live: LiveSandbox
    way: Way
    departed: tuple[tuple[Edge, ToolResult], ...] = ()


class _ForkFailed(Exception):
    """A backend could not fork a snapshot, after trying several times, and not because the snapshot is damaged."""

    def __init__(self, error: InfrastructureError) -> None:
        super().__init__(str(error))
        self.error = error


class Rebuilder:
    """Brings sandboxes into states. Thread-safe."""

    def __init__(
        self,
        graph: Graph,
        backend: Backend,
        pool: SandboxPool,
        snapshotter: Snapshotter,
        preforker: Preforker,
        costs: Costs,
        meter: Meter,
    ) -> None:
        self._graph = graph
        self._backend = backend
        self._pool = pool
        self._snapshotter = snapshotter
        self._preforker = preforker
        self._costs = costs
        self._meter = meter

    def arrive(self, state: str, place: Place) -> Arrival:
        """Returns a sandbox in a state: a parked one, a fork of the state's snapshot, or one brought there by replay.

        Where one that was made ahead of time will do, none is forked or started.

        A replay begins in the nearest state above for which there is a parked sandbox or a snapshot, or else in a fresh
        sandbox. A replayed call that returns something else than was recorded is marked nondeterministic in the graph.

        Args:
            state: the state.
            place: what its root says.

        Raises:
            NotFound: if the state is not in the graph.
            InfrastructureError: if no sandbox could be had, or it failed on the way.
        """
        live = self._take_parked(state, place)
        if live is not None:
            return Arrival(live, "parked")
        began = time.perf_counter()
        snapshot, edges = self._way(state)
        try:
            live, way, left = self._begin(state, snapshot, edges, place)
        except SnapshotUnusable:
            assert snapshot is not None
            self.drop(snapshot)
            return self.arrive(state, place)
        except _ForkFailed as failure:
            assert snapshot is not None
            if self._is_gone(snapshot):  # evicted while it was being forked
                return self.arrive(state, place)
            # It is kept, for it may be the only way to its state, and another time the fork succeeds.
            try:
                live, way, left = self._begin(state, None, self._graph.lineage(state), place)
            except InfrastructureError:
                raise failure.error from None
        if not left:
            return Arrival(live, way)
        try:
            departed = self._replay(live, left, place)
            live.state = state
            if not departed:
                self._snapshotter.consider_rebuilt(live, time.perf_counter() - began)
        except BaseException:
            self._pool.discard(live)
            raise
        return Arrival(live, "replayed", departed)

    def foretell(self, state: str, place: Place) -> None:
        """Says that a rollout begins at a state: where nothing was ever called, it will need a sandbox there."""
        if not self._preforker.enabled:
            return
        try:
            if self._graph.has_calls(state):
                return
            snapshot, _ = self._graph.nearest_snapshot(state, self._backend.name)
        except TvsnapError:  # nothing rests on it
            return
        self._preforker.foretell(place.source(snapshot))

    def start(self, state: str, place: Place) -> LiveSandbox:
        """Returns a fresh sandbox, which stands at the root `state`.

        Raises:
            InfrastructureError: if it could not be had.
        """

        def make() -> Sandbox:
            began = time.perf_counter()
            sandbox = place.source(None).make(self._backend)
            seconds = time.perf_counter() - began
            if not place.environment.serves:  # a server's start says nothing of other sandboxes'
                self._costs.add("start", seconds)
            self._meter.start(seconds)
            return sandbox

        return self._pool.open(make, state)

    def drop(self, snapshot: Snapshot) -> None:
        """Deletes a snapshot: its row, then its files."""
        self._graph.drop_snapshot(snapshot.state, snapshot.backend, snapshot.id)
        self._backend.delete_snapshot(snapshot.id)

    def _is_gone(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot is no longer the one of its state."""
        found = self._graph.snapshot(snapshot.state, snapshot.backend)
        return found is None or found.id != snapshot.id

    def _way(self, state: str) -> tuple[Snapshot | None, list[Edge]]:
        """Returns the nearest snapshot above a state and the calls from there, once no nearer one is on its way."""
        snapshot, edges = self._graph.nearest_snapshot(state, self._backend.name)
        if edges:
            self._snapshotter.wait(edge.next_state for edge in edges)
            snapshot, edges = self._graph.nearest_snapshot(state, self._backend.name)
        # Another process may be taking one of what it has just executed: worth a moment where the replay is long.
        deadline = time.monotonic() + ON_ITS_WAY  # the clock may have been set back since
        while (
            sum(edge.result.duration for edge in edges) > LONG_REPLAY
            and time.time() - edges[-1].created < ON_ITS_WAY
            and time.monotonic() < deadline
        ):
            time.sleep(POLL)
            snapshot, edges = self._graph.nearest_snapshot(state, self._backend.name)
        return snapshot, edges

    def _fork(self, snapshot: Snapshot, place: Place) -> LiveSandbox:
        def make() -> Sandbox:
            began = time.perf_counter()
            try:
                sandbox = place.source(snapshot).make(self._backend)
            except SnapshotUnusable:
                raise
            except InfrastructureError as error:
                raise _ForkFailed(error) from error
            seconds = time.perf_counter() - began
            self._costs.add("fork", seconds)
            self._meter.fork(seconds)
            self._graph.touch_snapshot(snapshot.state, snapshot.backend, seconds)
            return sandbox

        return self._pool.open(make, snapshot.state)

    def _take_parked(self, state: str, place: Place) -> LiveSandbox | None:
        """Returns a parked sandbox that still is as it was when it was parked: its processes went on running."""
        while True:
            live = self._pool.take(state)
            if live is None:
                return None
            if self._pool.check(live, place.environment.observe) == "same":
                return live

    def _begin(
        self, state: str, snapshot: Snapshot | None, edges: list[Edge], place: Place
    ) -> tuple[LiveSandbox, Way, list[Edge]]:
        """Returns the sandbox to replay in, how it was had, and which of `edges` are left to be replayed in it."""
        for index in range(len(edges) - 1, -1, -1):
            live = self._take_parked(edges[index].state, place)
            if live is not None:
                return live, "parked", edges[index:]
        beginning = edges[0].state if edges else state
        live = self._preforker.take(place.source(snapshot))
        if live is not None:
            live.state = beginning
            if snapshot is not None:
                self._graph.touch_snapshot(snapshot.state, snapshot.backend)
            return live, "ready", edges
        if snapshot is not None:
            return self._fork(snapshot, place), "forked", edges
        began = time.perf_counter()
        live = self.start(beginning, place)
        if place.environment.serves:
            try:
                self._snapshotter.consider_rebuilt(live, time.perf_counter() - began)
            except BaseException:
                self._pool.discard(live)
                raise
        return live, "started", edges

    def _replay(self, live: LiveSandbox, edges: list[Edge], place: Place) -> tuple[tuple[Edge, ToolResult], ...]:
        """Replays calls; returns those from the first on that did not return what was recorded, or leave it behind."""
        live.observation = None
        departed: list[tuple[Edge, ToolResult]] = []
        for edge in edges:
            began = time.perf_counter()
            result = make_again(live.sandbox, edge, place)
            self._meter.add(replayed=1, replay_time_s=time.perf_counter() - began)
            if departed or not result.same_value(edge.result) or place.environment.tool(edge.call).volatile:
                if not departed and edge.shared:
                    self._graph.mark_nondeterministic(edge, f"a replay {difference(edge.result, result)}")
                departed.append((edge, result))
        return tuple(departed)


def make_again(sandbox: Sandbox, edge: Edge, place: Place) -> ToolResult:
    """Makes a recorded call in a sandbox that stands where it was made; returns what it returns now.

    Raises:
        InfrastructureError: what was recorded is no call of a tool, or the sandbox failed.
    """
    try:
        place.environment.tool(edge.call)
    except UsageError as error:
        raise InfrastructureError(
            f"state {edge.next_state[:12]} cannot be rebuilt: what led to it is no call of a tool ({error})"
        ) from None
    timeout = edge.timeout or max(REPLAY_TIMEOUT, SLOWER * edge.result.duration)
    result = place.environment.execute(sandbox, edge.call, timeout, place.limits)
    if result.timed_out and not edge.result.timed_out:
        raise InfrastructureError(f"a call that took {edge.result.duration:.1f} s did not end within {timeout:.0f} s")
    trouble = sandbox.trouble(result.output)
    if trouble and not result.same_value(edge.result):
        raise InfrastructureError(f"a call could not be made again as it was recorded: {trouble}")
    return result


def difference(recorded: ToolResult, seen: ToolResult) -> str:
    """Returns in words how two results differ: `printed "b" where "a" was recorded (line 3)`.

    Where they do not, the call is known to leave behind what is left to chance or the clock.
    """
    if recorded.same_value(seen):
        return "leaves behind what is left to chance or the clock"
    if recorded.timed_out != seen.timed_out:
        return "timed out" if seen.timed_out else "did not time out"
    if recorded.exit_code != seen.exit_code:
        return f"ended with status {seen.exit_code} instead of {recorded.exit_code}"
    before, after = recorded.output.splitlines(), seen.output.splitlines()
    for number, (old, new) in enumerate(zip(before, after, strict=False), 1):
        if old != new:
            return f"printed {_short(new)} where {_short(old)} was recorded (line {number})"
    if len(before) != len(after):
        return f"printed {len(after)} lines where {len(before)} were recorded"
    return "printed something else"


def _short(text: str) -> str:
    return f'"{text}"' if len(text) <= 60 else f'"{text[:57]}..."'
