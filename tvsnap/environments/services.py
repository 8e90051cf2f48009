"""Images with several services: tools that take the service, and sandboxes in which all services run."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from tvsnap.environments.base import Environment
from tvsnap.environments.tools import Tool, check_call
from tvsnap.guest.protocol import INIT
from tvsnap.guest.services import beginning, entering
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import InfrastructureError, UsageError
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Observation
from tvsnap.model.services import ImageService, Services
from tvsnap.sandboxes.protocol import Sandbox

ARGUMENT = "service"
"""The name of the argument that names a service."""

_TIMEOUT = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two checks of a service that is starting."""
_LONGEST_START = 600.0
"""Seconds for a service that has to run to its end before another is started."""
_REST, _LONGEST_UNREST = 0.5, 20.0
"""Seconds without activity after which a program without a health check counts as ready, and the longest wait."""
_PROGRESS = """
for path in /proc/[0-9]*/stat; do
    [ "$path" = "/proc/$$/stat" ] || { read -r line < "$path" && echo "$line"; } 2> /dev/null
done
"""
_SHOWN_OF_LOG = 2000
_LEFT_OUT = "the ENTRYPOINT of its container; `entrypoint: []` of main in the task's Compose file leaves it out"
_SHARED_PORTS = " (all services share one network: no two can listen at the same port of the same address)"
_TAKEN = ("address already in use", "address in use", "eaddrinuse")


class ServicesEnvironment:
    """An environment for images with several services. Tools with `Tool.in_service` take the argument `service`."""

    def __init__(self, inner: Environment, services: Services) -> None:
        """`inner` prepares the sandbox after the services.

        Raises UsageError if a tool already has an argument `service`.
        """
        self._inner = inner
        self._services = services
        several = bool(services.others)
        self._tools = {name: _with_argument(one, services) if several else one for name, one in inner.tools.items()}

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def version(self) -> str:
        return self._inner.version

    @property
    def tools(self) -> Mapping[str, Tool]:
        return self._tools

    @property
    def serves(self) -> bool:
        return True

    def tool(self, call: ToolCall) -> Tool:
        if not self._takes_service(call):
            return self._inner.tool(call)
        own = check_call(self._tools, call)
        return replace(self._inner.tool(_without_argument(call)), parameters=own.parameters)

    def prepare(self, sandbox: Sandbox) -> None:
        """See `Environment.prepare`: starts the services, and waits until they work."""
        for service in self._services.running:
            for name, condition in service.after.items():
                if (other := self._services.named(name)) is not None and condition != "service_started":
                    _await(sandbox, other, to_its_end=condition == "service_completed_successfully")
            _as_root(sandbox, beginning(service), _TIMEOUT)
        for service in self._services.running:
            if service.is_main and service.health is None:
                _await_rest(sandbox, service)
            if service.health is not None:
                _await(sandbox, service, to_its_end=False)
            elif (status := _ended(sandbox, service)) not in (None, 0):
                raise _failure(sandbox, service, f"ended with exit status {status}")
        self._inner.prepare(sandbox)

    def execute(self, sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
        if not self._takes_service(call) or ARGUMENT not in call.arguments:
            return self._inner.execute(sandbox, call, timeout, limits)
        view = cast("Sandbox", _InService(sandbox, call.arguments[ARGUMENT]))
        return self._inner.execute(view, _without_argument(call), timeout, limits)

    def observe(self, sandbox: Sandbox) -> Observation:
        return self._inner.observe(sandbox)

    def surely_changes(self, call: ToolCall, before: Observation | None) -> bool:
        return self._inner.surely_changes(_without_argument(call) if self._takes_service(call) else call, before)

    def unchanged(self, call: ToolCall, before: Observation, after: Observation) -> bool:
        return self._inner.unchanged(_without_argument(call) if self._takes_service(call) else call, before, after)

    def behaviour(self, limits: Limits) -> str:
        return self._inner.behaviour(limits)

    def _takes_service(self, call: ToolCall) -> bool:
        return call.name in self._tools and self._tools[call.name].in_service


class _InService:
    """A sandbox as seen by a tool that is called in one of its services."""

    def __init__(self, sandbox: Sandbox, service: str) -> None:
        self._sandbox = sandbox
        self._service = service

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    def exec(self, *arguments: Any, **options: Any) -> Any:
        return self._sandbox.exec(*arguments, service=self._service, **options)

    def read_file(self, *arguments: Any, **options: Any) -> bytes:
        return self._sandbox.read_file(*arguments, service=self._service, **options)

    def write_file(self, *arguments: Any, **options: Any) -> None:
        self._sandbox.write_file(*arguments, service=self._service, **options)


def _with_argument(tool: Tool, services: Services) -> Tool:
    if not tool.in_service:
        return tool
    properties = tool.parameters.get("properties", {})
    if ARGUMENT in properties:
        raise UsageError(f'the tool {tool.name} has an argument "{ARGUMENT}" of its own, where in_service adds one')
    argument = {"enum": list(services.names), "description": f"where; by default {services.main}"}
    return replace(tool, parameters={**tool.parameters, "properties": {**properties, ARGUMENT: argument}})


def _without_argument(call: ToolCall) -> ToolCall:
    return replace(call, arguments={name: value for name, value in call.arguments.items() if name != ARGUMENT})


# -- starting --------------------------------------------------------------------------------------------------------


def _await(sandbox: Sandbox, service: ImageService, *, to_its_end: bool) -> None:
    """Waits until a service works, or has ended with success.

    Raises:
        InfrastructureError: it does not; the message contains the end of its output.
    """
    health = service.health
    began, pause, last = time.monotonic(), _FIRST_PAUSE, ""
    longest = health.start_period + health.retries * health.interval if health else 0.0
    deadline = began + (_LONGEST_START if to_its_end else longest)
    while True:
        status = _ended(sandbox, service)
        if to_its_end and status == 0:
            return
        if status is not None:
            before = "" if to_its_end else " before it was healthy"
            raise _failure(sandbox, service, f"ended with exit status {status}{before}")
        if health is not None and not to_its_end:
            code, last = _as_root(sandbox, entering(service, health.test), health.timeout)
            if code == 0:
                return
        if time.monotonic() > deadline:
            waited = f"within {time.monotonic() - began:.0f} s"
            what = f"did not end {waited}" if to_its_end else f"is not healthy {waited}"
            if health and not to_its_end:
                what += f"; its health check ({shlex.join(health.test)}) said: {last.strip() or 'nothing'}"
            raise _failure(sandbox, service, what)
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _await_rest(sandbox: Sandbox, service: ImageService) -> None:
    """Waits until a program without a health check has ended, or nothing runs in the sandbox."""
    deadline = time.monotonic() + _LONGEST_UNREST
    before, now = "", _progress(sandbox)
    while now != before and _ended(sandbox, service) is None and time.monotonic() < deadline:
        time.sleep(_REST)
        before, now = now, _progress(sandbox)


def _progress(sandbox: Sandbox) -> str:
    """Returns a text that changes while processes begin, end or use the processor."""
    outcome = sandbox.exec(_PROGRESS, timeout=_TIMEOUT, cwd="/", user="root")
    stats = (line.rpartition(")")[2].split() for line in outcome.output.decode("utf-8", "replace").splitlines())
    return str(sorted((stat[1:4], stat[11:15], stat[19]) for stat in stats if len(stat) > 19 and stat[1] != "0"))


def _ended(sandbox: Sandbox, service: ImageService) -> int | None:
    """Returns the exit status of a service that has ended; None while it runs."""
    status = _read(sandbox, service.end)
    return int(status) if status.strip().isdigit() else None


def _failure(sandbox: Sandbox, service: ImageService, what: str) -> InfrastructureError:
    log = _read(sandbox, service.log)[-_SHOWN_OF_LOG:]
    printed = f"it printed:\n{log.rstrip()}" if log.strip() else "it printed nothing"
    hint = _SHARED_PORTS if any(words in log.lower() for words in _TAKEN) else ""
    hint += f" ({_LEFT_OUT})" if service.is_main else ""
    return InfrastructureError(f"the service {service.name} of {sandbox.image.name} {what}{hint}; {printed}")


def _read(sandbox: Sandbox, path: str) -> str:
    """Returns the contents of one of tvsnap's own files: the end of a long one, empty if there is none."""
    code, text = _as_root(sandbox, [INIT, "get", path, str(1 << 40)], _TIMEOUT)
    return text if code == 0 else ""


def _as_root(sandbox: Sandbox, command: list[str], timeout: float) -> tuple[int | None, str]:
    """Runs a command as root; returns its exit status and its output."""
    outcome = sandbox.exec(f"exec {shlex.join(command)}", timeout=timeout, cwd="/", user="root")
    return outcome.exit_code, outcome.output.decode("utf-8", "replace")
