"""The protocol that every backend fulfils: how sandboxes live, are observed, checkpointed and forked.

A backend knows nothing of the graph. Its conformance suite is `tests/conformance/`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Protocol, runtime_checkable

from tvsnap.host.load import Load
from tvsnap.host.trees import MOST_FETCHED, TreeItem, Upload
from tvsnap.model.images import Image
from tvsnap.model.limits import MIB, Limits
from tvsnap.model.network import Traffic
from tvsnap.model.observations import (
    NO_SERVICE,
    Captures,
    Command,
    FileChange,
    Observation,
    Outcome,
    Process,
    ReapReport,
    Service,
    SnapshotInfo,
    TerminalBytes,
)


class Sandbox(Protocol):
    """One live container with a persistent shell. It is used by one thread at a time.

    Paths are those inside the sandbox. Every method but `close` raises `SandboxDied` once the sandbox has ended.
    """

    @property
    def id(self) -> str:
        """Its name, which is unique in the data directory."""

    @property
    def image(self) -> Image: ...

    def run(self, command: str, *, timeout: float) -> Outcome:
        """Runs a command in the persistent shell.

        Args:
            command: the command as one would type it; it may have several lines.
            timeout: seconds, after which its processes are ended.

        Returns:
            What it came to. A command that fails or times out is no error.
        """

    def exec(
        self,
        command: str,
        *,
        timeout: float,
        cwd: str | None = None,
        env: Mapping[str, str] = {},
        user: str | None = None,
        separate: bool = False,
        service: str | None = None,
    ) -> Outcome:
        """Runs a command in a fresh shell (`bash -c`), which leaves the persistent one alone.

        Args:
            command: the command.
            timeout: seconds, after which its processes are ended.
            cwd: the directory in which it starts; by default the image's working directory.
            env: environment variables beyond the image's.
            user: the user that runs it; by default the image's.
            separate: keep standard error apart from the output (`Outcome.errors`).
            service: in whose root directory, environment and working directory it runs, and whose user is the default;
                by default the image's main one. Where its files have no bash, `sh` runs the command.

        Returns:
            What it came to. A command that fails or times out is no error.

        Raises:
            UsageError: the image has no such service.
        """

    def exec_all(self, commands: Sequence[Command], *, timeout: float, user: str | None = None) -> list[Outcome]:
        """Runs several commands side by side, each in a fresh shell, as `exec` runs one.

        Args:
            commands: the commands, at most 256.
            timeout: seconds, after which the processes of all are ended.
            user: the user that runs them; by default the image's.

        Returns:
            What each came to, in the order of the commands. Of one that did not end in time, the first half of the
            longest output is known.
        """
        ...

    def read_file(self, path: str, *, limit: int = 16 * MIB, service: str | None = None) -> bytes:
        """Returns a file's contents, read inside the sandbox.

        Args:
            path: the file; a relative path starts at the shell's working directory, or at the service's.
            limit: the largest number of bytes to read.
            service: in whose root directory; by default the main one's.

        Raises:
            OSError: with the errno that was met inside (ENOENT, EISDIR, EACCES, EFBIG beyond `limit`, ...).
        """

    def write_file(self, path: str, data: bytes, *, user: str | None = None, service: str | None = None) -> None:
        """Writes a file inside the sandbox, and makes the directories above it.

        Args:
            path: the file; a relative path starts at the shell's working directory, or at the service's.
            data: its contents.
            user: the user that writes it; by default the image's, or the service's.
            service: in whose root directory; by default the main one's.

        Raises:
            OSError: with the errno that was met inside (EACCES, EISDIR, ENOSPC, ...).
        """

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

        A file becomes what `path` names. A folder does, too; with a folder that is there, it is merged, which keeps its
        own owner and mode, while files and links in it are replaced. Directories above `path` are made.

        What is new has a time that depends on nothing but its content, from the years 2000 to 2019; what takes the
        place of something else has the time at which it did, as whatever compares times expects.

        Args:
            source: a path, the contents of a file as bytes, or items (`tvsnap.host.trees.TreeItem`).
            path: where to; a relative path starts at the shell's working directory.
            user: the user that writes it, and owns it; by default the image's.
            owners: root writes it, and it keeps its numeric owners and groups; `user` does not count then.
            mode: the permission bits of a single file; by default its own, and 0644 for bytes.
            timeout: seconds; None for as long as it takes.

        Raises:
            UsageError: the source cannot be read, holds more than files, folders and links, or there is no such user.
            OSError: with the errno that was met inside (EACCES, EISDIR, ENOSPC, ...), or ETIMEDOUT. What was written
                until then stays.
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
        """Copies a file or a folder out of the sandbox, whoever may read it there.

        What was not there before is whole, or not there at all; with a folder that is there, a folder is merged.
        Whatever the sandbox says, nothing is written outside the destination, and no link leads out of it.

        Args:
            path: the file or folder, or a link to it; a relative path starts at the shell's working directory.
            destination: what it becomes on this machine; directories above are made.
            owners: give it the numeric owners that it has inside, which only root may do.
            limit: the most bytes, holes included.
            timeout: seconds; None for as long as it takes.

        Returns:
            What was left out, each a path in the folder with the reason: links that lead out of it, devices, sockets.

        Raises:
            OSError: with the errno that was met inside (ENOENT, EFBIG beyond `limit`, ESTALE where a file became
                shorter meanwhile, ETIMEDOUT, ...), or in writing to the destination.
        """
        ...

    def read_tree(self, path: str, *, limit: int = MOST_FETCHED, timeout: float | None = None) -> Iterator[TreeItem]:
        """Yields a file or a folder of the sandbox as items (`tvsnap.host.trees.TreeItem`); see `get`.

        Args:
            path: the file or folder.
            limit: the most bytes.
            timeout: seconds; None for as long as it takes.
        """
        ...

    def request(self, path: str, data: bytes, *, timeout: float, limit: int = 16 * MIB) -> bytes:
        """Sends a request to a service inside the sandbox over a Unix socket, and returns its answer.

        Args:
            path: the absolute path of the socket, which root may use.
            data: the request; after it, the sending side of the connection is closed.
            timeout: seconds to wait for the end of the answer.
            limit: the largest number of bytes of the answer.

        Raises:
            OSError: ENOENT or ECONNREFUSED where nobody listens, ETIMEDOUT, EFBIG beyond `limit`.
        """

    def interrupt(self) -> None:
        """Ends what another thread is running or executing in the sandbox just now, as its timeout would.

        Where nothing is, or it has not begun yet, nothing happens. Any thread may call this at any time.
        """
        ...

    def uninterrupted(self) -> AbstractContextManager[None]:
        """Returns a context manager; what is run or executed in its block, `interrupt` does not end.

        It is for what has to be done whatever becomes of the call, such as the start of a service that it has ended.
        """
        ...

    def send_keys(self, data: bytes, *, wait: float) -> None:
        """Types bytes into the shell's terminal, and waits until the terminal is quiet.

        Args:
            data: what a keyboard would send.
            wait: seconds to wait at most.
        """

    def terminal(self) -> TerminalBytes:
        """Returns the bytes that the shell's terminal was sent, to be rendered by a terminal emulator, and its size."""

    def attach(self, columns: int, rows: int) -> socket.socket:
        """Returns a socket that is joined to the shell's terminal, for a person. Closing the socket detaches it.

        Args:
            columns: the width of the person's terminal in cells.
            rows: its height in cells.
        """

    def shell_state(self) -> Mapping[str, str]:
        """Returns the shell's state by name: `var NAME`, `function NAME`, `alias NAME`, `option NAME`, `cwd`, ..."""

    def processes(self) -> list[Process]:
        """Returns the live processes, without PID 1."""

    def changes(self) -> Mapping[str, FileChange]:
        """Returns what differs from the image, by absolute path."""

    def observe(self, service: Service = NO_SERVICE) -> Observation:
        """Returns fingerprints of files, processes and shell at this moment.

        This takes time in proportion to what differs from the image, not to the size of the image.

        Args:
            service: what belongs to a service, and is reported apart in `Observation.data` and `Observation.serving`.
        """

    def digest(self) -> str | None:
        """Returns a digest of all that the sandbox holds but times; None if part of it cannot be compared.

        Two sandboxes of one image whose digests are equal, and not None, hold the same: files by path, type, mode,
        owner, link target, extended attributes and content; the shell by all that it says of itself and by its open
        files. What cannot be looked at, such as the memory of processes beyond PID 1 and the idle shell, makes it
        None. It does not depend on the backend, on when or how often a history was executed, or on whether the sandbox
        was forked. See `tvsnap.sandboxes.digest`.
        """

    def settle(self, *, changed: bool) -> None:
        """Is told whether the last call changed the state, before a snapshot is taken or the next call is made.

        The processes of a call are numbered from a number that depends on how many calls have changed the state, so
        that they have the same ids in each execution of a history, whichever calls in between were answered without
        one, and in forks: a snapshot holds how many there were. It takes no time. If it is never called, the processes
        of every call are numbered from the same number.

        Args:
            changed: whether the last call changed the state.
        """

    def redate(self, span: tuple[int, int], to: tuple[int, int]) -> None:
        """Moves the modification times of files that lie within a span of time to another one, in the same order.

        So what a call has written is as old as it was when the call was recorded; see `tvsnap.sandboxes.redating`. Only
        while nothing lives in the sandbox but the idle shell. A backend that cannot do this leaves them as they are.

        Args:
            span: from when to when the call was executed in this sandbox, nanoseconds since the epoch.
            to: from when to when it was executed when it was recorded.

        Raises:
            InfrastructureError: not all files could be looked at, or the sandbox failed.
        """

    def note(self) -> None:
        """Notes what PID 1 and the persistent shell are, as seen from outside the sandbox, for `go_back`.

        It takes no time if they were noted since the state last changed.
        """

    def go_back(self) -> bool:
        """Makes PID 1 and the persistent shell what they were when they were noted, after a call that changed nothing.

        A command can change what these processes report, so their report alone proves nothing. After this, the sandbox
        is known to be in the state before the call by what was seen from outside.

        Returns:
            Whether the sandbox is in that state for certain. Otherwise nothing was done, and the call counts as one
            that changed the state.

        Raises:
            SandboxDied: the sandbox was ended, since it must not go on.
        """

    def machine_fault(self, said: str) -> str | None:
        """Returns a fault of this machine, such as a full disk, that may have decided what was seen in the sandbox.

        It is asked before and after each call, and answers quickly.

        Args:
            said: the output of the call; empty before it.

        Returns:
            The fault in words, of the time since this was last asked; None if there was none.

        Raises:
            SandboxDied: the files that the sandbox stands on are damaged, and nothing that was seen in it counts.
            InfrastructureError: what was seen is certainly this machine's doing.
        """

    def load(self) -> Load:
        """Returns what has held up the sandbox's processes so far; zeros where that cannot be told. Answers quickly."""
        ...

    def lend(self, variables: Mapping[str, str]) -> None:
        """Gives environment variables to all that `exec` and `exec_all` run from here on; the shell keeps its own.

        Args:
            variables: beyond those of the image.
        """

    def traffic(self) -> Traffic:
        """Returns what was asked of the network since this was last asked; nothing where `Image.network` is none."""
        ...

    def checkpoint(self) -> SnapshotInfo:
        """Takes a snapshot of files and processes at one moment. The sandbox goes on undisturbed.

        Returns:
            The complete snapshot.

        Raises:
            NotCheckpointable: what the sandbox holds at present cannot be kept; the message is the reason. It goes on.
            CheckpointFailed: the machine, not the sandbox, is the reason, after several tries. The sandbox goes on.
            SandboxDied: the sandbox was ended by the attempt.
        """

    def archive(self) -> AbstractContextManager[IO[bytes]]:
        """Returns a context manager with the sandbox's files as a tar stream (pax), for any tar or `docker import`.

        The sandbox stands still in the block. Owners are as seen inside. What tvsnap brings is left out: the
        contents of /proc, /sys and /dev, and tvsnap's own directory; so is what is named `.wh.*`, by which layers of
        container images say what they delete (OCI image specification 1.0, layer.md).

        Raises:
            InfrastructureError: it could not be read to its end; raised at the end of the block at the latest.
        """

    def memory(self) -> int:
        """Returns the memory that the sandbox takes, in bytes; of shared pages, its proportional part counts."""

    def close(self) -> None:
        """Ends the sandbox and everything in it. It raises nothing, and may be called more than once."""


class Staged(Protocol):
    """A fork that is complete and has not run yet. Used by one thread at a time."""

    def begin(self) -> Sandbox:
        """Lets it run; returns the sandbox, whose this is from now on.

        Raises:
            SnapshotUnusable, NotRestorable, ForkFailed: as `Backend.fork`; nothing is left of it then.
        """

    def memory(self) -> int:
        """Returns the memory that it takes, in bytes; see `Sandbox.memory`."""

    def close(self) -> None:
        """Ends it, or the sandbox that it has become. It raises nothing, and may be called more than once."""


class Backend(Protocol):
    """What runs sandboxes: it starts them, takes snapshots of them and forks these. Many threads may use it at once."""

    @property
    def name(self) -> str: ...

    @property
    def platform(self) -> str:
        """What commands can see of the machine: its architecture, as `x86_64`, and what is unusual about it.

        It is part of a root's name. Backends whose sandboxes look alike to commands return the same text, so that
        states that were recorded with one serve the other.
        """

    @property
    def captures(self) -> Captures:
        """The most that a snapshot can hold on this machine."""

    def start(self, image: Image, limits: Limits) -> Sandbox:
        """Starts a sandbox.

        Args:
            image: what it is started from.
            limits: what it may use.

        Raises:
            InfrastructureError: it does not start.
        """

    def fork(self, snapshot: str, image: Image, limits: Limits) -> Sandbox:
        """Makes a new sandbox in the state in which a snapshot was taken.

        Args:
            snapshot: the snapshot's id.
            image: the image that the snapshot's sandbox was started from.
            limits: what the new sandbox may use.

        Raises:
            SnapshotUnusable: the snapshot is known to be missing or damaged, or is of another version of tvsnap.
            NotRestorable: the snapshot is sound, but cannot be forked on this machine, after several tries.
            ForkFailed: the machine, not the snapshot, is the reason, after several tries.
        """

    def snapshots(self) -> Iterable[str]:
        """Yields the ids of all complete snapshots in the data directory."""

    def delete_snapshot(self, snapshot: str) -> None:
        """Deletes a snapshot, if it is there. Live forks of it go on.

        Args:
            snapshot: the snapshot's id.
        """

    def reap(self) -> ReapReport:
        """Removes what processes that have died left behind in this data directory, and returns how much that was."""

    def reclaim(self) -> None:
        """Gives back to the disk what was deleted. This may take a minute."""

    def disk_usage(self) -> Mapping[str, int]:
        """Returns the bytes that are taken on disk, by kind: `snapshots` and `sandboxes`."""

    def close(self) -> None:
        """Ends all sandboxes of this process, and closes the backend."""


@runtime_checkable
class Staging(Protocol):
    """A backend that can make forks ahead of time of whatever lives in a sandbox."""

    def stage(self, snapshot: str, image: Image, limits: Limits) -> Staged | None:
        """Makes a fork that stands still before its first instruction, so that it is there at once when it is needed.

        Args:
            snapshot, image, limits: as for `fork`.

        Returns:
            The fork; None if there can be none of a snapshot of this kind.

        Raises:
            SnapshotUnusable, NotRestorable, ForkFailed: as `fork`.
        """
