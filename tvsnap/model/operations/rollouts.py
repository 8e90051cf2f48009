"""The operations of a rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tvsnap.model.calls import DEFAULT_TIMEOUT, ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.model.exec_all import exec_all_arguments
from tvsnap.model.fetched import Fetched
from tvsnap.model.grades import Grade, Verifier
from tvsnap.model.limits import MOST_FETCHED
from tvsnap.model.observations import Command
from tvsnap.model.operations.operation import (
    HERE,
    Bounds,
    Operation,
    Performs,
    PerformsAwaited,
    Seconds,
    Texts,
    awaited,
)

RESEED = "reseed"
"""The name of the tool by which forks are reseeded."""

# The docstrings of `RolloutMethods` describe the fields.


@dataclass(slots=True)  # frozen, it would take six times as long to make, with each hit
class Call(Operation[ToolResult]):
    """A tool call; see `Rollout.call`. A timeout of null is no limit."""

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
        """Returns it as a tool call."""
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
        """Raises UsageError unless the source is a path or bytes."""
        if not isinstance(self.source, (str, Path, bytes)):
            raise UsageError(f"source must be a path, or bytes, not {self.source!r}")

    def as_call(self, digest: str) -> Call:
        """Returns it as a tool call, once the content with this digest is there."""
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
        """Returns it as a tool call, without arguments that have their defaults."""
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
    """Keeps the state of a rollout's sandbox; see `Rollout.keep`."""

    label: str
    output: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotIfIdle(Operation[bool]):
    """Takes a snapshot of a rollout's state; see `Rollout.snapshot_if_idle`."""


class RolloutMethods(Performs):
    """The methods of a rollout, here or elsewhere."""

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
        If the task that awaits a call is cancelled, so is the call; see `cancel`. The rollout's next call comes later.

        Args:
            name: the name of one of `tools`.
            arguments: the tool's arguments, as plain JSON.
            timeout: seconds that its execution may take; None for no limit.
            after: the least number of seconds that are to have passed in the sandbox since the last call. The time that
                really has passed counts in any case; the rest is waited for only if the call is executed.
            deadline: seconds from now on by which the caller needs the result; None for that of the rollout. The call
                waits for another rollout that makes it only if its timeout would still end before, or for a hundredth
                of the remaining time.
            grade: for a call that grades: the absolute paths of the files in which it leaves its grade, empty if its
                exit status is all; None for any other call. A grade answers others once it was given as often as
                `Cache(grade_executions=...)` says, and no other was.

        Returns:
            The tool's result, of now or of the same call in the same state before; `ToolResult.source` tells which.

        Raises:
            UsageError: there is no such tool, its arguments are wrong, or the rollout is closed.
            StateLost: the rollout's state is no longer kept, and nothing else leads to it. The rollout cannot go
                on.
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

        Their results, and the state that they leave together, are recorded as a whole, and answer the same call in the
        same state.

        Args:
            commands: the commands, at most 256.
            timeout: seconds that their execution may take; None for no limit.
            user: the user that runs them; by default the image's.
            after: see `call`.

        Returns:
            The result of each command, in the order of the commands, as from a call of `exec`.

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

        The call names the content by its digest, and the data directory keeps it: a repeated upload of the same content
        in the same state is answered without a sandbox.

        Args:
            source: a path of this machine, or the contents of a file as bytes.
            path: the destination; a relative path starts at the shell's working directory.
            user: the user that writes it, and owns it; by default the image's.
            owners: root writes it, and it keeps its numeric owners and groups.
            mode: the permission bits of a single file; by default its own, and 0644 for bytes.
            timeout: seconds that its execution may take; None for no limit.

        Returns:
            The result of the call. A failure in the sandbox, such as a full disk there, is one, too.

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

        The data directory keeps the content: a repeated call in the same state is answered without a sandbox.

        Args:
            path: the file or folder, or a link to it; a relative path starts at the shell's working directory.
            destination: its path on this machine; None to be read or written by `Fetched` later.
            owners: fetch its numeric owners, too, and give them to the written files, which only root may do.
            limit: the greatest number of bytes, holes included.
            timeout: seconds that its execution may take; None for no limit.

        Returns:
            The content.

        Raises:
            OSError: with a destination: there is no such path, or it cannot be written.
            UsageError: see `call`.
            StateLost: see `call`.
            InfrastructureError: the content could not be kept; or see `call`.
        """
        return self.perform(Get(path, destination, owners, limit, timeout))

    def reseed(self, seed: int, timeout: float | None = DEFAULT_TIMEOUT) -> ToolResult:
        """Gives the random number generators of the sandbox a seed, as a call like any other, of the tool `reseed`.

        The seed is part of the name of the state that follows: with different seeds, no state is shared. The page about
        a fixed clock and fixed randomness says which generators are reached. `fork(reseed=True)` reseeds all forks.

        Args:
            seed: the seed, from 0 to 2**52 - 1.
            timeout: seconds that the image's own command (`reseed` in its description) may take; None for no limit.

        Returns:
            The result of the call: the output and the exit status of the image's own command, if it has one. The exit
            status is not 0 if the shell or a session could not be reseeded; the output has the reason.

        Raises:
            UsageError, StateLost, InfrastructureError, CallCancelled: see `call`.
        """
        return self.call(RESEED, {"seed": seed}, timeout)

    def grade(self, verifier: Verifier | str) -> Grade:
        """Grades the state at which it stands, in a fork; changes nothing for the rollout.

        A grade is recorded under the state and the verifier's digest: a state is graded once for all rollouts that come
        to it, or as often as `Cache(grade_executions=...)` says. A state in which something runs by itself, such as a
        build in the background, is graded each time.

        Args:
            verifier: the verifier; a text is the command of one. A server takes commands only.

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
        """Records all work in the sandbox that `sandbox` returned as one step, and takes a snapshot of the result.

        The rollout goes on from there in a private branch. The snapshot stays until `tvsnap forget` deletes it.

        Args:
            label: the work in words, for people.
            output: the text that is to be shown as the step's output.

        Returns:
            The hash of the state that it led to, or of the state before if nothing has changed.

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
        """Records the rollout's reward, for people: `tvsnap rollouts` and `tvsnap show` show it.

        It replaces an earlier one, also that of a grade, which `grade` records by itself. It may be called after
        `close`.

        Args:
            reward: the reward, a finite number.

        Raises:
            UsageError: `reward` is no finite number.
        """
        return self.perform(Record(reward))


class AwaitedRolloutMethods(PerformsAwaited):
    """The methods of a rollout, here or elsewhere, to be awaited."""

    call = awaited(RolloutMethods.call)
    """`Rollout.call`, to be awaited."""
    exec_all = awaited(RolloutMethods.exec_all)
    """`Rollout.exec_all`, to be awaited."""
    put = awaited(RolloutMethods.put)
    """`Rollout.put`, to be awaited."""
    get = awaited(RolloutMethods.get)
    """`Rollout.get`, to be awaited."""
    reseed = awaited(RolloutMethods.reseed)
    """`Rollout.reseed`, to be awaited."""
    grade = awaited(RolloutMethods.grade)
    """`Rollout.grade`, to be awaited."""
    keep = awaited(RolloutMethods.keep)
    """`Rollout.keep`, to be awaited."""
    snapshot_if_idle = awaited(RolloutMethods.snapshot_if_idle)
    """`Rollout.snapshot_if_idle`, to be awaited."""
    record = awaited(RolloutMethods.record)
    """`Rollout.record`, to be awaited."""
