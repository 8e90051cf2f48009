"""A server of the Model Context Protocol: the tools of a rollout, and forks, returns and differences.

It uses standard input and output; `tvsnap mcp` starts it. It needs the package `mcp` (extra `tvsnap[mcp]`).
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from tvsnap.environments.tools import Tool
from tvsnap.model.calls import Part, ToolResult
from tvsnap.model.errors import InfrastructureError, NotFound, StateLost, TvsnapError, UsageError
from tvsnap.model.images import Image
from tvsnap.model.network import NetworkLike
from tvsnap.plugins.client.client import Client
from tvsnap.plugins.client.images_and_graph import RemoteTool
from tvsnap.plugins.client.protocols import AnyAsyncCache, AnyAsyncRollout, AnyCache
from tvsnap.upkeep.diff import StateDifference, compare_states

_STATE = {"type": "string", "description": "A state's name, or a prefix of it; PREFIX~2 is two steps above."}
_ROLLOUT = {"type": "string", "description": "A rollout's name."}
_CHANGES = {"+": "added", "-": "removed", "M": "changed"}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 64, "description": "How many; 1 if it is left out."}


def _own_tool(name: str, description: str, required: tuple[str, ...] = (), **properties: Mapping[str, Any]) -> Tool:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return Tool(name, description, schema)


OWN_TOOLS = {
    tool.name: tool
    for tool in (
        _own_tool(
            "tvsnap_state",
            "Returns the name of the state in which the sandbox is now, to which tvsnap_restore can return, and the "
            "names of all rollouts.",
        ),
        _own_tool(
            "tvsnap_restore",
            "Returns to a state: from now on all tools work in a fork of it, with its files and its live processes. "
            "What was done since stays reachable by its own state's name.",
            ("state",),
            state=_STATE,
        ),
        _own_tool(
            "tvsnap_fork",
            "Begins further rollouts in the present state, each with a sandbox of its own from then on, and returns "
            "their names. The present rollout stays the one that tools work in; tvsnap_switch chooses another.",
            n=_COUNT,
        ),
        _own_tool("tvsnap_switch", "Chooses the rollout that all tools work in.", ("rollout",), rollout=_ROLLOUT),
        _own_tool(
            "tvsnap_diff",
            "Returns how two states differ: files (text files line by line), processes and the shell. The second is "
            "the present one if it is left out.",
            ("before",),
            before=_STATE,
            after=_STATE,
        ),
    )
}
"""Tools that are offered in addition to the environment's."""


@dataclass
class Session:
    """The session of one client: rollouts with names, one of which is the present one.

    Attributes:
        cache: the cache of the rollouts.
        image: the image of the first one.
        task: groups rollouts for people.
        network: hosts that sandboxes may reach; see `Cache.rollout`.
        timeout: seconds that a call may take; None for no limit.
    """

    cache: AnyAsyncCache
    image: str | Image
    task: str
    network: NetworkLike
    timeout: float | None
    _rollouts: dict[str, AnyAsyncRollout] = field(default_factory=dict)
    _present: str = "1"
    _begun: int = 1
    # Calls are made in order of arrival, because each depends on the one before.
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __aenter__(self) -> Session:
        rollout = self.cache.rollout(self.image, self.task, label="mcp", network=self.network)
        await rollout.__aenter__()
        self._rollouts[self._present] = rollout
        return self

    async def __aexit__(self, *_: object) -> None:
        for rollout in self._rollouts.values():
            await rollout.close()

    @property
    def rollout(self) -> AnyAsyncRollout:
        """The present rollout."""
        return self._rollouts[self._present]

    async def tools(self) -> dict[str, Tool | RemoteTool]:
        """Returns the tools that may be called, by name."""
        return {**await self.rollout.tools(), **OWN_TOOLS}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Makes a call of a tool of the environment, or of one of ours, after those that came before.

        Raises:
            TvsnapError: as of `AsyncRollout.call`, and of our tools.
        """
        async with self._turn:
            if name not in OWN_TOOLS:
                return await self.rollout.call(name, arguments, self.timeout)
            OWN_TOOLS[name].check(arguments)
            answer = await getattr(self, "_" + name.removeprefix("tvsnap_"))(**arguments)
            return ToolResult.of_text(json.dumps(answer, indent=1), None, 0.0)

    async def _state(self) -> dict[str, Any]:
        await self.rollout.settled()
        state = self.rollout.state
        answer = {"state": state, "rollout": self._present, "rollouts": list(self._rollouts)}
        refusal = await asyncio.to_thread(self.cache.refusal, state)
        return answer if refusal is None else {**answer, "has_no_snapshot": refusal}

    async def _restore(self, state: str) -> dict[str, Any]:
        info = await asyncio.to_thread(self.cache.cache.graph.resolve, state)
        rollout = self.cache.resume(info.hash, self.task, "mcp")
        await rollout.__aenter__()
        before, self._rollouts[self._present] = self.rollout, rollout
        await before.close()
        return await self._state()

    async def _fork(self, n: int = 1) -> dict[str, Any]:
        names = []
        for fork in await self.rollout.fork(n):
            self._begun += 1
            names.append(str(self._begun))
            self._rollouts[names[-1]] = fork
        return {"new": names, **await self._state()}

    async def _switch(self, rollout: str) -> dict[str, Any]:
        if rollout not in self._rollouts:
            raise UsageError(f'rollout "{rollout}" not found; have: {", ".join(self._rollouts)}')
        self._present = rollout
        return await self._state()

    async def _diff(self, before: str, after: str | None = None) -> dict[str, Any]:
        if after is None:
            after = (await self._state())["state"]
        difference = await asyncio.to_thread(_compare, self.cache.cache, before, after)
        return {
            "differs": bool(difference),
            "files": [
                {"path": file.path, "change": _CHANGES[file.kind], "attributes": file.what, "patch": file.patch}
                for file in difference.files
            ],
            "ended": [process.command for process in difference.ended],
            "started": [process.command for process in difference.started],
            "shell": [asdict(item) for item in difference.shell],
        }


def _compare(cache: AnyCache, before: str, after: str) -> StateDifference:
    if isinstance(cache, Client):
        return cache.diff(StateDifference, before, after, patch=True)
    return compare_states(cache, before, after, patch=True)


async def serve(session: Session) -> None:
    """Serves one client, whose session has begun, over standard input and output, until it closes its side."""
    server = make_server(session)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def make_server(session: Session) -> Server[Any]:
    """Returns a server whose tools are those of a session."""

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        tools = await session.tools()
        return types.ListToolsResult(tools=[_described(tool) for tool in tools.values()])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            result = await session.call(params.name, params.arguments or {})
        except (UsageError, NotFound, StateLost) as error:  # the agent can react to it
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
        except TvsnapError as error:
            # Not caused by the tool: it must not look like its output.
            code = types.INTERNAL_ERROR if isinstance(error, InfrastructureError) else types.INVALID_REQUEST
            raise MCPError(code, str(error)) from error
        return _result(result)

    return Server(
        "tvsnap",
        version=version("tvsnap"),
        instructions="Tools of a sandbox whose states are kept: tvsnap_state names one, tvsnap_restore returns to it.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described(tool: Tool | RemoteTool) -> types.Tool:
    reads = tool.read_only or tool.name in ("tvsnap_state", "tvsnap_diff")
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=dict(tool.parameters),
        annotations=types.ToolAnnotations(read_only_hint=True) if reads else None,
    )


def _result(result: ToolResult) -> types.CallToolResult:
    """Returns what the agent sees; where the answer came from, which a hit must not show, is for the client alone."""
    content = [_block(part) for part in result.parts]
    if result.timed_out:
        content.append(types.TextContent(text="(the call was ended by its timeout)"))
    elif result.exit_code:
        content.append(types.TextContent(text=f"(exit status {result.exit_code})"))
    about = {"exit_code": result.exit_code, "timed_out": result.timed_out, "source": result.source}
    return types.CallToolResult(content=content, _meta={f"tvsnap/{name}": value for name, value in about.items()})


def _block(part: Part) -> types.ContentBlock:
    if isinstance(part.data, str):
        return types.TextContent(text=part.data)
    if part.media_type.startswith("image/"):
        return types.ImageContent(data=base64.b64encode(part.data).decode(), mime_type=part.media_type)
    return types.TextContent(text=part.data.decode("utf-8", "replace"))
