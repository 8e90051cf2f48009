"""The OpenAPI document, made of the operations themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from tvsnap.plugins.server.bodies import ErrorAnswer
from tvsnap.plugins.server.http import KEY_HEADER, Operation

_NAMED = re.compile(r"{(\w+)}")


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document of a server.

    Args:
        operations: the server's operations.
    """
    kinds: dict[str, Any] = {ErrorAnswer.__name__: ErrorAnswer}
    for operation in operations:
        kinds |= {kind.__name__: kind for kind in (operation.body, operation.answer) if isinstance(kind, type)}
    schemas, components = msgspec.json.schema_components(kinds.values(), ref_template="#/components/schemas/{name}")
    by_name = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, by_name)
    try:
        number = version("tvsnap")
    except PackageNotFoundError:
        number = "0"
    return {
        "openapi": "3.1.0",
        "info": {"title": "tvsnap", "version": number, "description": "A stateful tool-value cache for agents."},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": text} for name in _NAMED.findall(operation.path)
    ]
    parameters += [
        {"name": name, "in": "query", "description": words, "schema": text} for name, words in operation.query.items()
    ]
    if operation.method == "POST":
        parameters.append({"name": KEY_HEADER, "in": "header", "schema": {**text, "maxLength": 200}})
    failed = {"description": "An error.", "content": _content(operation.error, schemas) if operation.error else {}}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            "2XX": {"description": "Done.", "content": _content(operation.answer, schemas)},
            "default": failed,
        },
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _content(operation.body, schemas)}
    return described


def _content(kind: type[Any] | str | None, schemas: dict[str, Any]) -> dict[str, Any]:
    if isinstance(kind, str):
        return {kind: {}}
    return {"application/json": {"schema": {} if kind is None else schemas[kind.__name__]}}
