"""The awaitable twin of `Sandbox`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TypeVar

from tvsnap.aio.threads import in_thread
from tvsnap.model.images import Image
from tvsnap.model.limits import MIB
from tvsnap.model.observations import (
    NO_SERVICE,
    FileChange,
    Observation,
    Outcome,
    Process,
    Service,
    TerminalBytes,
)
from tvsnap.sandboxes.protocol import Sandbox

T = TypeVar("T")


class AsyncSandbox:
    """A `Sandbox` whose methods are awaited; each is done by a thread. One at a time may be under way.

    What only tvsnap itself does with a sandbox (checkpoints, its end) is left to `sandbox`, the one underneath.

    Attributes:
        sandbox: the sandbox underneath.
    """

    def __init__(self, sandbox: Sandbox, threads: ThreadPoolExecutor) -> None:
        """
        Args:
            sandbox: the sandbox.
            threads: what its methods are done by.
        """
        self.sandbox = sandbox
        self._threads = threads

    @property
    def id(self) -> str:
        """Its name, unique in the data directory."""
        return self.sandbox.id

    @property
    def image(self) -> Image:
        """The image that it was made of."""
        return self.sandbox.image

    async def run(self, command: str, *, timeout: float) -> Outcome:
        """Runs a command in the persistent shell.

        Args:
            command: the command as one would type it; it may have several lines.
            timeout: seconds, after which its processes are ended.

        Returns:
            What it came to. A command that fails or times out is no error.
        """
        return await self._do(lambda: self.sandbox.run(command, timeout=timeout))

    async def exec(
        self,
        command: str,
        *,
        timeout: float,
        cwd: str | None = None,
        env: Mapping[str, str] = {},
        user: str | None = None,
    ) -> Outcome:
        """Runs a command in a fresh shell (`bash -c`), which leaves the persistent one alone.

        Args:
            command: the command.
            timeout: seconds, after which its processes are ended.
            cwd: the directory in which it starts; by default the image's working directory.
            env: environment variables beyond the image's.
            user: the user that runs it; by default the image's.

        Returns:
            What it came to. A command that fails or times out is no error.
        """
        return await self._do(lambda: self.sandbox.exec(command, timeout=timeout, cwd=cwd, env=env, user=user))

    async def read_file(self, path: str, *, limit: int = 16 * MIB) -> bytes:
        """Returns a file's contents, read inside the sandbox.

        Args:
            path: the file; a relative path starts at the shell's working directory.
            limit: the largest number of bytes to read.

        Raises:
            OSError: with the errno that was met inside (ENOENT, EISDIR, EACCES, EFBIG beyond `limit`, ...).
        """
        return await self._do(lambda: self.sandbox.read_file(path, limit=limit))

    async def write_file(self, path: str, data: bytes, *, user: str | None = None) -> None:
        """Writes a file inside the sandbox, and makes the directories above it.

        Args:
            path: the file; a relative path starts at the shell's working directory.
            data: its contents.
            user: the user that writes it; by default the image's.

        Raises:
            OSError: with the errno that was met inside (EACCES, EISDIR, ENOSPC, ...).
        """
        return await self._do(lambda: self.sandbox.write_file(path, data, user=user))

    async def request(self, path: str, data: bytes, *, timeout: float, limit: int = 16 * MIB) -> bytes:
        """Sends a request to a service inside the sandbox over a Unix socket, and returns its answer.

        Args:
            path: the absolute path of the socket, which root may use.
            data: the request; after it, the sending side of the connection is closed.
            timeout: seconds to wait for the end of the answer.
            limit: the largest number of bytes of the answer.

        Raises:
            OSError: ENOENT or ECONNREFUSED where nobody listens, ETIMEDOUT, EFBIG beyond `limit`.
        """
        return await self._do(lambda: self.sandbox.request(path, data, timeout=timeout, limit=limit))

    async def send_keys(self, data: bytes, *, wait: float) -> None:
        """Types bytes into the shell's terminal, and waits until the terminal is quiet.

        Args:
            data: what a keyboard would send.
            wait: seconds to wait at most.
        """
        return await self._do(lambda: self.sandbox.send_keys(data, wait=wait))

    async def terminal(self) -> TerminalBytes:
        """Returns the bytes that the shell's terminal was sent, to be rendered by a terminal emulator, and its size."""
        return await self._do(lambda: self.sandbox.terminal())

    async def shell_state(self) -> Mapping[str, str]:
        """Returns the shell's state by name: `var NAME`, `function NAME`, `alias NAME`, `option NAME`, `cwd`, ..."""
        return await self._do(lambda: self.sandbox.shell_state())

    async def processes(self) -> list[Process]:
        """Returns the live processes, without PID 1."""
        return await self._do(lambda: self.sandbox.processes())

    async def changes(self) -> Mapping[str, FileChange]:
        """Returns what differs from the image, by absolute path."""
        return await self._do(lambda: self.sandbox.changes())

    async def observe(self, service: Service = NO_SERVICE) -> Observation:
        """Returns fingerprints of files, processes and shell at this moment.

        This takes time in proportion to what differs from the image, not to the size of the image.

        Args:
            service: what belongs to a service, and is reported apart in `Observation.data` and `Observation.serving`.
        """
        return await self._do(lambda: self.sandbox.observe(service))

    async def digest(self) -> str | None:
        """Returns a digest of all that the sandbox holds but times; None if part of it cannot be compared.

        Two sandboxes of one image whose digests are equal, and not None, hold the same: files by path, type, mode,
        owner, link target, extended attributes and content; the shell by all that it says of itself and by its open
        files. What cannot be looked at, such as the memory of processes beyond PID 1 and the idle shell, makes it
        None. It does not depend on the backend, on when or how often a history was executed, or on whether the sandbox
        was forked. See `tvsnap.sandboxes.digest`.
        """
        return await self._do(lambda: self.sandbox.digest())

    async def memory(self) -> int:
        """Returns the memory that the sandbox takes, in bytes; of shared pages, its proportional part counts."""
        return await self._do(lambda: self.sandbox.memory())

    @contextlib.asynccontextmanager
    async def archive(self) -> AsyncIterator[IO[bytes]]:
        """A block with the sandbox's root filesystem as one tar stream; see `Sandbox.archive`.

        Yields:
            The stream. Reading it blocks: do it in a thread.

        Raises:
            InfrastructureError: it could not be read to its end; raised at the end of the block at the latest.
        """
        block = self.sandbox.archive()
        stream = await self._do(block.__enter__)
        try:
            yield stream
        except BaseException as error:
            failure = error
            await self._do(lambda: block.__exit__(type(failure), failure, failure.__traceback__))
            raise
        await self._do(lambda: block.__exit__(None, None, None))

    async def _do(self, work: Callable[[], T]) -> T:
        return await in_thread(self._threads, work)
