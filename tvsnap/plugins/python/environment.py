"""The environment `python`: a persistent interpreter, besides the tools of a terminal.

It consists of parts that any environment can have: tools that are functions, and a service beside the shell.
"""

from __future__ import annotations

import shlex
from importlib import resources

from tvsnap.environments.service import InnerService, call_session
from tvsnap.environments.terminal import TerminalEnvironment
from tvsnap.environments.tools import CallContext, tool
from tvsnap.guest.protocol import INIT
from tvsnap.model.calls import DEFAULT_TIMEOUT, ToolResult
from tvsnap.plugins.python.session import LOST
from tvsnap.sandboxes.protocol import Sandbox

_GRACE = 30.0
"""Seconds beyond a call's timeout after which the interpreter counts as dead: it may first have to be restarted."""


_RESEED = """exec('''
import random, sys
random.seed(%d)
if "numpy" in sys.modules:
    sys.modules["numpy"].random.seed(%d)
''', {})"""
"""An expression without a value, so that no variable of the agent's changes."""

_INTERPRETER = InnerService(
    "python",
    lambda: resources.files(__package__).joinpath("session.py").read_bytes(),
    lambda image: f'"$({INIT} who {shlex.quote(image.user)})" {shlex.join((image.env.get("HOME", ""), image.workdir))}',
)


@tool
def python(context: CallContext, code: str) -> ToolResult:
    """Runs Python code in a persistent interpreter: variables, imports, open files and threads carry over to the next
    call. Returns what it prints, the value of its last expression, and figures as pictures.
    """
    request = {"code": code, "timeout": context.timeout, "limit": context.limits.output}
    lost = ToolResult.of_text(LOST, 1, 0.0)
    return call_session(_INTERPRETER, context.sandbox, request, context.timeout, grace=_GRACE, lost=lost)


class PythonEnvironment(TerminalEnvironment):
    """The tool `python`, and those of a terminal."""

    def __init__(self) -> None:
        super().__init__("python", "4", (python,), (_INTERPRETER,))

    def reseed(self, sandbox: Sandbox, seed: int) -> str:
        """Gives the interpreter's modules `random` and `numpy.random` a seed; see `Reseeds.reseed`.

        Args:
            sandbox: the sandbox.
            seed: the seed.
        """
        request = {"code": _RESEED % (seed, seed % 2**32), "timeout": DEFAULT_TIMEOUT, "limit": 1000}
        lost = ToolResult.of_text(LOST, 1, 0.0)
        reply = call_session(_INTERPRETER, sandbox, request, DEFAULT_TIMEOUT, grace=_GRACE, lost=lost)
        return "" if reply.exit_code == 0 else reply.output or "the interpreter did not answer"
