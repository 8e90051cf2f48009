"""The methods of sandboxes, in this process and at a server alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tvsnap.model.calls import DEFAULT_TIMEOUT
from tvsnap.model.limits import MIB
from tvsnap.model.observations import Command, FileChange, FolderListing, Outcome, Process, TerminalBytes


class SandboxMethods(Protocol):
    """The methods that `Sandbox` and `RemoteSandbox` have in common."""

    def run(self, command: str, *, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        """Runs a command in the persistent shell.

        Args:
            command: the command, in one or several lines.
            timeout: seconds, after which its processes are ended; by default those of `Rollout.call`.

        Returns:
            The outcome. A command that fails or times out is no error.
        """

    def exec(
        self,
        command: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        cwd: str | None = None,
        env: Mapping[str, str] = {},
        user: str | None = None,
        separate: bool = False,
        service: str | None = None,
    ) -> Outcome:
        """Runs a command in a fresh shell (`bash -c`), without affecting the persistent one.

        Args:
            command: the command.
            timeout: seconds, after which its processes are ended; by default those of `Rollout.call`.
            cwd: the directory in which it starts; by default the image's working directory.
            env: environment variables beyond the image's.
            user: the user that runs it; by default the image's.
            separate: keep standard error apart from the output (`Outcome.errors`).
            service: the service whose root directory, environment, working directory and default user it has; by
                default the image's main one. If its files have no bash, `sh` runs the command.

        Returns:
            The outcome. A command that fails or times out is no error.

        Raises:
            UsageError: the image has no such service.
        """

    def exec_all(
        self, commands: Sequence[Command], *, timeout: float = DEFAULT_TIMEOUT, user: str | None = None
    ) -> list[Outcome]:
        """Runs several commands in parallel, each in a fresh shell like `exec`.

        Args:
            commands: the commands, at most 256.
            timeout: seconds, after which the processes of all are ended; by default those of `Rollout.call`.
            user: the user that runs them; by default the image's.

        Returns:
            The outcomes, in the order of the commands. For a command that did not end in time, the first half of the
            longest allowed output is known.
        """
        ...

    def read_file(self, path: str, *, limit: int = 16 * MIB, service: str | None = None) -> bytes:
        """Returns a file's contents, read inside the sandbox.

        Args:
            path: the file; a relative path starts at the shell's working directory, or at the service's.
            limit: the largest number of bytes to read.
            service: the service whose root directory is used; by default the main one.

        Raises:
            OSError: with the errno inside (ENOENT, EISDIR, EACCES, EFBIG beyond `limit`, ...).
        """

    def write_file(self, path: str, data: bytes, *, user: str | None = None, service: str | None = None) -> None:
        """Writes a file inside the sandbox, and creates missing parent directories.

        Args:
            path: the file; a relative path starts at the shell's working directory, or at the service's.
            data: its contents.
            user: the user that writes it; by default the image's, or the service's.
            service: the service whose root directory is used; by default the main one.

        Raises:
            OSError: with the errno inside (EACCES, EISDIR, ENOSPC, ...).
        """

    def list_folder(self, path: str, *, limit: int = 10_000) -> FolderListing:
        """Returns the entries of one folder, regardless of permissions inside. No program of the image is used for it.

        Args:
            path: the folder, or a link to it; a relative path starts at the shell's working directory.
            limit: the most entries, from 1 to 1,000,000; fewer come if names and targets of links exceed 16 MiB.

        Returns:
            The entries by name, and whether there are more.

        Raises:
            UsageError: the limit is no such number.
            OSError: with the errno inside (ENOENT, ENOTDIR, ...).
        """
        ...

    def request(self, path: str, data: bytes, *, timeout: float, limit: int = 16 * MIB) -> bytes:
        """Sends a request to a service inside the sandbox over a Unix socket, and returns its answer.

        Args:
            path: the absolute path of the socket, which is used as root.
            data: the request; after it, the sending side of the connection is closed.
            timeout: seconds to wait for the end of the answer.
            limit: the largest number of bytes of the answer.

        Raises:
            OSError: ENOENT or ECONNREFUSED if nobody listens, ETIMEDOUT, EFBIG beyond `limit`.
        """

    def send_keys(self, data: bytes, *, wait: float) -> None:
        """Types bytes into the shell's terminal, and waits until the terminal is quiet.

        Args:
            data: the bytes that a keyboard would send.
            wait: seconds to wait at most.
        """

    def terminal(self) -> TerminalBytes:
        """Returns the bytes sent to the shell's terminal, to be rendered by a terminal emulator, and its size."""

    def shell_state(self) -> Mapping[str, str]:
        """Returns the shell's state by name: `var NAME`, `function NAME`, `alias NAME`, `option NAME`, `cwd`, ..."""

    def processes(self) -> list[Process]:
        """Returns the live processes, without PID 1."""

    def changes(self) -> Mapping[str, FileChange]:
        """Returns the differences from the image, by absolute path."""

    def digest(self) -> str | None:
        """Returns a digest of the sandbox's contents except times; None if part of them cannot be compared.

        Two sandboxes of one image with equal digests (not None) have the same contents: files by path, type, mode,
        owner, link target, extended attributes and content; the shell by its report on itself and by its open files.
        State that cannot be inspected, such as the memory of processes beyond PID 1 and the idle shell, makes it None.
        It does not depend on the backend, on the time or number of executions of a history, or on whether the sandbox
        was forked. See `tvsnap.sandboxes.looks.digest`.
        """
