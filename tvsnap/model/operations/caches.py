"""The operations of a cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar, cast, overload

from tvsnap.model.arguments import check_whole
from tvsnap.model.credit import TaskValues
from tvsnap.model.errors import UsageError
from tvsnap.model.forks import AsyncForks, Forks, awaited_or_entered, reseeded, reseeded_later
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.network import NetworkLike
from tvsnap.model.operations.operation import (
    HERE,
    Count,
    Epoch,
    ImageName,
    Operation,
    Performs,
    PerformsAwaited,
    Reach,
    Seconds,
    Use,
    awaited,
)
from tvsnap.model.stats import Stats

R = TypeVar("R")
S = TypeVar("S")

# The docstrings of `CacheMethods` describe the fields.


@dataclass(frozen=True, slots=True)
class OpenRollout:
    """Begins a rollout; see `Cache.rollout`."""

    image: ImageName
    task: str = ""
    salt: str | None = None
    label: str | None = None
    limits: Use = None
    network: Reach = None
    deadline: Seconds | None = None
    epoch: Epoch | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Begins a rollout at a state; see `Cache.resume`."""

    state: Annotated[str, HERE]
    task: str = ""
    label: str | None = None
    after: Seconds = 0.0
    epoch: Epoch | None = None


@dataclass(frozen=True, slots=True)
class Expect(Operation[None]):
    """Announces rollouts of an image; see `Cache.expect`."""

    image: Annotated[str | Image, HERE]
    n: Count = 1
    salt: str | None = None
    limits: Use = None
    network: Reach = None


@dataclass(frozen=True, slots=True)
class Warm(Operation[str]):
    """Takes a snapshot of an image's root; see `Cache.warm`."""

    image: Annotated[str | Image, HERE]


@dataclass(frozen=True, slots=True)
class Values(Operation[TaskValues]):
    """Returns the values of the states and calls of a task; see `Cache.values`."""

    task: str
    epoch: int | None = None
    rollouts: Sequence[str] | None = None


class BeginsRollouts(Generic[R]):
    """The methods that begin rollouts, here or elsewhere; a rollout with awaited methods begins with its first use."""

    def begin(self, opening: OpenRollout | Resume) -> R:
        """Begins a rollout.

        Args:
            opening: the arguments, from one of the other methods.

        Returns:
            The rollout; see the method that makes `opening`, also for its errors.
        """
        raise NotImplementedError

    def rollout(
        self,
        image: str | Image,
        task: str = "",
        salt: str | None = None,
        label: str | None = None,
        *,
        limits: Limits | None = None,
        network: NetworkLike = None,
        deadline: float | None = None,
        epoch: int | None = None,
    ) -> R:
        """Begins a rollout at the root of an image, which is the state of a freshly started sandbox.

        No sandbox is started yet. A rollout whose methods are awaited begins with its first use; errors are raised
        then.

        Args:
            image: the image, or its name or digest.
            task: the task of the rollout. It groups rollouts for people; states are shared across tasks.
            salt: a text that separates rollouts: states are shared only with rollouts of the same salt.
            label: a name of this rollout for people.
            limits: the limits of its sandboxes; None for those of the image. Rollouts share states if the limits that
                change behaviour are the same.
            network: the network policy of its sandboxes: "none", "public", or a list of hosts ("example.org") and
                suffixes (".example.org"); None for the image's. Rollouts share states if it is the same.
            deadline: seconds from now on by which the rollout is to be finished; None for none. Its calls then wait for
                other rollouts only if they would end before the deadline even if they took their whole timeout, or for
                a hundredth of the remaining time.
            epoch: the number of the training run's pass over its tasks, 0 or more, for people; None for none.

        Returns:
            The rollout, which is to be closed after its last call.

        Raises:
            NotFound: there is no such image.
            UsageError: the image's environment is unknown, an argument makes no sense, or the cache is closed.
        """
        return self.begin(OpenRollout(image, task, salt, label, limits, network, deadline, epoch))

    def group(self, image: str | Image, task: str = "", n: int = 8, **options: Any) -> list[R]:
        """Begins several rollouts at one root, as trainers do that compare attempts at the same task.

        Args:
            image: the image, or its name or digest.
            task: the task of the rollouts.
            n: the number of rollouts.
            options: `salt`, `label`, `limits`, `network`, `deadline` and `epoch`, as in `rollout`.

        Returns:
            The rollouts, each to be closed after its last call.

        Raises:
            NotFound, UsageError: as `rollout`. None is open then.
            Busy: a server has no room for all of them. None is open then.
        """
        check_whole(n, "n", 1)
        return self._all_or_none(self.rollout(image, task, **options) for _ in range(n))

    def resume(
        self, state: str, task: str = "", label: str | None = None, *, after: float = 0.0, epoch: int | None = None
    ) -> R:
        """Begins a rollout at any state of the graph.

        Not all states are kept. `Rollout.snapshot_if_idle` keeps the one at which a rollout stands; others are made
        again by their calls, if these lead to the same state each time.

        Args:
            state: the state's full hash, as `Rollout.state` returns it.
            task: groups rollouts for people, as in `rollout`.
            label: a name of this rollout for people.
            after: seconds that are to have passed there since the state was reached, if something runs by itself.
            epoch: as in `rollout`.

        Returns:
            The rollout, which stands at `state`.

        Raises:
            UsageError: `state` is not the hash of a state, or another argument makes no sense.
            NotFound: there is no such state, or its image was removed.
            StateLost: the state is no longer kept, and nothing else leads to it.
        """
        return self.begin(Resume(state, task, label, after, epoch))

    def _all_or_none(self, rollouts: Iterable[R]) -> list[R]:
        """Returns all of some rollouts; if one cannot be begun, none is open afterwards."""
        return list(rollouts)


class CacheMethods(Performs, BeginsRollouts[R], Generic[R, S]):
    """The methods of a cache, here or elsewhere."""

    def _all_or_none(self, rollouts: Iterable[R]) -> list[R]:
        with ExitStack() as undo:
            entered = [undo.enter_context(cast("AbstractContextManager[R]", rollout)) for rollout in rollouts]
            undo.pop_all()
            return entered

    def expect(
        self,
        image: str | Image,
        n: int = 1,
        *,
        salt: str | None = None,
        limits: Limits | None = None,
        network: NetworkLike = None,
    ) -> None:
        """Announces that rollouts of an image will soon need a sandbox at its root: these are made ahead of time.

        A trainer that knows the next tasks saves their first calls the start of a sandbox. Sandboxes are made in the
        background while processors are idle, as far as `Budget` has room for them, and closed if they are not used for
        some minutes or others need the room. Nothing is done if `prefork` is 0 or `use_cache` is False.

        Args:
            image: the image, or its name or digest.
            n: the number of rollouts, in addition to those announced before.
            salt: as in `rollout`.
            limits: the limits of the sandboxes, as in `rollout`.
            network: their network policy, as in `rollout`.

        Raises:
            NotFound: there is no such image.
            UsageError: an argument makes no sense, or the cache is closed.
        """
        return self.perform(Expect(image, n, salt, limits, network))

    def warm(self, image: str | Image) -> str:
        """Starts an image once and takes a snapshot of its root, so that no rollout waits for the start of a server.

        Nothing is done if the root has a snapshot, or if sandboxes of the image run no service.

        Args:
            image: the image, or its name or digest.

        Returns:
            The hash of the root, the state at which rollouts without a salt begin.

        Raises:
            NotFound: there is no such image.
            NotCheckpointable: the root cannot be kept; the message is the reason. Each rollout then starts the server.
            InfrastructureError: the sandbox does not start.
        """
        return self.perform(Warm(image))

    def values(self, task: str, *, epoch: int | None = None, rollouts: Sequence[str] | None = None) -> TaskValues:
        """Returns the values of the states and calls of a task's rollouts, for credit by step in training.

        For each state and each call that was made in it: the number of rollouts that did so, and the mean and variance
        of their rewards. For each call of each rollout: its advantage, which is the rollout's reward minus the mean of
        the others that stood in the same state, averaged over the rollouts that made the same call there. A rollout
        that stood there alone is compared with the others that stood where it began, as in LOOP (arXiv 2502.01600).
        Credit by state is that of RTMC (arXiv 2604.11037); `tvsnap.model.credit` lists the differences.

        It is computed from the data directory, so any process may ask. Calls of the last second, by rollouts of other
        caches or by rollouts that are not closed, may not be there yet. Rollouts without a reward (`Rollout.grade`,
        `Rollout.record`) are left out, and so are all that were made without the cache. If something runs by itself, a
        state is one state, for any time that rollouts waited in it.

        Args:
            task: the task.
            epoch: only rollouts of this epoch, so that the values are those of the present policy; None for all.
            rollouts: only these, by their ids, such as the present group; None for all. Unknown ids, such as those of
                another server of a fleet, are left out.

        Returns:
            The values, without any state where no rollout of the task has a reward.

        Raises:
            UsageError: an argument makes no sense, or the cache is closed.
        """
        return self.perform(Values(task, epoch, rollouts))

    def materialise(self, state: str, *, after: float = 0.0, network: NetworkLike = None) -> AbstractContextManager[S]:
        """Returns a context manager with a live sandbox in any state of the graph, which is ended after the block.

        It is meant for graders: all work in the sandbox is gone afterwards and changes nothing for rollouts. If
        something runs by itself, the state is that right after the call that led to it, and a rollout that has waited
        there has come further: `Rollout.grade` grades its present state, and `Rollout.fork` goes on from that.

        Args:
            state: the state's full hash, as `Rollout.state` returns it. With `use_cache=False`, it is one at which an
                open rollout of this cache stands, or its root.
            after: seconds that the sandbox is to have run in the state before it is given out. It counts only if
                something in the state runs by itself.
            network: the network policy of the sandbox, as in `rollout`; None for that of rollouts there.

        Yields:
            The sandbox.

        Raises:
            UsageError: `state` is not the hash of a state, or another argument makes no sense.
            NotFound: there is no such state, or its image was removed.
            StateLost: the state is no longer kept, and nothing else leads to it.
            InfrastructureError: the sandbox could not be made.
        """
        return self._materialised(state, after, network)

    @overload
    def fork(self, state: str, n: int = 1, *, as_rollouts: Literal[False] = False) -> Forks[S]: ...

    @overload
    def fork(
        self,
        state: str,
        n: int = 1,
        *,
        as_rollouts: Literal[True],
        task: str = "",
        label: str | None = None,
        epoch: int | None = None,
        reseed: bool = False,
    ) -> Forks[R]: ...

    def fork(
        self,
        state: str,
        n: int = 1,
        *,
        as_rollouts: bool = False,
        task: str = "",
        label: str | None = None,
        epoch: int | None = None,
        reseed: bool = False,
    ) -> Forks[S] | Forks[R]:
        """Returns several sandboxes, or rollouts, that stand at any state of the graph, live processes included.

        Each goes on by itself from there. It is meant for tree search, best-of-n and the like. Rollouts record their
        calls, and are answered if one of them has made a call before; work in sandboxes is not recorded.

        Args:
            state: the state's full hash, as `Rollout.state` returns it; with `use_cache=False` as in `materialise`.
            n: their number; of sandboxes, at most `Budget.sandboxes`.
            as_rollouts: begin rollouts, which make sandboxes once they need them, as `resume` does.
            task: groups the rollouts for people.
            label: a name of the rollouts for people.
            epoch: their epoch, as in `rollout`.
            reseed: give each rollout random numbers of its own, as `Rollout.fork` does.

        Returns:
            The sandboxes or rollouts, to be closed together (`Forks.close`, or a `with` block).

        Raises:
            UsageError: `state` is not the hash of a state, or another argument makes no sense.
            NotFound: there is no such state, or its image was removed.
            StateLost: the state is no longer kept, and nothing else leads to it.
            InfrastructureError: a sandbox could not be made. None is left then.
        """
        if not as_rollouts:
            _check_unseeded(reseed)
            return self._made(state, n)
        forks = self._forked(Resume(state, task, label, epoch=epoch), n)
        return reseeded(forks, state) if reseed else forks

    def stats(self) -> Stats:
        """Returns the statistics of the cache."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the rollouts; see `Cache.close`."""
        raise NotImplementedError

    def _materialised(self, state: str, after: float, network: NetworkLike) -> AbstractContextManager[S]:
        raise NotImplementedError

    def _forked(self, opening: Resume, n: int) -> Forks[R]:
        """Returns several rollouts that begin in the same way."""
        raise NotImplementedError

    def _made(self, state: str, n: int) -> Forks[S]:
        """Returns several sandboxes in a state."""
        raise NotImplementedError


class AwaitedCacheMethods(PerformsAwaited, BeginsRollouts[R], Generic[R, S]):
    """The methods of a cache, here or elsewhere, to be awaited."""

    expect = awaited(CacheMethods.expect)
    """`Cache.expect`, to be awaited."""
    values = awaited(CacheMethods.values)
    """`Cache.values`, to be awaited."""
    warm = awaited(CacheMethods.warm)
    """`Cache.warm`, to be awaited."""

    def materialise(
        self, state: str, *, after: float = 0.0, network: NetworkLike = None
    ) -> AbstractAsyncContextManager[S]:
        """Returns an asynchronous context manager with a live sandbox in any state; see `Cache.materialise`.

        Args:
            state: the state's full hash, as `AsyncRollout.state` returns it.
            after: seconds that the sandbox is to have run in the state; see `Cache.materialise`.
            network: the network policy of the sandbox; see `Cache.materialise`.

        Yields:
            The sandbox.

        Raises:
            UsageError, NotFound, StateLost, InfrastructureError: see `Cache.materialise`.
        """
        return self._materialised(state, after, network)

    @overload
    @awaited_or_entered
    async def fork(self, state: str, n: int = 1, *, as_rollouts: Literal[False] = False) -> AsyncForks[S]: ...

    @overload
    @awaited_or_entered
    async def fork(
        self,
        state: str,
        n: int = 1,
        *,
        as_rollouts: Literal[True],
        task: str = "",
        label: str | None = None,
        epoch: int | None = None,
        reseed: bool = False,
    ) -> AsyncForks[R]: ...

    @awaited_or_entered
    async def fork(
        self,
        state: str,
        n: int = 1,
        *,
        as_rollouts: bool = False,
        task: str = "",
        label: str | None = None,
        epoch: int | None = None,
        reseed: bool = False,
    ) -> AsyncForks[S] | AsyncForks[R]:
        """Returns several sandboxes, or rollouts, that stand at any state of the graph; see `Cache.fork`.

        `async with cache.fork(...) as forks:` closes them after the block; `forks = await cache.fork(...)` does not.

        Args:
            state: the state's full hash.
            n: their number.
            as_rollouts: begin rollouts, which make sandboxes once they need them.
            task: groups the rollouts for people.
            label: a name of the rollouts for people.
            epoch: their epoch, as in `rollout`.
            reseed: give each rollout random numbers of its own, as `Rollout.fork` does.

        Returns:
            The sandboxes or rollouts, to be closed together.

        Raises:
            UsageError, NotFound, StateLost, InfrastructureError: see `Cache.fork`.
        """
        if not as_rollouts:
            _check_unseeded(reseed)
            return await self._made(state, n)
        forks = await self._forked(Resume(state, task, label, epoch=epoch), n)
        return await reseeded_later(forks, state) if reseed else forks

    def _materialised(self, state: str, after: float, network: NetworkLike) -> AbstractAsyncContextManager[S]:
        raise NotImplementedError

    async def _forked(self, opening: Resume, n: int) -> AsyncForks[R]:
        """Returns several rollouts that begin in the same way."""
        raise NotImplementedError

    async def _made(self, state: str, n: int) -> AsyncForks[S]:
        """Returns several sandboxes in a state."""
        raise NotImplementedError


def _check_unseeded(reseed: bool) -> None:
    if reseed:
        raise UsageError("only rollouts are reseeded, as their states have names: fork with as_rollouts=True")
