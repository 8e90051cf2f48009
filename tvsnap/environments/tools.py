"""Tools: typed functions; their names, types and docstrings define the calls of agents and their arguments."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, Union, get_args, get_origin, overload

from tvsnap.model.arguments import LARGEST, check_number, check_text
from tvsnap.model.calls import Part, ToolCall, ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.model.limits import Limits
from tvsnap.sandboxes.protocol import Sandbox

Returned = Union[str, Part, "tuple[Part, ...]", "list[Part]", ToolResult, Any]
"""The results of a tool's function: text, parts, a whole result, or a value that JSON can express."""
_SCHEMAS: Mapping[object, Mapping[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    dict: {"type": "object"},
    list: {"type": "array"},
    Any: {},
}


@dataclass(frozen=True, slots=True)
class CallContext:
    """The call for which a tool's function is called.

    Attributes:
        call: the call.
        timeout: seconds that the call may take.
        limits: the limits of the sandbox.
        given: the sandbox in which the call is made, which `sandbox` returns; None for a tool on the host.
    """

    call: ToolCall
    timeout: float
    limits: Limits
    given: Sandbox | None = None

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox in which the call is made; nobody else uses it meanwhile.

        Raises:
            UsageError: the tool runs on the host, without a sandbox.
        """
        if self.given is None:
            raise UsageError(f"the tool {self.call.name} runs on the host, and has no sandbox")
        return self.given


class ToolFailed(Exception):
    """Raised by a tool's function to return a failure: its message is the output, and the exit code is 1."""


@dataclass(frozen=True)
class Tool:
    """One tool, with its properties for the cache.

    Attributes:
        name: the name by which it is called.
        description: its description for the agent that calls it.
        parameters: the JSON schema of its arguments, which is an object.
        run: the function that makes its calls; see `tool` for its parameters. None if the environment makes the calls
            in another way.
        read_only: it changes nothing itself. If no other process could notice the call, the sandbox is not observed
            after it.
        cacheable: False if its effects can neither be repeated from the graph nor observed in the sandbox, for example
            if it acts on the outside world. A rollout that calls it goes on in a private branch, unless it is
            read-only.
        stochastic: its value depends on chance and is never shared; only the state before it is.
        reproducible: by its nature, it leaves the same behind whenever it is called in the same state: it depends
            neither on the clock, nor on chance, nor on a process id. Such a state can be reached by making the call
            again.
        on_host: it runs in the process that has the cache open, without any sandbox, and changes no state, for example
            because it calls an API. Its value is stored under the state in which it was called, or see `stateless`.
        stateless: for a tool on the host: its value depends only on its arguments, and answers rollouts in any state.
        time_to_live: seconds after which the value of a tool on the host, or of a call that used the network, is
            requested again; None for never, or for the cache's setting (`Cache(network_answers=...)`).
        in_service: it uses only `exec`, `read_file` and `write_file` of the sandbox. If an image has several services,
            it takes one more argument, `service`, and works in that service.
        cost: the cost of a call beyond time, by unit, as {"usd": 0.002}. Each answer from the graph saves as much.
            `ToolResult.cost` of a call takes precedence.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[..., Returned] | None = None
    read_only: bool = False
    cacheable: bool = True
    stochastic: bool = False
    reproducible: bool = False
    on_host: bool = False
    stateless: bool = False
    time_to_live: float | None = None
    in_service: bool = False
    cost: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        what = f"tool {self.name}"
        if not self.on_host and self.stateless:
            raise UsageError(f"{what}: only a tool with on_host=True can be stateless")
        if self.on_host and self.run is None:
            raise UsageError(f"{what}: a tool on the host needs a function that makes its calls")
        if self.on_host and self.run is not None and any(kind is Sandbox for _, kind in self._injected):
            raise UsageError(f"{what}: a tool on the host has no sandbox; leave that parameter out")
        if self.time_to_live is not None:
            check_number(self.time_to_live, f"{what}: time_to_live", 0)
        for unit, amount in self.cost.items():
            check_text(unit, f"{what}: a unit of cost")
            check_number(amount, f"{what}: cost in {unit}", 0)

    def check(self, arguments: object) -> None:
        """Checks the arguments of a call against the schema.

        Args:
            arguments: the arguments of the call.

        Raises:
            UsageError: they are wrong. The message names the tool and the argument, the reason, and a remedy.
        """
        if not isinstance(arguments, Mapping):
            raise UsageError(f"{self.name}: arguments must be an object, not {_json_type(arguments)}; {self.usage}")
        for name, value in arguments.items():
            _check_storable(value, f'{self.name}: argument "{name}"')
        for error in self._validator.iter_errors(dict(arguments)):
            raise UsageError(f"{self.name}: {_explained(error)}; {self.usage}")

    @property
    def usage(self) -> str:
        """Its arguments for people: `exec takes command, [cwd], [env], [user]`."""
        required = self.parameters.get("required", ())
        names = [name if name in required else f"[{name}]" for name in self.parameters.get("properties", {})]
        return f"{self.name} takes {', '.join(names) or 'no arguments'}"

    def returned(self, value: Returned, duration: float) -> ToolResult:
        """Converts the return value of its function into the result of a call.

        Args:
            value: text, parts, a whole result, or a value that JSON can express.
            duration: seconds that the call took; a result keeps its own duration if that is not 0.

        Raises:
            UsageError: `value` is none of these.
        """
        if isinstance(value, ToolResult):
            result = value if value.duration else replace(value, duration=duration)
        elif isinstance(value, str):
            result = ToolResult.of_text(value, 0, duration)
        elif isinstance(value, Part):
            result = ToolResult((value,), 0, duration)
        elif isinstance(value, (list, tuple)) and value and all(isinstance(part, Part) for part in value):
            result = ToolResult(tuple(value), 0, duration)
        else:
            result = ToolResult((Part.json(value),), 0, duration)
        return replace(result, cost=self.cost) if self.cost and not result.cost else result

    def call(self, context: CallContext) -> Returned:
        """Calls its function.

        Args:
            context: the call, whose arguments were checked, and its sandbox.

        Returns:
            The result of the function.
        """
        assert self.run is not None
        arguments = dict(context.call.arguments)
        for name, kind in self._injected:
            arguments[name] = context.sandbox if kind is Sandbox else context
        return self.run(**arguments)

    @cached_property
    def _injected(self) -> list[tuple[str, object]]:
        """The parameters of its function that are no arguments of calls, with their types."""
        hints = {} if self.run is None else typing.get_type_hints(self.run)
        return [(name, hint) for name, hint in hints.items() if name != "return" and hint in (Sandbox, CallContext)]

    @cached_property
    def _validator(self) -> Any:
        import jsonschema  # takes 60 ms, and answers from the graph do not need it

        return jsonschema.Draft202012Validator(self.parameters)


def check_call(tools: Mapping[str, Tool], call: ToolCall) -> Tool:
    """Returns the tool of a call, after checking its arguments.

    Raises:
        UsageError: with the tool or the argument, the reason, and a remedy.
    """
    tool = tools.get(call.name)
    if tool is None:
        raise UsageError(f'unknown tool "{call.name}"; have: {", ".join(tools)}')
    tool.check(call.arguments)
    return tool


@overload
def tool(function: Callable[..., Returned], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    read_only: bool = False,
    cacheable: bool = True,
    stochastic: bool = False,
    reproducible: bool = False,
    on_host: bool = False,
    stateless: bool = False,
    time_to_live: float | None = None,
    in_service: bool = False,
    cost: Mapping[str, float] | None = None,
) -> Callable[[Callable[..., Returned]], Tool]: ...


def tool(function: Callable[..., Returned] | None = None, /, **options: Any) -> Any:
    """Makes a tool of a typed function. It is a decorator, which may be used with or without options.

    The function's name is the tool's name, and its docstring the description. A parameter with the annotation `Sandbox`
    receives the sandbox, and one with the annotation `CallContext` the call with its timeout and limits. Every other
    parameter is an argument of the tool. Its type is str, int, float, bool, None, list, dict, or a union or a Literal
    of these; `Annotated[str, "what it is"]` describes it; with a default, it is optional.

    Args:
        function: the function that makes a call. It returns text, parts, JSON, or a `ToolResult`. It raises
            `ToolFailed` if the call itself fails; an OSError that `Sandbox` raises is such a failure, too.
        options: attributes of `Tool`, and `parameters`: a JSON schema to use instead of that of the types.

    Returns:
        The tool, or a decorator that makes it.

    Raises:
        UsageError: a parameter has a type for which there is no schema, or the options contradict each other.
    """
    if function is None:
        return lambda function: tool_of(function, **options)
    return tool_of(function)


def tool_of(function: Callable[..., Returned], **options: Any) -> Tool:
    name = options.pop("name", None) or function.__name__
    description = options.pop("description", None) or " ".join((inspect.getdoc(function) or "").split())
    parameters = options.pop("parameters", None) or schema_of(function, name)
    options["cost"] = options.get("cost") or {}
    return Tool(name, description, parameters, run=function, **options)


def schema_of(function: Callable[..., object], name: str) -> dict[str, Any]:
    """Returns the JSON schema of a function's arguments; see `tool`, also for errors."""
    hints = typing.get_type_hints(function, include_extras=True)
    properties: dict[str, Any] = {}
    required = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint in (Sandbox, CallContext):
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(f"tool {name}: the parameter {parameter} has no name that a call could give")
        if parameter.default is None:  # the parameter is optional, but a call must not give null
            hint = _without_none(hint)
        properties[parameter.name] = _schema(hint, f"tool {name}: the parameter {parameter.name}")
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema(hint: Any, subject: str) -> dict[str, Any]:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is None and hint in _SCHEMAS:
        return dict(_SCHEMAS[hint])
    if origin is Annotated:
        schema = _schema(inner[0], subject)
        for note in inner[1:]:
            schema |= {"description": note} if isinstance(note, str) else dict(note)
        return schema
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, subject) for one in inner]}
    if origin is list:
        return {"type": "array", "items": _schema(inner[0], subject)}
    if origin is dict and inner[0] is str:
        return {"type": "object", "additionalProperties": _schema(inner[1], subject)}
    raise UsageError(
        f"{subject} is of the type {hint!r}, for which there is no JSON schema; take str, int, float, bool, list, dict "
        "or a Literal, or give the tool its parameters"
    )


def _without_none(hint: Any) -> Any:
    """Returns a type without the None in it; unchanged if it has none.

    For a parameter `Annotated[str | None, ...]` whose default is None, Python 3.10 adds None once more.
    """
    if get_origin(hint) is Annotated:
        return Annotated[(_without_none(get_args(hint)[0]), *hint.__metadata__)]
    inner = [_without_none(one) for one in get_args(hint) if one is not type(None)]
    is_union = get_origin(hint) in (Union, types.UnionType)
    return Union[tuple(inner)] if is_union and inner else hint  # noqa: UP007  (its members are known only here)


def _check_storable(value: object, subject: str) -> None:
    """Raises UsageError, beginning with `subject`, unless the graph can store everything in `value`."""
    if isinstance(value, str):
        check_text(value, subject)
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise UsageError(f"{subject} is too large a number: {LARGEST} is the largest")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_text(key, f"{subject}: the name {key!r}")
            _check_storable(item, f"{subject}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _check_storable(item, f"{subject}[{number}]")


def _explained(error: Any) -> str:
    """Converts an error of a schema's validator into words."""
    path = list(error.absolute_path)
    subject = f'argument "{path[0]}"' + "".join(f"[{step!r}]" for step in path[1:]) if path else "arguments"
    if error.validator == "required":
        missing = next(name for name in error.validator_value if name not in error.instance)
        return f'{subject}: "{missing}" is missing' if path else f'argument "{missing}" is missing'
    if error.validator == "additionalProperties":
        names = error.schema.get("properties", {})
        unknown = next(name for name in error.instance if name not in names)
        return f'{subject}: unknown "{unknown}"; have: {", ".join(names)}' if path else f'unknown argument "{unknown}"'
    if error.validator == "type" and isinstance(error.validator_value, str):
        wanted = error.validator_value
        article = "an" if wanted[0] in "aeiou" else "a"
        return f"{subject} must be {article} {wanted}, not {_json_type(error.instance)}"
    if error.validator == "minimum":
        return f"{subject} must be at least {error.validator_value}, not {error.instance}"
    if error.validator == "enum":
        return f"{subject} must be one of {', '.join(map(repr, error.validator_value))}, not {error.instance!r}"
    return f"{subject}: {error.message}"


def _json_type(value: object) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
