"""An answer that is on its way: it is passed on to all who ask for it while it comes, and kept if it came whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

from tvsnap.model.errors import InfrastructureError, TvsnapError
from tvsnap.plugins.client.wire.errors import Unreachable
from tvsnap.plugins.proxy.keys import is_in_key
from tvsnap.plugins.proxy.upstream import Head, Upstream

LONGEST = 64 << 20
"""Bytes of an answer at most that is kept."""
EVENTS, JSON = "text/event-stream", "application/json"


class Recording:
    """A request to the model's server, for one or several clients. It is used on one event loop.

    It is ended when no client waits for it any more.

    Attributes:
        head: is done with status and headers, or with an error, once the server has answered.
        whole: is done with the pieces of the body once it came whole; with None if it did not, or was an error.
    """

    def __init__(self, upstream: Upstream, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        """Begins the request.

        Args:
            upstream: the model's server.
            method: the method of HTTP.
            target: path and query.
            headers: as they are passed on.
            body: the request's body.
        """
        loop = asyncio.get_running_loop()
        self.head: asyncio.Future[Head] = loop.create_future()
        self.whole: asyncio.Future[tuple[bytes, ...] | None] = loop.create_future()
        self._pieces: list[bytes] = []
        self._more = asyncio.Event()
        self._error: BaseException | None = None
        self._listeners = 0
        self._is_left = False
        self._task = asyncio.ensure_future(self._run(upstream, method, target, headers, body))
        self._task.add_done_callback(self._ended)

    @property
    def can_be_joined(self) -> bool:
        """Whether a further client may wait for it: it was not ended, and what has come of it may be shared."""
        if self._is_left or not self.head.done():
            return not self._is_left
        return self.head.exception() is None and self.head.result().status == 200 and may_be_shared(self.head.result())

    def join(self) -> None:
        """Takes note of a client that waits for it."""
        self._listeners += 1

    def leave(self) -> None:
        """Takes note that a client waits no more; it is ended if that was the last."""
        self._listeners -= 1
        if not self._listeners:
            self.end()

    def end(self) -> None:
        """Ends it, if its answer has not come whole."""
        if not self._task.done():
            self._is_left = True
            self._task.cancel()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yields the body's pieces as they come, from the first.

        Raises:
            TvsnapError: the connection to the server was lost.
        """
        position = 0
        while True:
            while position < len(self._pieces):
                yield self._pieces[position]
                position += 1
            if self.whole.done():
                if self._error is not None:
                    raise self._error
                return
            await self._more.wait()

    async def _run(self, upstream: Upstream, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        async with upstream.ask(method, target, headers, body) as (head, pieces):
            self.head.set_result(head)
            async for piece in pieces:
                self._pieces.append(piece)
                self._tell()
        self.whole.set_result(tuple(self._pieces) if is_kept(head, self._pieces) else None)

    def _tell(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error: BaseException | None
        if task.cancelled():
            error = Unreachable("the request was ended before its answer came whole")
        else:
            error = task.exception()
        if error is not None:
            is_ours = isinstance(error, TvsnapError)
            self._error = error if is_ours else InfrastructureError(f"{type(error).__name__}: {error}")
            if not self.head.done():
                self.head.set_exception(self._error)
                self.head.exception()  # perhaps nobody waits for it any more
            if not self.whole.done():
                self.whole.set_result(None)
        self._tell()


def may_be_shared(head: Head) -> bool:
    """Returns whether an answer is for all requests of its key, and the server does not forbid to give it again."""
    return "no-store" not in head.words("cache-control") and all(
        word != "*" and is_in_key(word) for word in head.words("vary")
    )


def is_kept(head: Head, pieces: list[bytes]) -> bool:
    """Returns whether an answer may be given again: it succeeded, is whole, and nothing in it forbids that."""
    kind = head.content_type.partition(";")[0].strip().lower()
    if not may_be_shared(head):
        return False
    if head.status != 200 or head.is_encoded or sum(map(len, pieces)) > LONGEST:
        return False
    body = b"".join(pieces)
    if kind == EVENTS:
        return _events_are_whole(body)
    if kind != JSON:
        return False
    with suppress(ValueError, RecursionError):
        answer = json.loads(body)
        return isinstance(answer, dict) and not answer.get("error")
    return False


def _events_are_whole(body: bytes) -> bool:
    """Returns whether a stream of events came to its end, and none of them tells of an error."""
    if not body.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")):
        return False
    is_done = False
    for line in body.splitlines():
        name, _, value = line.partition(b":")
        value = value.strip()
        if name == b"event" and value == b"error":
            return False
        if name != b"data":
            continue
        if value == b"[DONE]":
            is_done = True
            continue
        try:
            event = json.loads(value)
        except (ValueError, RecursionError):
            return False
        if isinstance(event, dict) and event.get("error"):
            return False
    return is_done
