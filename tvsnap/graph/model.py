"""The values of the graph: states, edges, snapshots, leases and rollouts; all are immutable.

States are named by 64 hex digits; times are seconds since the epoch; durations are seconds; sizes are bytes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, NamedTuple, get_args

from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.display import Displayed
from tvsnap.model.observations import Captures


@dataclass(frozen=True, slots=True)
class RootInfo:
    """A root state, the state of a fresh sandbox.

    Attributes:
        hash: the root's name, see `tvsnap.model.calls.root_state`.
        image_name: the image's name, for people.
        limits: canonical text of those limits that change behaviour.
        salt: separates groups that must not share states; empty for none.
        created: the time of its first use.
        network: the network policy of its sandboxes: the text of a `Network`.
    """

    hash: str
    image_name: str
    image_digest: str
    environment: str
    limits: str
    salt: str
    created: float
    network: str = "none"


@dataclass(frozen=True, slots=True)
class State(Displayed):
    """One node of the graph.

    Attributes:
        hash: its name.
        root: the root above it; its own name for a root.
        parent: the state from which it was reached; None for a root.
        depth: the number of state-changing calls that lead from the root to it.
        private: the reason why this branch is not shared; None if it is.
        created: the time at which it was first reached.
    """

    hash: str
    root: str
    parent: str | None
    depth: int
    private: str | None
    created: float


@dataclass(frozen=True, slots=True)
class Edge(Displayed):
    """A call made in a state, with its result and the state that it led to.

    Attributes:
        id: unique in this graph, and never used again.
        state: the state in which the call was made.
        call: the call.
        timeout: the call's timeout, only if the result depends on it (a blocked call); else None.
        result: its result, with the `source` `hit`.
        next_state: the state that it led to; `state` itself if nothing changed.
        deterministic: False once the same call was seen to return something else: it then answers no more calls.
        shared: False if it never answers a call, and is only shown to people.
        reason: the reason why it is not shared or not deterministic; None if it is both.
        hits: the number of calls that it answered, without hits that a process has not yet flushed.
        created: the time at which it was recorded.
        proven: the call was executed more than once and left the same behind, or does so by its nature: `next_state`
            may be reached by making the call again. Meaningless if nothing changed.
        waited: seconds that the rollout had waited in the state before the call; 0 if that does not count.
        quiet_s: seconds, from its beginning, during which `next_state` does not change by itself; infinite if it never
            does.
        digest: that of the sandbox after the call (`Sandbox.digest`); None if there is none.
        active: the reason why `next_state` may change by itself; None if it does not.
        refusals: the reasons why `next_state` could not be checkpointed, by backend.
        on_host: the call was made in no sandbox, by a tool on the host, or elsewhere by a client, and cannot be made
            again in one.
        asked: its requests to the network: names that were looked up, and `name:port` for connections, each once.
        grade: the grade that it gave, see `tvsnap.engine.lookup.grades`; None if it does not grade.
        earliest, latest: the shortest and the longest wait, in seconds, after which the call would have found the same.
        times: the modification times of the files that it changed, by path; read only while another execution that
            changed files is recorded, and else None (`Graph.file_times`).
    """

    id: int
    state: str
    call: ToolCall
    timeout: float | None
    result: ToolResult
    next_state: str
    deterministic: bool
    shared: bool
    reason: str | None
    hits: int
    created: float
    proven: bool = False
    waited: float = 0.0
    quiet_s: float = math.inf
    digest: str | None = None
    active: str | None = None
    refusals: Mapping[str, str] = field(default_factory=dict)
    on_host: bool = False
    asked: tuple[str, ...] = ()
    grade: str | None = None
    earliest: float = 0.0
    latest: float = 0.0
    times: Mapping[str, int] | None = field(default=None, compare=False)

    @property
    def changed(self) -> bool:
        """Whether the call changed the state."""
        return self.next_state != self.state

    def is_newer_than(self, seconds: float) -> bool:
        """Returns whether it was surely recorded less than some seconds ago.

        Args:
            seconds: those seconds.

        Returns:
            False also if it seems to be from the future, because the clock may have been set back.
        """
        return 0.0 <= time.time() - self.created < seconds

    @property
    def comparable(self) -> bool:
        """Whether the call, made again, should have the same result; not so for calls on the host or to the network."""
        return not (self.on_host or self.asked)


def served(call: Edge) -> bool:
    """Returns whether a call answers others."""
    return call.shared and call.deterministic


def unserved_as(call: Edge) -> str:
    """Returns why a call answers no others, in words."""
    reason = call.reason or ("timed out" if call.result.timed_out else "no reason given")
    return f"not shared: {reason}" if not call.shared else f"not deterministic: {reason}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint of a state, which a backend keeps.

    Attributes:
        state: the state in which it was taken.
        id: the backend's name for it.
        backend: the backend's name.
        size: bytes on disk.
        captures: its contents.
        checkpoint_s: seconds that taking it took.
        fork_s: seconds that the latest fork of it took; None if there was none.
        processes: the commands that ran in the sandbox, besides its PID 1 and its idle shell.
        created: the time at which it was taken.
        last_used: the time at which it was last forked; `created` if never.
        forks: the number of its forks.
        pinned: a user asked for it: it is deleted only when its state is forgotten.
        age_s: seconds that the state had existed undisturbed when it was taken.
    """

    state: str
    id: str
    backend: str
    size: int
    captures: Captures
    checkpoint_s: float
    fork_s: float | None
    processes: tuple[str, ...]
    created: float
    last_used: float
    forks: int = 0
    pinned: bool = False
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Distance:
    """The way from the nearest snapshot, or the root, to a state.

    Attributes:
        snapshot: the nearest above the state, or its own; None if there is none up to the root.
        calls: the number of calls that lead from there, or from the root, to the state.
        seconds: seconds that they took when they were executed.
        proven: whether all of them are known to lead to the same state each time.
        provable: whether all of them are, or left a digest behind by which another execution can prove it.
    """

    snapshot: Snapshot | None
    calls: int
    seconds: float
    proven: bool
    provable: bool

    @property
    def is_zero(self) -> bool:
        """Whether the state has a snapshot of its own."""
        return self.snapshot is not None and not self.calls


@dataclass(frozen=True, slots=True)
class SnapshotWay:
    """A snapshot, and the way to its state without it.

    Attributes:
        above: the nearest state above that has a snapshot, too; None if there is none up to the root.
        calls: the number of calls that lead from there, or from the root, to this state.
        seconds: seconds that they took when they were executed.
        answered: whether all these calls are answered from the graph, so that rollouts come here.
        proven: whether all these calls may be made again to come here; else only the snapshot leads here.
        private: the reason why the state is not shared; None if it is.
        salt: that of the root.
    """

    snapshot: Snapshot
    above: str | None
    calls: int
    seconds: float
    answered: bool
    proven: bool
    private: str | None
    salt: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to execute one call in one state, which one rollout at a time can have.

    Attributes:
        owner: the process that has it; opaque to the graph.
        taken: the time at which it was taken.
        elsewhere: a process of another host has it, which showed lately that it is alive.
    """

    state: str
    call_key: str
    owner: str
    taken: float
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class RolloutRecord(Displayed):
    """One rollout, as shown to people.

    Attributes:
        id: its name, unique in this graph.
        task: the task it belongs to; empty for none.
        label: another name for it; empty for none.
        image: the image's name.
        root: the root state at which it started.
        owner: the process that runs it.
        started: the time at which it began.
        finished: the time at which it ended; None while it runs, or if its owner died.
        state: the state at which it ended; while it runs, or if its owner died, that of its last recorded call.
        epoch: that of the training run; None for none.
        reward: the latest that was recorded; None for none.
        outcome: the error that ended it, in words; None if none did.
        start: the state at which it began; its root, unless it was begun elsewhere (`Cache.resume`).
    """

    id: str
    task: str
    label: str
    image: str
    root: str
    owner: str
    started: float
    finished: float | None
    state: str
    epoch: int | None = None
    reward: float | None = None
    outcome: str | None = None
    start: str = ""


StepSource = Literal["hit", "coalesced", "executed", "parked", "ready", "forked", "started", "replayed", "failed"]
STEP_SOURCES: tuple[StepSource, ...] = get_args(StepSource)
"""All sources, in the order of their numbers in the file; the first `ANSWERED` are those of answered calls."""
ANSWERED = 2


class StepRow(NamedTuple):
    """A call of a rollout on its way into the table `steps`; see there, and `Step`."""

    rollout: str
    place: int
    edge: int | None
    source: StepSource
    ended: float
    seconds: float
    duration: float
    processor_s: float | None
    exit_code: int | None
    timed_out: bool
    note: str | None
    call: str | None


@dataclass(frozen=True, slots=True)
class Step(Displayed):
    """A call of a rollout.

    Attributes:
        place: its place in the rollout, from 1 on.
        source: `hit` or `coalesced`, as in `ToolResult`; for an executed call, the way in which its sandbox was
            acquired: `executed` in the rollout's own, or one that was `parked`, `ready`, `forked`, `started`, or made
            by calls that were `replayed`; `failed` for an error of tvsnap in place of a result.
        ended: the time at which it ended.
        seconds: seconds for which its caller waited.
        duration: seconds that its execution took.
        processor_s: seconds of processor time that its execution took; None if that is not known.
        exit_code, timed_out: as in `ToolResult`.
        note: the reason why it was executed, or the error; None if it was answered.
        call: the call; None if its record was deleted.
        edge: its record; None if there is none, or if it was deleted.
    """

    place: int
    source: StepSource
    ended: float
    seconds: float
    duration: float
    processor_s: float | None
    exit_code: int | None
    timed_out: bool
    note: str | None
    call: ToolCall | None
    edge: Edge | None

    @property
    def answered(self) -> bool:
        """Whether it was answered without being executed for this rollout."""
        return self.source in STEP_SOURCES[:ANSWERED]

    @property
    def failing(self) -> bool:
        """Whether its exit status was not 0, it timed out, or it came to no result."""
        return self.timed_out or bool(self.exit_code) or self.source == "failed"


@dataclass(frozen=True, slots=True)
class RolloutSummary(Displayed):
    """A rollout, with figures of its calls.

    Attributes:
        rollout: the rollout.
        ended: the way in which it ended: `running`, `closed`, `process died`, or the error that ended it.
        calls: the number of its calls.
        hits: the number of answered calls.
        failing: the number of calls that had an exit status other than 0, timed out, or came to no result.
        seconds: seconds for which it waited for its calls.
        limits, network, salt: those of its root.
    """

    rollout: RolloutRecord
    ended: str
    calls: int
    hits: int
    failing: int
    seconds: float
    limits: str
    network: str
    salt: str


@dataclass(frozen=True, slots=True)
class Tally(Displayed):
    """Figures of rollouts that have an epoch, a task or a label in common. Times are sums over their calls, in seconds.

    Attributes:
        key: the epoch, task or label, as text; None for rollouts without one.
        rollouts: the number of rollouts.
        reward: the mean of their rewards; None if none was recorded.
        calls, hits, coalesced, failing: the number of their calls; the number of these that were answered from the
            graph, were answered by waiting for another rollout, and had an exit status other than 0, timed out, or
            came to no result.
        waited_s: the time for which they waited for their calls.
        took_s: the time that the executions of these calls took, by them or by others.
        processor_s: the processor time that their sandboxes used for the calls that they executed.
        saved_processor_s: the processor time that the executions of the answered calls had taken.
        unmeasured: the number of calls whose processor time is not known.
    """

    key: str | None
    rollouts: int
    reward: float | None
    calls: int
    hits: int
    coalesced: int
    failing: int
    waited_s: float
    took_s: float
    processor_s: float
    saved_processor_s: float
    unmeasured: int

    @property
    def hit_rate(self) -> float:
        """The part of the calls that was answered without executing them, 0 to 1."""
        return (self.hits + self.coalesced) / self.calls if self.calls else 0.0

    @property
    def saved_s(self) -> float:
        """The time that the executions of the calls took, minus the time for which they were waited for."""
        return self.took_s - self.waited_s


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One state in a listing of the tree, whose results have no output.

    Attributes:
        state: the state; `state.parent` names the node above it.
        made_by: the call that led here from the parent; None for a root.
        unchanging: the calls made here that did not change the state, oldest first.
        snapshots: the snapshots of this state, at most one for each backend.
    """

    state: State
    made_by: Edge | None
    unchanging: tuple[Edge, ...]
    snapshots: tuple[Snapshot, ...]


class Outlined(NamedTuple):
    """A recorded call in an outline of the tree, which has no texts, so that a large graph can be read at once.

    Attributes:
        id: that of the edge.
        state: the state in which the call was made.
        next_state: the state that it led to; None if nothing changed.
        exit_code, timed_out, duration: as in `ToolResult`.
        hits: the number of calls that it answered.
        served: whether it answers others.
        proven: as in `Edge`.
        private: whether the state that it led to is private to one rollout.
        kept: whether that state has a snapshot.
    """

    id: int
    state: str
    next_state: str | None
    exit_code: int | None
    timed_out: bool
    duration: float
    hits: int
    served: bool
    proven: bool
    private: bool
    kept: bool


class Listing(list[TreeNode], Displayed):
    """States with the calls made in them, parents before their children; notebooks draw them as a tree."""

    __slots__ = ()
    __str__ = list.__str__


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The rows that were deleted from the graph, or would be.

    Attributes:
        states, edges, leases, rollouts: their numbers.
        snapshots: the snapshots whose rows were deleted; the caller must delete their files.
        spared: the number of states that stay, without answering calls, because running rollouts depend on them.
    """

    states: int
    edges: int
    leases: int
    rollouts: int
    snapshots: tuple[Snapshot, ...]
    spared: int = 0

    def __add__(self, other: Forgotten) -> Forgotten:
        """Returns the sum of both."""
        return Forgotten(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))
