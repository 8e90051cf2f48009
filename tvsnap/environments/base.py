"""The protocol that every environment fulfils: which tools there are, and what a call does in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tvsnap.model.arguments import LARGEST, check_text
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Observation
from tvsnap.sandboxes.protocol import Sandbox


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool, and what the cache must know of it.

    Attributes:
        name: as calls name it.
        description: what it does, for who calls it.
        parameters: JSON schema of its arguments: an object, of whose schema language `type`, `properties`, `required`,
            `additionalProperties` and `minimum` are understood.
        read_only: it changes nothing itself; where nothing else lives that could notice it, nothing is observed.
        cacheable: False if what it does cannot be repeated from the graph, nor seen in the sandbox (it acts on the
            world outside): a rollout that calls it goes on in a private branch, unless the tool is read-only.
        stochastic: its value is left to chance and is never shared, only the state before it.
        reproducible: what it leaves behind is by its nature the same whenever it is called in the same state: neither
            the clock, nor chance, nor a process id enters. Such a state can be reached by calling it again.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    read_only: bool = False
    cacheable: bool = True
    stochastic: bool = False
    reproducible: bool = False


class Environment(Protocol):
    """What tool calls mean. Holds no state; thread-safe."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str:
        """Raised when the tools behave differently: states of another version are not shared."""
        ...

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name."""
        ...

    @property
    def serves(self) -> bool:
        """Whether its sandboxes run a service, which takes long to start: a root is then snapshotted when it runs."""
        ...

    def tool(self, call: ToolCall) -> Tool:
        """Returns the tool that a call is of, as it applies to this very call, whose words may tell more of it.

        Raises:
            UsageError: the call is wrong: naming the tool or the argument, the reason, and the tools that there are.
        """
        ...

    def prepare(self, sandbox: Sandbox) -> None:
        """Makes a freshly started sandbox ready for calls: what it starts is part of the root's state.

        Raises:
            InfrastructureError: it cannot be made ready.
        """
        ...

    def execute(self, sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
        """Makes a valid call in a sandbox.

        Args:
            sandbox: where; nobody else uses it meanwhile.
            call: a call that `validate` accepts.
            timeout: seconds.
            limits: those that the sandbox has.

        Returns:
            What the caller sees; a failure of the tool itself is a result too.

        Raises:
            InfrastructureError: if the sandbox, not the tool, failed.
        """
        ...

    def observe(self, sandbox: Sandbox) -> Observation:
        """Returns fingerprints of all that later calls could see: the sandbox's, and what only the environment knows.

        Raises:
            InfrastructureError: if the sandbox failed.
        """
        ...

    def unchanged(self, call: ToolCall, before: Observation, after: Observation) -> bool:
        """Whether a call left the state as it was.

        Args:
            call: the call, which is none of a read-only tool.
            before: how the sandbox looked before the call.
            after: how it looked after the call.
        """
        ...

    def behaviour(self, limits: Limits) -> str:
        """Returns those limits that can change what a call returns, as a JSON object of fields of `Limits`.

        The text is part of a root's name.
        """
        ...


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "object": (dict, Mapping),
    "boolean": (bool,),
}


def validate_call(tools: Mapping[str, Tool], call: ToolCall) -> None:
    """Checks a call against the schemas of `tools`.

    Raises:
        UsageError: naming the tool or the argument, the reason, and the way out.
    """
    tool = tools.get(call.name)
    if tool is None:
        raise UsageError(f'unknown tool "{call.name}"; have: {", ".join(tools)}')
    if not isinstance(call.arguments, Mapping):
        raise UsageError(f"{tool.name}: arguments must be an object, not {_named(call.arguments)}; {_usage(tool)}")
    properties: Mapping[str, Mapping[str, Any]] = tool.parameters["properties"]
    for name in tool.parameters.get("required", ()):
        if name not in call.arguments:
            raise UsageError(f'{tool.name}: argument "{name}" is missing; {_usage(tool)}')
    for name, value in call.arguments.items():
        if name not in properties:
            raise UsageError(f'{tool.name}: unknown argument "{name}"; {_usage(tool)}')
        _check(f'{tool.name}: argument "{name}"', value, properties[name])


def _check(subject: str, value: object, schema: Mapping[str, Any]) -> None:
    """Raises UsageError, beginning with `subject`, unless `value` is what `schema` asks for."""
    wanted = schema["type"]
    if not isinstance(value, _TYPES[wanted]) or (isinstance(value, bool) and wanted != "boolean"):
        article = "an" if wanted[0] in "aeiou" else "a"
        raise UsageError(f"{subject} must be {article} {wanted}, not {_named(value)}")
    if isinstance(value, str):
        check_text(value, subject)
    if isinstance(value, int) and abs(value) > LARGEST:
        raise UsageError(f"{subject} is too large a number: {LARGEST} is the largest")
    if "minimum" in schema and isinstance(value, (int, float)) and not value >= schema["minimum"]:
        raise UsageError(f"{subject} must be at least {schema['minimum']}, not {value}")
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_text(key, f"{subject}, the name {key!r},")
            if "additionalProperties" in schema:
                _check(f"{subject}, its item {key!r},", item, schema["additionalProperties"])


def _named(value: object) -> str:
    """Returns the name that JSON has for the type of `value`."""
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def _usage(tool: Tool) -> str:
    """Returns a tool's arguments as people read them: `exec takes command, [cwd], [env], [user]`."""
    required = tool.parameters.get("required", ())
    names = [name if name in required else f"[{name}]" for name in tool.parameters["properties"]]
    return f"{tool.name} takes {', '.join(names) or 'no arguments'}"
