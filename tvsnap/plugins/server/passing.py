"""Requests that arrive at a worker and are another's, or that all workers together answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tvsnap.model.errors import TvsnapError
from tvsnap.plugins.client.async_transport import AsyncConnection
from tvsnap.plugins.client.frames import Frames
from tvsnap.plugins.client.http import LONGEST_HEAD, parse_head
from tvsnap.plugins.client.terminals import AsyncTerminal
from tvsnap.plugins.client.wire.errors import Busy, WorkerDied
from tvsnap.plugins.server.events import LISTENING
from tvsnap.plugins.server.http import KEY_HEADER, SECRET_HEADER, end_of_server, error_response, json_response
from tvsnap.plugins.server.metrics import MEDIA_TYPE
from tvsnap.plugins.server.tvcache.routes import ASK_FIRST
from tvsnap.plugins.server.workers import Worker

_HELD = re.compile(r"/v1/(rollouts|sandboxes)/w(\d{1,6})-(\d{1,9})-")
_OPENING = re.compile(r"/v1/rollouts|/v1/states/[^/]+/(rollouts|sandboxes)")
_OF_CONNECTION = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"expect", SECRET_HEADER})
EVENTS_PATH = "/v1/events"
LISTEN_AGAIN = 0.5
"""Seconds after which a worker is asked for its events again that has died."""
IDLE_CONNECTIONS = 256


class Passing:
    """Passes requests on to the worker that has what they are about. What is begun is spread by its idempotency key."""

    def __init__(
        self,
        app: ASGIApp,
        worker: Worker,
        of_first: Collection[str],
        by_all: Collection[str],
        stopping: Callable[[], bool],
    ) -> None:
        """
        Args:
            app: answers what is this worker's.
            worker: this one.
            of_first: the paths of requests that the first worker answers, because it alone has their subject in memory.
            by_all: those of them that each answers, unless it has to ask the first one.
            stopping: returns whether the server is about to stop: then nothing is passed on, because others may
                have ended.
        """
        self._app = app
        self._worker = worker
        self._of_first = of_first
        self._by_all = by_all
        self._stopping = stopping
        self._idle: dict[int, list[AsyncConnection]] = {number: [] for number in range(len(worker.names))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "websocket":
            await self._answer_websocket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        inside = any(name == SECRET_HEADER for name, _ in scope["headers"])  # the guard has looked at its value
        match = _HELD.match(scope["path"])
        if inside and scope["path"] in _GATHERED:
            scope["unlogged"] = True  # who gathers the answers writes the line
        gathered = scope["method"] == "GET" and not inside and not self._stopping()
        merge = _GATHERED.get(scope["path"]) if gathered else None
        if match is not None:
            number, generation = int(match[2]), int(match[3])
            if number == self._worker.number:
                if generation != self._worker.generation:
                    await error_response(_died(match[1]))(scope, receive, send)
                    return
            elif number < len(self._worker.names) and not inside:
                await self._pass(
                    number,
                    scope,
                    receive,
                    send,
                    _died(match[1]),
                )
                return
        elif scope["path"] in self._of_first and self._worker.number != 0 and not inside:
            if scope["path"] not in self._by_all:
                await self._ask_first(scope, receive, send)
                return
            scope[ASK_FIRST] = self._ask_first
        elif scope["path"] == EVENTS_PATH and gathered:
            scope["route"] = scope["path"]
            await self._join_events(scope, receive, send)
            return
        elif merge is not None:
            scope["route"] = scope["path"]
            await (await self._gather(scope, merge))(scope, receive, send)
            return
        elif scope["method"] == "POST" and not inside and _OPENING.fullmatch(scope["path"]):
            number = self._chosen(scope)
            if number != self._worker.number:
                busy = Busy("the worker that was to begin it has died, and is started again", 0.5)
                await self._pass(number, scope, receive, send, busy)
                return
        await self._app(scope, receive, send)

    async def _ask_first(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Has the first worker answer."""
        busy = Busy("the worker that answers TVCache's clients has died, and is started again", 0.5)
        await self._pass(0, scope, receive, send, busy)

    async def _answer_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Joins a WebSocket here, or with the worker that has what it is about."""
        match = _HELD.match(scope["path"])
        inside = any(name == SECRET_HEADER for name, _ in scope["headers"])
        number = self._worker.number if match is None else int(match[2])
        if match is None or inside or number >= len(self._worker.names):
            await self._app(scope, receive, send)
        elif number != self._worker.number:
            await self._pass_websocket(number, scope, receive, send, _died(match[1]))
        elif int(match[3]) != self._worker.generation:
            await error_response(_died(match[1]))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _pass_websocket(
        self, number: int, scope: Scope, receive: Receive, send: Send, broken: WorkerDied
    ) -> None:
        """Has another worker join a WebSocket; `broken` is the answer if that worker has died."""
        if self._stopping():
            await error_response(end_of_server(held=True))(scope, receive, send)
            return
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        shown = {name: named[name] for name in ("authorization", "host", "origin") if name in named}
        host = shown.pop("host", "localhost")
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        path = (scope["raw_path"].split(b"?")[0] + query).decode("latin-1")
        try:
            connection = await _connected(self._worker.names[number])
            frames = Frames(host, path, {**shown, SECRET_HEADER.decode(): self._worker.secret})
            terminal = await AsyncTerminal(connection, frames).open()
        except TvsnapError as error:
            await error_response(error)(scope, receive, send)
            return
        except OSError:
            await error_response(broken)(scope, receive, send)
            return
        scope["unlogged"] = True  # who joins it writes the line
        async with terminal:
            await receive()  # that the client asks for it, which is known
            await send({"type": "websocket.accept"})
            ways = [asyncio.ensure_future(one) for one in (_to_worker(terminal, receive), _to_client(terminal, send))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in ways:
                    one.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
            with contextlib.suppress(OSError):  # the client has gone
                await send({"type": "websocket.close", "code": terminal.code})

    def _chosen(self, scope: Scope) -> int:
        """Returns which worker begins something: always the same one for the same idempotency key."""
        key = next((value for name, value in scope["headers"] if name == KEY_HEADER.encode()), None)
        return self._worker.number if key is None else zlib.crc32(key) % len(self._worker.names)

    async def _pass(self, number: int, scope: Scope, receive: Receive, send: Send, broken: Exception) -> None:
        """Has another worker answer; `broken` is the answer if that worker dies meanwhile."""
        has_head = False
        stopped = end_of_server(held=isinstance(broken, WorkerDied))
        if self._stopping():
            await error_response(stopped)(scope, receive, send)
            return
        try:
            async with self._connection(number) as connection:
                writer = connection.writer
                writer.write(self._head(scope))
                with contextlib.suppress(ConnectionError):  # it may have answered before it has read all
                    await _send_body(scope, receive, writer)
                raw = await connection.reader.readuntil(b"\r\n\r\n")
                head = parse_head(raw.removesuffix(b"\r\n\r\n"))
                lines = [line.partition(b":") for line in raw.split(b"\r\n")[1:] if line]
                headers = [(name.lower(), value.strip()) for name, _, value in lines]
                headers = [(name, value) for name, value in headers if name not in _OF_CONNECTION]
                has_head = scope["unlogged"] = True  # who answers writes the line
                await send({"type": "http.response.start", "status": head.status, "headers": headers})
                if scope["method"] != "HEAD":
                    async for piece in connection.pieces(head):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except (OSError, asyncio.IncompleteReadError):
            if has_head:
                raise  # an answer that breaks off is no answer
            await error_response(stopped if self._stopping() else broken)(scope, receive, send)
        except asyncio.CancelledError:  # only a server that is stopped does that
            if has_head:
                raise
            await error_response(stopped)(scope, receive, send)

    def _head(self, scope: Scope) -> bytes:
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        path = scope.get("raw_path") or scope["path"].encode()
        lines = [scope["method"].encode() + b" " + path.split(b"?")[0] + query + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in scope["headers"] if name not in _OF_CONNECTION]
        if _is_chunked(scope):
            lines.append(b"transfer-encoding: chunked")
        lines.append(SECRET_HEADER + b": " + self._worker.secret.encode())
        return b"\r\n".join(lines) + b"\r\n\r\n"

    async def _gather(self, scope: Scope, merge: Callable[[Sequence[bytes]], Response]) -> Response:
        """Returns what all workers together answer; one that is being started again counts as soon as it is there."""

        async def ask(number: int) -> bytes:
            answer: list[Message] = []

            async def receive() -> Message:
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message: Message) -> None:
                answer.append(message)

            died = Busy("a worker has died, and is started again", 0.5)
            await self._pass(number, dict(scope), receive, send, died)
            return b"".join(message.get("body", b"") for message in answer) if answer[0]["status"] == 200 else b""

        answers = await asyncio.gather(*(ask(number) for number in range(len(self._worker.names))))
        return merge(answers)

    async def _join_events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events of all workers as they come; of one that dies, what it tells once it was started again.

        The comment by which a client knows that it misses nothing from then on comes once all workers have joined.
        """
        missing = set(range(len(self._worker.names)))

        async def joined(number: int) -> None:
            if number in missing:
                missing.discard(number)
                if not missing:
                    await send({"type": "http.response.body", "body": LISTENING, "more_body": True})

        async def ask() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def relay(number: int) -> None:
            status = 0

            async def forward(message: Message) -> None:
                nonlocal status
                status = message.get("status", status)
                if status == 200 and message.get("body") == LISTENING:
                    await joined(number)
                elif status == 200 and message.get("body"):  # a whole event, or a comment
                    await send({"type": "http.response.body", "body": message["body"], "more_body": True})

            while not self._stopping():
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    await self._pass(number, dict(scope), ask, forward, Busy("a worker has died", LISTEN_AGAIN))
                await joined(number)  # it has died: what it does not tell is not waited for
                await asyncio.sleep(LISTEN_AGAIN)

        async def left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        relays = [asyncio.ensure_future(relay(number)) for number in range(len(self._worker.names))]
        gone = asyncio.ensure_future(left())
        try:
            await asyncio.wait([gone, *relays], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (gone, *relays):
                one.cancel()
            await asyncio.gather(gone, *relays, return_exceptions=True)
        await send({"type": "http.response.body", "body": b""})

    @contextlib.asynccontextmanager
    async def _connection(self, number: int) -> AsyncIterator[AsyncConnection]:
        idle, connection = self._idle[number], None
        while idle and connection is None:
            connection = idle.pop()
            if connection.reader.at_eof() or connection.writer.is_closing():
                connection.close()
                connection = None
        if connection is None:
            connection = await _connected(self._worker.names[number])
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if len(idle) < IDLE_CONNECTIONS:
            idle.append(connection)
        else:
            connection.close()


async def _connected(name: bytes) -> AsyncConnection:
    """Returns a connection to a worker, by the name of its socket; uvloop takes names of files alone."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        await asyncio.get_running_loop().sock_connect(one, name)
        return AsyncConnection(*await asyncio.open_unix_connection(sock=one, limit=LONGEST_HEAD))
    except BaseException:
        one.close()
        raise


async def _to_worker(terminal: AsyncTerminal, receive: Receive) -> None:
    while (message := await receive())["type"] != "websocket.disconnect":
        await terminal.pass_on(message["text"] if message.get("bytes") is None else message["bytes"])


async def _to_client(terminal: AsyncTerminal, send: Send) -> None:
    while not terminal.closed:
        for message in await terminal.messages():
            await send({"type": "websocket.send", "bytes" if isinstance(message, bytes) else "text": message})


def _died(kind: str) -> WorkerDied:
    what = {"rollouts": "rollout", "sandboxes": "sandbox"}[kind]
    return WorkerDied(f"the server's process that had this {what} has died, and the {what} with it")


def _is_chunked(scope: Scope) -> bool:
    return any(name == b"transfer-encoding" for name, _ in scope["headers"])


async def _send_body(scope: Scope, receive: Receive, writer: asyncio.StreamWriter) -> None:
    chunked, more = _is_chunked(scope), True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ConnectionError("the client has gone before its request was there whole")
        piece, more = message.get("body", b""), bool(message.get("more_body"))
        if piece:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")


def _merge_rollouts(answers: Sequence[bytes]) -> Response:
    return json_response({"rollouts": [one for answer in answers if answer for one in json.loads(answer)["rollouts"]]})


def _merge_stats(answers: Sequence[bytes]) -> Response:
    first, *others = map(json.loads, filter(None, answers))
    for other in others:
        totals, budget = first["stats"].pop("totals"), first["stats"].pop("budget")
        first["stats"] = _sum(first["stats"], other["stats"])
        for name in ("memory", "sandboxes"):
            if name in budget:
                budget[name] = _sum(budget[name], other["stats"]["budget"][name])
        first["stats"] |= {"totals": totals, "budget": budget}
    return json_response(first)


def _sum(a: Any, b: Any) -> Any:
    """Returns the sum of figures, member by member; lists of samples are put together."""
    if isinstance(a, dict) and isinstance(b, dict):
        both = {name: _sum(a[name], b[name]) for name in a.keys() & b.keys()}
        return {**{name: b[name] for name in b.keys() - a.keys() if name not in ("totals", "budget")}, **a, **both}
    if isinstance(a, list) and isinstance(b, list):
        return [_sum(x, y) for x, y in zip(a, b, strict=True)] if len(a) == len(b) == 2 else a + b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a + b
    return b if a is None else a


def _merge_metrics(answers: Sequence[bytes]) -> Response:
    """Returns the figures of all workers, told apart by the label `worker`."""
    families: dict[str, Metric] = {}
    for number, answer in enumerate(answers):  # a worker that has just died answers nothing
        for family in text_string_to_metric_families(answer.decode()):
            merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                labels = {**sample.labels, "worker": str(number)}
                merged.add_sample(sample.name, labels, sample.value, sample.timestamp)
    registry = CollectorRegistry()
    registry.register(_Merged(list(families.values())))
    return Response(generate_latest(registry), headers={"content-type": MEDIA_TYPE})


class _Merged:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


_GATHERED: dict[str, Callable[[Sequence[bytes]], Response]] = {
    "/v1/rollouts": _merge_rollouts,
    "/v1/stats": _merge_stats,
    "/metrics": _merge_metrics,
}
