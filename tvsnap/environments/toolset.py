"""Environments that consist of tools, such as `terminal` and `python`."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from tvsnap.environments.service import InnerService
from tvsnap.environments.tools import CallContext, Tool, ToolFailed, check_call
from tvsnap.model.calls import ToolCall, ToolResult, canonical_json
from tvsnap.model.errors import InfrastructureError, UsageError
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Observation, Service
from tvsnap.sandboxes.protocol import Sandbox

_LOOK_TIMEOUT = 60.0
"""Seconds that a service may take to report its state."""


class ToolEnvironment:
    """An environment that consists of tools with functions; it implements `tvsnap.Environment`.

    Attributes:
        name: its name in an image's `environment`.
        version: a text that is raised when the tools behave differently: states of another version are not shared.
        tools: the tools by name.
    """

    def __init__(self, name: str, version: str, tools: Iterable[Tool], services: Iterable[InnerService] = ()) -> None:
        """
        Args:
            name: its name in an image's `environment`.
            version: a text that is raised when the tools behave differently.
            tools: the tools that may be called; each has a function.
            services: programs that run beside the shell of each sandbox; see `InnerService`.

        Raises:
            UsageError: a tool has no function, or two have the same name.
        """
        self.name = name
        self.version = version
        self.tools: Mapping[str, Tool] = {}
        self._services = tuple(services)
        for tool in tools:
            if tool.run is None or tool.name in self.tools:
                reason = "has no function that makes its calls" if tool.run is None else "is there twice"
                raise UsageError(f"environment {name}: the tool {tool.name} {reason}")
            self.tools = {**self.tools, tool.name: tool}

    @property
    def serves(self) -> bool:
        return bool(self._services)

    def tool(self, call: ToolCall) -> Tool:
        return check_call(self.tools, call)

    def prepare(self, sandbox: Sandbox) -> None:
        """See `Environment.prepare`: starts the services."""
        for service in self._services:
            service.install(sandbox)
            service.start(sandbox)

    def execute(self, sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
        return run_tool(self.tools[call.name], CallContext(call, timeout, limits, sandbox))

    def observe(self, sandbox: Sandbox) -> Observation:
        """See `Environment.observe`: services report their own state, and the sandbox observes the rest."""
        reports: dict[str, Any] = {}
        processes: set[int] = set()
        for service in self._services:
            if service.look is not None:
                try:
                    report = service.ask(sandbox, service.look, _LOOK_TIMEOUT)
                except OSError:  # the next call will find that out
                    return replace(sandbox.observe(), service=secrets.token_hex(), chance=True)
                processes.update(_own_processes(service.name, report))
                reports[service.name] = report
        if not reports:
            return sandbox.observe()
        return replace(sandbox.observe(Service(frozenset(processes))), service=canonical_json(reports))

    def surely_changes(self, call: ToolCall, before: Observation | None) -> bool:
        return False

    def unchanged(self, call: ToolCall, before: Observation, after: Observation) -> bool:
        return before == after

    def behaviour(self, limits: Limits) -> str:
        # All limits can change an output: with less processor time, more calls time out. One without a limit is left
        # out.
        return canonical_json({name: value for name, value in asdict(limits).items() if name != "cpus" or value})


def _own_processes(name: str, report: Mapping[str, Any]) -> list[int]:
    """Returns a service's processes from its report; raises InfrastructureError if the report lacks them."""
    ids = report.get("processes")
    if not isinstance(ids, list) or not ids or not all(type(id) is int for id in ids):
        raise InfrastructureError(
            f"the service {name} does not say which processes are its own: its answer to `look` needs the key "
            '"processes", a list of their ids'
        )
    return ids


def run_tool(tool: Tool, context: CallContext) -> ToolResult:
    """Makes a call of a tool that has a function; raises the function's errors, except failures that are results."""
    began = time.monotonic()
    try:
        returned = tool.call(context)
        return tool.returned(returned, time.monotonic() - began)
    except ToolFailed as failure:
        text = str(failure)
        return ToolResult.of_text(text if text.endswith("\n") else f"{text}\n", 1, time.monotonic() - began)
    except OSError as error:
        if tool.on_host:  # for example a fault of the network is no answer
            raise
        path = context.call.arguments.get("path")
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        words = f"{tool.name}: {path}: {reason}\n" if isinstance(path, str) else f"{tool.name}: {reason}\n"
        cut = error.errno == errno.ETIMEDOUT  # by a cancellation, too
        return ToolResult.of_text(words, None if cut else 1, time.monotonic() - began, timed_out=cut)
