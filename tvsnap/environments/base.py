"""The protocol that every environment fulfils: which tools there are, and what a call does in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tvsnap.environments.tools import Tool
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Observation
from tvsnap.sandboxes.protocol import Sandbox


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
