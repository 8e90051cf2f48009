"""The protocol that every backend fulfils: how sandboxes live, are observed, checkpointed and forked.

A backend knows nothing of the graph. Its conformance suite is `tests/conformance/`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import IO, Protocol

from tvsnap.model.images import Image
from tvsnap.model.limits import MIB, Limits
from tvsnap.model.observations import (
    NO_SERVICE,
    Captures,
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
    """One live container with a persistent shell. Used by one thread at a time.

    Every method raises `SandboxDied` once the sandbox has ended.
    """

    @property
    def id(self) -> str:
        """Its name, unique in the data directory."""
        ...

    @property
    def image(self) -> Image: ...

    def run(self, command: str, *, timeout: float) -> Outcome:
        """Runs `command` in the persistent shell; `timeout` in seconds."""
        ...

    def exec(
        self,
        command: str,
        *,
        timeout: float,
        cwd: str | None = None,
        env: Mapping[str, str] = {},
        user: str | None = None,
    ) -> Outcome:
        """Runs `command` in a fresh shell (`bash -c`), which leaves the persistent one alone."""
        ...

    def read_file(self, path: str, *, limit: int = 16 * MIB) -> bytes:
        """Returns a file's contents, read inside the sandbox; a relative path starts at the shell's cwd.

        Raises:
            OSError: with the errno met inside (ENOENT, EISDIR, EACCES, EFBIG beyond `limit`, ...).
        """
        ...

    def write_file(self, path: str, data: bytes, *, user: str | None = None) -> None:
        """Writes a file inside the sandbox, making parent directories.

        Args:
            path: a relative one starts at the shell's cwd.
            data: its contents.
            user: who writes it; by default the image's.

        Raises:
            OSError: as `read_file` does.
        """
        ...

    def request(self, path: str, data: bytes, *, timeout: float, limit: int = 16 * MIB) -> bytes:
        """Returns what a service inside answers to `data` on the Unix socket at `path`, which root may use.

        Args:
            path: absolute, inside.
            data: the request; the end of it is the end of what is sent.
            timeout: seconds.
            limit: bytes of the answer.

        Raises:
            OSError: ENOENT or ECONNREFUSED where nobody listens, ETIMEDOUT, EFBIG beyond `limit`.
        """
        ...

    def send_keys(self, data: bytes, *, wait: float) -> None:
        """Types `data` into the shell's terminal, then waits until it is quiet, at most `wait` seconds."""
        ...

    def terminal(self) -> TerminalBytes:
        """Returns what the terminal was sent, to be rendered by a terminal emulator."""
        ...

    def attach(self, columns: int, rows: int) -> socket.socket:
        """Returns a byte stream joined to the shell's terminal, for a person. Closing it detaches."""
        ...

    def shell_state(self) -> Mapping[str, str]:
        """Returns the shell's state by name: `var NAME`, `function NAME`, `alias NAME`, `option NAME`, `cwd`, ..."""
        ...

    def processes(self) -> list[Process]:
        """Returns the live processes, without PID 1."""
        ...

    def changes(self) -> Mapping[str, FileChange]:
        """Returns the absolute paths that differ from the image."""
        ...

    def observe(self, service: Service = NO_SERVICE) -> Observation:
        """Returns fingerprints of the present moment, at a cost proportional to what differs from the image.

        Args:
            service: what is told apart, in `Observation.data` and `Observation.serving`.
        """
        ...

    def digest(self) -> str | None:
        """Returns a digest of all that the sandbox holds but times; None if part of it cannot be compared.

        Two sandboxes of one image whose digests are equal, and not None, hold the same: files by path, type, mode,
        owner, link target, extended attributes and content; the shell by all that it says of itself and by its open
        files. What cannot be looked at, such as the memory of processes beyond PID 1 and the idle shell, makes it
        None. It does not depend on the backend, on when or how often a history was executed, or on whether the sandbox
        was forked. See `tvsnap.sandboxes.digest`.
        """
        ...

    def settle(self, *, changed: bool) -> None:
        """Takes note of whether the last call changed the state, before a snapshot is taken or the next call is made.

        The processes of a call are numbered from a number that depends on how many calls have changed the state, so
        that they have the same ids in each execution of a history, whichever calls in between were answered without
        one, and in forks: a snapshot holds how many there were. Costs nothing; where nobody calls it, each call's
        processes are numbered alike.
        """
        ...

    def note(self) -> None:
        """Notes, by what is seen from outside, what tvsnap's own processes in it are, for `go_back`.

        Costs nothing where they were noted since the state last changed.
        """
        ...

    def go_back(self) -> bool:
        """Makes tvsnap's own processes in it what they were when they were noted, after a call that changed nothing.

        What a sandbox says of itself, a command can have it say. After this, it stands where it stood by what was seen
        from outside alone.

        Returns:
            Whether it stands there for certain; otherwise nothing was done, and the call counts as one that changed the
            state.

        Raises:
            SandboxDied: it must not go on.
        """
        ...

    def trouble(self, said: str) -> str | None:
        """Returns why what was seen in it since this was last asked may be this machine's doing; None if it is not.

        That is a full disk, for example. Asked before and after each call, and so quick.

        Args:
            said: what the call returned.

        Raises:
            SandboxDied: what it stands on is damaged; nothing that was seen in it can be trusted.
            InfrastructureError: it is this machine's doing, such as a full disk.
        """
        ...

    def checkpoint(self) -> SnapshotInfo:
        """Takes a snapshot of files and processes at one moment; the sandbox goes on undisturbed.

        Raises:
            NotCheckpointable: with the reason in words, which is what the sandbox holds at present; it goes on.
            CheckpointFailed: the machine's doing, though it was tried several times; the sandbox goes on.
            SandboxDied: it was ended over it.
        """
        ...

    def archive(self) -> AbstractContextManager[IO[bytes]]:
        """A block with the sandbox's root filesystem as one tar stream (pax): any tar or `docker import` reads it.

        The sandbox stands still meanwhile. Owners are as seen inside. What a sandbox brings itself is left out: the
        contents of /proc, /sys and /dev, and tvsnap's own directory; so is what is named `.wh.*`, by which layers of
        container images say what they delete (OCI image specification 1.0, layer.md).

        Raises:
            InfrastructureError: it could not be read to its end; raised at the end of the block at the latest.
        """
        ...

    def memory(self) -> int:
        """Returns the sandbox's proportional memory, bytes."""
        ...

    def close(self) -> None:
        """Ends the sandbox and all it holds. Never raises; safe to repeat."""
        ...


class Backend(Protocol):
    """Where sandboxes come from. Thread-safe."""

    @property
    def name(self) -> str: ...

    @property
    def platform(self) -> str:
        """What commands can see of the machine, and so part of a root's name: its architecture, as `x86_64`, and
        what is unusual about it.

        Backends whose sandboxes look alike to commands say the same: states recorded with one then serve the other.
        """
        ...

    @property
    def captures(self) -> Captures:
        """The most that a snapshot can hold on this machine."""
        ...

    def start(self, image: Image, limits: Limits) -> Sandbox:
        """Returns a fresh sandbox of `image`."""
        ...

    def fork(self, snapshot: str, image: Image, limits: Limits) -> Sandbox:
        """Returns a new sandbox in the state that the snapshot was taken in.

        Raises:
            SnapshotUnusable: it is known to be gone or damaged.
            NotRestorable: it is sound, but cannot be brought back here, though it was tried several times.
            ForkFailed: the machine's doing, though it was tried several times.
        """
        ...

    def snapshots(self) -> Iterable[str]:
        """Yields the ids of all complete snapshots in the data directory."""
        ...

    def delete_snapshot(self, snapshot: str) -> None:
        """Deletes a snapshot; nothing happens if it is gone. Live forks of it go on."""
        ...

    def reap(self) -> ReapReport:
        """Removes what owners that have died left behind (any process's, on this data directory)."""
        ...

    def reclaim(self) -> None:
        """Sees to it that the disk has back what was deleted; may take a minute."""
        ...

    def disk_usage(self) -> Mapping[str, int]:
        """Returns bytes on disk by kind: `snapshots`, `sandboxes`."""
        ...

    def close(self) -> None:
        """Ends all sandboxes of this owner."""
        ...
