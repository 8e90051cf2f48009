"""What commands print, and name files and processes, reaches a person's terminal as text and acts upon nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from tests.e2e.test_cli import Line, Terminal, environment
from tvsnap.images import Image

__all__ = ["environment"]

EVIL = "\x1b]52;c;aGk=\x07\x1b]0;title\x07\x1b[?1049h\x1b[3J\x1bP\x9b2J\x9d0;x\x9c\u202e\u2066\x08\x0e"
"""Sets the clipboard and the title, leaves the screen, clears it, in sequences of 7 and of 8 bits; turns text."""
ACTS = ("\x1b]", "\x1b[?1049h", "\x1b[3J", "\x1bP", "\x9b", "\x9d", "\x9c", "\x07", "\x08", "\x0e", "\u202e", "\u2066")
SHOWN, QUOTED = "^[]52;c", r"\x1b]52;c"
VISIBLE = "^[]52;c;aGk=^G\\x9b^[[?1049h"
TASK = f"task {EVIL}"


@dataclass(frozen=True)
class Recorded:
    """A rollout whose calls, outputs, files, processes and variables are all hostile.

    Attributes:
        states: that its calls led to.
        file: it, as a rollout file.
        broken: a rollout file with a tool that there is not.
    """

    line: Line
    states: list[str]
    file: str
    broken: str


@pytest.fixture(scope="module")
def recorded(environment: dict[str, str], terminal_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("hostile")
    commands = (
        f"echo '{EVIL}'",
        f"mkdir /tmp/d; cd /tmp/d; touch '{EVIL}'; echo '{EVIL}' > text; v='{EVIL}'; f() {{ echo '{EVIL}'; }}",
        f"(exec -a '{EVIL}' sleep 1000) & until pgrep -x sleep > /dev/null; do :; done",
        f"echo '{EVIL}' $(date +%N) >> text; cat text",
    )
    calls = [{"name": "bash", "arguments": {"command": command}} for command in commands]
    file, broken = folder / "rollouts.jsonl", folder / "broken.jsonl"
    file.write_text(json.dumps({"task": TASK, "rollout": EVIL, "image": "terminal", "calls": calls}) + "\n")
    bad = [{"task": TASK, "rollout": EVIL, "calls": [{"name": EVIL, "arguments": {}}]}] * 2
    broken.write_text("\n".join(map(json.dumps, bad)) + "\n")
    line = Line(environment, "")
    outputs = folder / "outputs.jsonl"
    line("replay", str(file), "--policy", "eager", "--outputs", str(outputs))
    states = [json.loads(text)["state"] for text in outputs.read_text().splitlines()]
    return Recorded(line, states, str(file), str(broken))


def arguments_of(recorded: Recorded) -> dict[str, tuple[list[str], int]]:
    """Returns command lines by name, each with the status that it ends with."""
    first, second, third, fourth = recorded.states
    tool = ["run", "terminal", "--tool"]
    return {
        "run": (["run", "terminal", "-c", f"echo '{EVIL}'", "-c", f"ls '{EVIL}'"], 0),
        "run of a tool": ([*tool, "read_file", "--args", json.dumps({"path": f"/{EVIL}"})], 0),
        "run of no tool": ([*tool, EVIL], 2),
        "tree": (["tree"], 0),
        "tree of a task": (["tree", "--all", "--task", TASK], 0),
        "tree of no task": (["tree", "--task", f"{EVIL}?"], 3),
        "show of output": (["show", fourth], 0),
        "show of processes": (["show", third], 0),
        "show --output": (["show", fourth, "--output"], 0),
        "show of a label": (["show", EVIL], 0),
        "show of no state": (["show", f"{EVIL}?"], 2),
        "diff of files": (["diff", first, second, "--patch"], 0),
        "diff of processes": (["diff", second, third], 0),
        "exec": (["exec", fourth, "cat text; f"], 0),
        "replay": (["replay", recorded.broken, recorded.file, "--image", "terminal", "--keep-going"], 1),
        "replay of nothing": (["replay", recorded.broken, "--image", "terminal"], 2),
        "verify": (["verify", "--all", "--dry-run", "--task", TASK], 4),
    }


NAMES = list(arguments_of(Recorded(Line({}, ""), [""] * 4, "", "")))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_terminal_is_sent(recorded: Recorded, name: str) -> None:
    arguments, status = arguments_of(recorded)[name]
    with Terminal({**recorded.line.environment, "COLUMNS": "300"}, *arguments) as terminal:
        assert terminal.end(60) == status, terminal.shown
    assert_harmless(terminal.shown)
    assert SHOWN in terminal.shown or QUOTED in terminal.shown, repr(terminal.shown)


def test_json_is_plain_ascii(recorded: Recorded) -> None:
    for arguments in (["show", recorded.states[-1]], ["tree"], ["diff", *recorded.states[:2], "--patch"]):
        shown = recorded.line(*arguments, "--json").stdout
        assert shown.isascii()
        assert_harmless(shown)
        assert "\\u001b]52;c" in shown


def test_a_prompt(recorded: Recorded) -> None:
    with Terminal(recorded.line.environment, "run", "terminal", "--salt", "prompt") as terminal:
        for typed, awaited in (
            (r"printf '\033]52;c;aGk=\007\302\233\033[?1049h' | tee /dev/tty /tmp/x; echo", VISIBLE),
            (":read_file /tmp/x", VISIBLE),
            (":screen", "executed, exit 0"),
            (':keys {"keys": "cat /tmp/x\\n"}', "executed, exit 0"),
        ):
            terminal.wait_for("> ")
            terminal.type(f"{typed}\n")
            terminal.wait_for(awaited)
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert_harmless(terminal.shown)


def assert_harmless(shown: str) -> None:
    for sequence in ACTS:
        assert sequence not in shown, (sequence, shown)


def test_the_help_tells_what_is_not_harmless(recorded: Recorded) -> None:
    assert "any control sequence" in " ".join(recorded.line("shell", "--help").stdout.split())


def test_the_check_can_fail() -> None:
    for sequence in ACTS:
        with pytest.raises(AssertionError):
            assert_harmless(f"a{sequence}b")
        assert sequence in EVIL
