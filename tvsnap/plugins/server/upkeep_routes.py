"""Operations of upkeep: recorded calls are made again, branches are forgotten, images are removed."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from tvsnap.engine.auditing.checking import Checker
from tvsnap.graph import Edge
from tvsnap.model.errors import Forbidden
from tvsnap.plugins.client.wire.values import to_data
from tvsnap.plugins.server import bodies
from tvsnap.plugins.server.bodies import decode, encode
from tvsnap.plugins.server.http import Operation, json_response
from tvsnap.plugins.server.service import Service
from tvsnap.plugins.server.tenants import check_owned, tenant_of
from tvsnap.upkeep.forgetting import forget

_CHECK = bodies.decoder(bodies.Check)
_FORGET = bodies.decoder(bodies.Forget)


class UpkeepRoutes:
    """Operations that keep or delete records."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._cache = service.cache.cache

    @property
    def operations(self) -> list[Operation]:
        """All of them."""
        call = "/v1/calls/{call}"
        return [
            Operation("POST", f"{call}/executions", "reexecute", "Makes a recorded call again.", self.reexecute),
            Operation(
                *("POST", f"{call}/checks", "check", "Makes a recorded call again, and compares.", self.check),
                bodies.Check,
            ),
            Operation("POST", "/v1/forget", "forget", "Deletes what was recorded.", self.forget, bodies.Forget),
            Operation(
                *("DELETE", "/v1/images/{name}", "removeImage", "Removes a name of an image, or it.", self.remove),
                of_all=True,
            ),
        ]

    async def reexecute(self, request: Request) -> Response:
        """Makes a recorded call again; nothing is recorded."""
        return await self._again(request, lambda edge, _: lambda: encode(to_data(self._cache.reexecute(edge))))

    async def check(self, request: Request) -> Response:
        """Makes a recorded call again, and compares; one that differs answers nothing any more."""

        def checking(edge: Edge, body: bytes) -> Callable[[], bytes]:
            mark = decode(_CHECK, body).mark
            checker = Checker(self._cache.graph, self._cache.reexecute, by="a verification", mark=mark)

            def check() -> bytes:
                checker.check(edge.id)
                return encode(to_data(checker.report()))

            return check

        return await self._again(request, checking)

    async def _again(self, request: Request, making: Callable[[Edge, bytes], Callable[[], bytes]]) -> Response:
        """Answers with what `making` returns a function for, which makes a call again in a sandbox."""
        tenant, edge = tenant_of(request), await self._service.owned_call(request)

        async def work(body: bytes) -> bytes:
            make = making(edge, body)
            with self._service.executing(tenant):
                return await self._service.executed(make)

        return json_response(await self._service.once(request, work))

    async def forget(self, request: Request) -> Response:
        """Deletes a state with all below it, or what was done for a task or on an image; tells how much that is."""
        tenant = tenant_of(request)

        async def work(body: bytes) -> bytes:
            target, cache = decode(_FORGET, body), self._cache
            if tenant is not None and target.state is None:
                raise Forbidden("tenants name the state that is to be forgotten: a task or an image may be others' too")

            def delete() -> bytes:
                state = target.state if target.state is None else check_owned(cache.graph, tenant, target.state)
                what = {"state": state, "task": target.task, "image": target.image}
                forgotten, freed = forget(cache.home, cache.graph, cache.backend, **what, dry_run=target.dry_run)
                return encode({"forgotten": to_data(forgotten), "bytes": freed})

            return await self._service.in_thread(delete)

        return json_response(await self._service.once(request, work))

    async def remove(self, request: Request) -> Response:
        """Removes a name of an image, and the image with its last name; by its digest, all of its names."""
        images, name = self._service.cache.images.store, request.path_params["name"]
        removed = await self._service.in_thread(lambda: images.remove(name))
        return json_response({"image": to_data(removed)})
