"""Makes the calls of `put` and `get`, and reads their results."""

from __future__ import annotations

from collections.abc import Mapping

from tvsnap.engine.services import Services
from tvsnap.environments.files import GET, PUT, StoredFetched
from tvsnap.environments.tools import Tool
from tvsnap.host.trees import items_of
from tvsnap.model.arguments import check_whole
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import InfrastructureError, UsageError
from tvsnap.model.fetched import Fetched
from tvsnap.model.operations.rollouts import Call, Get, Put


class FileCalls:
    """Makes such calls, and stores the contents that they name. Thread-safe."""

    def __init__(self, services: Services, tools: Mapping[str, Tool]) -> None:
        self._services = services
        self._tools = tools

    def put(self, operation: Put) -> Call:
        """Stores a content in the data directory; returns the call that puts it, see `Rollout.put`."""
        self._check_tool(PUT)
        operation.check()
        source, owners, mode = operation.source, operation.owners, operation.mode
        return operation.as_call(self._services.contents.add(lambda: items_of(source, owners=owners, mode=mode)))

    def get(self, operation: Get) -> Call:
        """Returns the call that fetches a path."""
        self._check_tool(GET)
        check_whole(operation.limit, "limit", 0)
        return operation.as_call()

    def fetched(self, result: ToolResult, call: Call, state: str) -> Fetched | None:
        """Returns the content that a `get` call has fetched; None if it was deleted, and the call must be made again.

        Raises:
            InfrastructureError: it is missing although the call has just been executed.
        """
        path, owners = str(call.arguments["path"]), bool(call.arguments.get("owners"))
        fetched = StoredFetched(result, path, self._services.contents, owners=owners)
        if fetched.digest is None or self._services.contents.has(fetched.digest):
            return fetched
        recorded_call = ToolCall(call.name, call.arguments)
        edge = self._services.graph.recorded(state, recorded_call) if result.source != "executed" else None
        if edge is None:
            raise InfrastructureError(f"the content of {path} is gone from the data directory")
        self._services.graph.retire(edge, "what it fetched is gone from the data directory")
        return None

    def _check_tool(self, name: str) -> None:
        if name in self._tools:
            raise UsageError(f"the environment has a tool of its own that is called {name}; use it, or Rollout.sandbox")
