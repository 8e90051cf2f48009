"""Makes the arguments of `put` and `get` calls, and reads their results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvsnap.engine.context import Context
from tvsnap.environments.files import GET, PUT, Fetched
from tvsnap.environments.tools import Tool
from tvsnap.host.trees import MOST_FETCHED, items_of
from tvsnap.model.arguments import check_whole
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import InfrastructureError, UsageError


class FileCalls:
    """Makes the arguments of such calls, and stores the contents that they name. Thread-safe."""

    def __init__(self, context: Context, tools: Mapping[str, Tool]) -> None:
        self._context = context
        self._tools = tools

    def put_arguments(
        self, source: str | Path | bytes, path: str, *, user: str | None, owners: bool, mode: int | None
    ) -> Mapping[str, Any]:
        """Stores a content in the data directory; returns the arguments of the call that puts it, see `Rollout.put`."""
        self._check_tool(PUT)
        if not isinstance(source, (str, Path, bytes)):
            raise UsageError(f"source must be a path, or bytes, not {source!r}")
        digest = self._context.contents.add(lambda: items_of(source, owners=owners, mode=mode))
        chosen: dict[str, Any] = {"user": user} if user is not None else {}
        return {"path": path, "digest": digest, **chosen, **({"owners": True} if owners else {})}

    def get_arguments(self, path: str, *, owners: bool, limit: int) -> Mapping[str, Any]:
        """Returns the arguments of the call that fetches a path, without those that have their defaults."""
        self._check_tool(GET)
        check_whole(limit, "limit", 0)
        chosen = {"owners": True} if owners else {}
        return {"path": path, **chosen, **({"limit": limit} if limit != MOST_FETCHED else {})}

    def fetched(self, result: ToolResult, arguments: Mapping[str, Any], state: str) -> Fetched | None:
        """Returns what a `get` call has fetched; None if that was deleted, so that the call must be made again.

        Raises:
            InfrastructureError: it is missing although the call has just been executed.
        """
        fetched = Fetched(result, str(arguments["path"]), self._context.contents, owners=bool(arguments.get("owners")))
        if fetched.digest is None or self._context.contents.has(fetched.digest):
            return fetched
        edge = self._context.graph.recorded(state, ToolCall(GET, arguments)) if result.source != "executed" else None
        if edge is None:
            raise InfrastructureError(f"what was fetched from {arguments['path']} is gone from the data directory")
        self._context.graph.retire(edge, "what it fetched is gone from the data directory")
        return None

    def _check_tool(self, name: str) -> None:
        if name in self._tools:
            raise UsageError(f"the environment has a tool of its own that is called {name}; use it, or Rollout.sandbox")
