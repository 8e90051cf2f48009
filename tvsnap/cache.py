"""The cache: rollouts whose calls are answered from the graph where they can be, and executed where they must be.

The flow of one call is `Rollout.call`, from top to bottom.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tvsnap import owners
from tvsnap.backends import open_backend
from tvsnap.backends.base import Backend, Limits, Observation, Sandbox
from tvsnap.calls import Source, ToolCall, ToolResult, next_state, root_state
from tvsnap.environments import environment
from tvsnap.environments.base import Tool
from tvsnap.errors import InfrastructureError, SandboxDied, TvsnapError, UsageError
from tvsnap.flights import Flight, Flights
from tvsnap.graph import Edge, Graph, RootInfo
from tvsnap.home import resolve_home
from tvsnap.housekeeping import tidy
from tvsnap.images import Image, ImageStore
from tvsnap.owners import Owner
from tvsnap.policy import Costs, Policy
from tvsnap.policy import policy as policy_named
from tvsnap.pool import LiveSandbox, ParkLimits, SandboxPool
from tvsnap.preforking import Preforker
from tvsnap.rebuild import Place, Rebuilder, difference, make_again
from tvsnap.recording import Executed, Position, Recorder
from tvsnap.snapshots import Snapshotter
from tvsnap.stats import Meter, Stats, Way

GRAPH_FILE = "tvsnap.db"
NETWORK = "none"  # sandboxes have a loopback of their own and nothing else
DEFAULT_TIMEOUT = 30.0  # seconds
MAX_SANDBOXES = 256
WORKERS = 32  # threads for what is done while callers think
OUTSIDE = "(outside)"
"""Stands in the graph in place of a tool, for what was done in a sandbox that `Rollout.sandbox` gave out."""


class ImageSource(Protocol):
    """Where images come from: an `ImageStore`, or what stands in for one."""

    def get(self, name: str) -> Image:
        """Returns an image by name or digest; raises NotFound if there is none."""
        ...


class Cache:
    """A stateful tool-value cache on one data directory. Thread-safe; a context manager.

    Several processes may use one directory at once.

    Attributes:
        home: the data directory.
        graph: the tool-call graph.
        images: where images come from.
        backend: where sandboxes come from.
        owner: the id of this process on the data directory.
        pool: the live sandboxes of this process.
        limits: of every sandbox; None where each image's own apply.
        use_cache: False if nothing is looked up or recorded.
    """

    def __init__(
        self,
        home: Path | str | None = None,
        *,
        backend: str | Backend = "local",
        policy: str | Policy = "break-even",
        limits: Limits | None = None,
        use_cache: bool = True,
        max_sandboxes: int = MAX_SANDBOXES,
        park: ParkLimits | None = None,
        prefork: int | None = None,
        images: ImageSource | None = None,
    ) -> None:
        """Opens a data directory, and cleans up what processes that have died left behind in it.

        Args:
            home: the data directory; see `resolve_home`.
            backend: the name of a backend, or one that is open already (and is closed with the cache).
            policy: `break-even`, `eager`, `never`, or a policy of your own: when to snapshot.
            limits: what one sandbox may use; by default what its image asks for.
            use_cache: False to execute every call in one fresh sandbox a rollout, for comparison.
            max_sandboxes: how many sandboxes may live at once; who needs one more waits.
            park: how many sandboxes may wait unused at states that someone may come to.
            prefork: how many sandboxes to keep ready for states that were needed lately, made ahead of time; by
                default none, or a few where making one is slow.
            images: where images come from; by default the data directory.

        Raises:
            UsageError: no such backend or policy, or `prefork` is negative.
            MachineLacks: this machine lacks what is needed.
            TvsnapError: the graph cannot be opened.
        """
        chosen = policy_named(policy) if isinstance(policy, str) else policy
        if prefork is not None and prefork < 0:
            raise UsageError(f"prefork must be at least 0, not {prefork}")
        self.home = resolve_home(home)
        self.limits = limits
        self.use_cache = use_cache
        self.images: ImageSource = images or ImageStore(self.home)
        self.pool = SandboxPool(max_sandboxes, park or ParkLimits())
        with contextlib.ExitStack() as undo:
            self._owner = Owner(self.home)
            undo.callback(self._owner.close)
            self.owner = self._owner.id
            self.graph = Graph(self.home / GRAPH_FILE, self.owner)
            undo.callback(self.graph.close)
            self.backend = open_backend(backend, self.home, self.owner) if isinstance(backend, str) else backend
            undo.callback(self.backend.close)
            tidy(self.home, self.graph, self.backend, self.owner)
            self._totals: Mapping[str, float] = self.graph.counters()
            undo.pop_all()
        self._costs = Costs(self.backend.name, self._totals)
        self._meter = Meter()
        self._snapshotter = Snapshotter(self.graph, self.backend, chosen, self._costs, self._meter)
        self._preforker = Preforker(
            self.graph, self.backend, self.pool, self._costs, self._meter, prefork if use_cache else 0
        )
        self._rebuilder = Rebuilder(
            self.graph, self.backend, self.pool, self._snapshotter, self._preforker, self._costs, self._meter
        )
        self._flights = Flights(self.graph, self.owner, partial(owners.is_alive, self.home))
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="tvsnap-work")
        self._rollouts: set[Rollout] = set()
        self._images_by_digest: dict[str, Image] = {}
        self._lock = threading.Lock()
        self._closed = False

    def rollout(self, image: str | Image, task: str = "", salt: str | None = None, label: str | None = None) -> Rollout:
        """Begins a rollout at the state of a freshly started image. No sandbox is started yet.

        Args:
            image: the image, or its name.
            task: groups rollouts for people; states are shared across tasks.
            salt: shares states only with rollouts of the same salt.
            label: what people call this rollout.

        Raises:
            NotFound: no such image.
            UsageError: the image's environment is unknown.
        """
        if self._closed:
            raise UsageError("the cache is closed")
        found = self.images.get(image) if isinstance(image, str) else image
        place = Place(found, environment(found.environment), self.limits_for(found))
        root = _root(place, salt or "", self.backend.platform)
        at, id = Position(root.hash), ""
        if self.use_cache:
            self._images_by_digest[found.digest] = found
            try:
                self.graph.ensure_root(root)
                id = self.graph.begin_rollout(task=task, image=found.name, root=root.hash, label=label or "").id
            except InfrastructureError as error:  # a full disk must not fail a rollout
                at = Position(root.hash, private=f"could not be recorded: {error}", recorded=False)
        return self._begun(Rollout(self, place, root.hash, id, task, at))

    def warm(self, image: str | Image) -> str:
        """Starts an image once and snapshots its root, so that the first rollout need not wait for a server's start.

        Nothing is done where there is a snapshot, or where sandboxes of the image have nothing that starts slowly.

        Args:
            image: the image, or its name.

        Returns:
            The root: the state that rollouts without a salt begin at.

        Raises:
            NotFound: no such image.
            NotCheckpointable: with the reason; rollouts start the server themselves then.
            InfrastructureError: it does not start.
        """
        found = self.images.get(image) if isinstance(image, str) else image
        place = Place(found, environment(found.environment), self.limits_for(found))
        root = _root(place, "", self.backend.platform)
        if place.environment.serves:
            self.graph.ensure_root(root)
            live = self._rebuilder.arrive(root.hash, place).live
            try:
                self._snapshotter.take(live)
            finally:
                self.pool.discard(live)
        return root.hash

    def resume(self, state: str, task: str = "", label: str | None = None) -> Rollout:
        """Begins a rollout at any state of the graph.

        Args:
            state: the state's full hash.
            task, label: see `rollout`.

        Raises:
            NotFound: no such state, or its image is gone.
        """
        place = self._place(state)
        start = self.graph.state(state)
        record = self.graph.begin_rollout(task=task, image=place.image.name, root=start.root, label=label or "")
        at = Position(state, start.depth, start.private)
        return self._begun(Rollout(self, place, start.root, record.id, task, at))

    @contextlib.contextmanager
    def materialise(
        self, state: str, on_difference: Callable[[Edge, ToolResult], None] | None = None
    ) -> Iterator[Sandbox]:
        """A block with a live throw-away sandbox in any state of the graph.

        Args:
            state: the state's full hash.
            on_difference: called with each replayed call and what it returned now, from the first on that returned
                something else than was recorded; the sandbox is then only like the state. Without this, an error.

        Raises:
            NotFound: no such state, or its image is gone.
            InfrastructureError: no sandbox could be had, or a replay differed.
        """
        place = self._place(state)
        arrival = self._rebuilder.arrive(state, place)
        try:
            if arrival.departed and on_difference is None:
                edge, result = arrival.departed[0]
                raise InfrastructureError(
                    f"state {state[:12]} cannot be rebuilt: a replay of {edge.call.canonical[:80]} "
                    f"{difference(edge.result, result)}"
                )
            for edge, result in arrival.departed:
                assert on_difference is not None
                on_difference(edge, result)
            yield arrival.live.sandbox
        finally:
            self.pool.discard(arrival.live)

    def reexecute(self, edge: Edge, on_difference: Callable[[Edge, ToolResult], None] | None = None) -> ToolResult:
        """Makes a recorded call once more, in a throw-away sandbox in its state; what it returns is not recorded.

        Args:
            edge: the call.
            on_difference, and errors: see `materialise`.
        """
        place = self._place(edge.state)
        with self.materialise(edge.state, on_difference) as sandbox:
            return make_again(sandbox, edge, place)

    def stats(self) -> Stats:
        """Returns what this cache has done so far, and the counters of all processes."""
        if not self._closed:
            self._save_counters()
            self._totals = self.graph.counters()
        return self._meter.stats(
            sandboxes=self.pool.live, parked=self.pool.parked, ready=self.pool.ready, totals=self._totals
        )

    def refusal(self, state: str) -> str:
        """Returns why a state could not be checkpointed when this process tried; empty if it did not, or could."""
        return self._snapshotter.refusal(state)

    @property
    def trouble(self) -> str:
        """Why no snapshots are being taken at present, such as a full disk; empty if they are."""
        return self._snapshotter.trouble

    def close(self) -> None:
        """Ends all rollouts and sandboxes, and writes what is to be written; safe to repeat."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            rollouts = list(self._rollouts)
        self._flights.close()
        with contextlib.ExitStack() as ends:  # in reverse order, each even if another fails
            ends.callback(self._owner.close)
            ends.callback(self._close_graph)
            ends.callback(self.backend.close)
            for rollout in rollouts:
                ends.callback(rollout.close)
            ends.callback(self.pool.close)  # calls still under way end here
            ends.callback(self._workers.shutdown)
            for rollout in rollouts:
                ends.callback(rollout.close_if_idle)
            ends.callback(self._preforker.close)

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begun(self, rollout: Rollout) -> Rollout:
        with self._lock:
            if self._closed:
                raise UsageError("the cache is closed")
            self._rollouts.add(rollout)
        self._meter.add(rollouts=1)
        self._rebuilder.foretell(rollout._at.state, rollout._place)
        return rollout

    def _place(self, state: str) -> Place:
        """Returns the place of a state in the graph."""
        hash = self.graph.state(state).root
        root = next(root for root in self.graph.roots() if root.hash == hash)
        image = self._images_by_digest.get(root.image_digest) or self.images.get(root.image_digest)
        return Place(image, environment(root.environment), _limits_of(root, self.limits_for(image)))

    def limits_for(self, image: Image) -> Limits:
        """Returns the limits of an image's sandboxes."""
        return self.limits or replace(Limits(), **image.limits.said())

    def _close_graph(self) -> None:
        self._save_counters()
        with contextlib.suppress(InfrastructureError):  # counters that a full disk has no room for
            self._totals = self.graph.counters()
        with contextlib.suppress(InfrastructureError):
            self.graph.close()

    def _save_counters(self) -> None:
        self.graph.add_counters({**self._costs.take_unsaved(), **self._meter.take_unsaved()})

    def _ended(self, rollout: Rollout, at: Position) -> None:
        """Forgets a rollout that has ended, and writes what is to be written for people."""
        with self._lock:
            self._rollouts.discard(rollout)
        if self.use_cache:
            self._save_counters()
            with contextlib.suppress(InfrastructureError):  # a full disk must not fail a rollout
                self.graph.end_rollout(rollout.id, at.state)
                self.graph.flush()


def _limits_of(root: RootInfo, limits: Limits) -> Limits:
    """Returns `limits` with those that a root was recorded with; one that there is no more had its day."""
    known = {field.name for field in fields(Limits)}
    recorded = {name: value for name, value in json.loads(root.limits).items() if name in known}
    return replace(limits, **recorded)


class Rollout:
    """One run through one task: a cursor on the graph, with a sandbox only when it needs one. A context manager.

    Made by `Cache.rollout`. Its calls are made one at a time; different rollouts may be used at the same time.
    """

    def __init__(self, cache: Cache, place: Place, root: str, id: str, task: str, at: Position) -> None:
        self._cache = cache
        self._place = place
        self._root = root
        self._id = id
        self._task = task
        self._recorder = Recorder(cache.graph, cache.owner, task)
        self._turn = threading.RLock()
        self._at = at
        self._calls = 0
        self._live: LiveSandbox | None = None
        self._outcome: Future[Position] | None = None  # of the last call, until it is taken into _at
        self._freed: Future[LiveSandbox | None] | None = None  # its sandbox, until it is taken into _live
        self._exposed = False
        self._closed = False

    @property
    def id(self) -> str:
        """Its name in the graph; empty without the cache."""
        return self._id

    @property
    def root(self) -> str:
        """The hash of the state it began at."""
        return self._root

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that may be called, by name."""
        return self._place.environment.tools

    @property
    def state(self) -> str:
        """The hash of the state it stands at."""
        return self._where().state

    @property
    def depth(self) -> int:
        """How many calls that changed the state it is away from its root."""
        return self._where().depth

    @property
    def private(self) -> str:
        """Why it is in a private branch, of which nothing is shared; empty if it is not."""
        return self._where().private

    @property
    def unshared(self) -> str:
        """Why the result of the last call will answer no other call; empty if it may."""
        return self._where().unshared

    def call(self, name: str, arguments: Mapping[str, Any], timeout: float = DEFAULT_TIMEOUT) -> ToolResult:
        """Makes a tool call.

        Args:
            name: the tool's name.
            arguments: its arguments; plain JSON.
            timeout: seconds that it may take where it is executed.

        Returns:
            What the tool returned, now or when the same was called in the same state before.

        Raises:
            UsageError: no such tool, or its arguments are wrong.
            InfrastructureError: tvsnap, not the tool, failed. The rollout stands where it stood; try again if you like.
        """
        call, timeout = ToolCall(name, arguments), _seconds(timeout)
        with self._turn:
            if not self._cache.use_cache:
                return self._call_uncached(call, timeout)
            # 1. Where the last call led must be known; then what was recorded there answers without any sandbox.
            began = time.perf_counter()
            self._catch_up()
            edge = self._lookup(call, timeout)
            if edge is not None:
                return self._follow(edge, "hit", began)
            # 2. Of all that miss this call in this state, one executes it, and the others take its result.
            tool = self._tool(call)
            flight = self._board(tool, call, timeout)
            if isinstance(flight, Edge):
                return self._follow(flight, "coalesced", began)
            try:
                # 3. A sandbox in this state, the cheapest there is; 4. the call in it.
                live, executed, way = self._execute(tool, call, timeout, flight)
                # 5. What is left is done while the caller thinks.
                self._conclude_later(live, executed)
            except BaseException:
                self._abandon(flight)
                raise
            self._calls += 1
            self._cache._meter.executed(
                executed.result.duration,
                time.perf_counter() - began,
                self._calls,
                way,
            )
            return executed.result

    def try_hit(self, name: str, arguments: Mapping[str, Any], timeout: float = DEFAULT_TIMEOUT) -> ToolResult | None:
        """Makes a tool call if the graph has the answer, without waiting for anything; arguments as in `call`.

        Returns:
            The recorded result; None if the call was not made.
        """
        call, timeout = ToolCall(name, arguments), _seconds(timeout)
        if not self._cache.use_cache or not self._turn.acquire(blocking=False):
            return None
        try:
            if self._exposed or self._closed or self.settling() is not None:
                return None
            began = time.perf_counter()
            self._settle()
            edge = self._lookup(call, timeout)
            return None if edge is None else self._follow(edge, "hit", began)
        finally:
            self._turn.release()

    def settling(self) -> Future[Position] | None:
        """Returns what comes with the outcome of the last call, None if that is known: where the rollout stands."""
        outcome = self._outcome
        return None if outcome is None or outcome.done() else outcome

    def sandbox(self) -> Sandbox:
        """Returns a live sandbox in the rollout's present state, for graders that must look inside.

        The rollout goes on with this sandbox, so use it between calls only, and ask again after a call. What is done
        in it is not recorded: where it changes anything, the rollout goes on in a private branch.

        Raises:
            InfrastructureError: if no sandbox could be had.
        """
        with self._turn:
            if not self._cache.use_cache:
                return self._uncached_sandbox().sandbox
            self._catch_up()
            live, _ = self._stand()
            if live.observation is None:
                live.observation = self._place.environment.observe(live.sandbox)
            live.expendable = False
            self._exposed = True
            return live.sandbox

    def keep(self, label: str, output: str = "") -> str:
        """Records what was done in the sandbox that `sandbox` gave out, as one step, and snapshots what came of it.

        The rollout goes on from there in a private branch.

        Args:
            label: what was done, in words.
            output: what is to be shown as the step's output.

        Returns:
            The state that it led to; the one before if nothing was changed.

        Raises:
            UsageError: no sandbox was given out since the last call.
            NotCheckpointable: recorded, but the state cannot be kept; the message is the reason.
            InfrastructureError: the sandbox has ended, or the snapshot failed.
        """
        with self._turn:
            live = self._live if self._exposed else None
            if live is None:
                raise UsageError("there is no sandbox to keep; ask for one with Rollout.sandbox")
            before = self._at
            self._notice_outside(label, output)
            if self._live is None:
                raise InfrastructureError("the sandbox has ended: what was done in it is lost")
            if self._at != before:
                self._cache._snapshotter.take(live)
            return self._at.state

    def close(self) -> None:
        """Ends the rollout; safe to repeat. Its sandbox is left to other rollouts that come to its state."""
        with self._turn:
            if self._closed:
                return
            self._closed = True
            try:
                self._settle()
            finally:
                self._leave()
                self._cache._ended(self, self._at)

    def close_if_idle(self) -> None:
        """Ends the rollout unless a call of it is being executed."""
        if self._turn.acquire(blocking=False):
            try:
                self.close()
            finally:
                self._turn.release()

    def __enter__(self) -> Rollout:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Where it stands.

    def _where(self) -> Position:
        """Returns where it stands, once the last call's outcome is known; for any thread."""
        outcome = self._outcome
        return self._at if outcome is None else outcome.result()

    def _settle(self) -> None:
        """Moves to where the last call led, once that is known."""
        if self._outcome is not None:
            self._at = self._outcome.result()
            self._outcome = None

    def _catch_up(self) -> None:
        """Moves to where the last call led, and notices what was done in a sandbox that was given out."""
        if self._closed:
            raise UsageError("the rollout is closed")
        self._settle()
        if self._exposed:
            self._notice_outside()

    def _notice_outside(self, label: str = "", output: str = "") -> None:
        """Goes on in a private branch if a sandbox that was given out is no longer as it was."""
        live = self._own()
        if live is None:
            return
        try:
            observation = self._place.environment.observe(live.sandbox)
        except SandboxDied:
            self._drop()
            return
        if observation != live.observation:
            call = ToolCall(OUTSIDE, {"what": label} if label else {})
            reason = label or "changed from outside, in the sandbox that was given out"
            self._at = self._recorder.branch_off(self._at, call, ToolResult(output, None, 0.0), reason)
            live.state, live.observation = self._at.state, observation

    # Answering from the graph.

    def _lookup(self, call: ToolCall, timeout: float) -> Edge | None:
        """Returns the recorded answer to a call, if there is one that may be given."""
        if self._at.private:
            return None
        return self._cache.graph.lookup(self._at.state, call, timeout)

    def _follow(self, edge: Edge, source: Source, began: float) -> ToolResult:
        """Moves along an edge; returns its result."""
        if edge.next_state != self._at.state:
            self._leave()
            self._at = Position(edge.next_state, self._at.depth + 1)
        elif self._at.unshared:
            self._at = replace(self._at, unshared="")
        cache = self._cache
        cache.graph.touch_hit(edge, self._task)
        self._calls += 1
        seconds = time.perf_counter() - began
        if source == "hit":
            cache._meter.hit(edge.result.duration, seconds, self._calls)
            return edge.result
        cache._meter.coalesced(edge.result.duration, seconds, self._calls)
        return edge.result.from_source("coalesced")

    def _tool(self, call: ToolCall) -> Tool:
        """Returns the tool that a call names, once the call is seen to be valid."""
        return self._place.environment.tool(call)

    def _board(self, tool: Tool, call: ToolCall, timeout: float) -> Edge | Flight | None:
        """Returns someone else's result, or the right to execute the call; None where nothing is to be shared."""
        if self._at.private or tool.stochastic or not tool.cacheable:
            return None
        recorded = self._cache.graph.recorded(self._at.state, call)
        if recorded is not None and not recorded.deterministic:
            return None
        return self._cache._flights.board(self._at.state, call, timeout)

    def _abandon(self, flight: Flight | None) -> None:
        """Gives up a call that was not executed to its end: the next who wants it executes it."""
        if flight is not None:
            self._cache._flights.end(flight)
        if self._freed is None:
            self._drop()

    # Sandboxes.

    def _execute(
        self, tool: Tool, call: ToolCall, timeout: float, flight: Flight | None
    ) -> tuple[LiveSandbox, Executed, Way | None]:
        """Executes a call in a sandbox in the present state; if the sandbox dies over it, once more in another."""
        try:
            return self._attempt(tool, call, timeout, flight)
        except SandboxDied:
            self._drop()
        try:
            return self._attempt(tool, call, timeout, flight)
        except SandboxDied as death:
            self._drop()
            raise InfrastructureError(
                f"the sandbox died twice over {call.canonical[:80]} ({death}); give it more memory, or see what it does"
            ) from death

    def _attempt(
        self, tool: Tool, call: ToolCall, timeout: float, flight: Flight | None
    ) -> tuple[LiveSandbox, Executed, Way | None]:
        live, way = self._stand()
        if flight is not None and flight.state != self._at.state:
            self._cache._flights.end(flight, unshareable=True)
            flight = None
        if live.observation is None and not tool.read_only:
            live.observation = self._place.environment.observe(live.sandbox)
        if flight is not None:
            flight.take_off()
        result = self._place.environment.execute(live.sandbox, call, timeout, self._place.limits)
        return live, Executed(tool, call, timeout, result, self._at, live.observation, flight), way

    def _stand(self) -> tuple[LiveSandbox, Way | None]:
        """Returns a sandbox in the present state, and how it was had (None: it was its own).

        Where a replay turned out differently, the present state is another then, in a private branch.
        """
        live = self._own()
        if live is not None:
            return live, None
        if not self._at.recorded and self._at.state == self._root:
            live = self._live = self._cache._rebuilder.start(self._root, self._place)
            live.expendable = False
            return live, "started"
        arrival = self._cache._rebuilder.arrive(self._at.state, self._place)
        live = self._live = arrival.live
        if arrival.departed:
            self._depart(arrival.departed)
            live.state = self._at.state
        live.expendable = not self._at.private
        return live, arrival.way

    def _own(self) -> LiveSandbox | None:
        """Returns its own sandbox, once nothing of the last call is left to be done in it, if one stands here."""
        if self._freed is not None:
            self._live = self._freed.result()
            self._freed = None
        live = self._live
        if live is not None and live.state == self._at.state and self._cache.pool.claim(live):
            return live
        self._drop()
        return None

    def _leave(self) -> None:
        """Leaves its sandbox to others, as soon as nothing of the last call is left to be done in it."""
        freed, self._freed = self._freed, None
        live, self._live = self._live, None
        keep = self._cache.use_cache and not self._exposed and not self._at.private
        self._exposed = False
        if freed is not None:
            freed.add_done_callback(lambda done: self._give_away(done.result(), keep))
        else:
            self._give_away(live, keep)

    def _give_away(self, live: LiveSandbox | None, keep: bool) -> None:
        if live is None:
            return
        if keep:
            self._cache.pool.park(live)
        else:
            self._cache.pool.discard(live)

    def _drop(self) -> None:
        """Ends its sandbox."""
        live, self._live = self._live, None
        self._exposed = False
        if live is not None:
            self._cache.pool.discard(live)

    def _depart(self, replayed: tuple[tuple[Edge, ToolResult], ...]) -> None:
        """Goes on in a private branch, beginning at the replayed call that returned something else."""
        first, result = replayed[0]
        reason = f"a replay of {first.call.canonical[:80]} {difference(first.result, result)}"
        at = Position(first.state, self._at.depth - len(replayed), recorded=self._at.recorded)
        for edge, result in replayed:
            at = self._recorder.branch_off(at, edge.call, result, reason, edge.timeout)
        self._at = at

    # What a call came to.

    def _conclude_later(self, live: LiveSandbox, executed: Executed) -> None:
        """Lets a worker find out where the call led, record it, and snapshot that if the policy says so."""
        outcome: Future[Position] = Future()
        freed: Future[LiveSandbox | None] = Future()
        for future in (outcome, freed):
            future.set_running_or_notify_cancel()  # nobody who waits for it may cancel it
        try:
            self._cache._workers.submit(self._conclude, outcome, freed, live, executed)
        except RuntimeError:
            raise InfrastructureError("the cache is closed") from None
        self._outcome, self._freed, self._live = outcome, freed, None

    def _conclude(
        self,
        outcome: Future[Position],
        freed: Future[LiveSandbox | None],
        live: LiveSandbox,
        executed: Executed,
    ) -> None:
        """What `_conclude_later` lets a worker do."""
        usable = False
        try:
            observation = self._observe_after(live, executed)
            usable = observation is not None or executed.tool.read_only
            unchanged = usable and self._left_unchanged(executed, observation)
            position = self._recorder.record(executed, unchanged=unchanged)
            live.state, live.observation = position.state, observation
            live.expendable = not position.private and not self._exposed
            changed = usable and position.state != executed.at.state and not position.private
            if changed:
                self._cache._snapshotter.expect(position.state)
            outcome.set_result(position)
            self._end_flight(executed)
            if changed:
                usable = self._snapshot(live, volatile=executed.tool.volatile)
        except BaseException as error:  # a mistake of ours: the next call tells
            usable = False
            self._end_flight(executed)
            if not outcome.done():
                outcome.set_exception(error)
        finally:
            if usable:
                self._cache.pool.rest(live)
            else:
                self._cache.pool.discard(live)
            freed.set_result(live if usable else None)

    def _observe_after(self, live: LiveSandbox, executed: Executed) -> Observation | None:
        """Returns how the sandbox looks after a call; None if it did not survive that."""
        if executed.tool.read_only:
            return live.observation
        try:
            return self._place.environment.observe(live.sandbox)
        except InfrastructureError:
            return None

    def _left_unchanged(self, executed: Executed, after: Observation | None) -> bool:
        """Whether a call left the state as it was."""
        if executed.tool.read_only:
            return True
        if executed.before is None or after is None:
            return False
        return self._place.environment.unchanged(executed.call, executed.before, after)

    def _end_flight(self, executed: Executed) -> None:
        """Wakes who waits for a call. Who does not find it in the graph now had better execute it without waiting."""
        if executed.flight is not None:
            self._cache._flights.end(executed.flight, unshareable=True)

    def _snapshot(self, live: LiveSandbox, *, volatile: bool) -> bool:
        """Snapshots the state that a sandbox came to, if the policy says so; returns whether the sandbox lives on."""
        try:
            self._cache._snapshotter.consider(live, volatile=volatile)
        except TvsnapError:
            return False
        finally:
            self._cache._snapshotter.settle(live.state)
        return True

    # Without the cache.

    def _call_uncached(self, call: ToolCall, timeout: float) -> ToolResult:
        """Executes a call in the rollout's one sandbox; looks nothing up and records nothing."""
        if self._closed:
            raise UsageError("the rollout is closed")
        began = time.perf_counter()
        self._tool(call)
        live = self._uncached_sandbox()
        try:
            result = self._place.environment.execute(live.sandbox, call, timeout, self._place.limits)
        except BaseException:
            self._drop()
            raise
        finally:
            self._calls += 1
        self._at = Position(next_state(self._at.state, call), self._at.depth + 1, recorded=False)
        self._cache._meter.executed(result.duration, time.perf_counter() - began, self._calls, None)
        return result

    def _uncached_sandbox(self) -> LiveSandbox:
        """Returns the rollout's one sandbox, started at its first call."""
        if self._live is None:
            if self._calls:
                raise InfrastructureError("the rollout's sandbox is gone, and without the cache nothing can rebuild it")
            self._live = self._cache._rebuilder.start(self._root, self._place)
        return self._live


def _root(place: Place, salt: str, platform: str) -> RootInfo:
    """Returns the root that a fresh sandbox of a place stands at."""
    image, environment = place.image, place.environment
    limits = environment.behaviour(place.limits)
    hash = root_state(
        image=image.digest,
        environment=environment.name,
        version=environment.version,
        limits=limits,
        network=NETWORK,
        platform=platform,
        salt=salt,
    )
    return RootInfo(hash, image.name, image.digest, environment.name, limits, salt, time.time())


def _seconds(timeout: float) -> float:
    """Returns a timeout as a plain number of seconds.

    Raises:
        UsageError: if it is none.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise UsageError(f"a timeout must be a number of seconds above 0, not {timeout!r}")
    return float(timeout)
