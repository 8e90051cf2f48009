"""Describes the tools of a rollout in the forms that models' interfaces take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, get_args

from tvsnap.model.errors import UsageError

Form = Literal["openai", "openai-responses", "anthropic", "mcp"]


class _Tool(Protocol):
    """A tool of a cache, or of a client."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def read_only(self) -> bool: ...


class _HasTools(Protocol):
    @property
    def tools(self) -> Mapping[str, _Tool]: ...


def tool_schemas(rollout: _HasTools | Mapping[str, _Tool], form: Form = "openai") -> list[dict[str, Any]]:
    """Describes tools for a model, in the order of their names.

    Args:
        rollout: the rollout, of a cache or of a client; or its `tools` themselves. Those of an asynchronous rollout
            have to be awaited (`await rollout.tools()`).
        form: the form: "openai" is that of chat completions, which most servers of models take, "openai-responses"
            that of OpenAI's newer interface.

    Returns:
        The items of the request's list `tools`, as plain JSON values. For MCP, a tool that changes nothing is marked.

    Raises:
        UsageError: there is no such form, or the tools of an asynchronous rollout were not awaited.
    """
    if form not in get_args(Form):
        raise UsageError(f"there is no form {form!r} of tool schemas; there are {', '.join(get_args(Form))}")
    tools = rollout if isinstance(rollout, Mapping) else rollout.tools
    if not isinstance(tools, Mapping):
        raise UsageError("the tools of an asynchronous rollout are awaited: tool_schemas(await rollout.tools(), ...)")
    return [_DESCRIBE[form](tools[name]) for name in sorted(tools)]


def _openai_responses(tool: _Tool) -> dict[str, Any]:
    # It would otherwise demand that all parameters are given.
    return {"type": "function", **_named(tool), "parameters": dict(tool.parameters), "strict": False}


def _openai(tool: _Tool) -> dict[str, Any]:
    return {"type": "function", "function": {**_named(tool), "parameters": dict(tool.parameters)}}


def _anthropic(tool: _Tool) -> dict[str, Any]:
    return {**_named(tool), "input_schema": dict(tool.parameters)}


def _mcp(tool: _Tool) -> dict[str, Any]:
    marks = {"annotations": {"readOnlyHint": True}} if tool.read_only else {}
    return {**_named(tool), "inputSchema": dict(tool.parameters), **marks}


def _named(tool: _Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description}


_DESCRIBE = {"openai": _openai, "openai-responses": _openai_responses, "anthropic": _anthropic, "mcp": _mcp}
