"""The rollout, as users have it; what it does is `tvsnap.engine`'s."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.rollout import RolloutEngine
from tvsnap.engine.supply.forks import Forks
from tvsnap.environments.files import GET, PUT, Fetched
from tvsnap.environments.tools import Tool
from tvsnap.graph import Step
from tvsnap.host.trees import MOST_FETCHED
from tvsnap.model.arguments import check_outcome, check_reward, outcome_of
from tvsnap.model.calls import DEFAULT_TIMEOUT, ToolResult
from tvsnap.model.display import Displayed
from tvsnap.model.grades import Grade, Verifier
from tvsnap.model.observations import Command
from tvsnap.model.side_by_side import exec_all_arguments, results_of
from tvsnap.sandboxes.protocol import Sandbox


class Rollout(Displayed):
    """One run of an agent through one task: a cursor on the graph that has a sandbox only while it needs one.

    `Cache.rollout` and `Cache.resume` make rollouts. The calls of one rollout are made one after the other; different
    rollouts may be used by different threads at the same time. It is a context manager that closes the rollout.
    """

    def __init__(self, engine: RolloutEngine) -> None:
        self._engine = engine

    @property
    def id(self) -> str | None:
        """The rollout's name in the graph; None if nothing is recorded (`use_cache=False`, or a full disk)."""
        return self._engine.id

    @property
    def root(self) -> str:
        """The hash of its root, the state of a freshly started sandbox of its image."""
        return self._engine.root

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that may be called, by name: those of the image's environment."""
        return self._engine.tools

    @property
    def state(self) -> str:
        """The hash of the state at which it stands. Where the last call led may have to be waited for."""
        return self._engine.where().state

    @property
    def depth(self) -> int:
        """The number of calls that changed the state, counted from its root."""
        return self._engine.where().depth

    @property
    def private(self) -> str | None:
        """The reason why it is in a private branch, of which nothing is shared; None if it is not."""
        return self._engine.where().private

    @property
    def unshared(self) -> str | None:
        """The reason why the result of the last call will answer no other call; None if it may answer some."""
        return self._engine.where().unshared

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
        return self._engine.call(name, arguments, timeout, after, Cancellation(), deadline, grade)

    def cancel(self) -> bool:
        """Ends the call that another thread is making, and waits until it has ended.

        A command that is being executed is ended as by its timeout, and its call counts as made: `call` returns what
        it printed until then, `ToolResult.timed_out` is true, and nobody else is answered by it. A call that is not
        being executed yet was not made, and raises `CallCancelled`. A service that answers calls in the sandbox, such
        as a database's session, is begun anew.

        Returns:
            Whether a call was being made.
        """
        return self._engine.cancel()

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
        return results_of(self.call("exec_all", exec_all_arguments(commands, user), timeout, after=after))

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
        arguments = self._engine.files.put_arguments(source, path, user=user, owners=owners, mode=mode)
        return self.call(PUT, arguments, timeout)

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
        arguments = self._engine.files.get_arguments(path, owners=owners, limit=limit)
        fetched = None
        while fetched is None:
            state = self.state
            fetched = self._engine.files.fetched(self.call(GET, arguments, timeout), arguments, state)
        if destination is not None:
            fetched.extract(destination)
        return fetched

    def grade(self, verifier: Verifier | str) -> Grade:
        """Grades the state at which it stands, in a fork; changes nothing for the rollout.

        A grade is recorded under the state and the verifier's digest: a state is graded once, however many rollouts
        come to it; or as often as `Cache(grade_executions=...)` says. A state in which something runs by itself, such
        as a build in the background, is graded each time.

        Args:
            verifier: finds out what the state is worth; a text is the command of one.

        Returns:
            The reward, the results of the tests and the log, now or when the state was graded before.

        Raises:
            GradingFailed: the verifier failed, so that there is no grade. Nothing is recorded.
            UsageError: the rollout is closed, or `verifier` makes no sense.
            StateLost: no snapshot can be taken of the state, and nothing else leads to it.
            InfrastructureError: tvsnap, not the verifier, failed.
        """
        return self._engine.grade(Verifier.of(verifier))

    def fork(self, n: int = 1) -> Forks[Rollout]:
        """Begins several rollouts where this one stands, live processes included; this one goes on, too.

        Args:
            n: how many.

        Returns:
            The rollouts, of the same task, to be closed after their last calls: together (`Forks.close`, or a `with`
            block), or each by itself.

        Raises:
            UsageError: `n` makes no sense, the rollout is closed, or nothing is recorded (`use_cache=False`).
            StateLost: no snapshot can be taken of the state, and nothing else leads to it.
            InfrastructureError: the snapshot failed.
        """
        rollouts = [Rollout(engine) for engine in self._engine.fork(n)]

        def end() -> None:
            with contextlib.ExitStack() as ends:
                for rollout in rollouts:
                    ends.callback(rollout.close)

        return Forks(rollouts, end)

    def sandbox(self) -> Sandbox:
        """Returns the rollout's own sandbox in its present state, for programs that must look inside.

        The rollout goes on with this sandbox, so use it between calls only, and ask for it again after a call. What is
        done in it is not recorded; where that changes anything, the rollout goes on in a private branch. Graders had
        better use `Cache.materialise`, whose sandbox changes nothing for the rollout.

        Raises:
            StateLost: what kept the rollout's state is gone, and nothing else leads to it.
            InfrastructureError: no sandbox could be made.
        """
        return self._engine.sandbox()

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
        return self._engine.keep(label, output)

    def snapshot_if_idle(self) -> bool:
        """Snapshots the present state if a sandbox of the rollout's own stands there and no call is being made.

        Returns:
            Whether the state can be reached again for certain.

        Raises:
            InfrastructureError: the snapshot failed.
        """
        return self._engine.snapshot_if_idle()

    def record(self, reward: float) -> None:
        """Records the rollout's reward, for people: `tvsnap rollouts` and `tvsnap show` tell it.

        It replaces an earlier one, also that of a grade, which `grade` records by itself. It may be called after
        `close`.

        Args:
            reward: the reward, a finite number.

        Raises:
            UsageError: `reward` is no finite number.
        """
        self._engine.record(check_reward(reward))

    def close(self, outcome: str | None = None) -> None:
        """Ends the rollout. Its sandbox is left to other rollouts that come to its state.

        It may be called more than once.

        Args:
            outcome: the error that ended it, in words, for people; None where it has come to its end. A `with` block
                says it of an exception that leaves the block.

        Raises:
            UsageError: `outcome` is no text.
        """
        self._engine.close(check_outcome(outcome))

    def _steps(self) -> list[Step]:
        """Returns its calls in order, for what notebooks show."""
        return self._engine.steps()

    def __enter__(self) -> Rollout:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.close(outcome_of(error))

    def __del__(self) -> None:
        # Whatever this thread is doing just now, it may hold locks: to close has to wait.
        engine = getattr(self, "_engine", None)
        if engine is not None:
            engine.drop()
