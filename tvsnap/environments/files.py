"""The tools `put` and `get` of every environment: files and folders, named by the digests of their contents.

The environment that adds them, and `reseed`, to another one.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

from tvsnap.environments.base import Environment
from tvsnap.environments.reseeding import reseeding
from tvsnap.environments.tools import CallContext, Tool, ToolFailed, tool
from tvsnap.environments.toolset import run_tool
from tvsnap.graph import Graph
from tvsnap.host.contents import Contents
from tvsnap.host.trees import TreeItem, extract
from tvsnap.model.calls import JSON, Part, ToolCall, ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.model.fetched import Fetched
from tvsnap.model.limits import MOST_FETCHED, Limits
from tvsnap.model.observations import Observation
from tvsnap.model.operations.rollouts import RESEED
from tvsnap.sandboxes.protocol import Sandbox

PUT, GET = "put", "get"
_ADDED = (PUT, GET, RESEED)


class UnknownContent(UsageError):
    """A call names a content that the data directory does not have."""


class StoredFetched(Fetched):
    """The file or folder that a `get` call has fetched, from the data directory."""

    def __init__(self, result: ToolResult, path: str, contents: Contents, *, owners: bool) -> None:
        facts = json.loads(result.output) if result.parts[0].media_type == JSON else {}
        super().__init__(result, facts.get("digest"), facts.get("kind"))
        self._path = path
        self._contents = contents
        self._owners = owners

    def read(self) -> bytes:
        if self.kind == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self._path)
        return b"".join(piece for item in self._items() for piece in item.content)

    def extract(self, destination: str | Path) -> tuple[str, ...]:
        return extract(self._items(), destination, owners=self._owners)

    def _items(self) -> Iterator[TreeItem]:
        if self.digest is None:
            raise OSError(self.result.output.strip())
        return self._contents.read(self.digest)


class FilesEnvironment:
    """An environment with `put`, `get` and `reseed` besides its own tools, which take precedence if names are equal.

    They are not shown to agents: `tools` are those of the environment.
    """

    def __init__(self, inner: Environment, contents: Contents) -> None:
        self._inner = inner
        self._contents = contents

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def version(self) -> str:
        return self._inner.version

    @property
    def tools(self) -> Mapping[str, Tool]:
        return self._inner.tools

    @property
    def serves(self) -> bool:
        return self._inner.serves

    def tool(self, call: ToolCall) -> Tool:
        """See `Environment.tool`.

        Raises:
            UnknownContent: the data directory does not have the content that is to be put.
        """
        tool = self._tools.get(call.name) if call.name in _ADDED else None
        if tool is None:
            return self._inner.tool(call)
        tool.check(call.arguments)
        digest = call.arguments.get("digest")
        if isinstance(digest, str) and not self._contents.has(digest):
            raise UnknownContent(
                f"{call.brief}: the content {digest[:12]} is not in the data directory; Rollout.put takes it there"
            )
        return tool

    def prepare(self, sandbox: Sandbox) -> None:
        self._inner.prepare(sandbox)

    def execute(self, sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
        """See `Environment.execute`."""
        tool = self._tools.get(call.name) if call.name in _ADDED else None
        if tool is None:
            return self._inner.execute(sandbox, call, timeout, limits)
        return run_tool(tool, CallContext(call, timeout, limits, sandbox))

    def observe(self, sandbox: Sandbox) -> Observation:
        return self._inner.observe(sandbox)

    def surely_changes(self, call: ToolCall, before: Observation | None) -> bool:
        if call.name in _ADDED and call.name in self._tools:
            return call.name == RESEED
        return self._inner.surely_changes(call, before)

    def unchanged(self, call: ToolCall, before: Observation, after: Observation) -> bool:
        if call.name in _ADDED and call.name in self._tools:
            return before == after
        return self._inner.unchanged(call, before, after)

    def behaviour(self, limits: Limits) -> str:
        return self._inner.behaviour(limits)

    @cached_property
    def _tools(self) -> Mapping[str, Tool]:
        """The tools that it adds; made when one of them is first called, as their schemas take a millisecond."""
        tools = (*self._make_tools(), reseeding(self._inner))
        return {each.name: each for each in tools if each.name not in self._inner.tools}

    def _make_tools(self) -> tuple[Tool, Tool]:
        contents = self._contents

        @tool(name=PUT)
        def put(
            context: CallContext,
            path: Annotated[str, "where to"],
            digest: Annotated[str, "of the content, as Rollout.put keeps it"],
            user: Annotated[str | None, "who writes and owns it; by default the image's user"] = None,
            owners: Annotated[bool, "keep the owners that the content names"] = False,
        ) -> ToolResult | str:
            """Copies a file or a folder into the sandbox."""
            began = time.monotonic()
            try:
                items = contents.read(digest)
                context.sandbox.put(items, path, user=user, owners=owners, timeout=context.timeout)
            except TimeoutError:
                return _timed_out(f"put: {path}: timed out\n", began)
            except UsageError as error:
                raise ToolFailed(f"put: {path}: {error}") from None
            return f"put {digest[:12]} at {path}\n"

        @tool(name=GET, read_only=True)
        def get(
            context: CallContext,
            path: Annotated[str, "the file or folder"],
            owners: Annotated[bool, "keep its owners"] = False,
            limit: Annotated[int, {"minimum": 0}, "the most bytes"] = MOST_FETCHED,
        ) -> ToolResult | Part:
            """Copies a file or a folder out of the sandbox."""
            began, counts, kind = time.monotonic(), {"files": 0, "bytes": 0}, ""

            def counted(items: Iterable[TreeItem]) -> Iterator[TreeItem]:
                nonlocal kind
                for item in items:
                    kind = kind or item.kind
                    counts["files"] += item.kind != "directory"
                    counts["bytes"] += item.size
                    yield item if owners else replace(item, uid=-1, gid=-1)

            try:
                items = context.sandbox.read_tree(path, limit=limit, timeout=context.timeout)
                digest = contents.write(counted(items))
            except TimeoutError:
                return _timed_out(f"get: {path}: timed out\n", began)
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                raise ToolFailed(f"get: {path}: a file was changed while it was being read") from None
            return Part.json({"digest": digest, "kind": kind, **counts})

        return put, get


def _timed_out(words: str, began: float) -> ToolResult:
    result = ToolResult.of_text(words, None, time.monotonic() - began, timed_out=True)
    return replace(result, strain="waited for the disks of the host")


def contents_named(graph: Graph) -> set[str]:
    """Returns the digests of the contents that recorded calls name, in their arguments or results."""
    named = set()
    for edge in graph.calls_of((PUT, GET)):
        digest = edge.call.arguments.get("digest")
        if edge.call.name == GET and edge.result.parts[0].media_type == JSON:
            digest = json.loads(edge.result.output).get("digest")
        if isinstance(digest, str):
            named.add(digest)
    return named
