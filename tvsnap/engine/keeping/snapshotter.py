"""Takes snapshots: asks the policy, takes the checkpoint, records it; failures never fail a rollout."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from tvsnap.engine.keeping.budgets import SERVICE_START, SnapshotBudget
from tvsnap.engine.keeping.pauses import Pauses
from tvsnap.engine.keeping.policy import Costs, Policy, Rebuild
from tvsnap.engine.keeping.policy.eviction import Kept
from tvsnap.engine.keeping.policy.snapshotting import CALL_OVERHEAD
from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.engine.meter import Meter
from tvsnap.graph import Distance, Graph, Snapshot
from tvsnap.model.errors import (
    CheckpointFailed,
    InfrastructureError,
    NoRoom,
    NotCheckpointable,
    NotFound,
    SandboxDied,
    TvsnapError,
)
from tvsnap.model.limits import MIB
from tvsnap.sandboxes.protocol import Backend

LONGEST_CHECKPOINT = 60.0  # seconds to wait for a checkpoint that another thread takes
PATIENCE = 15.0  # seconds for which a snapshot that is waited for is tried, while the machine has trouble
PAUSE = 0.5  # seconds between two tries
LONGEST_PAUSE = 10.0  # seconds of thinking that count: longer pauses are no model's
LATE = 1.0  # seconds after which a state in which something runs has changed too much for a snapshot
FORGOTTEN_AFTER = 600.0  # seconds after which a checkpoint of a state that could not be checkpointed is tried again
REMEMBERED = 10_000  # states
USUAL_SIZE = 1 * MIB  # bytes of a snapshot, until one has been taken
# For each so many processes, and for each so many bytes, a checkpoint takes as long again as that of an idle shell:
# measured with up to 100 processes on a busy virtual machine with 2 cores, and with up to 400 MiB on a quiet one, where
# the first checkpoint of memory took 0.6 ms for each MiB, a later one 1.7 ms, and an idle shell's 28 ms. Memory that a
# fork shares with its snapshot costs next to nothing; UNKNOWN is for backends that do not tell which is shared.
PROCESSES = 12
MEMORY = 24 * MIB
UNKNOWN = 150 * MIB

_SHORT = Rebuild(from_root=False, calls=1, replay_s=0.0, proven=False)

V = TypeVar("V")


class Snapshotter:
    """Takes snapshots of the states that the policy chooses. Thread-safe.

    Attributes:
        trouble: the reason why the last attempt at a snapshot failed, if the cause is not known to lie in the state;
            None if it succeeded.
    """

    def __init__(
        self, graph: Graph, backend: Backend, policy: Policy, budget: SnapshotBudget, costs: Costs, meter: Meter
    ) -> None:
        self.trouble: str | None = None
        self._graph = graph
        self._backend = backend
        self._policy = policy
        self._budget = budget
        self._usual_size = USUAL_SIZE
        self._costs = costs
        self._meter = meter
        self._pauses = Pauses()
        self._lock = threading.Lock()
        self._spent: OrderedDict[str, float] = OrderedDict()
        self._rebuilds: OrderedDict[str, int] = OrderedDict()
        self._sizes: OrderedDict[str, int] = OrderedDict()  # of snapshots that turned out to be too big
        self._courses: OrderedDict[str, str] = OrderedDict()  # what led to a state, see Position.course
        self._refused: OrderedDict[str, tuple[str, float]] = OrderedDict()  # by course: the reason and the time
        self._expected: dict[str, threading.Event] = {}

    def expect(self, state: str) -> None:
        """Announces that `consider` will soon be called for a new state, so that nobody replays calls to reach it.

        The caller must call `has_decided` in any case.
        """
        with self._lock:
            self._expected.setdefault(state, threading.Event())

    def has_decided(self, state: str) -> None:
        """Announces that a state has its snapshot, or that none will be taken; safe to repeat."""
        with self._lock:
            expected = self._expected.pop(state, None)
        if expected is not None:
            expected.set()

    def wait(self, states: Iterable[str]) -> None:
        """Waits for snapshots of `states` that are expected; the caller looks for snapshots afterwards."""
        with self._lock:
            expected = [self._expected[state] for state in states if state in self._expected]
        for event in expected:
            event.wait(LONGEST_CHECKPOINT)

    def paused(self, seconds: float) -> None:
        """Notes that an agent has made a call after thinking for some seconds, which pay for snapshots."""
        self._costs.paused(min(seconds, LONGEST_PAUSE))

    def executed(self, seconds: float, processor_s: float | None) -> None:
        """Notes that a call was executed, its duration and its processor time (None if unknown), in seconds."""
        self._costs.waited(min(LONGEST_PAUSE, max(0.0, seconds - (seconds if processor_s is None else processor_s))))

    @property
    def pause_s(self) -> float:
        """Seconds that agents think between two calls, on average."""
        return self._costs.pause_s

    @property
    def keeps_all(self) -> bool:
        """Whether even the state after a short call is likely to be kept now."""
        return self._policy.should_checkpoint(_SHORT, self._costs)

    def consider(
        self, live: LiveSandbox, course: str = "", task: str | None = None, *, answered_s: float = 0.0
    ) -> bool:
        """Takes a snapshot of the state that a call has just led a sandbox to, if the policy wants one.

        Args:
            live: the sandbox.
            course: identifies the calls that led there: if a checkpoint after them failed once, it will fail the next
                time, too, though the state has another name then. Empty if only the state itself counts.
            task: the task whose rollout made the call; None if that is not known.
            answered_s: seconds of a call that was made in the state and did not change it: its result answers only
                those who come to this very state.

        Returns:
            Whether the state can be reached again for certain, with or without a snapshot of its own.

        Raises:
            SandboxDied: the sandbox ended during the checkpoint.
        """
        if course:
            with self._lock:
                _put(self._courses, live.state, course)
        return self._consider(live, task, answered_s)

    def consider_rebuilt(self, live: LiveSandbox, seconds: float) -> None:
        """Takes a snapshot of a state that was replayed, or started anew, if this has cost too much so far.

        `seconds`: the time that rebuilding it took this time.

        Raises:
            SandboxDied: the sandbox ended during the checkpoint.
        """
        with self._lock:
            _put(self._spent, live.state, self._spent.get(live.state, 0.0) + seconds)
            _put(self._rebuilds, live.state, self._rebuilds.get(live.state, 0) + 1)
        self._consider(live)

    def take(self, live: LiveSandbox, *, pinned: bool = False) -> None:
        """Takes a snapshot of the state at which a sandbox stands, without asking the policy, unless the state has one.

        A `pinned` snapshot is kept until the state is forgotten, even if there is no room for others.

        Raises:
            NotCheckpointable: with the reason in words; also if there is no room for it, or if it would come too late:
                the snapshot also serves rollouts that have not waited as long as the sandbox has.
            InfrastructureError: it failed.
        """
        distance = self._graph.distance(live.state, self._backend.name)
        if distance.is_zero and (not pinned or self._graph.pin_snapshot(live.state, self._backend.name)):
            return
        if live.observation is not None and live.age() > max(live.observation.quiet_s, LATE):
            raise NotCheckpointable(f"the state has changed by itself ({live.observation.active})")
        rebuild = _weighed(self._rebuild(live.state, distance), live)
        new = self._candidate(live.state, distance.snapshot, rebuild)._replace(pinned=True)
        reason = self._budget.find_room(new)
        if reason:
            raise NotCheckpointable(reason)
        if not self._checkpoint_patiently(live, new, rebuild.weight, pinned=pinned):
            raise NotCheckpointable("there is no room for a snapshot, or the state was forgotten meanwhile")

    def _checkpoint_patiently(self, live: LiveSandbox, new: Kept, weight: float, *, pinned: bool) -> bool:
        """Takes a snapshot that is waited for: tries again, because trouble of the machine may pass."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(CheckpointFailed):
                return self._checkpoint(live, new, weight, pinned=pinned)
            time.sleep(PAUSE)
        return self._checkpoint(live, new, weight, pinned=pinned)

    def refuse(self, state: str, reason: str) -> None:
        """Notes the `reason` why a state cannot be checkpointed: here for a while, and in the graph for people."""
        self._remember(state, reason)
        self._tell(state, reason)

    def refusal(self, state: str) -> str | None:
        """Returns why a state, or another one after the same calls, recently could not be checkpointed by this process.

        None if it was not tried, or succeeded.
        """
        with self._lock:
            reason, since = self._refused.get(self._courses.get(state, state), (None, 0.0))
        return reason if time.monotonic() - since < FORGOTTEN_AFTER else None

    def _tell(self, state: str, reason: str) -> None:
        """Notes in the graph, for people, why a state could not be checkpointed."""
        with contextlib.suppress(TvsnapError):  # a full disk
            self._graph.note_refusal(state, self._backend.name, reason)

    def _remember(self, state: str, reason: str) -> None:
        with self._lock:
            _put(self._refused, self._courses.get(state, state), (reason, time.monotonic()))

    def _consider(self, live: LiveSandbox, task: str | None = None, answered_s: float = 0.0) -> bool:
        try:
            distance = self._graph.distance(live.state, self._backend.name)
        except NotFound:
            return False
        if distance.is_zero:
            return True
        rebuild = self._rebuild(live.state, distance)
        if answered_s and rebuild.proven:
            return True
        rebuild = replace(rebuild, replay_s=rebuild.replay_s + answered_s)
        if reason := self.refusal(live.state):
            self._tell(live.state, reason)
            return rebuild.proven
        if self._pauses.hold(live.sandbox.id, task):
            return rebuild.proven
        rebuild = _weighed(rebuild, live)
        if not self._policy.should_checkpoint(rebuild, self._costs):
            return rebuild.proven
        try:
            new = self._candidate(live.state, distance.snapshot, rebuild)
            self.trouble = self._budget.find_room(new)
            if not self.trouble:
                allowed = rebuild.provable and not rebuild.proven
                return self._checkpoint(live, new, rebuild.weight, allowed=allowed, task=task) or rebuild.proven
        except NotCheckpointable as refusal:
            self.refuse(live.state, str(refusal))
        except SandboxDied as death:
            self._remember(live.state, str(death))  # it might do so each time
            raise
        except NoRoom as lack:
            self.trouble = str(lack)
            self._pauses.no_room()
        except (InfrastructureError, OSError) as error:
            self.trouble = str(error)
            self._pauses.failed(live.sandbox.id, task, self.trouble)
        return rebuild.proven

    def _rebuild(self, state: str, distance: Distance) -> Rebuild:
        """Returns the costs of rebuilding a state from the nearest snapshot or the root."""
        snapshot = distance.snapshot
        return Rebuild(
            snapshot is None,
            distance.calls,
            distance.seconds,
            self._spent.get(state, 0.0),
            distance.proven,
            distance.provable,
            0.0 if snapshot is None else snapshot.checkpoint_s,
            0.0 if snapshot is None else snapshot.fork_s or 0.0,
        )

    def _candidate(self, state: str, above: Snapshot | None, rebuild: Rebuild) -> Kept:
        """Returns an estimate of a snapshot of a state; its size is about that of the nearest one above."""
        return Kept(
            state,
            None if above is None else above.state,
            self._sizes.get(state, self._usual_size if above is None else above.size),
            rebuild.replay_s + rebuild.calls * CALL_OVERHEAD if rebuild.calls else SERVICE_START,
            forks=self._rebuilds.get(state, 0),  # each rebuild would have been a fork
            created=time.time(),
            proven=rebuild.proven,
        )

    def _checkpoint(
        self,
        live: LiveSandbox,
        new: Kept,
        weight: float,
        *,
        pinned: bool = False,
        allowed: bool = False,
        task: str | None = None,
    ) -> bool:
        """Takes a snapshot and adds it to the graph; returns whether the state has one now.

        `weight`: see `Rebuild`. If `allowed`, its time is taken from `Costs.allowance_s`. `task`: the task of the
        rollout that made the call, for `Pauses`.
        """
        began = time.perf_counter()
        age_s = live.age()
        info = live.checkpoint()
        self._pauses.succeeded(live.sandbox.id, task)
        seconds = time.perf_counter() - began
        self._costs.add("checkpoint", seconds / weight)
        live.checkpoints_s = (*live.checkpoints_s, seconds)[-2:]
        if allowed:
            self._costs.spent(seconds)
        self._meter.checkpoint(seconds)
        now = time.time()
        snapshot = Snapshot(
            live.state,
            info.id,
            self._backend.name,
            info.size,
            info.captures,
            seconds,
            None,
            info.processes,
            now,
            now,
            pinned=pinned,
            age_s=age_s,
        )
        self._usual_size = info.size
        try:
            added = self._budget.add(snapshot, new)
        except TvsnapError:
            added = False
        if not added:
            with self._lock:
                _put(self._sizes, live.state, info.size)
            self._backend.delete_snapshot(info.id)
        return added or self._graph.snapshot(live.state, self._backend.name) is not None


def _weighed(rebuild: Rebuild, live: LiveSandbox) -> Rebuild:
    """Returns the costs with how long a checkpoint of live processes is expected to take; see `Rebuild`.

    A checkpoint that was slow by chance must not end all sharing, so the shorter of two counts.
    """
    if rebuild.provable:
        return rebuild
    weight = 1.0
    with contextlib.suppress(InfrastructureError, OSError):
        processes = live.sandbox.processes()
        weight += len(processes) / PROCESSES
        weight += sum(
            process.memory / UNKNOWN if process.unshared is None else process.unshared / MEMORY for process in processes
        )
    checkpoint_s = min(live.checkpoints_s) if len(live.checkpoints_s) > 1 else 0.0
    return replace(rebuild, weight=weight, checkpoint_s=checkpoint_s)


def _put(table: OrderedDict[str, V], key: str, value: V) -> None:
    """Puts a value into a table that forgets its oldest entries."""
    table[key] = value
    while len(table) > REMEMBERED:
        table.popitem(last=False)
