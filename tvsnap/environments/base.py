"""The protocol of environments: their tools, and the effect of a call in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tvsnap.environments.tools import Tool
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Observation
from tvsnap.sandboxes.protocol import Sandbox


class Environment(Protocol):
    """The meaning of tool calls: a protocol that `terminal`, `python`, `sqlite`, `postgres` and `mariadb` implement.

    An environment holds no state of its own, and is used by many threads at once.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str:
        """The version of its tools, raised when they behave differently: versions do not share states."""
        ...

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name."""
        ...

    @property
    def serves(self) -> bool:
        """Whether its sandboxes run a service that takes long to start; roots are then snapshotted once it runs."""
        ...

    def tool(self, call: ToolCall) -> Tool:
        """Checks a call, and returns its tool, adapted to the arguments of this call.

        Args:
            call: the call.

        Returns:
            The tool; for example a read-only one if these arguments can change nothing.

        Raises:
            UsageError: the call is wrong. The message names the tool or the argument, the reason, and a remedy.
        """
        ...

    def prepare(self, sandbox: Sandbox) -> None:
        """Prepares a freshly started sandbox for calls. Programs that it starts there are part of the root's state.

        Args:
            sandbox: the sandbox.

        Raises:
            InfrastructureError: the sandbox cannot be prepared.
        """
        ...

    def execute(self, sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
        """Makes a call in a sandbox.

        Args:
            sandbox: the sandbox, which nobody else uses meanwhile.
            call: a call that `tool` accepts.
            timeout: seconds that the call may take.
            limits: the limits of the sandbox.

        Returns:
            The result for the caller. A failure of the tool itself is a result, too.

        Raises:
            InfrastructureError: the sandbox, not the tool, failed.
        """
        ...

    def observe(self, sandbox: Sandbox) -> Observation:
        """Returns fingerprints of everything that later calls could see.

        They are those of the sandbox (`Sandbox.observe`), and of state that only the environment knows. Observing
        changes nothing.

        Args:
            sandbox: the sandbox, in which no call is being made.

        Raises:
            InfrastructureError: the sandbox failed.
        """
        ...

    def surely_changes(self, call: ToolCall, before: Observation | None) -> bool:
        """Returns whether a call counts as one that changes the state, without an observation after it.

        Before such a call, a sandbox's own processes need not be recorded (`Sandbox.note`), which takes longer than
        many calls. If the call changes nothing after all, it leads to a state of its own.

        Args:
            call: the call.
            before: the observation of the sandbox; None if there is none.
        """
        ...

    def unchanged(self, call: ToolCall, before: Observation, after: Observation) -> bool:
        """Returns whether a call left the state unchanged; it is not asked if `surely_changes` returned True.

        Args:
            call: the call, which is not one of a read-only tool.
            before: the observation before the call.
            after: the observation after the call.
        """
        ...

    def behaviour(self, limits: Limits) -> str:
        """Returns the limits that can change a call's result, as the text of a JSON object of fields of `Limits`.

        The text is part of a root's name.

        Args:
            limits: the limits of sandboxes.
        """
        ...
