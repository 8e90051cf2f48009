"""The SQL session's answers where it fails itself: never a result, and never the end of what it holds."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from tvsnap.environments import environment
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import InfrastructureError, SandboxDied
from tvsnap.model.limits import Limits
from tvsnap.plugins.sql.inside.reach import Definitions
from tvsnap.plugins.sql.inside.session import Session
from tvsnap.plugins.sql.inside.system import Facts


class Failing:
    """A database system whose statements meet a mistake of ours."""

    processes = ()
    directories = ()

    def facts(self) -> Facts:
        return ("as ever",)

    def definitions(self, *, rows: bool = False) -> Definitions:
        return Definitions()

    def expect(self, *_: object) -> None:
        return

    def drew(self) -> bool:
        return False

    def timers(self) -> str:
        return ""

    def run(self, *_: object) -> None:
        raise ZeroDivisionError("a mistake")


def ask(session: Session, request: dict[str, Any]) -> dict[str, Any]:
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=session.answer, args=(theirs,))
    thread.start()
    with ours, theirs:
        ours.sendall(json.dumps(request).encode())
        ours.shutdown(socket.SHUT_WR)
        thread.join(60)
        said: dict[str, Any] = json.loads(ours.recv(1 << 20))
    return said


SQL = {
    "op": "sql",
    "query": "SELECT 1",
    "database": "",
    "timeout": 1,
    "max_rows": 1,
    "limit": 99,
    "kind": "read",
    "chance": False,
}
SQL["words"] = {
    "names": [],
    "calls": [],
    "called": [],
    "defined": [],
    "made": [],
    "timed": False,
    "defines": False,
    "executes": False,
    "unseen": False,
    "plain": False,
}


def test_a_mistake_is_told_and_may_have_changed_anything() -> None:
    session = Session(Failing())  # type: ignore[arg-type]
    token = ask(session, {"op": "observe"})["token"]
    assert ask(session, {"op": "observe"})["token"] == token
    assert "ZeroDivisionError: a mistake" in ask(session, SQL)["broken"]
    assert ask(session, {"op": "observe"})["token"] != token


class Answering:
    """A sandbox whose session answers so."""

    id = "one"

    def __init__(self, answer: bytes | OSError) -> None:
        self._answer = answer

    def request(self, *_: object, **__: object) -> bytes:
        if isinstance(self._answer, OSError):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (b'{"broken": "a mistake"}', InfrastructureError, "a mistake"),
        (b"[]", InfrastructureError, "no JSON object"),
        (b'{"output": "ha', SandboxDied, "ended amid a call"),
        (ConnectionResetError(104, "reset"), SandboxDied, "ended amid a call"),
        (PermissionError(13, "denied"), InfrastructureError, "cannot be asked"),
    ],
)
def test_a_failure_is_no_result(answer: bytes | OSError, error: type[Exception], says: str) -> None:
    call = ToolCall("sql", {"query": "SELECT 1"})
    with pytest.raises(error, match=says):
        environment("postgres").execute(Answering(answer), call, 1.0, Limits())  # type: ignore[arg-type]
