"""Gets a live sandbox into a given state, in the cheapest way.

The results that a rollout has seen must be the past of the state from which it goes on. So a state is reached only by a
sandbox that stands there, by a snapshot, or by executing calls again that are known to lead to the same state each
time, or that just did, according to the digests of their aftermaths.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial

from tvsnap.engine.keeping.policy import Costs
from tvsnap.engine.keeping.snapshotter import Snapshotter
from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.engine.meter import Meter
from tvsnap.engine.supply.file_times import agree_on_times
from tvsnap.engine.supply.pool import SandboxPool
from tvsnap.engine.supply.preforking import Preforker
from tvsnap.engine.supply.rebuilding import RebuildDiffered, make_again, refuse_the_incomparable
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.graph import Edge, Graph, Snapshot
from tvsnap.graph.edges import far_apart
from tvsnap.graph.reexecution import difference
from tvsnap.model.errors import (
    InfrastructureError,
    NotCheckpointable,
    NotRestorable,
    SandboxDied,
    SnapshotUnusable,
    StateLost,
    TvsnapError,
)
from tvsnap.model.stats import Way
from tvsnap.sandboxes.protocol import Backend, Sandbox

LONG_REBUILD = 1.0  # seconds
ON_ITS_WAY = 0.5  # seconds after a call was recorded in which another process may be taking a snapshot of its state
POLL = 0.02  # seconds between two looks for such a snapshot
DIGEST_ATTEMPTS = 10  # after which a digest counts as one that cannot be computed


@dataclass(frozen=True, slots=True)
class Acquired:
    """A sandbox that stands at a state.

    Attributes:
        way: the way in which it was acquired: parked there, made ahead, forked there, started (at a root), or by a
            replay of calls; None if it was the caller's own.
        sure: whether the state can be reached again for certain, so that the sandbox may be closed to make room; None
            for the caller's own, which keeps its setting.
    """

    live: LiveSandbox
    way: Way | None
    sure: bool | None


class _ForkFailed(Exception):
    """A backend could not fork a snapshot in several attempts, although the snapshot is not damaged."""

    def __init__(self, error: InfrastructureError) -> None:
        super().__init__(str(error))
        self.error = error


class Acquirer:
    """Finds sandboxes that stand at states, or brings them there. Thread-safe."""

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
        self._starting_services = threading.Lock()

    @property
    def fork_s(self) -> float:
        """Seconds that a fork takes."""
        return self._costs.fork_s

    def acquire(self, state: str, recipe: Recipe, *, own: LiveSandbox | None = None, recorded: bool = True) -> Acquired:
        """Returns a sandbox that stands at a state, acquired in the cheapest way.

        The ways are, in this order: the caller's own; a parked one; one that was made ahead; a fork of the state's
        snapshot, or a fresh one at a root; and one in which calls are replayed.

        A replay begins in the nearest state above for which there is a parked sandbox or a snapshot, or else in a fresh
        sandbox. It waits where the recording did.

        Args:
            state: the state.
            recipe: of sandboxes at its root.
            own: the caller's sandbox; closed if it cannot be used.
            recorded: whether the graph knows the state; if not, it is a root, where a sandbox is started.

        Raises:
            NotFound: the state is not in the graph.
            StateLost: the state cannot be reached.
            InfrastructureError: no sandbox could be made, or it failed on the way.
        """
        if own is not None and self.take_back(own, state):
            return Acquired(own, None, None)
        if not recorded:
            return Acquired(self.start(state, recipe), "started", False)
        live = self._take_parked(state, recipe)
        if live is not None:
            self._preforker.met(state)
            return Acquired(live, "parked", True)
        return self._reach(state, recipe)

    def take_back(self, own: LiveSandbox, state: str) -> bool:
        """Takes a resting sandbox back into use if it stands at a state, and closes it if not.

        Returns whether it was taken.
        """
        if own.state == state and self._pool.claim(own):
            return True
        self._pool.discard(own)
        return False

    def _reach(self, state: str, recipe: Recipe) -> Acquired:
        """Does the work of `acquire` if no sandbox stands at the state."""
        began = time.perf_counter()
        snapshot, edges = self._way(state)
        try:
            live, way, calls = self._begin(state, snapshot, edges, recipe)
        except SnapshotUnusable as unusable:
            assert snapshot is not None
            self.drop(snapshot)
            try:
                return self.acquire(state, recipe)
            except StateLost as lost:
                raise StateLost(f"{lost} ({unusable})") from None
        except _ForkFailed as failure:
            assert snapshot is not None
            if self._is_gone(snapshot):  # evicted while it was being forked
                return self.acquire(state, recipe)
            # It is kept, because it may be the only way to its state, and a later fork may succeed; but a snapshot that
            # can never be restored here must not lead to answers.
            if isinstance(failure.error, NotRestorable) and not snapshot.pinned:
                self.drop(snapshot)
                self._snapshotter.refuse(snapshot.state, str(failure.error))
            try:
                live, way, calls = self._begin(state, None, self._graph.lineage(state), recipe)
            except InfrastructureError:
                raise failure.error from None
        if not calls:
            return Acquired(live, way, True)
        try:
            self._rebuild(live, calls, recipe, state)
            self._snapshotter.consider_rebuilt(live, time.perf_counter() - began)
        except (SandboxDied, RebuildDiffered):
            damaged = way != "started" and _has_read_errors(live.sandbox)
            self._pool.discard(live)
            if not damaged:
                raise
            if snapshot is not None and way != "parked":
                self.drop(snapshot)
            return self.acquire(state, recipe)
        except BaseException:
            self._pool.discard(live)
            raise
        return Acquired(live, "replayed", self.is_sure(state))

    def is_sure(self, state: str) -> bool:
        """Returns whether a state can be reached for certain: by its snapshot, or by calls that lead there each time.

        Raises NotFound if the state is not in the graph.
        """
        return self._graph.distance(state, self._backend.name).proven

    def expect(self, state: str, recipe: Recipe) -> None:
        """Announces that a rollout begins at a state: if no call was ever made there, it will need a sandbox."""
        if not self._preforker.enabled:
            return
        try:
            if self._graph.has_calls(state):
                return
            snapshot, _ = self._graph.nearest_snapshot(state, self._backend.name)
        except TvsnapError:  # it is only a prediction
            return
        if snapshot is not None or not recipe.image.services:  # of an image with services, only one fresh start is used
            self._preforker.expect(recipe.forked_from(snapshot))

    def announce(self, state: str, recipe: Recipe, count: int) -> None:
        """Announces that `count` sandboxes at a root will soon be needed, even if the graph has records there.

        Raises TvsnapError if the graph cannot be read.
        """
        snapshot, _ = self._graph.nearest_snapshot(state, self._backend.name)
        if snapshot is not None or not recipe.image.services:
            self._preforker.announce(state, recipe.forked_from(snapshot), count)

    def start(self, state: str, recipe: Recipe) -> LiveSandbox:
        """Returns a fresh sandbox, which stands at the root `state`.

        Raises InfrastructureError if it could not be made.
        """

        def make() -> Sandbox:
            began = time.perf_counter()
            sandbox = recipe.forked_from(None).make(self._backend)
            seconds = time.perf_counter() - began
            if not recipe.environment.serves:  # a server's start is no measure for other sandboxes
                self._costs.add("start", seconds)
            self._meter.start(seconds)
            return sandbox

        live = self._pool.open(make, state)
        live.begins_alone = not recipe.image.services
        return live

    def fork_beside(self, live: LiveSandbox, recipe: Recipe, n: int = 1) -> list[LiveSandbox]:
        """Returns forks of a live sandbox, by one snapshot that is deleted afterwards.

        Returns:
            `n` forks; fewer, but one at least, if there is no room for all.

        Raises:
            StateLost: no snapshot can be taken of it, with the reason in words.
            InfrastructureError: the snapshot, or a fork, failed.
        """
        age_s = live.age()
        try:
            snapshot = live.checkpoint().id
        except NotCheckpointable as refusal:
            raise StateLost(
                f"state {live.state[:12]} can be reached by nobody but the rollout that stands there: {refusal}"
            ) from refusal
        try:
            make = partial(self._backend.fork, snapshot, recipe.image, recipe.granted)
            forks = self._pool.open_several(make, live.state, n)
        finally:
            self._backend.delete_snapshot(snapshot)
        for fork in forks:
            fork.since -= age_s
        return forks

    def drop(self, snapshot: Snapshot) -> None:
        """Deletes an unusable snapshot: its row, then its files."""
        self._graph.drop_snapshot(snapshot.state, snapshot.backend, snapshot.id)
        self._backend.delete_snapshot(snapshot.id)

    def _is_gone(self, snapshot: Snapshot) -> bool:
        """Returns whether a state has no snapshot any more, or another one."""
        present = self._graph.snapshot(snapshot.state, snapshot.backend)
        return present is None or present.id != snapshot.id

    def _way(self, state: str) -> tuple[Snapshot | None, list[Edge]]:
        """Returns the nearest snapshot above a state and the calls from there, after waiting for nearer ones."""
        snapshot, edges = self._graph.nearest_snapshot(state, self._backend.name)
        if edges:
            self._snapshotter.wait(edge.next_state for edge in edges)
            snapshot, edges = self._graph.nearest_snapshot(state, self._backend.name)
        # Another process may be taking a snapshot of a state that it has just made: it pays to wait if the rebuild is
        # long.
        deadline = time.monotonic() + ON_ITS_WAY  # the clock may have been set back since
        while (
            sum(edge.result.duration for edge in edges) > LONG_REBUILD
            and time.time() - edges[-1].created < ON_ITS_WAY
            and time.monotonic() < deadline
        ):
            time.sleep(POLL)
            snapshot, edges = self._graph.nearest_snapshot(state, self._backend.name)
        return snapshot, edges

    def _fork(self, snapshot: Snapshot, recipe: Recipe) -> LiveSandbox:
        def make() -> Sandbox:
            began = time.perf_counter()
            try:
                sandbox = recipe.forked_from(snapshot).make(self._backend)
            except SnapshotUnusable:
                raise
            except InfrastructureError as error:
                raise _ForkFailed(error) from error
            seconds = time.perf_counter() - began
            self._costs.add("fork", seconds)
            self._meter.fork(seconds)
            self._graph.touch_snapshot(snapshot.state, snapshot.backend, seconds)
            return sandbox

        live = self._pool.open(make, snapshot.state)
        live.since -= snapshot.age_s
        live.begins_alone = not snapshot.processes
        return live

    def _take_parked(self, state: str, recipe: Recipe) -> LiveSandbox | None:
        """Returns a parked sandbox if it has not changed, because its processes went on running."""
        while True:
            live = self._pool.take(state)
            if live is None:
                return None
            if self._pool.check(live, recipe.environment.observe) == "same":
                return live

    def _begin(
        self, state: str, snapshot: Snapshot | None, edges: list[Edge], recipe: Recipe
    ) -> tuple[LiveSandbox, Way, list[Edge]]:
        """Returns the sandbox for a rebuild, the way in which it was acquired, and the `edges` to replay in it."""
        for index in range(len(edges) - 1, -1, -1):
            refuse_the_incomparable(state, edges[index])
            live = self._take_parked(edges[index].state, recipe)
            if live is not None:
                return live, "parked", edges[index:]
        beginning = edges[0].state if edges else state
        live = self._preforker.take(recipe.forked_from(snapshot))
        if live is not None:
            live.state = beginning
            live.since = time.monotonic() - (0.0 if snapshot is None else snapshot.age_s)
            if snapshot is not None:
                self._graph.touch_snapshot(snapshot.state, snapshot.backend)
            return live, "ready", edges
        if snapshot is not None:
            return self._fork(snapshot, recipe), "forked", edges
        if recipe.image.services:
            return *self._start_services(beginning, recipe), edges
        began = time.perf_counter()
        live = self.start(beginning, recipe)
        if recipe.environment.serves:
            try:
                self._snapshotter.consider_rebuilt(live, time.perf_counter() - began)
            except BaseException:
                self._pool.discard(live)
                raise
        return live, "started", edges

    def _start_services(self, root: str, recipe: Recipe) -> tuple[LiveSandbox, Way]:
        """Returns a sandbox at the root of an image with several services: no two fresh starts of these are alike.

        So there is one start, whose snapshot is kept; a root that cannot be snapshotted is started anew each time.
        """
        with self._starting_services:
            snapshot, between = self._graph.nearest_snapshot(root, self._backend.name)
            if snapshot is not None and not between:  # another thread was quicker
                return self._fork(snapshot, recipe), "forked"
            live = self.start(root, recipe)
            try:
                self._snapshotter.take(live, pinned=True)
            except NotCheckpointable as error:
                self._snapshotter.refuse(root, str(error))
            except BaseException:
                self._pool.discard(live)
                raise
            return live, "started"

    def _rebuild(self, live: LiveSandbox, edges: list[Edge], recipe: Recipe, state: str) -> None:
        """Replays calls in a sandbox, each after its recorded wait.

        Raises:
            RebuildDiffered: a call did not lead to the recorded state.
        """
        live.observation, live.begins_alone = None, False
        for edge in edges:
            live.let_run(edge.waited)
            began = time.perf_counter()
            result = make_again(live.sandbox, edge, recipe)
            seconds = time.perf_counter() - began
            live.sandbox.settle(changed=True)
            agree_on_times(live.sandbox, self._graph.file_times(edge))
            live.state, live.since = edge.next_state, time.monotonic()
            self._meter.replay(seconds)
            same, comparable = result.same_value(edge.result), True
            if edge.digest and not (same and edge.proven and edge is not edges[-1]):
                # Its output does not count then: a time of day, for example, is not part of a state.
                same, comparable = _leaves(live.sandbox, edge.digest)
            if not same:
                words = (
                    difference(edge.result, result)
                    if comparable
                    else "left a state behind that cannot be compared at present"
                )
                if comparable and edge.proven and edge.shared:  # it was relied on
                    self._graph.mark_nondeterministic(edge, f"made again, it {words}")
                raise RebuildDiffered(state, edge, result, words)
            # Equal answers of the network do not prove that later ones will be equal.
            if not (edge.proven or edge.asked) and edge.shared and far_apart(edge, time.time()):
                self._graph.prove(edge)


def _has_read_errors(sandbox: Sandbox) -> bool:
    """Returns whether the disk failed to read a sandbox's files."""
    try:
        sandbox.machine_fault("")
    except SandboxDied:
        return True
    return False


def _leaves(sandbox: Sandbox, digest: str) -> tuple[bool, bool]:
    """Returns whether a sandbox has a digest, and whether it could be computed.

    For a moment after a call it cannot be, for instance while the shell still holds a pipe.
    """
    for _ in range(DIGEST_ATTEMPTS):
        present = sandbox.digest()
        if present is not None:
            return present == digest, True
        time.sleep(POLL)
    return False, False
