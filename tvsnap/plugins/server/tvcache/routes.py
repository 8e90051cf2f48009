"""The operations that TVCache's clients ask for, with the names, the members and the statuses that they expect."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tvsnap.model.arguments import LONGEST
from tvsnap.model.errors import NotFound, UsageError
from tvsnap.plugins.server.batching import Batches
from tvsnap.plugins.server.http import Handler, Operation, header_of, json_response, number_of, read_body
from tvsnap.plugins.server.places import NotKnown
from tvsnap.plugins.server.service import Service
from tvsnap.plugins.server.tvcache.records import CallPath, check_name, encodable_value_of
from tvsnap.plugins.server.tvcache.store import Found, Made, Store
from tvsnap.plugins.server.workers import Worker

T = TypeVar("T")
ASK_FIRST = "tvsnap.ask_first"
"""In a scope: has the first process of a server answer."""
BY_ALL = ("/get", "/get_test_result", "/get_hot_nodes", "/runs", "/api/runs")
"""What each process of a server answers: what is in the graph, and which environment stands where that leads."""
AT_ONCE = 64
"""A history of at most so many calls is looked up on the event loop, a longer one by a thread."""
_PATHS_KEPT = 4096
_LONGEST_KEPT = 4096
_INDEX_IN_FULL = "python-httpx/"
"""The client of the executor that takes the length of a prefix without reads for an index among all calls."""


class Calls(Struct):
    """A task's calls."""

    task_name: str
    tool_calls: list[str]


class History(Struct):
    """The calls of a task that were made."""

    task_name: str
    history: list[str]


class Put(History):
    """What calls returned, from that at `start_idx` on; and the environment that stands where they led."""

    env_id: str | None = None
    values: list[Any] | None = None
    tool_exec_times: list[float] | None = None
    start_idx: int = 0


class Extend(History):
    """Asks for the right to make further calls."""

    suffix: list[str]


class Marked(History):
    """Tells that the last call changed nothing."""

    env_id: str


class Tested(History):
    """Tells what a test found."""

    test_result: str


class Unref(Struct):
    """Gives an environment back."""

    env_id: str
    task_name: str | None = None


class ElsewhereAnswered(Response):
    """The answer of another process."""

    def __init__(self, ask: ASGIApp) -> None:
        """
        Args:
            ask: has that process answer.
        """
        super().__init__()
        self._ask = ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Has it answer."""
        await self._ask(scope, receive, send)


class TVCacheRoutes:
    """What TVCache's clients ask for."""

    def __init__(self, service: Service, worker: Worker | None) -> None:
        """
        Args:
            service: what all operations share.
            worker: which of several processes it is; the first knows the environments. None where there is one.
        """
        self._service = service
        settings, graph = service.settings, service.cache.cache.graph
        shared = (None, False) if worker is None else (worker.places, worker.number != 0)
        self._store = Store(graph, settings.max_environments, settings.ttl, shared[0], reads=shared[1])
        self._puts: Batches[Made, list[str]] = Batches(self._store.put)

    @property
    def operations(self) -> list[Operation]:
        """All of them. Its clients show no token: all see the same tasks."""
        calls = {"task_name": "the task", "tool_calls": "a call; once for each"}
        task = {"task_name": "the task"}
        operations = [
            Operation("GET", "/get", "tvcacheGet", "Returns what a call returned.", self.get, query=calls),
            Operation("PUT", "/put", "tvcachePut", "Records calls.", self.put, Put),
            Operation("POST", "/prefix_match", "tvcachePrefix", "Finds an environment.", self.prefix_match, Calls),
            Operation(
                *("POST", "/intel_prefix_match", "tvcacheAround", "Finds one past calls that change nothing."),
                *(self.intel_prefix_match, Calls),
            ),
            Operation("POST", "/should_fork", "tvcacheFork", "Names the environment to fork.", self.fork, History),
            Operation("POST", "/can_extend", "tvcacheExtend", "Gives the right to go on.", self.extend, Extend),
            Operation("POST", "/unref", "tvcacheUnref", "Gives an environment back.", self.unref, Unref),
            Operation(
                *("GET", "/get_all_envs", "tvcacheEnvironments", "Lists environments.", self.environments),
                query=task,
            ),
            Operation(
                *("GET", "/check_env_marked", "tvcacheMarked", "Tells whether an environment is kept.", self.marked),
                query={"env_id": "the environment"},
            ),
            Operation(
                *("POST", "/mark_stateless", "tvcacheStateless", "Notes that a call changed nothing."),
                *(self.mark_stateless, Marked),
            ),
            Operation("POST", "/store_test_result", "tvcacheTested", "Records a test.", self.store_test, Tested),
            Operation(
                *("GET", "/get_test_result", "tvcacheTest", "Returns what a test found.", self.get_test), query=calls
            ),
            Operation("DELETE", "/remove", "tvcacheRemove", "Deletes calls.", self.remove, History),
            Operation(
                *("GET", "/get_hot_nodes", "tvcacheHot", "Lists where many calls part.", self.hot_nodes),
                query={"k": "more than so many calls"},
            ),
            Operation(
                *("GET", "/visualize", "tvcacheTree", "Returns all calls as a tree.", self.visualize),
                query={"path": "only of this task"},
            ),
            Operation("GET", "/runs", "tvcacheRunsPage", "Lists the tasks.", self.runs),
            Operation("GET", "/api/runs", "tvcacheRuns", "Lists the tasks.", self.runs),
        ]
        return [replace(one, handler=self._going(one.handler), of_all=True, error=None) for one in operations]

    def _going(self, handler: Handler) -> Handler:
        """Returns what answers as a handler does, unless the server is about to stop."""

        def answer(request: Request) -> Awaitable[Response]:
            self._service.check_going(held=False)
            return handler(request)

        return answer

    async def get(self, request: Request) -> Response:
        """Returns what the last of the calls returned."""
        path = _asked(request)
        try:
            edge, environment = await self._do(path, lambda: self._store.get(path))
        except NotKnown:
            return ElsewhereAnswered(request.scope[ASK_FIRST])
        return json_response(
            {
                "found": edge is not None,
                "env_id": environment,
                "value": None if edge is None else encodable_value_of(edge),
                "tool_exec_time": None if edge is None else edge.result.duration,
            }
        )

    async def put(self, request: Request) -> Response:
        """Records calls."""
        removed = await self._puts.add(_made(await self._read(request, Put)))
        return json_response({"success": True, "removed_env_ids": removed})

    async def prefix_match(self, request: Request) -> Response:
        """Finds the longest prefix that has an environment."""
        body = await self._read(request, Calls)
        path = CallPath(body.task_name, body.tool_calls)
        if (header_of(request, "user-agent") or "").startswith(_INDEX_IN_FULL):
            return json_response(_found(None))
        return json_response(_found(await self._do(path, lambda: self._store.prefix_match(path))))

    async def intel_prefix_match(self, request: Request) -> Response:
        """Finds the longest prefix that has an environment, also where calls that change nothing come between."""
        body = await self._read(request, Calls)
        path = CallPath(body.task_name, body.tool_calls)
        match = await self._service.in_thread(lambda: self._store.match_around(path))
        return json_response({**_found(match), "suffix": None if match is None else match.rest})

    async def fork(self, request: Request) -> Response:
        """Names the environment that stands where a history ends."""
        path = _path(await self._read(request, History))
        environment = await self._do(path, lambda: self._store.should_fork(path))
        return json_response({"should_fork": environment is not None, "env_id": environment})

    async def extend(self, request: Request) -> Response:
        """Gives the right to make further calls in the environment that stands where a history ends."""
        body = await self._read(request, Extend)
        path = _path(body)
        granted, suffix = await self._service.in_thread(lambda: self._store.can_extend(path, body.suffix))
        return json_response({"can_extend": granted, "suffix": suffix})

    async def unref(self, request: Request) -> Response:
        """Ends a use of an environment."""
        self._store.release((await self._read(request, Unref)).env_id)
        return json_response({"success": True})

    async def environments(self, request: Request) -> Response:
        """Lists a task's environments, and begins a use of each."""
        return json_response({"env_ids": self._store.hold_all(_parameter(request, "task_name"))})

    async def marked(self, request: Request) -> Response:
        """Tells whether an environment stands where its maker left it."""
        return json_response({"marked": self._store.is_as_left(_parameter(request, "env_id"))})

    async def mark_stateless(self, request: Request) -> Response:
        """Notes that the last call of a history changed nothing."""
        body = await self._read(request, Marked)
        path = _path(body)
        success = await self._do(path, lambda: self._store.mark_stateless(path, body.env_id))
        return json_response({"success": success}, 200 if success else 400)

    async def store_test(self, request: Request) -> Response:
        """Records what a test found."""
        body = await self._read(request, Tested)
        path = _path(body)
        success = await self._service.in_thread(lambda: self._store.store_test_result(path, body.test_result))
        return json_response({"success": success})

    async def get_test(self, request: Request) -> Response:
        """Returns what a test found."""
        path = _asked(request)
        result = await self._do(path, lambda: self._store.test_result(path))
        return json_response({"found": result is not None, "test_result": result})

    async def remove(self, request: Request) -> Response:
        """Deletes calls from which nothing else follows."""
        path = _path(await self._read(request, History))
        return json_response({"success": await self._service.in_thread(lambda: self._store.remove(path))})

    async def hot_nodes(self, request: Request) -> Response:
        """Lists the states in which more than `k` calls were made."""
        k = number_of(request, "k")
        return json_response(
            {"hot_nodes": await self._service.in_thread(lambda: self._store.hot_nodes(1 if k is None else k))}
        )

    async def visualize(self, request: Request) -> Response:
        """Returns all calls, nested as their states are; `path` names a task, as /api/runs lists it."""
        task = request.query_params.get("path") or None
        try:
            text = await self._service.in_thread(lambda: "".join(self._store.tree(task)))
        except NotFound as error:
            return json_response({"error": str(error)}, 404)
        return Response(text, media_type="application/json")

    async def runs(self, request: Request) -> Response:
        """Lists the tasks, as TVCache's page of saved runs lists files."""
        runs = await self._service.in_thread(self._store.runs)
        return json_response(
            {"manual_runs": [], "auto_saved_runs": runs, "base_dir": str(self._service.cache.cache.home)}
        )

    async def _read(self, request: Request, kind: type[T]) -> T:
        """Returns what a request holds; values as Python's own clients send them, also NaN and half surrogate pairs."""
        body = await read_body(request, self._service.settings.max_body)
        try:
            return msgspec.convert(json.loads(body), kind)
        except msgspec.ValidationError as error:
            raise UsageError(f"the request's body is wrong: {error}") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the request's body is no JSON: {error}") from None

    async def _do(self, path: CallPath, work: Callable[[], T]) -> T:
        return work() if len(path.texts) <= AT_ONCE else await self._service.in_thread(work)


def _asked(request: Request) -> CallPath:
    """Returns the calls that a query names."""
    query: bytes = request.scope["query_string"]
    return _kept_path(query) if len(query) <= _LONGEST_KEPT else _path_of(query)


def _path_of(query: bytes) -> CallPath:
    parameters = QueryParams(query)
    return CallPath(_named(parameters, "task_name"), parameters.getlist("tool_calls"))


_kept_path = functools.lru_cache(_PATHS_KEPT)(_path_of)


def _path(body: History) -> CallPath:
    return CallPath(body.task_name, body.history)


def _parameter(request: Request, name: str) -> str:
    return _named(request.query_params, name)


def _named(parameters: QueryParams, name: str) -> str:
    value = parameters.get(name)
    if value is None:
        raise UsageError(f"the parameter {name} is missing")
    return check_name(value, name)


def _made(body: Put) -> Made:
    """Returns the calls that a request tells of, checked.

    Clients send records in the background, where their history may have grown since: without an environment, calls at
    the end for which there is no value are left out.
    """
    values: Sequence[Any] = body.values or ()
    seconds: Sequence[float] = [0.0] * len(values) if body.tool_exec_times is None else body.tool_exec_times
    if not body.history:
        raise UsageError("history has no call")
    if len(seconds) != len(values):
        raise UsageError(f"there are {len(values)} values, but {len(seconds)} tool_exec_times: give one for each value")
    if not all(0 <= one <= LONGEST for one in seconds):
        raise UsageError(f"tool_exec_times must be seconds from 0 to {LONGEST}")
    end = body.start_idx + len(values)
    if body.start_idx < 0 or end > len(body.history) or (end < len(body.history) and body.env_id is not None):
        raise UsageError(
            f"the history has {len(body.history)} calls, but there are {len(values)} values from start_idx "
            f"{body.start_idx} on: give one for each call from there to the end"
        )
    if body.env_id is not None:
        check_name(body.env_id, "env_id")
    return Made(CallPath(body.task_name, body.history[:end]), body.start_idx, values, seconds, body.env_id)


def _found(match: Found | None) -> dict[str, Any]:
    if match is None:
        return {"found": False, "env_id": None, "history": None}
    return {"found": True, "env_id": match.environment, "history": match.texts}
