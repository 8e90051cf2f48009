"""Operations on sandboxes in a state: make, run, read, write, copy folders, look, end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tvsnap.aio.sandbox import AsyncSandbox
from tvsnap.model.errors import UsageError
from tvsnap.model.operations.rollouts import Get
from tvsnap.plugins.client.wire.values import to_data
from tvsnap.plugins.server import bodies
from tvsnap.plugins.server.bodies import Reader, SandboxAnswer, SandboxesAnswer, decode, encode
from tvsnap.plugins.server.held import HeldSandbox
from tvsnap.plugins.server.http import RECEIVED_HEADER, Operation, header_of, json_response, number_of
from tvsnap.plugins.server.service import Service
from tvsnap.plugins.server.tenants import Tenant, tenant_of

_MATERIALISE = bodies.decoder(bodies.Materialise)
_PUT = bodies.decoder(bodies.Put)
_FETCH = Reader(Get)
TAR = "application/x-tar"
BINARY = "application/octet-stream"
LOOKS = ("processes", "changes", "shell_state", "digest", "terminal")
T = TypeVar("T")


def sandbox_answer(handle: HeldSandbox) -> SandboxAnswer:
    """Returns what an answer tells of a sandbox."""
    return SandboxAnswer(handle.id, handle.state, to_data(handle.sandbox.image))


class SandboxRoutes:
    """Operations on sandboxes."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def operations(self) -> list[Operation]:
        """All of them."""
        one, path = "/v1/sandboxes/{id}", {"path": "a path inside"}
        return [
            Operation(
                *("POST", "/v1/states/{state}/sandboxes", "materialise", "Makes sandboxes in a state.", self.open),
                *(bodies.Materialise, SandboxesAnswer),
            ),
            Operation("DELETE", one, "closeSandbox", "Ends a sandbox.", self.close, None, bodies.Answered),
            *(
                Operation("POST", f"{one}/{what}", id, about, self._run(what, body), body)
                for what, id, about, body in (
                    ("run", "run", "Runs a command in the persistent shell.", bodies.Run),
                    ("exec", "exec", "Runs a command in a fresh shell.", bodies.Exec),
                    ("exec_all", "execAll", "Runs commands side by side.", bodies.ExecAll),
                    ("request", "request", "Sends a request to a service inside.", bodies.Inside),
                    ("send_keys", "sendKeys", "Types into the shell's terminal.", bodies.Keys),
                )
            ),
            Operation("GET", f"{one}/files", "readFile", "Reads a file.", self.read, None, BINARY, path),
            Operation(
                *("GET", f"{one}/folder", "listFolder", "Lists what is in one folder.", self.list_folder),
                *(None, bodies.FolderAnswer, {**path, "limit": "the most entries; 10,000 unless it is given"}),
            ),
            Operation("PUT", f"{one}/files", "writeFile", "Writes a file.", self.write, BINARY, bodies.Answered, path),
            Operation("GET", f"{one}/archive", "exportSandbox", "Returns its files as tar.", self.archive, None, TAR),
            Operation("POST", f"{one}/puts", "put", "Copies an uploaded content into it.", self.put, bodies.Put),
            Operation(
                *("POST", f"{one}/fetches", "fetchFromSandbox", "Fetches a file or a folder.", self.fetch),
                *(_FETCH.body, bodies.FetchAnswer),
            ),
            *(
                Operation(
                    "GET", f"{one}/{what}", f"sandbox_{what}", f"Tells its {what.replace('_', ' ')}.", self._look(what)
                )
                for what in LOOKS
            ),
        ]

    async def open(self, request: Request) -> Response:
        """Makes sandboxes in a state, of which each is to be ended."""
        state, tenant = await self._service.owned(request), tenant_of(request)

        async def work(body: bytes) -> bytes:
            handles = await make_sandboxes(self._service, state, decode(_MATERIALISE, body), tenant)
            return encode(SandboxesAnswer([sandbox_answer(one) for one in handles]))

        return json_response(await self._service.once(request, work), 201)

    async def close(self, request: Request) -> Response:
        """Ends a sandbox; one that has ended already is no error."""
        id, tenant = request.path_params["id"], tenant_of(request)
        is_open = any(handle.id == id and handle.is_for(tenant) for handle in self._service.sandboxes)
        if is_open:
            await asyncio.shield(asyncio.ensure_future(self._service.sandboxes.end(id)))
        return json_response(bodies.Answered(is_open))

    async def read(self, request: Request) -> Response:
        """Reads a file."""
        handle, path, limit = self._handle(request), _path(request), number_of(request, "limit")
        chosen: dict[str, Any] = {} if limit is None else {"limit": limit}
        async with handle.turn():
            with handle.in_use():
                data = await handle.sandbox.read_file(path, service=request.query_params.get("service"), **chosen)
        return Response(data, media_type=BINARY)

    async def list_folder(self, request: Request) -> Response:
        """Lists what is in one folder."""
        handle, path, limit = self._handle(request), _path(request), number_of(request, "limit")
        chosen: dict[str, Any] = {} if limit is None else {"limit": limit}
        async with handle.turn():
            with handle.in_use():
                listing = await handle.sandbox.list_folder(path, **chosen)
        return json_response(to_data(listing))

    async def archive(self, request: Request) -> Response:
        """Returns the files as a stream of tar."""
        handle, block = self._handle(request), contextlib.AsyncExitStack()
        await block.enter_async_context(handle.turn())
        block.enter_context(handle.in_use())
        return await archived(self._service, handle.sandbox, block)

    async def write(self, request: Request) -> Response:
        """Writes a file."""
        path, query = _path(request), request.query_params

        async def work(sandbox: AsyncSandbox, body: bytes) -> Any:
            await sandbox.write_file(path, body, user=query.get("user"), service=query.get("service"))
            return {"done": True}

        return await self._use(request, work)

    async def put(self, request: Request) -> Response:
        """Copies an uploaded content into a sandbox."""

        async def work(sandbox: AsyncSandbox, body: bytes) -> Any:
            upload = decode(_PUT, body)
            items = self._service.contents.read(upload.digest)
            await sandbox.put(items, upload.path, user=upload.user, owners=upload.owners, timeout=upload.timeout)
            return {"done": True}

        return await self._use(request, work)

    async def fetch(self, request: Request) -> Response:
        """Fetches a file or a folder."""

        async def work(sandbox: AsyncSandbox, body: bytes) -> Any:
            source = _FETCH.read(body)
            inner, contents = sandbox.sandbox, self._service.contents

            def fetch() -> str:
                return contents.write(inner.read_tree(source.path, limit=source.limit, timeout=source.timeout))

            return {"result": None, "digest": await self._service.in_thread(fetch), "kind": None, "place": None}

        return await self._use(request, work)

    def _run(self, what: str, kind: type[bodies.Body]) -> Callable[[Request], Awaitable[Response]]:
        """Returns what calls a method of a sandbox with what a request holds."""
        decoder = bodies.decoder(kind)

        async def run(request: Request) -> Response:
            async def work(sandbox: AsyncSandbox, body: bytes) -> Any:
                return await getattr(sandbox, what)(**asdict(decode(decoder, body)))

            return await self._use(request, work)

        return run

    def _look(self, what: str) -> Callable[[Request], Awaitable[Response]]:
        async def look(request: Request) -> Response:
            handle = self._handle(request)
            async with handle.turn():
                with handle.in_use():
                    value = await getattr(handle.sandbox, what)()
            return json_response({what: to_data(value)})

        return look

    async def _use(self, request: Request, work: Callable[[AsyncSandbox, bytes], Awaitable[Any]]) -> Response:
        """Does something with a sandbox, once for its key, when its turn has come."""
        handle = self._handle(request)

        async def do(body: bytes) -> bytes:
            async with handle.turn():
                with handle.in_use():
                    return encode(to_data(await work(handle.sandbox, body)))

        return json_response(await self._service.once(request, do, handle.answers))

    def _handle(self, request: Request) -> HeldSandbox:
        handle = self._service.sandboxes.find(request.path_params["id"], tenant_of(request))
        handle.note_received(header_of(request, RECEIVED_HEADER))
        return handle


async def make_sandboxes(
    service: Service, state: str, body: bodies.Materialise, tenant: Tenant | None
) -> list[HeldSandbox]:
    """Makes sandboxes in a state, which a client holds from then on.

    Raises:
        Busy: as many as there may be are at work or held, or as the tenant may have.
    """
    service.check_room(body.n, tenant)
    with service.sandboxes.room_for(body.n):
        handles: list[HeldSandbox] = []
        blocks = [service.using_sandbox(tenant) for _ in range(body.n)]
        try:
            for block in blocks:
                sandbox = await block.enter_async_context(
                    service.cache.materialise(state, after=body.after, network=body.network)
                )
                handles.append(HeldSandbox(sandbox=sandbox, state=state, leave=block.aclose, tenant=tenant))
        except BaseException:
            for block in blocks:
                await block.aclose()
            raise
        for one in handles:
            service.sandboxes.add(one)
    return handles


async def archived(service: Service, sandbox: AsyncSandbox, block: contextlib.AsyncExitStack) -> Response:
    """Returns an answer that streams a sandbox's files as tar; a block is left when it ends."""
    try:
        stream = await block.enter_async_context(sandbox.archive())
    except BaseException:
        await block.aclose()
        raise

    async def pieces() -> AsyncIterator[bytes]:
        async with block:
            while data := await service.in_thread(lambda: stream.read(1 << 18)):
                yield data

    return StreamingResponse(pieces(), media_type=TAR)


def _path(request: Request) -> str:
    """Returns the path that is asked for; a name in it may be no UTF-8."""
    query = parse_qsl(request.url.query, encoding="utf-8", errors="surrogateescape")
    path = next((value for name, value in query if name == "path"), "")
    if not path:
        raise UsageError("the request names no file: give the parameter path")
    return path
