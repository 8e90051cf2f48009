"""The cache on a data directory: it begins rollouts, and makes sandboxes in any state of the graph."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import wait
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from tvsnap.engine.any_state import AnyState
from tvsnap.engine.hint import Hint
from tvsnap.engine.keeping.budgets import taken
from tvsnap.engine.keeping.policy import Policy
from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.engine.open_rollouts import OpenRollouts
from tvsnap.engine.position import Position
from tvsnap.engine.rollout import CacheHooks, RolloutEngine
from tvsnap.engine.services import Services
from tvsnap.engine.settings import CacheSettings
from tvsnap.engine.supply.rebuilding import make_again
from tvsnap.engine.supply.recipes import ImageSource
from tvsnap.environments.base import Environment
from tvsnap.graph import Edge
from tvsnap.graph.reexecution import Remade
from tvsnap.host.home import resolve_home
from tvsnap.images import ImageStore
from tvsnap.model.arguments import (
    check_epoch,
    check_seconds,
    check_text,
    check_type,
    check_whole,
)
from tvsnap.model.credit import TaskValues
from tvsnap.model.errors import InfrastructureError, UsageError
from tvsnap.model.forks import Forks
from tvsnap.model.images import Image
from tvsnap.model.limits import Budget, Limits
from tvsnap.model.network import NetworkLike
from tvsnap.model.operations.caches import CacheMethods, Expect, OpenRollout, Resume, Values, Warm
from tvsnap.model.operations.operation import Operation
from tvsnap.model.shares import Share
from tvsnap.model.stats import Stats
from tvsnap.rollout import Rollout
from tvsnap.sandboxes.network.settings import NetworkSettings
from tvsnap.sandboxes.protocol import Backend, Sandbox

T = TypeVar("T")


class Cache(CacheMethods[Rollout, Sandbox]):
    """A stateful tool-value cache on one data directory.

    It begins rollouts, and gives sandboxes in any state of the graph. It may be used by any number of threads, and is a
    context manager that closes it. Several processes may use one data directory at once, each with a cache of its own.

    Attributes:
        home: the absolute path of the data directory.
        graph: the tool-call graph.
        images: the source of images.
        backend: the backend of sandboxes.
        owner: the id of this process on the data directory.
        pool: the live sandboxes of this process.
        limits: the limits of every sandbox; None if the limits of each image apply.
        budget: the budget of the cache.
        audit: makes a share of the answered calls again; `audit.report()` returns the results.
        use_cache: False if nothing is looked up and nothing is recorded.
    """

    def __init__(
        self,
        home: Path | str | None = None,
        *,
        backend: str | Backend = "local",
        policy: str | Policy = "default",
        limits: Limits | None = None,
        budget: Budget | None = None,
        use_cache: bool = True,
        same_ids: bool = False,
        prefork: int | None = None,
        audit: float = 0.0,
        images: ImageSource | None = None,
        environments: Iterable[Environment] = (),
        network_settings: NetworkSettings | None = None,
        network_answers: float | None = None,
        timeouts: Literal["private", "shared"] = "private",
        grade_executions: int = 1,
        shares: Iterable[Share] = (),
        graph: str | None = None,
    ) -> None:
        """Opens a data directory, and removes what processes that have died left behind in it.

        Args:
            home: the data directory. By default `$TVSNAP_HOME`; without that /var/lib/tvsnap for root, and `tvsnap` in
                the XDG data directory for other users. It is made if it is not there.
            backend: the name of a backend (`local` or `docker`), or an open backend, which is closed with the cache.
            policy: when to take snapshots: `default`, where that is free or pays; `eager`, `never`, or an object with
                `should_checkpoint`.
            limits: what one sandbox may use; by default what its image asks for.
            budget: what snapshots and sandboxes may use together; see `Budget` for the defaults.
            use_cache: False to execute every call, in one fresh sandbox for each rollout, for comparison.
            same_ids: have a look at the sandbox after each call, also where nothing is shared, so that the processes
                of the next one have the same ids with the cache and without: for comparisons of what calls return, not
                of speed. Always so where an image has a seed (`random_seed`), as chance goes by process ids then.
            prefork: how many sandboxes are made ahead of time for states that were needed lately. By default 0, or a
                few where making a sandbox takes long. Unless it is 0, a rollout that was answered has a sandbox made
                for it while its model thinks, where its next call is likely to be new and processors are idle.
            audit: the share (0 to 1) of the answered calls that are made again in the background and compared. A call
                that returns something else is reported and answers nothing from then on.
            images: an object whose `get` returns an image by name or digest; by default the images of the data
                directory.

            environments: environments of your own, which images name as they name themselves. Those of installed
                packages, and those that `TVSNAP_ENVIRONMENTS` names, are found without being given here.
            network_settings: what the host lends to sandboxes that have a network; by default what the environment
                variables `TVSNAP_NETWORK_*` say.
            network_answers: seconds for which the result of a call that asked the network answers others; None for
                ever, 0 never. What a tool says of itself (`Tool.time_to_live`) comes first.
            timeouts: `private` if a call that timed out while the load of the machine held it up answers nobody else,
                because it would have come further on a less busy one; `shared` if that makes no difference that
                matters: it then answers calls with the same timeout. Other calls that timed out, having waited or
                computed for all of their time, are shared in any case.
            grade_executions: how many times a call that grades (`Rollout.call(grade=...)`) is executed in a state
                before its grade answers others there. If executions give different grades, none ever does: each
                rollout then has the grade that it would have had without the cache.
            shares: the parts that several owners of rollouts have of the budget for snapshots, and of the processors
                (local backend). Who takes more than its part of the snapshots loses its own first, and may use what
                others leave free.
            graph: the address of a PostgreSQL database, `postgresql://user@host/database`, through which hosts exchange
                their calls; None for none. See the guide of fleets.

        Raises:
            UsageError: there is no such backend or policy, or another argument makes no sense.
            MachineLacks: this machine lacks something that is needed; the message says what.
            TvsnapError: the graph cannot be opened.
        """
        settings = CacheSettings(
            backend=backend,
            policy=policy,
            limits=limits,
            budget=Budget() if budget is None else budget,
            use_cache=use_cache,
            same_ids=same_ids,
            prefork=prefork,
            audit=audit,
            images=images,
            environments=tuple(environments),
            network_settings=network_settings or NetworkSettings.of_environment(),
            network_answers=network_answers,
            timeouts=timeouts,
            grade_executions=grade_executions,
            shares=tuple(shares),
            graph=graph,
        )
        self.use_cache, self.limits = use_cache, limits
        self.home = resolve_home(home)
        self._rollouts = OpenRollouts()
        self._services = Services(settings, self.home, reexecute=self.reexecute, make_room=self._end_dropped_soon)
        self.graph = self._services.graph
        self.backend = self._services.backend
        self.owner = self._services.owner.id
        self.pool = self._services.pool
        self.budget = self._services.budget
        self.audit = self._services.audit
        self._any_state = AnyState(self._services, self._rollouts.all)
        self._hooks = CacheHooks(self._rollouts.dropped, self._ended, self._resume, self._for_grading)
        self._hint = Hint()
        self._totals = self._services.totals
        self._used: Mapping[str, tuple[int, int | None]] = {}

    @property
    def images(self) -> ImageStore:
        """The images of the data directory: `cache.images.build("folder")`, `cache.images.get("terminal")`.

        If the cache was opened with `images`, it is that object, which may have no method but `get`.
        """
        return cast("ImageStore", self._services.images)

    def begin(self, opening: OpenRollout | Resume) -> Rollout:
        """Begins a rollout; see `BeginsRollouts.begin`."""
        if isinstance(opening, OpenRollout):
            return Rollout(self._open(opening))
        rollout = self._resume(opening.state, opening.task, opening.label, opening.epoch, opening.after)
        self._services.companions.begun(rollout, rollout.where())
        return Rollout(rollout)

    def _open(self, opening: OpenRollout) -> RolloutEngine:
        """Begins a rollout at the root of an image."""
        self._check_open()
        image, limits, network, epoch = opening.image, opening.limits, opening.network, opening.epoch
        task = check_text(opening.task, "task")
        salt = "" if opening.salt is None else check_text(opening.salt, "salt")
        label = "" if opening.label is None else check_text(opening.label, "label")
        check_epoch(epoch)
        if limits is not None:
            check_type(limits, Limits, "limits")
        until = math.inf
        if opening.deadline is not None:
            until = time.monotonic() + check_seconds(opening.deadline, "deadline", least=0.0)
        recipe = self._services.recipes.of_image(image, limits, network, salt)
        root = self._services.recipes.root(recipe, salt)
        at, id = Position(root.hash), None
        self._services.recipes.remember(recipe.image)
        if self.use_cache:
            try:
                self.graph.ensure_root(root)
                about = {"task": task, "image": recipe.image.name, "root": root.hash, "label": label}
                id = self.graph.begin_rollout(**about, epoch=epoch).id
            except InfrastructureError as error:  # a full disk must not fail a rollout
                at = Position(root.hash, private=f"could not be recorded: {error}", recorded=False)
        where = (recipe, root, id, task, at, until)
        return self._begun(RolloutEngine(self._services, self._hooks, *where, label=label, epoch=epoch))

    def perform(self, operation: Operation[T]) -> T:
        """Performs an operation; see `Performs.perform`."""
        performer = _PERFORMERS[type(operation)]
        answer: T = performer(self, operation)
        return answer

    def _expect(self, announced: Expect) -> None:
        """See `expect`."""
        image, n, limits, network = announced.image, announced.n, announced.limits, announced.network
        self._check_open()
        check_whole(n, "n", 1)
        salt = "" if announced.salt is None else check_text(announced.salt, "salt")
        if limits is not None:
            check_type(limits, Limits, "limits")
        recipe = self._services.recipes.of_image(image, limits, network, salt)
        if self._services.preforker.enabled:
            root = self._services.recipes.root(recipe, salt)
            self.graph.ensure_root(root)
            self._services.acquirer.announce(root.hash, recipe, n)

    def _values(self, operation: Values) -> TaskValues:
        """See `values`."""
        self._check_open()
        return self.graph.values(operation.task, epoch=operation.epoch, rollouts=operation.rollouts)

    def _warm(self, warming: Warm) -> str:
        """See `warm`."""
        self._check_open()
        recipe = self._services.recipes.of_image(warming.image)
        root = self._services.recipes.root(recipe, "")
        if recipe.environment.serves:
            self.graph.ensure_root(root)
            live = self._services.acquirer.acquire(root.hash, recipe).live
            try:
                self._services.snapshotter.take(live)
            finally:
                self.pool.discard(live)
        return root.hash

    def _resume(self, state: str, task: str, label: str | None, epoch: int | None, after: float = 0.0) -> RolloutEngine:
        """See `resume`."""
        self._check_open()
        if not self.use_cache:
            raise UsageError(
                "without the cache (use_cache=False) a rollout begins at an image's root only: nothing is recorded "
                "that leads elsewhere; materialise and fork give sandboxes in the states of open rollouts"
            )
        check_text(task, "task")
        label = "" if label is None else check_text(label, "label")
        check_epoch(epoch)
        after = check_seconds(after, "after", least=0.0)
        recipe = self._services.recipes.of_state(state)
        start, made_by = self.graph.state(state), self.graph.edge_to(state)
        about = {"task": task, "image": recipe.image.name, "root": start.root, "label": label}
        record = self.graph.begin_rollout(**about, epoch=epoch, start=state)
        quiet_s = math.inf if made_by is None else made_by.quiet_s
        at = Position(state, start.depth, start.private, quiet_s=quiet_s, since=time.monotonic() - after)
        root = self._services.recipes.root_of(state)
        where = (recipe, root, record.id, task, at)
        rollout = self._begun(RolloutEngine(self._services, self._hooks, *where, label=label, epoch=epoch))
        try:
            self._services.holds.wait_for_evictions()  # one that began before may not have seen its state
            standing = self._any_state.keep_live(state)
            if standing is not None:
                rollout.begin_in(standing.fork_if_idle(state))
            if not self._services.acquirer.is_sure(state):  # better now than at the first call
                rollout.reach()
        except BaseException:
            rollout.close()
            raise
        return rollout

    @contextlib.contextmanager
    def _materialised(self, state: str, after: float, network: NetworkLike) -> Iterator[Sandbox]:
        self._check_open()
        after = check_seconds(after, "after", least=0.0)
        with self._services.meter.aside():
            live, recipe = self._any_state.make(state, network)
        try:
            if after > 0 and recipe.environment.observe(live.sandbox).active:
                live.let_run(after)
            yield live.sandbox
        finally:
            self.pool.discard(live)

    def _forked(self, opening: Resume, n: int) -> Forks[Rollout]:
        self._check_open()
        check_whole(n, "n", 1)
        with contextlib.ExitStack() as undo:
            rollouts = [undo.enter_context(self.begin(opening)) for _ in range(n)]
            return Forks(rollouts, undo.pop_all().close)

    def _made(self, state: str, n: int) -> Forks[Sandbox]:
        self._check_open()
        check_whole(n, "n", 1, self.budget.sandboxes)
        with contextlib.ExitStack() as undo:

            def make(_number: int) -> Sandbox:
                with self._services.meter.aside():
                    live, _ = self._any_state.make(state)
                undo.callback(self.pool.discard, live)
                return live.sandbox

            # The state is kept once, for the first one.
            is_reachable = self.use_cache and self._services.acquirer.is_sure(state)
            sandboxes = [make(0)] if n == 1 or not is_reachable else []
            others = [self._services.forkers.submit(make, number) for number in range(len(sandboxes), n)]
            try:
                sandboxes += [other.result() for other in others]
            finally:
                for other in others:
                    other.cancel()
                wait(others)
            return Forks(sandboxes, undo.pop_all().close)

    def reexecute(self, edge: Edge) -> Remade:
        """Makes a recorded call once more, in a sandbox in its state that is ended afterwards. Nothing is recorded.

        Args:
            edge: the recorded call, from `graph`.

        Returns:
            The new result of the call, and the digest of the sandbox after it.

        Raises:
            UsageError: `edge` is not a `tvsnap.graph.Edge`.
            StateLost: the state is no longer kept, and nothing else leads to it.
            InfrastructureError: the sandbox could not be made, or it failed.
        """
        if not isinstance(edge, Edge):
            raise UsageError(f"edge must be a tvsnap.graph.Edge, not {edge!r}")
        if edge.on_host:
            raise UsageError(f"{edge.call.brief} was made on the host: it cannot be made again in a sandbox")
        recipe = self._services.recipes.of_state(edge.state)
        with self.materialise(edge.state, after=edge.waited) as sandbox:
            result = make_again(sandbox, edge, recipe)
            sandbox.settle(changed=edge.changed)
            return Remade(result, sandbox.digest() if edge.changed and edge.digest else None)

    def stats(self) -> Stats:
        """Returns the statistics of this cache, and the counters of all processes that used the data directory."""
        if not self._rollouts.closed:
            self._totals = self.graph.counters()
            self._used = self.budget.compare(
                disk=taken(self.backend, self.graph),
                snapshots=self.graph.snapshot_usage(self.backend.name)[0],
                memory=self.pool.memory,
                sandboxes=self.pool.live,
            )
        return self._services.meter.stats(
            sandboxes=self.pool.live,
            parked=self.pool.parked,
            ready=self.pool.ready,
            budget=self._used,
            trouble=self.trouble,
            totals=self._totals,
        )

    def refusal(self, state: str) -> str | None:
        """Returns why this process could not take a snapshot of a state; None if it did not try, or succeeded.

        Args:
            state: the state's full hash.
        """
        return self._services.snapshotter.refusal(state)

    @property
    def trouble(self) -> str | None:
        """The reason why no snapshots are taken at present, such as a full disk; None if they are taken."""
        return self._services.snapshotter.trouble

    def close(self) -> None:
        """Ends all rollouts and sandboxes, waits for snapshots under way, and writes the counters.

        It may be called more than once.
        """
        if self._services.home.forked_off:
            return  # all of its parts are the parent's
        services, rollouts = self._services, self._rollouts.close()
        if rollouts is None:
            return
        services.claims.close()
        with services.home.in_place(), contextlib.ExitStack() as ends:  # in reverse order, each even if another fails
            ends.callback(services.owner.close)
            ends.callback(services.contents.close)
            ends.callback(services.holds.close)
            ends.callback(self._close_graph)
            ends.callback(services.backend.close)
            ends.callback(services.kept.close)
            ends.callback(services.audit.join)
            ends.callback(self._rollouts.end_dropped)
            for rollout in rollouts:
                ends.callback(rollout.close)
            ends.callback(services.pool.close)  # calls still under way end here
            ends.callback(services.workers.shutdown)
            ends.callback(services.forkers.shutdown)
            for rollout in rollouts:
                ends.callback(rollout.close_if_idle)
            ends.callback(services.preforker.close)
            ends.callback(services.companions.close)
            ends.callback(services.audit.close)

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        self._rollouts.check()
        self._services.home.check()

    def _begun(self, rollout: RolloutEngine) -> RolloutEngine:
        self._rollouts.add(rollout)
        self._services.meter.add(rollouts=1)
        self._services.acquirer.expect(rollout.where().state, rollout.recipe)
        return rollout

    @contextlib.contextmanager
    def _for_grading(self, state: str) -> Iterator[LiveSandbox]:
        """A block with a sandbox in a state that a rollout waits for, unlike those of `materialise`."""
        self._check_open()
        live, _ = self._any_state.make(state)
        try:
            yield live
        finally:
            self.pool.discard(live)

    def limits_for(self, image: Image) -> Limits:
        """Returns the limits that sandboxes of an image have in this cache.

        Args:
            image: the image.

        Raises:
            UsageError: the image's limits make no sense, and the cache has none.
        """
        return self._services.recipes.limits_for(image)

    def _close_graph(self) -> None:
        with contextlib.suppress(InfrastructureError):  # counters that a full disk has no room for
            self._totals = self.graph.counters()
        with contextlib.suppress(InfrastructureError):
            self.graph.close()

    def _end_dropped_soon(self) -> None:
        """Has a worker end the rollouts that nobody refers to any more, because a sandbox waits for room."""
        if not self._rollouts.dropped.empty():
            with contextlib.suppress(RuntimeError):  # the cache is being closed
                self._services.workers.submit(self._rollouts.end_dropped)

    def _ended(self, rollout: RolloutEngine, at: Position, outcome: str | None) -> None:
        """Forgets a rollout that has ended, perhaps by an error, and writes its end for people."""
        self._rollouts.remove(rollout)
        if self.use_cache:
            self._hint.look(self._services.meter)
            with contextlib.suppress(InfrastructureError):  # a full disk must not fail a rollout
                if rollout.id is not None:
                    self.graph.end_rollout(rollout.id, at.state, outcome)
                self.graph.flush()


_PERFORMERS: Mapping[type, Callable[[Cache, Any], Any]] = {
    Expect: Cache._expect,
    Values: Cache._values,
    Warm: Cache._warm,
}
