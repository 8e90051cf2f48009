"""The terminal environment: what its tools check, do and return."""

from __future__ import annotations

import dataclasses
import errno
import random
import time
from typing import Any

import pyte
import pytest

from tests.fakes.backend import FakeBackend, FakeSandbox, Faults, fake_image
from tvsnap.environments import environment
from tvsnap.environments.screen import encode_keys, render
from tvsnap.environments.terminal import TerminalEnvironment, clean
from tvsnap.guest.cut import CUT
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.model.limits import MIB, Limits
from tvsnap.model.observations import Outcome, TerminalBytes

LIMITS = Limits(output=100)
TERMINAL = environment("terminal")


@pytest.fixture
def sandbox(fake_backend: FakeBackend) -> FakeSandbox:
    return fake_backend.start(fake_image(), LIMITS)


def call(sandbox: FakeSandbox, name: str, timeout: float = 5.0, **arguments: Any) -> ToolResult:
    made = ToolCall(name, arguments)
    TERMINAL.tool(made)
    return TERMINAL.execute(sandbox, made, timeout, LIMITS)


def test_environments_by_name() -> None:
    assert isinstance(TERMINAL, TerminalEnvironment)
    assert environment("terminal") is TERMINAL
    assert list(TERMINAL.tools) == ["bash", "exec", "exec_all", "read_file", "write_file", "keys", "screen"]
    with pytest.raises(UsageError, match='environment "oracle" not found; have: mariadb, postgres, python'):
        environment("oracle")


def test_behaviour_names_what_outputs_depend_on() -> None:
    text = TERMINAL.behaviour(Limits())
    for change in ({"memory": 64 * MIB}, {"processes": 64}, {"output": 1}, {"disk": 1}, {"cpus": 2.0}):
        assert TERMINAL.behaviour(dataclasses.replace(Limits(), **change)) != text


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("sh", {}, 'unknown tool "sh"; have: bash, exec, exec_all, read_file, write_file, keys, screen'),
        ("bash", {}, 'bash: argument "command" is missing; bash takes command'),
        ("exec", {"cmd": "ls"}, 'exec: argument "command" is missing; exec takes command, [cwd], [env], [user]'),
        ("bash", {"command": "ls", "cwd": "/"}, 'bash: unknown argument "cwd"; bash takes command'),
        ("screen", {"x": 1}, 'screen: unknown argument "x"; screen takes no arguments'),
        ("bash", {"command": 1}, 'bash: argument "command" must be a string, not number'),
        ("bash", {"command": None}, 'bash: argument "command" must be a string, not null'),
        ("bash", {"command": ["ls"]}, 'bash: argument "command" must be a string, not array'),
        ("bash", {"command": "a\0b"}, 'bash: argument "command" must not hold a NUL character'),
        ("bash", {"command": "\ud800"}, 'bash: argument "command" is no text'),
        ("exec", {"command": "ls", "env": {"A": 1}}, "must be a string, not number"),
        ("exec", {"command": "ls", "env": {"A\0": "1"}}, "must not hold a NUL character"),
        ("keys", {"keys": "x", "wait": 10**400}, 'keys: argument "wait" is too large a number'),
        ("exec", {"command": "ls", "env": "A=1"}, 'exec: argument "env" must be an object, not string'),
        ("keys", {"keys": "x", "wait": -1}, 'keys: argument "wait" must be at least 0, not -1'),
        ("keys", {"keys": "x", "wait": True}, 'keys: argument "wait" must be a number, not boolean'),
        ("write_file", {"path": "f"}, 'write_file: argument "content" is missing; write_file takes path, content'),
    ],
)
def test_what_is_refused(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        TERMINAL.tool(ToolCall(name, arguments))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_arguments_that_are_no_object() -> None:
    with pytest.raises(UsageError, match="bash: arguments must be an object, not array"):
        TERMINAL.tool(ToolCall("bash", ["ls"]))  # type: ignore[arg-type]


def test_bash_keeps_its_shell_and_exec_does_not(sandbox: FakeSandbox) -> None:
    assert call(sandbox, "bash", command="x=1; cd /tmp").exit_code == 0
    assert call(sandbox, "bash", command="echo $x; pwd").output == "1\n/tmp\n"
    assert call(sandbox, "exec", command="echo $x$y; pwd", env={"y": "2"}, cwd="/etc").output == "2\n/etc\n"
    assert call(sandbox, "exec", command="whoami", user="daemon").output == "daemon\n"
    result = call(sandbox, "bash", command="(exit 3)")
    assert (result.exit_code, result.source, result.duration) == (3, "executed", 0.001)


def test_a_timeout(sandbox: FakeSandbox) -> None:
    result = call(sandbox, "bash", timeout=2.0, command="echo 1; sleep 100")
    assert (result.exit_code, result.timed_out, result.blocked) == (None, True, True)
    assert result.output == "1\n[interrupted after 2 s]\n"
    result = call(sandbox, "exec", timeout=2.0, command="echo 1; sleep 100")
    assert (result.output, result.timed_out) == ("1\n", True), "of which it is told by other means"


def test_a_file_is_read_as_it_stands(sandbox: FakeSandbox) -> None:
    """Line ends of output are line feeds, and those of a file are its own: an agent may write it back."""
    text = "\ufeffone\r\ntwo\rthree\n"
    call(sandbox, "write_file", path="/tmp/f", content=text)
    assert call(sandbox, "read_file", path="/tmp/f").output == text
    assert call(sandbox, "bash", command="cat /tmp/f").output == "\ufeffone\ntwo\nthree\n"


@pytest.mark.parametrize("env", [{"A=B": "1"}, {"": "1"}])
def test_what_cannot_be_a_variable_is_told(sandbox: FakeSandbox, env: dict[str, str]) -> None:
    for result in (
        call(sandbox, "exec", command="env", env=env),
        call(sandbox, "exec_all", commands=[{"command": "env", "env": env}]),
    ):
        assert result.exit_code == 1
        assert "cannot be the name of an environment variable" in result.output


def test_output_is_cut_in_the_middle(sandbox: FakeSandbox) -> None:
    result = call(sandbox, "bash", command="printf aaa; printf '%0200d' 1; printf 'é'")
    assert result.truncated
    head, tail = result.output.split(CUT)
    assert head == "aaa" + "0" * 47
    assert tail == "0" * 47 + "1é"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\r\nb\n", "a\nb\n"),
        (b"10%\r20%\rdone\n", "10%\n20%\ndone\n"),
        (b"a\0b", "a\0b"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("grüße\n".encode(), "grüße\n"),
        (b"no newline", "no newline"),
        (b"\n\n", "\n\n"),
    ],
)
def test_clean_text(raw: bytes, text: str) -> None:
    assert clean(raw) == text


@pytest.mark.parametrize("limit", range(8, 21))
@pytest.mark.parametrize("character", ["é", "日", "😀"])
def test_output_is_cut_between_whole_characters(character: str, limit: int) -> None:
    data = (character * 20).encode()
    kept = data[: limit // 2] + data[len(data) - (limit - limit // 2) :]
    head, tail = clean(kept, truncated=True).split(CUT)
    width = len(character.encode())
    assert head == character * (limit // 2 // width)
    assert tail == character * ((limit - limit // 2) // width)


@pytest.mark.parametrize(
    ("head", "tail", "text"),
    [
        (b"ab\xff", b"\xffcd", "ab\ufffd" + CUT + "\ufffdcd"),
        (b"ab\xc3(", b"(cdef", "ab\ufffd(" + CUT + "(cdef"),
        (b"\x80" * 6, b"\x80" * 6, "\ufffd" * 6 + CUT + "\ufffd" * 6),
    ],
)
def test_bytes_that_are_no_characters_stay_at_a_cut(head: bytes, tail: bytes, text: str) -> None:
    assert clean(head + tail, truncated=True) == text


def test_files(sandbox: FakeSandbox) -> None:
    result = call(sandbox, "write_file", path="new/f.txt", content="grüße\n")
    assert (result.output, result.exit_code) == ("wrote 8 bytes to new/f.txt\n", 0)
    result = call(sandbox, "read_file", path="/task/new/f.txt")
    assert (result.output, result.exit_code) == ("grüße\n", 0)
    call(sandbox, "write_file", path="f", content="")
    assert call(sandbox, "read_file", path="f").output == ""


def test_a_long_file_is_cut_in_the_middle(sandbox: FakeSandbox) -> None:
    call(sandbox, "write_file", path="f", content="a" * 75 + "b" * 75)
    result = call(sandbox, "read_file", path="f")
    assert (result.output, result.truncated) == ("a" * 50 + CUT + "b" * 50, True)


def test_errors_of_files_are_results(sandbox: FakeSandbox) -> None:
    result = call(sandbox, "read_file", path="/x")
    assert (result.output, result.exit_code) == ("read_file: /x: No such file or directory\n", 1)
    assert call(sandbox, "read_file", path="/tmp").output == "read_file: /tmp: Is a directory\n"
    assert call(sandbox, "write_file", path="/tmp", content="").exit_code == 1
    sandbox.write_file("/b", b"\x7fELF\0\0")
    result = call(sandbox, "read_file", path="/b")
    assert (result.output, result.exit_code) == ("read_file: /b: is a binary file (6 bytes), not text\n", 1)
    sandbox.backend.faults = Faults().fail("read_file", OSError(errno.EFBIG, "File too large"))
    assert call(sandbox, "read_file", path="/b").output == "read_file: /b: File too large\n"


def test_keys_and_screen(sandbox: FakeSandbox) -> None:
    result = call(sandbox, "keys", keys="echo hello; x=5<Enter>", wait=0.1)
    assert result.output == "hello\n"
    assert call(sandbox, "screen").output == "hello\n"
    assert call(sandbox, "bash", command="echo $x").output == "5\n"
    assert [tool.name for tool in TERMINAL.tools.values() if tool.read_only] == ["read_file", "screen"]


def test_keys_wait_no_longer_than_the_timeout(sandbox: FakeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(sandbox, "send_keys", lambda data, *, wait: waits.append(wait))
    call(sandbox, "keys", timeout=2.0, keys="x", wait=60)
    call(sandbox, "keys", timeout=2.0, keys="x")
    assert waits == [2.0, 1.0]


def test_keys_that_the_timeout_cuts_short(sandbox: FakeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen is another for who gives them more time, and so their timeout is part of what they came to."""
    monkeypatch.setattr(sandbox, "send_keys", lambda data, *, wait: time.sleep(wait))
    cut = call(sandbox, "keys", timeout=0.05, keys="x", wait=60)
    whole = call(sandbox, "keys", timeout=60, keys="x", wait=0.05)
    assert (cut.timed_out, cut.blocked, whole.timed_out) == (True, True, False)
    monkeypatch.setattr(sandbox, "send_keys", lambda data, *, wait: None)  # quiet at once
    assert not call(sandbox, "keys", timeout=1, keys="x", wait=60).timed_out


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("ls -l", b"ls -l"),
        ("a\nb\r\nc", b"a\rb\rc"),
        ("<Enter><Esc><Tab><Backspace>", b"\r\x1b\t\x7f"),
        ("<Up><Down><Left><Right>", b"\x1b[A\x1b[B\x1b[D\x1b[C"),
        ("<enter><ESC>", b"\r\x1b"),
        ("<C-c><C-x><C-[><C-C>", b"\x03\x18\x1b\x03"),
        ("<M-x><M-X><M-.>", b"\x1bx\x1bX\x1b."),
        ("<F1><F5><F12>", b"\x1bOP\x1b[15~\x1b[24~"),
        ("<PageDown><Home><Space>", b"\x1b[6~\x1b[H "),
        ("<lt>Enter>", b"<Enter>"),
        ("if a < b && c > d", b"if a < b && c > d"),
        ("<div>#include <stdio.h>", b"<div>#include <stdio.h>"),
        ("ü", "ü".encode()),
        ("", b""),
    ],
)
def test_named_keys(text: str, sent: bytes) -> None:
    assert encode_keys(text) == sent


def screen(data: bytes, columns: int = 20, rows: int = 5) -> str:
    return render(TerminalBytes(data, columns, rows))


def test_the_screen_is_what_a_person_sees() -> None:
    assert screen(b"") == ""
    assert screen(b"one\r\ntwo  \r\n") == "one\ntwo\n"
    assert screen(b"abc\x1b[2Dx") == "axc\n"
    assert screen(b"\x1b[31mred\x1b[0m\r\n\r\nlast") == "red\n\nlast\n"
    assert screen(b"\r\n".join(b"%d" % n for n in range(9))) == "4\n5\n6\n7\n8\n"
    assert screen("é漢".encode()) == "é漢\n"
    assert screen(b"x" * 25) == "x" * 20 + "\n" + "x" * 5 + "\n"


def test_a_row_that_was_never_written_to_moves_up() -> None:
    assert screen(b"one\r\x1b[M") == ""
    assert screen(b"one\r\ntwo\x1b[5;1Hfive\x1b[2;1H\x1b[M") == "one\n\n\nfive\n"


def test_deleted_lines_are_those_between_the_margins() -> None:
    assert screen(b"1\r\n2\r\n3\r\n4\r\n5\x1b[1;2r\x1b[H\x1b[3M") == "\n\n3\n4\n5\n"


def test_rows_and_cells_go_where_the_parser_s_own_screen_has_them() -> None:
    """All but deleted lines, as pyte leaves rows where they are if none was written below them."""
    chance = random.Random(1)
    moves = [
        *"\n\v\r",
        *(f"\x1b[{how}K" for how in range(3)),
        *(f"\x1b{end}" for end in "DEM78"),
        *(f"\x1b[{n}{end}" for n in (0, 1, 2, 4) for end in "ABCDLPX@"),
    ]
    for _ in range(200):
        columns, rows = chance.choice([(2, 2), (9, 4), (20, 6)])
        words = [chance.choice([*moves, "ab", "\x1b[2;3r", "\x1b[r"]) for _ in range(12)]
        text = "\x1b[H" + "x" * columns * rows + "\x1b[H" + "".join(words)
        plain = pyte.Screen(columns, rows)
        pyte.Stream(plain).feed(text)
        expected = "\n".join(line.rstrip() for line in plain.display).rstrip("\n")
        assert screen(text.encode(), columns, rows).rstrip("\n") == expected, (text, columns, rows)


def test_full_screen_programs_leave_the_screen_as_it_was() -> None:
    before = b"$ vim f\r\n"
    during = before + b"\x1b[?1049h\x1b[2J\x1b[Htext in vim\r\n~\r\n~"
    assert screen(during) == "text in vim\n~\n~\n"
    assert screen(during + b"\x1b[?1049l$ ") == "$ vim f\n$\n"
    assert screen(b"\x1b[?1049l$ ls") == "$ ls\n"


def test_a_busy_terminal_is_told(sandbox: FakeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    said = b"the terminal is in use by vim; leave it with keys\n"
    monkeypatch.setattr(sandbox, "run", lambda command, *, timeout: Outcome(said, None, 0.0))
    result = call(sandbox, "bash", command="ls")
    assert (result.output, result.exit_code) == (said.decode(), None)


def test_observation_is_the_sandboxes(sandbox: FakeSandbox) -> None:
    before = TERMINAL.observe(sandbox)
    assert TERMINAL.observe(sandbox) == before == sandbox.observe()
    call(sandbox, "bash", command="x=1")
    assert TERMINAL.observe(sandbox) != before
