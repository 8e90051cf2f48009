"""The protocol of backends: how sandboxes are run, observed, checkpointed and forked.

A backend knows nothing of the graph. Its conformance suite is `tests/conformance/`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

from tvsnap.host.load import Load
from tvsnap.host.trees import TreeItem, Upload
from tvsnap.model.images import Image
from tvsnap.model.limits import MOST_FETCHED, Limits
from tvsnap.model.network import Traffic
from tvsnap.model.observations import (
    NO_SERVICE,
    Captures,
    Observation,
    ReapReport,
    Service,
    SnapshotInfo,
    Stillness,
)
from tvsnap.model.sandbox_methods import SandboxMethods


class Sandbox(SandboxMethods, Protocol):
    """One live container with a persistent shell. It does one thing at a time: other threads wait for their turn.

    Paths are those inside the sandbox. Every method but `close` raises `SandboxDied` once the sandbox has ended.
    """

    @property
    def id(self) -> str:
        """Its name, unique in the data directory."""

    @property
    def image(self) -> Image: ...

    def put(
        self,
        source: Upload,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Copies a file or a folder of this machine into the sandbox: contents, permission bits and links.

        `path` names the copy itself, not a directory for it. A folder is merged with an existing folder, which keeps
        its owner and mode, while files and links in it are replaced. Missing parent directories are created.

        New files get a time that depends only on their content, between the years 2000 and 2019. Files that replace
        others get the current time, because programs compare times.

        Args:
            source: a path, the contents of a file as bytes, or items (`tvsnap.host.trees.TreeItem`).
            path: the target; a relative path starts at the shell's working directory.
            user: the user that writes it, and owns it; by default the image's.
            owners: root writes it, and it keeps its numeric owners and groups; `user` is ignored then.
            mode: the permission bits of a single file; by default its own, and 0644 for bytes.
            timeout: seconds; None for no limit.

        Raises:
            UsageError: the source cannot be read or has other things than files, folders and links, or there is no such
                user.
            OSError: with the errno inside (EACCES, EISDIR, ENOSPC, ...), or ETIMEDOUT. Files written before stay.
        """

    def get(
        self,
        path: str,
        destination: str | Path,
        *,
        owners: bool = False,
        limit: int = MOST_FETCHED,
        timeout: float | None = None,
    ) -> tuple[str, ...]:
        """Copies a file or a folder out of the sandbox, regardless of permissions inside.

        A new destination is complete, or not there at all; a folder is merged with an existing folder. Whatever the
        sandbox does, nothing is written outside the destination, and no link leads out of it.

        Args:
            path: the file or folder, or a link to it; a relative path starts at the shell's working directory.
            destination: the copy on this machine; missing parent directories are created.
            owners: keep the numeric owners inside, which only root may do.
            limit: the most bytes, holes included.
            timeout: seconds; None for no limit.

        Returns:
            The omitted files, each a path in the folder with the reason: links that lead out of it, devices, sockets.

        Raises:
            OSError: with the errno inside (ENOENT, EFBIG beyond `limit`, ESTALE if a file became shorter meanwhile,
                ETIMEDOUT, ...), or of writing to the destination.
        """
        ...

    def read_tree(self, path: str, *, limit: int = MOST_FETCHED, timeout: float | None = None) -> Iterator[TreeItem]:
        """Yields a file or a folder of the sandbox as items (`tvsnap.host.trees.TreeItem`); see `get`.

        Args:
            path: the file or folder.
            limit: the most bytes.
            timeout: seconds; None for no limit.
        """
        ...

    def interrupt(self) -> None:
        """Ends the command that another thread is running or executing in the sandbox now, like its timeout.

        If there is none, or it has not begun yet, there is no effect. Any thread may call this at any time.
        """
        ...

    def turn(self) -> AbstractContextManager[Any]:
        """Returns a context manager; in its block, only this thread uses the sandbox, and others wait."""
        ...

    def uninterrupted(self) -> AbstractContextManager[None]:
        """Returns a context manager; `interrupt` does not end commands that are run or executed in its block.

        It is for work that has to be done whatever happens to the call, such as restarting a service.
        """
        ...

    def attach(self, columns: int, rows: int) -> socket.socket:
        """Returns a socket that is connected to the shell's terminal, for a person. Closing the socket detaches it.

        Args:
            columns: the width of the person's terminal in cells.
            rows: its height in cells.
        """

    def observe(self, service: Service = NO_SERVICE) -> Observation:
        """Returns fingerprints of files, processes and shell at this moment.

        This takes time in proportion to the differences from the image, not to the size of the image.

        Args:
            service: the processes and files of a service, which are reported separately in `Observation.serving` and
                `Observation.data`.
        """

    def settle(self, *, changed: bool) -> None:
        """Tells the sandbox whether the last call changed the state, before a snapshot or the next call.

        The process ids of a call start from a number that depends on the count of calls that have changed the state.
        So they are the same in each execution of a history, even if calls in between were answered without execution,
        and in forks, because a snapshot holds the count. This takes no time. If it is never called, the process ids of
        all calls start from the same number.

        Args:
            changed: whether the last call changed the state.
        """

    def file_times(self, since: int) -> dict[str, int]:
        """Returns the modification times of the files that were changed, or whose times were set, since a moment.

        They are part of the state that a call led to; see `tvsnap.sandboxes.file_times`. It is called only after
        `observe`, and while nothing but the idle shell lives in the sandbox. A backend that lacks this returns nothing.

        Args:
            since: a time of the clock by which the kernel dates files, nanoseconds since the epoch.

        Returns:
            The times in nanoseconds since the epoch, by absolute path.

        Raises:
            InfrastructureError: not all files could be inspected, or the sandbox failed.
        """
        ...

    def set_file_times(self, times: Mapping[str, int]) -> None:
        """Sets the modification times of files, so that the files of a call are as old as when it was recorded.

        It is called only while nothing but the idle shell lives in the sandbox. Missing files, and those with times
        that cannot be set, are skipped.

        Args:
            times: the result of `file_times` for a sandbox with the same digest.

        Raises:
            InfrastructureError: the files could not be inspected, or the sandbox failed.
        """

    def stillness(self) -> Stillness | None:
        """Returns for how long nothing has run in the sandbox, and nothing will; None if that is not known.

        A call that is made within this time finds the same at any moment of it.
        """

    def note(self) -> None:
        """Records PID 1 and the persistent shell from outside the sandbox, for `go_back`.

        It takes no time if they were recorded since the state last changed.
        """

    def go_back(self) -> bool:
        """Restores PID 1 and the persistent shell as they were recorded, after a call that changed nothing.

        A command can change what these processes report, so their report alone proves nothing. After this, the sandbox
        is known to be in the state before the call by evidence from outside.

        Returns:
            Whether the sandbox is in that state for certain. Otherwise nothing was done, and the call counts as one
            that changed the state.

        Raises:
            SandboxDied: the sandbox was ended because it must not go on.
        """

    def machine_fault(self, said: str) -> str | None:
        """Returns a fault of this machine, such as a full disk, that may have affected the sandbox's results.

        It is called before and after each call, and is fast.

        Args:
            said: the output of the call; empty before it.

        Returns:
            The fault in words, since the last time this was called; None if there was none.

        Raises:
            SandboxDied: the sandbox's files are damaged, and no result in it counts.
            InfrastructureError: this machine certainly caused the result.
        """

    def load(self) -> Load:
        """Returns the delays of the sandbox's processes so far; zeros if these are unknown. It is fast."""
        ...

    def lend(self, variables: Mapping[str, str]) -> None:
        """Adds environment variables to all later `exec` and `exec_all`; the shell keeps its own.

        Args:
            variables: those beyond the image's.
        """

    def traffic(self) -> Traffic:
        """Returns the requests to the network since the last call; none if `Image.network` is none."""
        ...

    def checkpoint(self) -> SnapshotInfo:
        """Takes a snapshot of files and processes at one moment. The sandbox goes on undisturbed.

        Returns:
            The complete snapshot.

        Raises:
            NotCheckpointable: the sandbox holds something that cannot be saved; the message is the reason. It goes on.
            CheckpointFailed: the machine, not the sandbox, is the reason, after several attempts. The sandbox goes on.
            SandboxDied: the sandbox was ended by the attempt.
        """

    def archive(self) -> AbstractContextManager[IO[bytes]]:
        """Returns a context manager with the sandbox's files as a tar stream (pax), for any tar or `docker import`.

        The sandbox is frozen in the block. Owners are those inside. The stream lacks the contents of /proc, /sys and
        /dev, tvsnap's own directory, and files named `.wh.*`, by which the layers of container images mark deletions
        (OCI image specification 1.0, layer.md).

        Raises:
            InfrastructureError: the files could not be read completely; raised at the end of the block at the latest.
        """

    def memory(self) -> int:
        """Returns the memory that the sandbox takes, in bytes; shared pages count proportionally."""

    def close(self) -> None:
        """Ends the sandbox and everything in it. It raises nothing, and may be called more than once."""


class Staged(Protocol):
    """A complete fork that has not run yet. Used by one thread at a time."""

    def begin(self) -> Sandbox:
        """Lets it run; returns the sandbox, which owns this from now on.

        Raises:
            SnapshotUnusable, NotRestorable, ForkFailed: as `Backend.fork`; nothing of it remains then.
        """

    def memory(self) -> int:
        """Returns the memory that it takes, in bytes; see `Sandbox.memory`."""

    def close(self) -> None:
        """Ends it, or the sandbox that it has become. It raises nothing, and may be called more than once."""


class Backend(Protocol):
    """Runs sandboxes: starts them, takes snapshots of them and forks these. Many threads may use it at once."""

    @property
    def name(self) -> str: ...

    @property
    def platform(self) -> str:
        """The machine as commands see it: its architecture, such as `x86_64`, and anything unusual about it.

        It is part of a root's name. If the sandboxes of two backends look the same to commands, both return the same
        text, so that states recorded with one can be used by the other.
        """

    @property
    def captures(self) -> Captures:
        """The most that a snapshot can hold on this machine."""

    def start(self, image: Image, limits: Limits) -> Sandbox:
        """Starts a sandbox.

        Args:
            image: its image.
            limits: its limits.

        Raises:
            InfrastructureError: it does not start.
        """

    def fork(self, snapshot: str, image: Image, limits: Limits) -> Sandbox:
        """Makes a new sandbox in the state in which a snapshot was taken.

        Args:
            snapshot: the snapshot's id.
            image: the image of the snapshot's sandbox.
            limits: the limits of the new sandbox.

        Raises:
            SnapshotUnusable: the snapshot is known to be missing or damaged, or is of another version of tvsnap.
            NotRestorable: the snapshot is intact, but cannot be forked on this machine, after several attempts.
            ForkFailed: the machine, not the snapshot, is the reason, after several attempts.
        """

    def snapshots(self) -> Iterable[str]:
        """Yields the ids of all complete snapshots in the data directory."""

    def delete_snapshot(self, snapshot: str) -> None:
        """Deletes a snapshot, if it is there. Live forks of it go on.

        Args:
            snapshot: the snapshot's id.
        """

    def reap(self) -> ReapReport:
        """Removes the remains of dead processes in this data directory, and returns their numbers."""

    def reclaim(self) -> int:
        """Returns the space of deleted files to the disk. This may take a minute.

        Returns:
            The bytes by which the backend's files became smaller; 0 if deleted files leave the disk at once.
        """

    def disk_usage(self) -> Mapping[str, int]:
        """Returns the bytes used on disk, by kind: `snapshots` and `sandboxes`."""

    def close(self) -> None:
        """Ends all sandboxes of this process, and closes the backend."""


@runtime_checkable
class Staging(Protocol):
    """A backend that can make forks ahead of time of any snapshot with processes."""

    def stage(self, snapshot: str, image: Image, limits: Limits) -> Staged | None:
        """Makes a fork that waits before its first instruction, so that it is available at once when it is needed.

        Args:
            snapshot, image, limits: as for `fork`.

        Returns:
            The fork; None if this is impossible for a snapshot of this kind.

        Raises:
            SnapshotUnusable, NotRestorable, ForkFailed: as `fork`.
        """


@runtime_checkable
class Exchanging(Protocol):
    """A backend with snapshots that can be taken to another data directory, or to another machine."""

    def requirements(self, snapshot: str) -> Mapping[str, Any]:
        """Returns a snapshot's requirements of the machine that it is used on, as plain JSON; see `unfit`.

        Args:
            snapshot: the snapshot's id.

        Raises:
            SnapshotUnusable: it is missing or damaged.
        """

    def unfit(self, requirements: Mapping[str, Any]) -> str | None:
        """Returns the reason, in words, for which a snapshot cannot be used here; None if it can.

        Args:
            requirements: the result of `requirements` there.
        """

    def trees(self, snapshot: str) -> tuple[Mapping[str, Any], Mapping[str, Path]]:
        """Returns a snapshot's description, as plain JSON, and the directories with its files, by name.

        Args:
            snapshot: the snapshot's id.

        Raises:
            SnapshotUnusable: it is missing or damaged.
        """

    def adopt(self, said: Mapping[str, Any], fill: Callable[[str, Path], None]) -> SnapshotInfo:
        """Makes a snapshot from the results of `trees`.

        Args:
            said: the description.
            fill: makes the files of the directory of a name in an empty one.

        Raises:
            SnapshotUnusable: the files differ from those of `trees`.
            InfrastructureError: it cannot be written.
        """


@runtime_checkable
class Occupying(Protocol):
    """A backend that knows the space of its files: snapshots of one line share most of their files and pages."""

    def occupied(self) -> int | None:
        """Returns the bytes that all snapshots and sandboxes take on the disk together; None if that is not known."""
