"""The environment `python`: a persistent interpreter, beside the tools of a terminal.

It is made of what any environment can use: tools that are functions, and a service beside the shell.
"""

from __future__ import annotations

import base64
import errno
import shlex
from importlib import resources

from tvsnap.environments.service import WAS_GONE, InnerService
from tvsnap.environments.terminal import TerminalEnvironment
from tvsnap.environments.tools import CallContext, tool
from tvsnap.guest.python_session import LOST
from tvsnap.model.calls import Part, ToolResult
from tvsnap.model.errors import SandboxDied
from tvsnap.model.images import Image

_GRACE = 30.0
"""Seconds beyond a call's timeout after which the interpreter is taken for dead: it may have to be started anew."""


def _program() -> bytes:
    return resources.files("tvsnap.guest").joinpath("python_session.py").read_bytes()


def _arguments(image: Image) -> str:
    return shlex.join((image.user, image.workdir))


_INTERPRETER = InnerService("python", _program, _arguments)


@tool
def python(context: CallContext, code: str) -> ToolResult:
    """Runs Python code in a persistent interpreter: variables, imports, open files and threads carry over to the next
    call. Returns what it prints, the value of its last expression, and figures as pictures.
    """
    request = {"code": code, "timeout": context.timeout, "limit": context.limits.output}
    try:
        said = _INTERPRETER.ask(context.sandbox, request, context.timeout + _GRACE)
    except OSError as error:
        if error.errno not in WAS_GONE:
            sandbox = context.sandbox.id
            raise SandboxDied(f"the Python session of sandbox {sandbox} ended amid a call ({error})") from None
        _INTERPRETER.start(context.sandbox)
        late = error.errno == errno.ETIMEDOUT
        return ToolResult.of_text(LOST, None if late else 1, context.timeout if late else 0.0, timed_out=late)
    parts = [Part.text(said["output"])] if said["output"] or not said["pictures"] else []
    parts += [Part.png(base64.b64decode(picture)) for picture in said["pictures"]]
    return ToolResult(
        tuple(parts),
        None if said["timed_out"] else int(said["failed"]),
        said["duration"],
        timed_out=said["timed_out"],
        truncated=said["truncated"],
    )


class PythonEnvironment(TerminalEnvironment):
    """The tool `python`, and those of a terminal."""

    def __init__(self) -> None:
        super().__init__("python", "1", (python,), (_INTERPRETER,))
