"""Grades of states: recorded under the state and the verifier's digest, and given in a fork of the state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.execution.strain import held_up
from tvsnap.engine.host_calls import HostAnswer, HostCalls
from tvsnap.engine.lookup.grades import Grading
from tvsnap.engine.position import Position
from tvsnap.environments.terminal import clean
from tvsnap.environments.tools import Tool
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import GradingFailed, InfrastructureError, TvsnapError
from tvsnap.model.grades import Grade, Verifier, read_grade
from tvsnap.sandboxes.protocol import Sandbox

GRADE = "(grade)"
"""The tool name of grades in the graph."""


class GradeCalls:
    """Grades states for one rollout, one at a time.

    To the graph a verifier is a tool on the host: its call changes no state, and of several rollouts in one state, one
    makes it while the others wait.
    """

    def __init__(self, calls: HostCalls, executions: int) -> None:
        """`executions`: the number of times that a state is graded before its grade answers others."""
        self._calls = calls
        self._grading = Grading((), executions)

    def grade(
        self, verifier: Verifier, at: Position, fork: Callable[[], AbstractContextManager[Sandbox]]
    ) -> HostAnswer:
        """Returns the grade of a state as the result of a call, see `Grade.of_result`.

        `fork` makes a sandbox in the state.

        Raises:
            GradingFailed: the verifier failed.
            InfrastructureError: there is no sandbox in the state, it failed, or this machine had a fault meanwhile.
        """
        if at.quiet_s < math.inf:
            at = replace(at, private=at.private or "something runs by itself there: what it is worth may change")

        def run(**_: object) -> ToolResult:
            with fork() as sandbox:
                trouble, load = sandbox.machine_fault(""), sandbox.load()
                grade = _run(verifier, sandbox)
                result = grade.as_result()
                result = replace(result, strain=held_up(result, sandbox.load() - load))
                trouble = sandbox.machine_fault(grade.log) or trouble
            if trouble:
                raise InfrastructureError(
                    f"there is no grade, because this machine may have had a part in it: {trouble}"
                )
            return result

        tool = Tool(GRADE, "", {}, run=run, on_host=True)
        call = ToolCall(GRADE, {"verifier": verifier.digest, "what": verifier.name})
        answer = self._calls.look_up(tool, call, verifier.timeout, at, self._grading)
        return answer or self._calls.make(tool, call, verifier.timeout, at, Cancellation(), grading=self._grading)


def _run(verifier: Verifier, sandbox: Sandbox) -> Grade:
    """Runs a verifier in a sandbox."""
    began = time.perf_counter()
    if not isinstance(verifier.check, str):
        try:
            grade = Grade.of(verifier.check(sandbox))
        except TvsnapError:
            raise
        except Exception as error:
            raise GradingFailed(f"the verifier {verifier.name} raised {type(error).__name__}: {error}") from error
        return replace(grade, duration=time.perf_counter() - began)
    try:
        for path, content in verifier.contents.items():
            sandbox.write_file(path, content, user=verifier.user)
    except OSError as error:
        raise GradingFailed(f"a file of the verifier could not be written: {error}") from error
    process = sandbox.exec(verifier.check, timeout=verifier.timeout, user=verifier.user, separate=True)
    errors = clean(process.errors or b"", truncated=process.errors_truncated)
    grade = read_grade(clean(process.output, truncated=process.truncated), errors, process.exit_code)
    return replace(grade, duration=time.perf_counter() - began)
