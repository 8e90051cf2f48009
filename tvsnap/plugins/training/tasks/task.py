"""What a task is, and what its generators share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvsnap import Verifier

Commands = tuple[str, ...]
TOOLS = {"bash": "command", "sql": "query", "python": "code"}
"""The tools that tasks are done with, and the argument of each that a command is."""

_END = "END_OF_THE_CHECKS"
# Programs and modules that an agent has left are not used, and its processes find no file to change in time.
_RUN = f"export PATH=/usr/bin:/bin:$PATH; exec python3 -I - <<'{_END}'"

_CHECK = Path(__file__).with_name("inside.py").read_text()


@dataclass(frozen=True)
class Task:
    """A task for an agent.

    Attributes:
        name: its kind and its number, such as `files/3`.
        family: `terminal`, `sql` or `python`.
        instruction: what the agent is told.
        setup: commands for a shell that are run before the agent begins.
        verifier: grades what it did: the share of the goals that were reached; 0 where something was changed that was
            to stay.
        solutions: sequences of commands that are graded 1.
        wrong: sequences of commands that are graded 0.
        image: the image in which it runs.
        tool: which tool runs the commands, of `TOOLS`.
        outputs: what each command of the first solution prints; empty where that is not told.
    """

    name: str
    family: str
    instruction: str
    setup: Commands
    verifier: Verifier
    solutions: tuple[Commands, ...]
    wrong: tuple[Commands, ...]
    image: str = "terminal"
    tool: str = "bash"
    outputs: tuple[str, ...] = ()

    def preparation(self) -> list[tuple[str, dict[str, str]]]:
        """Returns the calls that are made before the agent begins: for each, a tool and its arguments."""
        return [("bash", {"command": command}) for command in self.setup]

    def arguments(self, command: str) -> dict[str, str]:
        """Returns the arguments with which the task's tool is called to run a command.

        Args:
            command: a command for a shell, SQL, or Python, as `tool` says.
        """
        return {TOOLS[self.tool]: command}


_NO_INPUT = "exec </dev/null"
"""Ends the shell's input, as harnesses without a terminal do: programs that ask for some would wait until a timeout."""


@dataclass(frozen=True)
class Draft:
    """A task without its name; `checks` are lines of the verifier, which follow those of `inside.py`.

    What they keep, the instruction says.
    """

    instruction: str
    setup: str
    checks: str
    solutions: Sequence[Sequence[str]]
    wrong: Sequence[Sequence[str]]
    image: str = "terminal"
    tool: str = "bash"
    outputs: Sequence[str] = ()

    def task(self, name: str, family: str) -> Task:
        """Returns the task of that name."""
        verifier = Verifier(f"{_RUN}\n{_CHECK}\n\n{self.checks}verdict()\n{_END}\n")
        solutions, wrong = (tuple(map(tuple, each)) for each in (self.solutions, self.wrong))
        setup, outputs = (f"{_NO_INPUT}\n{self.setup}",), tuple(self.outputs)
        return Task(name, family, self.instruction, setup, verifier, solutions, wrong, self.image, self.tool, outputs)


_TEXT = """
amber basin cedar delta ember fable grove harbor island jasper kernel lagoon meadow nectar orchid pebble quartz river
saddle timber umber valley willow yonder zephyr anchor bridge candle dragon engine falcon garden hammer
"""
WORDS = tuple(_TEXT.split())
NAMES = ("ada", "ben", "cleo", "dora", "emil", "fay", "gus", "hana", "ivan", "june", "kai", "lena")


def write(path: str, content: str) -> str:
    """Returns a command that writes a file."""
    folder = path.rpartition("/")[0]
    return f"mkdir -p {folder} && cat > {path} <<'END'\n{content.rstrip()}\nEND"


def stays(files: Mapping[str, str]) -> str:
    """Returns a check that files have the contents that `write` gave them."""
    contents = {path: f"{content.rstrip()}\n" for path, content in files.items()}
    return f"keep('files', lambda: unchanged({contents!r}))\n"
