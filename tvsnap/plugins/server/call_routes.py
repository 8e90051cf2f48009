"""Operations that tell recorded calls: all without their texts, some with these, and those that fit a search."""

from __future__ import annotations

from bisect import bisect_right

from starlette.requests import Request
from starlette.responses import Response

from tvsnap.model.errors import UsageError
from tvsnap.plugins.client.wire.values import to_data
from tvsnap.plugins.server import bodies
from tvsnap.plugins.server.bodies import encode
from tvsnap.plugins.server.http import Operation, is_number, json_response, number_of
from tvsnap.plugins.server.service import Service
from tvsnap.plugins.server.tenants import tenant_of

MOST_OUTLINED = 20_000
"""Calls that one answer has without their texts, about 200 bytes each."""
MOST_LISTED = 1000
"""Calls that may be asked for by their ids at once."""
MOST_FOUND = 100_000
"""Ids that one answer to a search has."""


class CallRoutes:
    """Operations that list recorded calls, however many there are."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._graph = service.cache.cache.graph

    @property
    def operations(self) -> list[Operation]:
        """All of them."""
        after = {"after": "only calls with a larger id"}
        of = {"task": "only of this task, with those that lead to them", "root": "only below this root"}
        filters = {"task": "only of this task", "tool": "only of this tool", "text": "only with this, in any case"}
        return [
            Operation(
                *("GET", "/v1/outline", "outline", "Lists calls without their texts.", self.outline),
                *(None, bodies.OutlineAnswer),
                {**after, **of, "limit": f"at most so many; {MOST_OUTLINED} is the most, and the default"},
            ),
            Operation(
                *("GET", "/v1/search", "search", "Tells which calls fit.", self.search, None, bodies.SearchAnswer),
                {**after, **filters, "limit": f"at most so many; {MOST_FOUND} is the most, and the default"},
            ),
            Operation(
                *("GET", "/v1/calls", "listCalls", "Lists calls without their outputs.", self.listed),
                query={"ids": f"their ids, with commas between them; at most {MOST_LISTED}"},
            ),
            Operation("GET", "/v1/calls/{call}", "showCall", "Tells a call with its output.", self.show),
        ]

    async def outline(self, request: Request) -> Response:
        """Lists calls without their texts, a part at a time."""
        prefix, query = _salt_prefix(request), request.query_params
        chosen = {name: query.get(name) for name in ("task", "root")}
        after = number_of(request, "after") or 0
        limit = min(number_of(request, "limit") or MOST_OUTLINED, MOST_OUTLINED)

        def read() -> bytes:
            calls = self._graph.outline(**chosen, salt_prefix=prefix, after=after, limit=limit)
            return encode(bodies.OutlineAnswer(calls, calls[-1].id if len(calls) == limit else None))

        return json_response(await self._service.in_thread(read))

    async def search(self, request: Request) -> Response:
        """Tells the ids of calls that fit, a part at a time."""
        query, prefix = request.query_params, _salt_prefix(request)
        filters = {name: query.get(name) for name in ("task", "tool", "text")}
        after = number_of(request, "after") or 0
        limit = min(number_of(request, "limit") or MOST_FOUND, MOST_FOUND)

        def read() -> bytes:
            ids = sorted(self._graph.matching(**filters, salt_prefix=prefix))
            first = bisect_right(ids, after)
            page = ids[first : first + limit]
            return encode(bodies.SearchAnswer(page, page[-1] if first + len(page) < len(ids) else None))

        return json_response(await self._service.in_thread(read))

    async def listed(self, request: Request) -> Response:
        """Lists the calls whose ids are given, without their outputs; those that are not there are left out."""
        ids, prefix = request.query_params.get("ids", "").split(","), _salt_prefix(request)
        if not all(map(is_number, ids)) or len(ids) > MOST_LISTED:
            raise UsageError(f"the parameter ids must be at most {MOST_LISTED} whole numbers with commas between them")

        def read() -> bytes:
            return encode({"calls": to_data(self._graph.listed([int(id) for id in ids], salt_prefix=prefix))})

        return json_response(await self._service.in_thread(read))

    async def show(self, request: Request) -> Response:
        """Tells a call with its output."""
        edge = await self._service.owned_call(request)
        return json_response({"call": to_data(edge)})


def _salt_prefix(request: Request) -> str | None:
    """Returns what the salts of the roots begin with that who asks may see; None for all."""
    tenant = tenant_of(request)
    return None if tenant is None else tenant.prefix
