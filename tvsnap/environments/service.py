"""Services that an environment runs inside a sandbox, beside the shell: a database's session, an interpreter.

A service is a program that is copied into a new sandbox, and then answers JSON with JSON on a Unix socket there. It is
checkpointed and forked with the sandbox, so a fork goes on from the same point.
"""

from __future__ import annotations

import base64
import errno
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tvsnap.model.calls import Part, ToolResult
from tvsnap.model.errors import InfrastructureError, SandboxDied
from tvsnap.model.images import Image
from tvsnap.sandboxes.protocol import Sandbox

DIRECTORY = "/run/tvsnap"
"""The directory of a service's program and socket, inside."""
START_TIMEOUT = 120.0
"""Seconds that a service may take to start."""
_LONGEST_REASON = 2000
_WAS_GONE = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ETIMEDOUT})
"""Errors which mean that an earlier call ended the service, or that it does not answer in time.

Any other means that it ended during a call, which may be the machine's fault.
"""
_GONE = _WAS_GONE | {errno.ECONNRESET, errno.EPIPE}


class InnerService:
    """A program that runs inside a sandbox beside the shell, and answers requests.

    It is run by the `python3` of the image, as `python3 -I PROGRAM start [ARGUMENTS] SOCKET`; that command ends once
    the service listens at SOCKET (it goes on in the background), or prints why it cannot. For each connection the
    service reads JSON up to its end, and writes JSON; the key `broken` of an object is the reason of a failure.

    Attributes:
        name: the name of the program and of its socket.
        socket: the path of the socket at which it listens, inside.
        look: the request for its state; None if there is none.
    """

    def __init__(
        self,
        name: str,
        program: Callable[[], bytes],
        arguments: str | Callable[[Image], str] = "",
        *,
        look: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            name: the name of the program and of its socket.
            program: a function that returns the program: the source of a Python module, or a zip file of modules.
            arguments: its arguments in the syntax of a shell; or a function that returns them for an image.
            look: a request that changes nothing. Its answer is an object with all facts on which later answers depend,
                or a digest of them: two equal answers mean that nothing has changed in it. The key `processes` has the
                ids, inside, of the service's processes. None if it has no such request: its processes are then observed
                like any other, and each request to it counts as a change.
        """
        self.name = name
        self.socket = f"{DIRECTORY}/{name}.socket"
        self._path = f"{DIRECTORY}/{name}.pyz"
        self._program = program
        self._arguments = arguments
        self.look = look

    def install(self, sandbox: Sandbox) -> None:
        """Copies the program into a sandbox.

        Args:
            sandbox: the sandbox.

        Raises:
            InfrastructureError: the program cannot be written there.
        """
        try:
            sandbox.write_file(self._path, self._program(), user="root")
        except OSError as error:
            raise InfrastructureError(
                f"{self._path} cannot be put into a sandbox of {sandbox.image.name}: {error}"
            ) from None

    def start(self, sandbox: Sandbox, user: str = "root") -> None:
        """Starts the program in a sandbox in which it does not run, even during a call that is being cancelled.

        Args:
            sandbox: the sandbox.
            user: the user that runs it.

        Raises:
            InfrastructureError: it does not start; the message contains its output.
        """
        arguments = self._arguments if isinstance(self._arguments, str) else self._arguments(sandbox.image)
        command = " ".join(filter(None, ("python3 -I", self._path, "start", arguments, self.socket)))
        with sandbox.uninterrupted():
            outcome = sandbox.exec(command, timeout=START_TIMEOUT, cwd="/", user=user)
        if outcome.exit_code != 0:
            printed = outcome.output.decode("utf-8", "replace").strip()
            reason = printed or ("it took too long" if outcome.timed_out else f"exit status {outcome.exit_code}")
            raise InfrastructureError(f"{self.name} does not start in a sandbox of {sandbox.image.name}: {reason}")

    def ask(self, sandbox: Sandbox, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Sends a request to the service, and returns its answer.

        Args:
            sandbox: the sandbox in which it runs.
            request: plain JSON.
            timeout: seconds to wait for the answer.

        Raises:
            OSError: there is no answer, or an incomplete one, or not in time. A call may have ended the service.
            InfrastructureError: the service failed, or its answer is no JSON object.
        """
        try:
            answer = sandbox.request(self.socket, json.dumps(request).encode(), timeout=timeout)
        except OSError as error:
            if error.errno in _GONE:
                raise
            raise InfrastructureError(f"the service {self.name} of a sandbox cannot be asked: {error}") from error
        return parse_answer(answer, self.name)


def call_session(
    service: InnerService,
    sandbox: Sandbox,
    request: Mapping[str, Any],
    seconds: float,
    *,
    grace: float,
    lost: ToolResult,
) -> ToolResult:
    """Returns the result of a call of a service that is a session; restarts the session if it has ended.

    Args:
        service: it answers with `output`, `failed`, `timed_out`, `truncated`, `duration`, and `pictures` if it has any.
        sandbox: the sandbox in which it runs.
        request: plain JSON.
        seconds: seconds that the call may take.
        grace: seconds beyond those after which the session counts as dead.
        lost: the result if the session had ended.
    """
    began = time.monotonic()
    try:
        answer = service.ask(sandbox, request, seconds + grace)
    except OSError as error:
        took = min(seconds, time.monotonic() - began)
        if error.errno not in _WAS_GONE:
            raise SandboxDied(
                f"the session {service.name} of sandbox {sandbox.id} ended amid a call ({error})"
            ) from None
        service.start(sandbox)
        late = error.errno == errno.ETIMEDOUT
        return replace(lost, exit_code=None, duration=took, timed_out=True) if late else lost
    pictures = [Part.png(base64.b64decode(picture)) for picture in answer.get("pictures", ())]
    parts = [Part.text(answer["output"])] if answer["output"] or not pictures else []
    return ToolResult(
        (*parts, *pictures),
        None if answer["timed_out"] else int(answer["failed"]),
        answer["duration"],
        timed_out=answer["timed_out"],
        truncated=answer["truncated"],
    )


def parse_answer(answer: bytes, name: str) -> dict[str, Any]:
    """Returns the answer of a service; errors as of `InnerService.ask`."""
    try:
        parsed = json.loads(answer)
    except (ValueError, RecursionError):
        raise OSError(errno.ECONNRESET, f"the service {name} ended amid its answer") from None
    if not isinstance(parsed, dict) or "broken" in parsed:
        reason = str(parsed["broken"])[:_LONGEST_REASON] if isinstance(parsed, dict) else "it answered no JSON object"
        raise InfrastructureError(f"the service {name} of a sandbox failed: {reason}")
    return parsed
