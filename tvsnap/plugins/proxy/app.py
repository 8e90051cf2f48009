"""The proxy as an ASGI application: the way of one request, from top to bottom."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from tvsnap.model.errors import TvsnapError, UsageError
from tvsnap.plugins.client.wire.errors import Unreachable, error_data, meaning_of
from tvsnap.plugins.proxy.keys import Keyed, account_of, keyed
from tvsnap.plugins.proxy.priors import HEADER, Priors
from tvsnap.plugins.proxy.recording import Recording, may_be_shared
from tvsnap.plugins.proxy.store import Answer, AnswerStore
from tvsnap.plugins.proxy.upstream import Head, Upstream
from tvsnap.plugins.server.http import Guard, check_length, json_response, read_body
from tvsnap.plugins.server.settings import ServerSettings
from tvsnap.plugins.server.tenants import tenant_of

T = TypeVar("T")
logger = logging.getLogger("tvsnap.proxy")
CACHE_HEADER = "x-tvsnap-cache"
"""The header of answers: `hit`, `miss` or `bypass`; of requests: `bypass` to ask the model's server without looking or
keeping, `refresh` to ask it and keep its answer."""
STATS_PATH = "/tvsnap/stats"
FLUSH_S = 1.0
"""Seconds between which counts are kept in memory; a process that is killed loses these."""
OF_PROXY = frozenset((CACHE_HEADER, "date"))
"""Headers of answers that the proxy writes itself."""
OF_ONE_CLIENT = frozenset(("set-cookie", "set-cookie2"))
"""Headers of answers that are for the client that asked, and for none that waited for the same answer."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD")


class Proxy:
    """A cache in front of a model's server. It is used on one event loop."""

    def __init__(self, upstream: Upstream, store: AnswerStore, priors: Priors, settings: ServerSettings) -> None:
        """
        Args:
            upstream: the model's server.
            store: the store of answers.
            priors: answers requests for priors.
            settings: the server's settings: whom it lets in, and the size of a request.
        """
        self._upstream = upstream
        self._store = store
        self._priors = priors
        self._settings = settings
        self._flights: dict[bytes, Recording] = {}
        self._keeping: dict[asyncio.Task[None], Recording] = {}
        self._last_failure = ""  # the failure that was logged last

    async def answer(self, request: Request) -> Response:
        """Answers a request: from the cache, with an answer that is on its way, or by asking."""
        body = await read_body(request, self._settings.max_body)
        headers = self._upstream.headers(request.headers.items(), ours=bool(self._settings.tokens))
        wanted = request.headers.get(CACHE_HEADER, "").lower()
        # The path as the client wrote it: the server decodes it itself.
        path = request.scope.get("raw_path", request.scope["path"].encode()).decode("latin-1").partition("?")[0]
        query = request.scope["query_string"].decode("latin-1")
        target = f"{path}?{query}" if query else path
        if not path.startswith("/"):
            raise UsageError(f"a request must be for a path, not for {path[:60]!r}")
        tenant = tenant_of(request)
        asked_for = request.headers.get(HEADER)
        if asked_for is not None and request.method == "POST":
            if len(request.headers.getlist(HEADER)) > 1:
                raise UsageError(f"the header {HEADER} is there twice: ask for one prior at a time")
            if wanted in ("bypass", "refresh"):
                raise UsageError(
                    f"{CACHE_HEADER}: {wanted} is for answers, not for priors: leave out one of the headers"
                )

            async def ask() -> tuple[Head, bytes]:
                async with self._upstream.ask(request.method, target, headers, body) as (head, pieces):
                    return head, b"".join([piece async for piece in pieces])

            told_apart = [self._upstream.url, path, "" if tenant is None else tenant.name, account_of(headers.items())]
            return await self._priors.answer(asked_for, body, told_apart, ask)
        key = keyed(
            *(request.method, path, query, headers.items(), body),
            upstream=self._upstream.url,
            tenant="" if tenant is None else tenant.name,
        )
        if key is None or wanted == "bypass":
            self._store.count(bypassed=1)
            flight = Recording(self._upstream, request.method, target, headers, body)
            return await self._pass_on(request, flight, "bypass")
        if wanted != "refresh":
            answer = None if self._under_way(key) else await self._read_answer(key)
            if answer is not None:
                await asyncio.to_thread(self._store.used, key.key, answer)
                return _replayed(answer)
            of_another = self._under_way(key)
            if of_another is not None and (shared := await self._join(request, of_another)) is not None:
                return shared
        flight = self._begin(key, request.method, target, headers, body)
        return await self._pass_on(request, flight, "miss")

    async def _read_answer(self, key: Keyed) -> Answer | None:
        """Returns the answer that is kept; None, too, if the file cannot be read: the server is asked then."""
        try:
            return await asyncio.to_thread(self._store.get, key.key)
        except TvsnapError as error:
            self._tell("nothing can be answered from the cache", error)
            return None

    def _tell(self, what: str, error: TvsnapError) -> None:
        """Logs a failure, once for as long as it stays the same."""
        if str(error) != self._last_failure:
            logger.warning("%s: %s", what, error)
            self._last_failure = str(error)

    def _under_way(self, key: Keyed) -> Recording | None:
        flight = self._flights.get(key.key)
        return flight if flight is not None and flight.can_be_joined else None

    def _begin(self, key: Keyed, method: str, target: str, headers: dict[str, str], body: bytes) -> Recording:
        flight = Recording(self._upstream, method, target, headers, body)
        self._flights[key.key] = flight
        keeping = asyncio.ensure_future(self._keep(key, flight))
        self._keeping[keeping] = flight
        keeping.add_done_callback(self._keeping.pop)
        return flight

    async def _keep(self, key: Keyed, flight: Recording) -> None:
        """Keeps an answer once it came whole."""
        start = time.perf_counter()
        try:
            pieces = await flight.whole
            took = time.perf_counter() - start
            if pieces is None:
                self._store.count(misses=1, failed=1, asked_s=took)
                return
            answer = Answer(flight.head.result().content_type, pieces, took, time.time())
            try:
                await asyncio.to_thread(self._store.put, key.key, key.model, answer)
            except TvsnapError as error:  # a full disk: the client has its answer all the same
                self._tell("an answer could not be kept", error)
            self._store.count(misses=1, asked_s=took)
        finally:
            if self._flights.get(key.key) is flight:
                del self._flights[key.key]

    async def _join(self, request: Request, flight: Recording) -> Response | None:
        """Returns an answer that is on its way to another client; None if it turns out to be for that one alone."""
        flight.join()
        try:
            with contextlib.suppress(TvsnapError):  # which is passed on
                head = await _unless_gone(request, flight.head)
                if head is not None and not may_be_shared(head):
                    return None
            self._store.count(hits=1)
            return await self._pass_on(request, flight, "hit", without=OF_ONE_CLIENT)
        finally:
            flight.leave()

    async def _pass_on(
        self, request: Request, flight: Recording, source: str, without: frozenset[str] = frozenset()
    ) -> Response:
        """Returns an answer that is on its way, as soon as its head is there; without some of its headers."""
        flight.join()
        joined = True
        try:
            head = await _unless_gone(request, flight.head)
            if head is None:
                return Response(status_code=499)  # nobody takes it any more

            async def body() -> AsyncIterator[bytes]:
                async for piece in flight.pieces():
                    yield piece

            joined = False
            return _Passed(head, body(), source, flight, without | OF_PROXY)
        except TvsnapError as error:
            return _failed(error, source)
        finally:
            if joined:
                flight.leave()

    async def stats(self, _: Request) -> Response:
        """Answers with what is kept, and what was done."""
        return json_response(json.dumps(asdict(await asyncio.to_thread(self._store.stats))).encode())

    async def write_counts(self) -> None:
        """Writes each second what was counted, until it is cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                await asyncio.to_thread(self._store.flush)
            except TvsnapError as error:  # they are written later, with those that come
                self._tell("counts could not be written", error)

    async def close(self) -> None:
        """Ends what is under way, and closes connections and file."""
        for flight in list(self._keeping.values()):  # also those that others have taken the place of
            flight.end()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        await asyncio.to_thread(self._priors.close)
        await self._upstream.close()
        await asyncio.to_thread(self._store.close)


class _Passed(StreamingResponse):
    """An answer that is passed on while it comes; when it ends, however that is, its flight is left."""

    def __init__(
        self, head: Head, body: AsyncIterator[bytes], source: str, flight: Recording, without: frozenset[str]
    ) -> None:
        super().__init__(body, head.status)
        headers = [(name, value) for name, value in head.headers if name not in without]
        self.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self.raw_headers.append((CACHE_HEADER.encode(), source.encode()))
        self._flight = flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it; if the rest of it is lost, the connection is closed before its end, for the client to notice."""
        try:
            await super().__call__(scope, receive, send)
        except TvsnapError as error:
            logger.warning("an answer broke off: %s", error)
        finally:
            self._flight.leave()


def make_app(proxy: Proxy, settings: ServerSettings) -> ASGIApp:
    """Returns the application; when it is shut down, it closes the proxy."""

    async def well(_: Request) -> Response:
        return json_response(b'{"status":"ok"}')

    async def answer(request: Request) -> Response:
        try:
            check_length(request, settings.max_body)
            return await proxy.answer(request)
        except TvsnapError as error:
            return _failed(error, "bypass")

    @contextlib.asynccontextmanager
    async def lifespan(_: ASGIApp) -> AsyncIterator[None]:
        writing = asyncio.ensure_future(proxy.write_counts())
        try:
            yield
        finally:
            writing.cancel()
            await proxy.close()

    routes = [
        Route("/healthz", well),
        Route(STATS_PATH, proxy.stats),
        Route("/{path:path}", answer, methods=list(METHODS)),
    ]
    return Guard(Router(routes, lifespan=lifespan), settings, _Uncounted())


class _Uncounted:
    """Refusals are not counted."""

    def refuse(self, error: BaseException) -> None:
        """Does nothing."""


def _replayed(answer: Answer) -> Response:
    """Returns an answer that was kept, in the pieces in which it came."""

    async def body() -> AsyncIterator[bytes]:
        for piece in answer.pieces:
            yield piece

    headers = {
        "content-type": answer.content_type,
        "age": str(max(0, int(time.time() - answer.created))),
        CACHE_HEADER: "hit",
    }
    if len(answer.pieces) <= 1:
        return Response(b"".join(answer.pieces), headers=headers)
    return StreamingResponse(body(), headers=headers)


def _failed(error: TvsnapError, source: str) -> Response:
    """Returns the answer that tells of an error of the proxy, as clients of such servers expect it."""
    status = 502 if isinstance(error, Unreachable) else meaning_of(error).status
    data = error_data(error)
    if isinstance(error, UsageError):
        data["way_out"] = "Correct the request, as the message says."  # what describes others' requests is not here
    response = json_response(json.dumps({"error": data}).encode(), status)
    response.headers[CACHE_HEADER] = source
    return response


async def _unless_gone(request: Request, awaited: asyncio.Future[T]) -> T | None:
    """Returns what is awaited; None if the client closes the connection before."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.ensure_future(gone())
    try:
        await asyncio.wait((awaited, leaving), return_when=asyncio.FIRST_COMPLETED)
        return awaited.result() if awaited.done() else None
    finally:
        leaving.cancel()
