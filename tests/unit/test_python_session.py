"""The interpreter of the environment `python`, run here as it is: with IPython, and with the standard library alone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tvsnap.plugins.python import session as python_session

PROGRAM = Path(python_session.__file__)
WITHOUT_IPYTHON = "raise ImportError('none for this test')\n"
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(params=["plain", "ipython"])
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ask]:
    """Asks a supervisor of its own, which ends with the test."""
    path = tmp_path / "socket"
    if request.param == "plain":
        (tmp_path / "IPython").mkdir()
        (tmp_path / "IPython" / "__init__.py").write_text(WITHOUT_IPYTHON)
    variables = {**os.environ, "PYTHONPATH": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")}
    user = f"{os.geteuid()}:{','.join(map(str, (os.getegid(), *os.getgroups())))}:{tmp_path}"
    command = [sys.executable, str(PROGRAM), "start", user, "", str(tmp_path), str(path)]
    subprocess.run(command, check=True, env=variables, timeout=60)

    def ask(code: str, timeout: float = 30.0, limit: int = 10_000) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(path))
            connection.sendall(json.dumps({"code": code, "timeout": timeout, "limit": limit}).encode())
            connection.shutdown(socket.SHUT_WR)
            answer: dict[str, Any] = json.loads(python_session.read_all(connection))
            return answer

    ask.name = request.param  # type: ignore[attr-defined]
    yield ask
    supervisor = int(ask("import os; os.getppid()")["output"].strip())
    interpreter = int(ask("os.getpid()")["output"].strip())
    for pid in (supervisor, interpreter):
        os.kill(pid, 9)


def test_a_session(ask: Ask, tmp_path: Path) -> None:
    assert ask("x = 41")["output"] == ""
    assert ask("x + 1")["output"] == "42\n"
    assert ask("'text'; None")["output"] == ""
    assert ask("import os\nos.getcwd()")["output"] == f"{str(tmp_path)!r}\n"
    assert ask("for i in range(2):\n    print(i)\n'last'")["output"] == "0\n1\n'last'\n"
    assert ask("_ + '!'")["output"] == "'last!'\n"
    printed = ask("import sys\nprint('out'); print('err', file=sys.stderr); os.system('echo below')")
    assert printed["output"] == "out\nerr\nbelow\n0\n"
    assert not printed["failed"]
    assert ask("input()")["failed"]
    assert "EOFError" in ask("input()")["output"]


def test_mistakes_are_told_cleanly(ask: Ask) -> None:
    ask("def f():\n    return 1 / 0")
    failed = ask("f()")
    assert failed["failed"]
    assert "ZeroDivisionError: division by zero" in failed["output"]
    assert "return 1 / 0" in failed["output"]
    assert "session.py" not in failed["output"]
    assert "\x1b" not in failed["output"]
    wrong = ask("x = = 1")
    assert wrong["failed"]
    assert "SyntaxError" in wrong["output"]
    assert ask("1")["output"] == "1\n"


def test_pictures(ask: Ask) -> None:
    ask("class P:\n    def _repr_png_(self): return b'png'\n    def __repr__(self): return 'a picture'")
    shown = ask("P()")
    assert (shown["output"], shown["pictures"]) == ("a picture\n", ["cG5n"])
    assert ask("1")["pictures"] == []


def test_what_takes_too_long_is_interrupted(ask: Ask) -> None:
    ask("import time; x = 1")
    late = ask("try:\n    time.sleep(100)\nfinally:\n    x = 2", timeout=2.5)
    assert (late["timed_out"], late["failed"]) == (True, True)
    assert late["output"].endswith("[interrupted after 2.5 s]\n")
    assert ask("x")["output"] == "2\n"


def test_what_cannot_be_interrupted_ends(ask: Ask) -> None:
    ask("x = 1")
    stubborn = (
        "import time\nwhile True:\n    try:\n        time.sleep(100)\n    except KeyboardInterrupt:\n        pass"
    )
    late = ask(stubborn, timeout=2.5)
    assert late["timed_out"]
    assert late["output"].endswith(python_session.LOST)
    assert "NameError" in ask("x")["output"]


def test_one_that_ends_is_replaced(ask: Ask) -> None:
    ended = ask("import os; print('before'); os._exit(3)")
    assert ended["failed"]
    assert ended["output"] == f"before\n{python_session.LOST}"
    assert ask("1 + 1")["output"] == "2\n"


def test_an_expression_that_cannot_be_shown_has_failed(ask: Ask) -> None:
    ask("class P:\n    def __repr__(self): raise ValueError('not to be shown')")
    failed = ask("P()")
    assert failed["failed"]
    assert "ValueError: not to be shown" in failed["output"]
    assert not ask("1")["failed"]


@pytest.mark.parametrize("leave", ["exit()", "quit()"])
def test_one_that_is_left_is_replaced(ask: Ask, leave: str) -> None:
    left = ask(f"x = 1; print('before')\n{leave}")
    assert (left["output"], left["failed"]) == (f"before\n{python_session.LOST}", False)
    assert "NameError" in ask("x")["output"]


def test_what_a_thread_prints_between_two_calls_comes_with_the_next(ask: Ask, tmp_path: Path) -> None:
    begin, done = tmp_path / "begin", tmp_path / "done"
    for each in (begin, done):
        os.mkfifo(each)
    said = (
        f"def tell():\n    open({str(begin)!r}).read(); print('late', flush=True); open({str(done)!r}, 'w').close()\n"
    )
    assert ask(f"import threading\n{said}threading.Thread(target=tell).start()")["output"] == ""
    begin.write_text("now")
    assert done.read_text() == ""  # once it is closed, which is after the thread has printed
    assert ask("print('next')")["output"] == "late\nnext\n"


def test_long_output_is_cut_in_the_middle(ask: Ask) -> None:
    cut = ask("print('a' * 5000 + 'b' * 4999)", limit=100)
    assert cut["truncated"]
    assert cut["output"] == "a" * 50 + python_session.CUT + "b" * 49 + "\n"
    cut = ask("print('é' * 5000, end='')", limit=102)  # of which each half is an odd number of bytes
    assert cut["output"] == "é" * 25 + python_session.CUT + "é" * 25


def test_the_command_line_is_plain(ask: Ask) -> None:
    said = ask("import os; print([open(f'/proc/{p}/cmdline', 'rb').read() for p in (os.getpid(), os.getppid())])")
    assert said["output"] == f"{[os.fsencode(sys.executable) + bytes(1)] * 2}\n"


def test_what_goes_on_by_itself_is_shown_later(ask: Ask) -> None:
    ask("import threading\ngo = threading.Event()\ndef tell(): go.wait(); print('by itself', flush=True)")
    ask("t = threading.Thread(target=tell); t.start()")
    assert ask("go.set(); t.join()")["output"] == "by itself\n"
