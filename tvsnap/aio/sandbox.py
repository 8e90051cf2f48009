"""The awaitable twin of `Sandbox`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Concatenate, ParamSpec, TypeVar

from tvsnap.aio.threads import Twin, awaited, in_thread, with_its_task
from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.model.images import Image
from tvsnap.sandboxes.protocol import Sandbox

P = ParamSpec("P")
T = TypeVar("T")


def _executed(
    method: Callable[Concatenate[Sandbox, P], T],
) -> Callable[Concatenate[AsyncSandbox, P], Coroutine[Any, Any, T]]:
    """Does the work of `awaited` for a method that executes a program inside, by `AsyncSandbox._execute`."""

    @functools.wraps(method)
    async def call(self: AsyncSandbox, /, *args: P.args, **kwargs: P.kwargs) -> T:
        def work() -> T:
            answer: T = getattr(self.sandbox, method.__name__)(*args, **kwargs)
            return answer

        return await self._execute(work)

    return call


class AsyncSandbox(Twin[Sandbox]):
    """A `Sandbox` whose methods are awaited; each is done by a thread, one after the other.

    If a task is cancelled that awaits `run`, `exec`, `exec_all`, `request` or `send_keys`, their programs are ended as
    by a timeout; other methods run to their end. Methods that are called meanwhile wait.

    Methods for tvsnap itself (checkpoints, the sandbox's end) are those of `sandbox`, the one underneath.

    Attributes:
        sandbox: the sandbox underneath.
    """

    def __init__(self, sandbox: Sandbox, threads: ThreadPoolExecutor) -> None:
        """
        Args:
            sandbox: the sandbox.
            threads: the threads that execute its methods.
        """
        self.sandbox = sandbox
        self._threads = threads

    @property
    def id(self) -> str:
        """Its name, unique in the data directory."""
        return self.sandbox.id

    @property
    def image(self) -> Image:
        """The image of which it was made."""
        return self.sandbox.image

    @property
    def _original(self) -> Sandbox:
        return self.sandbox

    run = _executed(Sandbox.run)
    """`Sandbox.run`, to be awaited."""
    exec = _executed(Sandbox.exec)
    """`Sandbox.exec`, to be awaited."""
    exec_all = _executed(Sandbox.exec_all)
    """`Sandbox.exec_all`, to be awaited."""
    read_file = awaited(Sandbox.read_file)
    """`Sandbox.read_file`, to be awaited."""
    list_folder = awaited(Sandbox.list_folder)
    """`Sandbox.list_folder`, to be awaited."""
    write_file = awaited(Sandbox.write_file)
    """`Sandbox.write_file`, to be awaited."""
    put = awaited(Sandbox.put)
    """`Sandbox.put`, to be awaited."""
    get = awaited(Sandbox.get)
    """`Sandbox.get`, to be awaited."""
    request = _executed(Sandbox.request)
    """`Sandbox.request`, to be awaited."""
    send_keys = _executed(Sandbox.send_keys)
    """`Sandbox.send_keys`, to be awaited."""
    terminal = awaited(Sandbox.terminal)
    """`Sandbox.terminal`, to be awaited."""
    shell_state = awaited(Sandbox.shell_state)
    """`Sandbox.shell_state`, to be awaited."""
    processes = awaited(Sandbox.processes)
    """`Sandbox.processes`, to be awaited."""
    changes = awaited(Sandbox.changes)
    """`Sandbox.changes`, to be awaited."""
    observe = awaited(Sandbox.observe)
    """`Sandbox.observe`, to be awaited."""
    digest = awaited(Sandbox.digest)
    """`Sandbox.digest`, to be awaited."""
    memory = awaited(Sandbox.memory)
    """`Sandbox.memory`, to be awaited."""

    async def _execute(self, work: Callable[[], T]) -> T:
        """Returns the result of `work`, which executes a program inside; that is ended with the awaiting task."""
        cancellation = Cancellation()

        def in_turn() -> T:
            try:
                with self.sandbox.turn(), cancellation.executing(self.sandbox):
                    return work()
            finally:
                cancellation.end()

        return await with_its_task(self._threads.submit(in_turn), cancellation)

    @contextlib.asynccontextmanager
    async def archive(self) -> AsyncIterator[IO[bytes]]:
        """A block with the sandbox's root filesystem as one tar stream; see `Sandbox.archive`.

        Yields:
            The stream. Reading it blocks: do it in a thread.

        Raises:
            InfrastructureError: it could not be read to its end; raised at the end of the block at the latest.
        """
        block = self.sandbox.archive()
        stream = await in_thread(self._threads, block.__enter__)
        try:
            yield stream
        except BaseException as error:
            failure = error
            await in_thread(self._threads, lambda: block.__exit__(type(failure), failure, failure.__traceback__))
            raise
        await in_thread(self._threads, lambda: block.__exit__(None, None, None))
