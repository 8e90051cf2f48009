"""Operations on rollouts: begin, call, fork, fetch, look, end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from tvsnap.aio.rollout import AsyncRollout
from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.position import Position
from tvsnap.model.arguments import check_outcome
from tvsnap.model.calls import ToolResult
from tvsnap.model.grades import Verifier
from tvsnap.model.operations.caches import OpenRollout, Resume
from tvsnap.model.operations.rollouts import Call, Get, Keep
from tvsnap.plugins.client.wire.errors import Busy
from tvsnap.plugins.client.wire.values import to_data
from tvsnap.plugins.server import bodies
from tvsnap.plugins.server.bodies import (
    CallAnswer,
    PartBody,
    PlaceBody,
    Reader,
    ResultBody,
    RolloutAnswer,
    RolloutsAnswer,
    decode,
    encode,
)
from tvsnap.plugins.server.held import GivenSandbox, HeldRollout
from tvsnap.plugins.server.http import (
    KEY_HEADER,
    RECEIVED_HEADER,
    Operation,
    header_of,
    json_response,
    read_body,
    request_mark,
)
from tvsnap.plugins.server.sandbox_routes import sandbox_answer
from tvsnap.plugins.server.service import Service
from tvsnap.plugins.server.tenants import Tenant, own_salt, tenant_of

_OPEN = Reader(OpenRollout)
_RESUME = Reader(Resume, n=(bodies.Count, 1))
_CALL = Reader(Call)
_FORK = bodies.decoder(bodies.Fork)
_GRADE = bodies.decoder(bodies.Grade)
_FETCH = Reader(Get)
_KEEP = Reader(Keep)


def result_body(result: ToolResult) -> ResultBody:
    """Returns a result as an answer tells it."""
    return ResultBody(
        [PartBody(**part.as_json()) for part in result.parts],
        result.exit_code,
        result.duration,
        result.timed_out,
        result.blocked,
        result.truncated,
        result.source,
        dict(result.cost),
        result.strain,
        result.processor_s,
    )


def place_of(rollout: AsyncRollout) -> PlaceBody | None:
    """Returns where a rollout stands; None where that has to be found out."""
    position = rollout.place
    return None if position is None else at_place(position)


def at_place(position: Position) -> PlaceBody:
    """Returns a rollout's position as an answer tells it."""
    return PlaceBody(position.state, position.depth, position.private, position.unshared)


class RolloutRoutes:
    """What is done with rollouts."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def operations(self) -> list[Operation]:
        """All of them."""
        one = "/v1/rollouts/{id}"
        return [
            Operation(*("POST", f"{one}/calls", "call", "Makes a tool call.", self.call), _CALL.body, CallAnswer),
            Operation(
                *("POST", "/v1/rollouts", "openRollout", "Begins a rollout at the root of an image.", self.open),
                *(_OPEN.body, RolloutAnswer),
            ),
            Operation("GET", "/v1/rollouts", "listRollouts", "Lists the open rollouts.", self.list),
            Operation("GET", one, "showRollout", "Tells where a rollout stands.", self.show, None, RolloutAnswer),
            Operation(
                *("DELETE", one, "closeRollout", "Ends a rollout.", self.close, None, bodies.Answered),
                {"outcome": "the error that ended it, in words"},
            ),
            Operation("GET", f"{one}/tools", "listTools", "Lists the tools that may be called.", self.tools),
            Operation(
                *("POST", f"{one}/forks", "forkRollout", "Begins rollouts where one stands.", self.fork),
                *(bodies.Fork, RolloutsAnswer),
            ),
            Operation(
                *("POST", f"{one}/grades", "grade", "Grades the state where a rollout stands.", self.grade),
                *(bodies.Grade, bodies.GradeAnswer),
            ),
            Operation(
                *("POST", f"{one}/fetches", "fetchFromRollout", "Fetches a file or a folder.", self.fetch),
                *(_FETCH.body, bodies.FetchAnswer),
            ),
            Operation(
                *("POST", f"{one}/snapshots", "snapshotRollout", "Takes a snapshot where it stands.", self.snapshot),
                *(None, bodies.Answered),
            ),
            Operation(
                *("POST", f"{one}/sandbox", "giveSandbox", "Gives its own sandbox to the client.", self.give),
                *(None, bodies.SandboxAnswer),
            ),
            Operation(
                *("POST", f"{one}/kept", "keep", "Keeps what was done in that sandbox.", self.keep),
                *(_KEEP.body, bodies.KeptAnswer),
            ),
            Operation(
                *("POST", f"{one}/cancel", "cancelCall", "Ends the call that is being made.", self.cancel),
                *(None, bodies.Answered, {"call": "only the call that has this idempotency key"}),
            ),
            Operation(
                *("POST", "/v1/states/{state}/rollouts", "resume", "Begins rollouts at a state.", self.resume),
                *(_RESUME.body, RolloutsAnswer),
            ),
        ]

    async def open(self, request: Request) -> Response:
        """Begins a rollout."""

        async def work(body: bytes) -> bytes:
            opening, tenant = _OPEN.read(body), tenant_of(request)
            await self._service.brought(str(opening.image), opening.task)
            with self._room_for(1, tenant):
                rollout = self._service.cache.begin(replace(opening, salt=own_salt(opening.salt, tenant)))
                await rollout.tools()  # begins it
                answer = self._add(rollout, tenant)
                request.scope["rollout"] = answer.id
                return encode(answer)

        return json_response(await self._service.once(request, work), 201)

    async def resume(self, request: Request) -> Response:
        """Begins rollouts at a state."""
        state, tenant = await self._service.owned(request), tenant_of(request)

        async def work(body: bytes) -> bytes:
            opening, beside = _RESUME.split(body, state=state)
            n = beside["n"]
            with self._room_for(n, tenant), self._service.executing(tenant):
                rollouts: list[AsyncRollout] = []
                try:
                    for _ in range(n):
                        one = self._service.cache.begin(opening)
                        await one.tools()
                        rollouts.append(one)
                except BaseException:
                    for one in rollouts:
                        await one.close()
                    raise
                return encode(RolloutsAnswer([self._add(one, tenant) for one in rollouts]))

        return json_response(await self._service.once(request, work), 201)

    async def call(self, request: Request) -> Response:
        """Makes a tool call. An answer from the graph is given at once, on the event loop."""
        held = self._held(request)
        body = await read_body(request, self._service.settings.max_body)
        key, mark = header_of(request, KEY_HEADER), request_mark(request, body)
        earlier = None if key is None else held.answers.seen(key, mark)
        if earlier is not None:
            return json_response(await asyncio.shield(earlier))
        call = _CALL.read(body)
        began = time.perf_counter()
        if not held.running:
            result = self._try_hit(held, call)
            if result is not None:
                answer = self._answered(held, call.name, result, began, request.scope)
                if key is not None:
                    future = asyncio.get_running_loop().create_future()
                    future.set_result(answer)
                    held.answers.note(key, mark, future)
                return json_response(answer)

        async def work() -> bytes:
            try:
                with held.cancellable(key) as cancellation:
                    result = await self._make(held, call, cancellation)
                return self._answered(held, call.name, result, began, request.scope)
            except BaseException as error:
                if key is not None and isinstance(error, Busy):
                    held.answers.forget(key)
                raise

        return json_response(await held.answers.do(key, mark, work))

    def _try_hit(self, held: HeldRollout, call: Call) -> ToolResult | None:
        held.used = time.monotonic()
        return held.rollout.answer_to(call)

    async def _make(self, held: HeldRollout, call: Call, cancellation: Cancellation) -> ToolResult:
        """Makes a call that could not be answered at once."""
        with held.in_use():
            await held.rollout.settled()
            cancellation.check()
            result = self._try_hit(held, call) if held.running == 1 else None
            if result is None:
                with self._service.executing(held.tenant, held.rollout):
                    result = await held.rollout.perform(call)
        return result

    def _answered(self, held: HeldRollout, name: str, result: ToolResult, began: float, scope: Scope) -> bytes:
        scope["source"], scope["tool"] = result.source, name
        seconds, place = time.perf_counter() - began, place_of(held.rollout)
        self._service.metrics.call(result.source, seconds)
        state = scope["reached"] = None if place is None else place.state
        if self._service.events.heard:
            event: dict[str, Any] = {"rollout": held.id, "name": held.rollout.id, "tool": name, "source": result.source}
            event |= {"seconds": round(seconds, 6), "exit_code": result.exit_code, "state": state}
            self._service.events.tell("call", event, held.tenant)
        return encode(CallAnswer(result_body(result), place))

    async def fork(self, request: Request) -> Response:
        """Begins rollouts where one stands."""
        held = self._held(request)

        async def work(body: bytes) -> bytes:
            n = decode(_FORK, body).n
            with held.in_use(), self._room_for(n, held.tenant):
                return encode(RolloutsAnswer([self._add(one, held.tenant) for one in await held.rollout.fork(n)]))

        return json_response(await self._service.once(request, work, held.answers), 201)

    async def grade(self, request: Request) -> Response:
        """Grades the state where a rollout stands; once, however often it is asked for."""
        held = self._held(request)

        async def work(body: bytes) -> bytes:
            request_body = decode(_GRADE, body)
            verifier = Verifier(request_body.check, request_body.files, request_body.timeout, request_body.user)
            with held.in_use(), self._service.executing(held.tenant, held.rollout):
                grade = await held.rollout.grade(verifier)
            if self._service.events.heard:
                place = place_of(held.rollout)
                event: dict[str, Any] = {"rollout": held.id, "name": held.rollout.id}
                event |= {"state": None if place is None else place.state, "reward": grade.reward}
                event |= {"source": grade.source, "seconds": round(grade.duration, 6)}
                self._service.events.tell("graded", event, held.tenant)
            return encode(bodies.GradeAnswer(result_body(grade.as_result())))

        return json_response(await self._service.once(request, work, held.answers))

    async def fetch(self, request: Request) -> Response:
        """Fetches a file or a folder, as a call."""
        held = self._held(request)

        async def work(body: bytes) -> bytes:
            fetch, key = _FETCH.read(body), header_of(request, KEY_HEADER)
            with held.in_use(), self._service.executing(held.tenant, held.rollout), held.cancellable(key):
                fetched = await held.rollout.perform(fetch)
            if fetched.digest is not None:
                self._service.contents.has(fetched.digest)  # holds it until the client has read it
            place = place_of(held.rollout)
            return encode(bodies.FetchAnswer(result_body(fetched.result), fetched.digest, fetched.kind, place))

        return json_response(await self._service.once(request, work, held.answers))

    async def snapshot(self, request: Request) -> Response:
        """Takes a snapshot of the state at which a rollout's own sandbox stands."""
        held = self._held(request)
        with held.in_use():
            await held.rollout.settled()
            return json_response(bodies.Answered(await self._service.in_thread(held.rollout.rollout.snapshot_if_idle)))

    async def give(self, request: Request) -> Response:
        """Gives a rollout's own sandbox to the client, by the same id each time."""
        held = self._held(request)

        async def work(_: bytes) -> bytes:
            with held.in_use(), self._service.executing(held.tenant, held.rollout):
                sandbox = await held.rollout.sandbox()
                state = (await held.rollout.where()).state
            handed, sandboxes = held.given, self._service.sandboxes
            if handed is None or handed not in sandboxes:
                with sandboxes.room_for(1):
                    leave = self._service.using_sandbox(held.tenant).aclose  # it ends with the rollout
                    handed = GivenSandbox(sandbox=sandbox, state=state, leave=leave, tenant=held.tenant, of=held)
                    sandboxes.add(handed)
                    held.given = handed
            handed.sandbox, handed.state = sandbox, state
            return encode(sandbox_answer(handed))

        return json_response(await self._service.once(request, work, held.answers), 201)

    async def keep(self, request: Request) -> Response:
        """Records what was done in the sandbox that was given, and keeps the state by a snapshot."""
        held = self._held(request)

        async def work(body: bytes) -> bytes:
            keep = _KEEP.read(body)
            with held.in_use():
                async with held.rollout.in_order():
                    state = await held.rollout.perform(keep)
            return encode(bodies.KeptAnswer(state, place_of(held.rollout)))

        return json_response(await self._service.once(request, work, held.answers))

    async def cancel(self, request: Request) -> Response:
        """Ends the call that is being made; with the parameter `call`, that of this key, also if it is yet to come."""
        held, key = self._held(request), request.query_params.get("call")
        if key is None:
            return json_response(bodies.Answered(await self._service.in_thread(held.rollout.rollout.cancel)))
        if held.answers.refuse(key):
            return json_response(bodies.Answered(True))
        call = await held.find_call(key)
        if call is not None:
            await self._service.in_thread(call.cancel)
        return json_response(bodies.Answered(call is not None))

    async def list(self, request: Request) -> Response:
        """Lists the open rollouts."""
        tenant = tenant_of(request)
        theirs = [held for held in self._service.rollouts if held.is_for(tenant)]
        ids = [{"id": held.id, "name": held.rollout.id, "running": held.running} for held in theirs]
        return json_response({"rollouts": ids})

    async def show(self, request: Request) -> Response:
        """Tells where a rollout stands, once that is known."""
        held = self._held(request)
        with held.in_use():
            await held.rollout.settled()
            place = place_of(held.rollout) or at_place(await held.rollout.where())
        return json_response(RolloutAnswer(held.id, held.rollout.id, held.rollout.root, place))

    async def tools(self, request: Request) -> Response:
        """Lists the tools that may be called, with the schemas of their arguments."""
        tools = self._held(request).rollout.rollout.tools
        described = {
            name: {
                "description": tool.description,
                "parameters": to_data(tool.parameters),
                "read_only": tool.read_only,
            }
            for name, tool in tools.items()
        }
        return json_response({"tools": described})

    async def close(self, request: Request) -> Response:
        """Ends a rollout; one that has ended already is no error."""
        id, tenant = request.path_params["id"], tenant_of(request)
        rollout = next((held for held in self._service.rollouts if held.id == id and held.is_for(tenant)), None)
        if rollout is not None:
            rollout.outcome = check_outcome(request.query_params.get("outcome"))
            await asyncio.shield(asyncio.ensure_future(self._service.rollouts.end(id)))
        return json_response(bodies.Answered(rollout is not None))

    def _held(self, request: Request) -> HeldRollout:
        held = self._service.rollouts.find(request.path_params["id"], tenant_of(request))
        held.note_received(header_of(request, RECEIVED_HEADER))
        return held

    def _room_for(self, count: int, tenant: Tenant | None) -> contextlib.AbstractContextManager[None]:
        """Returns a block in which further rollouts of a tenant begin."""
        return self._service.rollouts.room_for(count, None if tenant is None else tenant.rollouts, tenant)

    def _add(self, begun: AsyncRollout, tenant: Tenant | None) -> RolloutAnswer:
        held = self._service.rollouts.add(HeldRollout(rollout=begun, tenant=tenant, leave=self._leave))
        rollout = begun.rollout
        place = PlaceBody(rollout.state, rollout.depth, rollout.private, rollout.unshared)
        event = {"rollout": held.id, "name": begun.id, "root": begun.root, "state": place.state}
        self._service.events.tell("rollout_opened", event, tenant)
        return RolloutAnswer(held.id, begun.id, begun.root, place)

    async def _leave(self, held: HeldRollout) -> None:
        """Ends what belongs to a rollout that is about to end."""
        self._service.events.tell("rollout_closed", {"rollout": held.id, "name": held.rollout.id}, held.tenant)
        if held.given is not None:
            await self._service.sandboxes.end(held.given.id)
