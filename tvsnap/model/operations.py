"""What is asked of caches and rollouts: operations as values, and the methods that make them.

A method of `RolloutMethods` makes an operation and has `perform` perform it, in this process, at a server, or at one of
several. A parameter is defined here and used where the operation is executed; whatever lies between passes operations
on as they are. `tvsnap.wire.operations` makes JSON of them, by the types of their fields.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from tvsnap.model.arguments import LARGEST, check_whole
from tvsnap.model.calls import DEFAULT_TIMEOUT, ToolResult
from tvsnap.model.credit import TaskValues
from tvsnap.model.errors import UsageError
from tvsnap.model.fetched import Fetched
from tvsnap.model.grades import Grade, Verifier
from tvsnap.model.images import Image
from tvsnap.model.limits import MOST_FETCHED, Limits
from tvsnap.model.network import Network, NetworkLike
from tvsnap.model.observations import Command
from tvsnap.model.several import AsyncForks, Forks, awaited_or_entered
from tvsnap.model.side_by_side import exec_all_arguments

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Travels:
    """How the values of a field get to a server, if not as they are.

    Attributes:
        kind: the type in JSON.
        encode: returns the value in JSON; None for the value itself.
    """

    kind: Any
    encode: Callable[[Any], Any] | None


@dataclass(frozen=True)
class Bounds:
    """The smallest and the largest value of a field that a server takes; None for any."""

    least: int
    most: int | None = None


HERE = object()
"""Marks a field that is not part of the JSON of its operation."""
Seconds = Annotated[float, Bounds(0)]
Count = Annotated[int, Bounds(1, 10_000)]
Epoch = Annotated[int, Bounds(0, LARGEST)]


def _image_name(image: object) -> object:
    return image.digest if isinstance(image, Image) else image


def hosts_of(network: NetworkLike) -> str | list[str] | None:
    """Returns a network policy as JSON."""
    if network is None:
        return None
    policy = Network.of(network)
    return "public" if policy.public else list(policy.allow)


def _list(values: Sequence[str] | None) -> list[str] | None:
    return None if values is None else list(values)


def _limits(limits: Limits | None) -> dict[str, Any] | None:
    return None if limits is None else asdict(limits)


ImageName = Annotated[str | Image, Travels(str, _image_name)]
Reach = Annotated[NetworkLike, Travels(str | list[str] | None, hosts_of)]
Texts = Annotated[Sequence[str] | None, Travels(list[str] | None, _list)]
Use = Annotated[Limits | None, Travels(Limits | None, _limits)]


class Operation(Generic[T]):
    """What is asked of a rollout or a cache; `T` is what it comes to."""

    __slots__ = ()


class Performs:
    """What performs operations: a rollout or a cache, wherever it is."""

    def perform(self, operation: Operation[T]) -> T:
        """Performs an operation.

        Args:
            operation: the operation, as the other methods make it.

        Returns:
            What it comes to; see the method that makes it, also for what it raises.
        """
        raise NotImplementedError


class PerformsAwaited:
    """The same, to be awaited."""

    async def perform(self, operation: Operation[T]) -> T:
        """Performs an operation; see `Performs.perform`.

        Args:
            operation: the operation, as the other methods make it.
        """
        raise NotImplementedError


# What is asked of a rollout. The docstrings of `RolloutMethods` describe the fields.


@dataclass(slots=True)  # frozen, it would take six times as long to make, with each hit
class Call(Operation[ToolResult]):
    """A tool call; see `Rollout.call`. A timeout of null is as long as it takes."""

    name: str
    arguments: Mapping[str, Any]
    timeout: Seconds | None = DEFAULT_TIMEOUT
    after: Seconds = 0.0
    deadline: Seconds | None = None
    grade: Texts = None


@dataclass(frozen=True, slots=True)
class ExecAll(Operation[list[ToolResult]]):
    """Runs commands side by side; see `Rollout.exec_all`."""

    commands: Sequence[Command | str]
    timeout: float | None = DEFAULT_TIMEOUT
    user: str | None = None
    after: float = 0.0

    def as_call(self) -> Call:
        """Returns the tool call that this is."""
        return Call("exec_all", exec_all_arguments(self.commands, self.user), self.timeout, self.after)


@dataclass(frozen=True, slots=True)
class Put(Operation[ToolResult]):
    """Copies a file or a folder of this machine into the sandbox; see `Rollout.put`."""

    source: str | Path | bytes
    path: str
    user: str | None = None
    owners: bool = False
    mode: int | None = None
    timeout: float | None = None

    def check(self) -> None:
        """Raises UsageError unless the source is one."""
        if not isinstance(self.source, (str, Path, bytes)):
            raise UsageError(f"source must be a path, or bytes, not {self.source!r}")

    def as_call(self, digest: str) -> Call:
        """Returns the tool call that this is, once the content is there; `digest` is that of the content."""
        chosen: dict[str, Any] = {"user": self.user} if self.user is not None else {}
        chosen |= {"owners": True} if self.owners else {}
        return Call("put", {"path": self.path, "digest": digest, **chosen}, self.timeout)


@dataclass(frozen=True, slots=True)
class Get(Operation[Fetched]):
    """Fetches a file or a folder; see `Rollout.get`."""

    path: str
    destination: Annotated[str | Path | None, HERE] = None
    owners: bool = False
    limit: Annotated[int, Bounds(0)] = MOST_FETCHED
    timeout: Seconds | None = None

    def as_call(self) -> Call:
        """Returns the tool call that this is, without arguments that have their defaults."""
        chosen: dict[str, Any] = {"owners": True} if self.owners else {}
        chosen |= {"limit": self.limit} if self.limit != MOST_FETCHED else {}
        return Call("get", {"path": self.path, **chosen}, self.timeout)


@dataclass(frozen=True, slots=True)
class GradeState(Operation[Grade]):
    """Grades the state of a rollout; see `Rollout.grade`."""

    verifier: Verifier | str


@dataclass(frozen=True, slots=True)
class Record(Operation[None]):
    """Records a rollout's reward; see `Rollout.record`."""

    reward: float


@dataclass(frozen=True, slots=True)
class Keep(Operation[str]):
    """Keeps what was done in a rollout's sandbox; see `Rollout.keep`."""

    label: str
    output: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotIfIdle(Operation[bool]):
    """Takes a snapshot where a rollout stands; see `Rollout.snapshot_if_idle`."""


class RolloutMethods(Performs):
    """What may be asked of a rollout, wherever it is."""

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        after: float = 0.0,
        deadline: float | None = None,
        grade: Sequence[str] | None = None,
    ) -> ToolResult:
        """Makes a tool call: answers it from the graph if that is possible, and executes it otherwise.

        A failure of the tool itself, such as an exit status other than 0 or a timeout, is a result and no exception.
        If a task is cancelled that awaits a call, so is the call; see `cancel`. The rollout's next call comes after it.

        Args:
            name: the name of one of `tools`.
            arguments: the tool's arguments, as plain JSON.
            timeout: seconds that the call may take where it is executed; None for as long as it takes.
            after: seconds that are at least to have passed in the sandbox since the last call. The time that the caller
                has really let pass counts in any case; what is missing is waited for only where the call is executed.
            deadline: seconds from now on by which the caller needs the result; None for that of the rollout. The call
                waits for another rollout that makes it only as long as its timeout would still end before, or for a
                hundredth of what is left.
            grade: where the call grades what was done: the absolute paths of the files in which it leaves its grade,
                empty where its exit status is all; None for any other call. A grade answers others once it was given
                as often as `Cache(grade_executions=...)` says, and no other was.

        Returns:
            What the tool returned, now or when the same call was made in the same state before; `ToolResult.source`
            tells which.

        Raises:
            UsageError: there is no such tool, its arguments are wrong, or the rollout is closed.
            StateLost: what kept the rollout's state is gone, and nothing else leads to it. The rollout cannot go on.
            InfrastructureError: tvsnap, not the tool, failed. The rollout stands where it stood before the call, which
                may be made again.
            CallCancelled: `cancel` was called before the call was executed; likewise.
        """
        return self.perform(Call(name, arguments, timeout, after, deadline, grade))

    def exec_all(
        self,
        commands: Sequence[Command | str],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        user: str | None = None,
        after: float = 0.0,
    ) -> list[ToolResult]:
        """Runs several commands side by side, each in a fresh shell: one call, of the tool `exec_all`.

        What they return, and the state that they leave together, is recorded as a whole, and answers who makes the same
        call in the same state.

        Args:
            commands: the commands, at most 256.
            timeout: seconds that all of them may take where they are executed; None for as long as they take.
            user: the user that runs them; by default the image's.
            after: see `call`.

        Returns:
            What each command came to, in the order of the commands, as a call of `exec` returns it.

        Raises:
            UsageError, StateLost, InfrastructureError, CallCancelled: see `call`.
        """
        return self.perform(ExecAll(commands, timeout, user, after))

    def put(
        self,
        source: str | Path | bytes,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> ToolResult:
        """Copies a file or a folder of this machine into the sandbox, as a call like any other; see `Sandbox.put`.

        The call names the content by its digest, and the data directory keeps it: an upload of what was uploaded
        before, in the same state, is answered without a sandbox.

        Args:
            source: a path of this machine, or the contents of a file as bytes.
            path: where to; a relative path starts at the shell's working directory.
            user: the user that writes it, and owns it; by default the image's.
            owners: root writes it, and it keeps its numeric owners and groups.
            mode: the permission bits of a single file; by default its own, and 0644 for bytes.
            timeout: seconds that it may take where it is executed; None for as long as it takes.

        Returns:
            The result of the call. A failure that was met in the sandbox, such as a full disk there, is one, too.

        Raises:
            UsageError: the source cannot be read, or holds more than files, folders and links; or see `call`.
            StateLost: see `call`.
            InfrastructureError: the content could not be kept; or see `call`.
        """
        return self.perform(Put(source, path, user, owners, mode, timeout))

    def get(
        self,
        path: str,
        destination: str | Path | None = None,
        *,
        owners: bool = False,
        limit: int = MOST_FETCHED,
        timeout: float | None = None,
    ) -> Fetched:
        """Copies a file or a folder out of the sandbox, as a call like any other; see `Sandbox.get`.

        What the call fetched is kept in the data directory: asked for again in the same state, it is answered without
        a sandbox.

        Args:
            path: the file or folder, or a link to it; a relative path starts at the shell's working directory.
            destination: what it becomes on this machine; None to be read or written by `Fetched` later.
            owners: fetch its numeric owners, too, and give them to what is written, which only root may do.
            limit: the most bytes, holes included.
            timeout: seconds that it may take where it is executed; None for as long as it takes.

        Returns:
            What was fetched.

        Raises:
            OSError: with a destination: there is no such path, or it cannot be written.
            UsageError: see `call`.
            StateLost: see `call`.
            InfrastructureError: the content could not be kept; or see `call`.
        """
        return self.perform(Get(path, destination, owners, limit, timeout))

    def grade(self, verifier: Verifier | str) -> Grade:
        """Grades the state at which it stands, in a fork; changes nothing for the rollout.

        A grade is recorded under the state and the verifier's digest: a state is graded once, however many rollouts
        come to it; or as often as `Cache(grade_executions=...)` says. A state in which something runs by itself, such
        as a build in the background, is graded each time.

        Args:
            verifier: finds out what the state is worth; a text is the command of one. A server takes commands only.

        Returns:
            The reward, the results of the tests and the log, now or when the state was graded before.

        Raises:
            GradingFailed: the verifier failed, so that there is no grade. Nothing is recorded.
            UsageError: the rollout is closed, or `verifier` makes no sense.
            StateLost: no snapshot can be taken of the state, and nothing else leads to it.
            InfrastructureError: tvsnap, not the verifier, failed.
        """
        return self.perform(GradeState(verifier))

    def keep(self, label: str, output: str = "") -> str:
        """Records what was done in the sandbox that `sandbox` returned as one step, and takes a snapshot of the result.

        The rollout goes on from there in a private branch. The snapshot stays until `tvsnap forget` deletes it.

        Args:
            label: what was done, in words, for people.
            output: the text that is to be shown as the step's output.

        Returns:
            The hash of the state that it led to, or of the state before if nothing was changed.

        Raises:
            UsageError: no sandbox was returned by `sandbox` since the last call.
            NotCheckpointable: the step is recorded, but its state cannot be kept; the message is the reason.
            InfrastructureError: the sandbox has ended, or the snapshot failed.
        """
        return self.perform(Keep(label, output))

    def snapshot_if_idle(self) -> bool:
        """Snapshots the present state if a sandbox of the rollout's own stands there and no call is being made.

        Returns:
            Whether the state can be reached again for certain.

        Raises:
            InfrastructureError: the snapshot failed.
        """
        return self.perform(SnapshotIfIdle())

    def record(self, reward: float) -> None:
        """Records the rollout's reward, for people: `tvsnap rollouts` and `tvsnap show` tell it.

        It replaces an earlier one, also that of a grade, which `grade` records by itself. It may be called after
        `close`.

        Args:
            reward: the reward, a finite number.

        Raises:
            UsageError: `reward` is no finite number.
        """
        return self.perform(Record(reward))


# The same methods, to be awaited.


def awaited(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Returns a method of an object whose `perform` is awaited, with the signature and the docstring of another method.

    Args:
        method: the method where `perform` blocks. It does nothing but return what `perform` returns.
    """

    @functools.wraps(method)
    async def perform(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        coming: Any = method(self, *args, **kwargs)
        result: T = await coming
        return result

    return perform


class AwaitedRolloutMethods(PerformsAwaited):
    """What may be asked of a rollout, wherever it is, to be awaited."""

    call = awaited(RolloutMethods.call)
    """`Rollout.call`, to be awaited."""
    exec_all = awaited(RolloutMethods.exec_all)
    """`Rollout.exec_all`, to be awaited."""
    put = awaited(RolloutMethods.put)
    """`Rollout.put`, to be awaited."""
    get = awaited(RolloutMethods.get)
    """`Rollout.get`, to be awaited."""
    grade = awaited(RolloutMethods.grade)
    """`Rollout.grade`, to be awaited."""
    keep = awaited(RolloutMethods.keep)
    """`Rollout.keep`, to be awaited."""
    snapshot_if_idle = awaited(RolloutMethods.snapshot_if_idle)
    """`Rollout.snapshot_if_idle`, to be awaited."""
    record = awaited(RolloutMethods.record)
    """`Rollout.record`, to be awaited."""


# What is asked of a cache: rollouts, and what is announced.


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
    """Asks what the states and calls of a task were worth; see `Cache.values`."""

    task: str
    epoch: int | None = None


class BeginsRollouts(Generic[R]):
    """What begins rollouts, wherever they are; one whose methods are awaited begins with its first use."""

    def begin(self, opening: OpenRollout | Resume) -> R:
        """Begins a rollout.

        Args:
            opening: how, as the other methods make it.

        Returns:
            The rollout; see the method that makes `opening`, also for what it raises.
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
            task: the task that the rollout is of. It groups rollouts for people; states are shared across tasks.
            salt: a text that keeps rollouts apart: states are shared only with rollouts of the same salt.
            label: what people call this rollout.
            limits: what its sandboxes may use; None for what all sandboxes of the image may. Rollouts share states
                where the limits that change behaviour are the same.
            network: what its sandboxes may reach outside: "none", "public", or a list of hosts ("example.org") and
                suffixes (".example.org"); None for what the image says. Rollouts share states where it is the same.
            deadline: seconds from now on by which the rollout is to be through; None for none. Its calls then wait for
                other rollouts only as long as they would be done before the deadline if they took their whole timeout,
                or for a hundredth of what is left.
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
            task: the task that the rollouts are of.
            n: how many.
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

        Args:
            state: the state's full hash, as `Rollout.state` returns it.
            task: groups rollouts for people, as in `rollout`.
            label: what people call this rollout.
            after: seconds that are to have passed there since the state was reached, where something runs by itself.
            epoch: as in `rollout`.

        Returns:
            The rollout, which stands at `state`.

        Raises:
            UsageError: `state` is not the hash of a state, or another argument makes no sense.
            NotFound: there is no such state, or its image was removed.
            StateLost: what kept the state is gone, and nothing else leads to it.
        """
        return self.begin(Resume(state, task, label, after, epoch))

    def _all_or_none(self, rollouts: Iterable[R]) -> list[R]:
        """Returns all of some rollouts; where one cannot be begun, none is open afterwards."""
        return list(rollouts)


class CacheMethods(Performs, BeginsRollouts[R], Generic[R, S]):
    """What may be asked of a cache, wherever it is."""

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

        A trainer that knows which tasks come next saves their first calls the start of a sandbox. Sandboxes are made in
        the background while processors are idle, as far as `Budget` has room for them, and closed where they are not
        used for some minutes or others need the room. Nothing is done where `prefork` is 0 or `use_cache` is False.

        Args:
            image: the image, or its name or digest.
            n: how many more rollouts than those announced before.
            salt: as in `rollout`, like `limits` and `network`.
            limits: what the sandboxes may use.
            network: what they may reach outside.

        Raises:
            NotFound: there is no such image.
            UsageError: an argument makes no sense, or the cache is closed.
        """
        return self.perform(Expect(image, n, salt, limits, network))

    def warm(self, image: str | Image) -> str:
        """Starts an image once and takes a snapshot of its root, so that no rollout waits for the start of a server.

        Nothing is done where the root has a snapshot, or where sandboxes of the image run no service.

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

    def values(self, task: str, *, epoch: int | None = None) -> TaskValues:
        """Returns what the states and calls of a task's rollouts were worth, for credit by step in training.

        For each state and each call that was made in it: how many rollouts did so, and the mean and variance of their
        rewards. For each call of each rollout: its advantage, which is the rollout's reward minus the mean of the
        others that stood in the same state, averaged over the rollouts that made the same call there; where no other
        stood, it is compared with the others that stood where it began, as in LOOP (arXiv 2502.01600). Credit by state
        is that of RTMC (arXiv 2604.11037); `tvsnap.model.credit` says what differs.

        It is computed from what the data directory has, so any process may ask. The rollouts of other caches may have
        made calls within the last second that are not there yet, and so may those that are not closed. Rollouts without
        a reward (`Rollout.grade`, `Rollout.record`) are left out, and so are all that were made without the cache.
        Where something runs by itself, a state is one state, however long rollouts waited in it.

        Args:
            task: the task.
            epoch: only rollouts of this epoch, so that the values are those of the present policy; None for all.

        Returns:
            The values, without any state where no rollout of the task has a reward.

        Raises:
            UsageError: an argument makes no sense, or the cache is closed.
        """
        return self.perform(Values(task, epoch))

    def materialise(self, state: str, *, after: float = 0.0, network: NetworkLike = None) -> AbstractContextManager[S]:
        """Returns a context manager with a live sandbox in any state of the graph, which is ended after the block.

        It is meant for graders: whatever is done in the sandbox is gone afterwards and changes nothing for rollouts.

        Args:
            state: the state's full hash, as `Rollout.state` returns it. With `use_cache=False`, it is one at which an
                open rollout of this cache stands, or its root.
            after: seconds that the sandbox is to have run in the state before it is given out. It counts only where
                something in the state runs by itself.
            network: what the sandbox may reach outside, as in `rollout`; None for what rollouts there may.

        Yields:
            The sandbox.

        Raises:
            UsageError: `state` is not the hash of a state, or another argument makes no sense.
            NotFound: there is no such state, or its image was removed.
            StateLost: what kept the state is gone, and nothing else leads to it.
            InfrastructureError: the sandbox could not be made.
        """
        return self._materialised(state, after, network)

    @overload
    def fork(self, state: str, n: int = 1, *, as_rollouts: Literal[False] = False) -> Forks[S]: ...

    @overload
    def fork(
        self, state: str, n: int = 1, *, as_rollouts: Literal[True], task: str = "", label: str | None = None
    ) -> Forks[R]: ...

    def fork(
        self, state: str, n: int = 1, *, as_rollouts: bool = False, task: str = "", label: str | None = None
    ) -> Forks[S] | Forks[R]:
        """Returns several sandboxes, or rollouts, that stand at any state of the graph, live processes included.

        Each goes on by itself from there. It is meant for tree search, best-of-n and the like. Rollouts record what
        they do, and are answered where one of them has made a call before; what is done in sandboxes is not recorded.

        Args:
            state: the state's full hash, as `Rollout.state` returns it; with `use_cache=False` as in `materialise`.
            n: how many, of sandboxes at most as many as may live at once (`Budget.sandboxes`).
            as_rollouts: begin rollouts, which make sandboxes once they need them, as `resume` does.
            task: groups the rollouts for people.
            label: what people call the rollouts.

        Returns:
            The sandboxes or rollouts, to be closed together (`Forks.close`, or a `with` block).

        Raises:
            UsageError: `state` is not the hash of a state, or another argument makes no sense.
            NotFound: there is no such state, or its image was removed.
            StateLost: what kept the state is gone, and nothing else leads to it.
            InfrastructureError: a sandbox could not be made. None is left then.
        """
        return self._forked(Resume(state, task, label), n) if as_rollouts else self._made(state, n)

    def _materialised(self, state: str, after: float, network: NetworkLike) -> AbstractContextManager[S]:
        raise NotImplementedError

    def _forked(self, opening: Resume, n: int) -> Forks[R]:
        """Returns several rollouts that begin in the same way."""
        raise NotImplementedError

    def _made(self, state: str, n: int) -> Forks[S]:
        """Returns several sandboxes in a state."""
        raise NotImplementedError


class AwaitedCacheMethods(PerformsAwaited, BeginsRollouts[R], Generic[R, S]):
    """What may be asked of a cache, wherever it is, to be awaited."""

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
            network: what the sandbox may reach outside; see `Cache.materialise`.

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
        self, state: str, n: int = 1, *, as_rollouts: Literal[True], task: str = "", label: str | None = None
    ) -> AsyncForks[R]: ...

    @awaited_or_entered
    async def fork(
        self, state: str, n: int = 1, *, as_rollouts: bool = False, task: str = "", label: str | None = None
    ) -> AsyncForks[S] | AsyncForks[R]:
        """Returns several sandboxes, or rollouts, that stand at any state of the graph; see `Cache.fork`.

        `async with cache.fork(...) as forks:` closes them after the block; `forks = await cache.fork(...)` does not.

        Args:
            state: the state's full hash.
            n: how many.
            as_rollouts: begin rollouts, which make sandboxes once they need them.
            task: groups the rollouts for people.
            label: what people call the rollouts.

        Returns:
            The sandboxes or rollouts, to be closed together.

        Raises:
            UsageError, NotFound, StateLost, InfrastructureError: see `Cache.fork`.
        """
        return await (self._forked(Resume(state, task, label), n) if as_rollouts else self._made(state, n))

    def _materialised(self, state: str, after: float, network: NetworkLike) -> AbstractAsyncContextManager[S]:
        raise NotImplementedError

    async def _forked(self, opening: Resume, n: int) -> AsyncForks[R]:
        """Returns several rollouts that begin in the same way."""
        raise NotImplementedError

    async def _made(self, state: str, n: int) -> AsyncForks[S]:
        """Returns several sandboxes in a state."""
        raise NotImplementedError
