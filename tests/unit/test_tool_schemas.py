"""Tools are described as the interfaces of models take them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tvsnap import UsageError, tool, tool_schemas
from tvsnap.client.images_and_graph import RemoteTool


@tool
def look(place: str, deep: bool = False) -> str:
    """Looks at a place."""
    return f"{place} {deep}"


@tool(read_only=True)
def ask(question: str) -> str:
    """Asks a question."""
    return question


TOOLS = {one.name: one for one in (look, ask)}


def names(schemas: list[dict[str, Any]]) -> list[str]:
    return [schema.get("function", schema)["name"] for schema in schemas]


@pytest.mark.parametrize("form", ["openai", "openai-responses", "anthropic", "mcp"])
def test_each_form_names_all(form: Any) -> None:
    schemas = tool_schemas(TOOLS, form)
    assert names(schemas) == ["ask", "look"]
    assert json.loads(json.dumps(schemas)) == schemas
    for schema in schemas:
        inner = schema.get("function", schema)
        parameters = inner.get("parameters") or inner.get("input_schema") or inner["inputSchema"]
        jsonschema.Draft202012Validator.check_schema(parameters)
        assert parameters == dict(TOOLS[inner["name"]].parameters)
        assert inner["description"] == TOOLS[inner["name"]].description


def test_mcp_takes_its_form() -> None:
    from mcp_types import Tool  # of which `mcp.types` is the name, with all of clients and servers

    found = [Tool.model_validate(schema) for schema in tool_schemas(TOOLS, "mcp")]
    assert [one.annotations is not None and one.annotations.read_only_hint for one in found] == [True, False]


def test_tools_elsewhere_are_described_alike() -> None:
    far = {n: RemoteTool(n, one.description, one.parameters, one.read_only) for n, one in TOOLS.items()}
    assert tool_schemas(far, "anthropic") == tool_schemas(TOOLS, "anthropic")


def test_what_has_tools() -> None:
    class Rollout:
        tools = TOOLS

    assert tool_schemas(Rollout()) == tool_schemas(TOOLS, "openai")


def test_mistakes_are_named() -> None:
    class AsyncRollout:
        async def tools(self) -> None: ...

    with pytest.raises(UsageError, match=r"'gemini' of tool schemas; there are openai,"):
        tool_schemas(TOOLS, "gemini")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"await rollout\.tools\(\)"):
        tool_schemas(AsyncRollout())  # type: ignore[arg-type]
