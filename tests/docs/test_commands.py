"""Every command that the documentation shows can be given: its verb and options, the make target, the module exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
from typing import Any

import pytest
from typer.main import get_group

from cli.main import make_app
from tests.docs.pages import ROOT, Block, pages

TVSNAP = ("tvsnap", ".venv/bin/tvsnap")
PYTHON = ("python", "python3", ".venv/bin/python")
_INLINE = re.compile(r"`(tvsnap [a-z][^`]*)`")


def commands(block: Block) -> list[tuple[int, list[str]]]:
    """Returns the simple commands of a block, each with the number of its line: pipelines and lists are taken apart.

    Where lines begin with `$ `, the others are output.
    """
    lines = block.text.splitlines()
    prompt = any(line.startswith("$ ") for line in lines)
    found, joined, begun = [], "", 0
    for offset, line in enumerate(lines, 1):
        if not joined:
            begun = block.line + offset
            if prompt and not line.startswith("$ "):
                continue
            line = line.removeprefix("$ ") if prompt else line
        joined += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        found += [(begun, words) for words in simple_commands(joined)]
        joined = ""
    return found


def simple_commands(line: str) -> list[list[str]]:
    """Returns the words of each command of a shell's line; none where it is no line for a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a drawing
        return []
    found: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set("|&;<>"):
            found.append([])
        else:
            found[-1].append(word)
    return [[word for word in each if not re.fullmatch(r"[A-Z_]+=\S*", word)] for each in found if each]


def parse(words: list[str]) -> None:
    """Parses a command line of tvsnap as the program would; raises what the parser raises."""
    command: Any = get_group(make_app())
    name, arguments, context = "tvsnap", words, None
    while True:
        context = command.make_context(name, list(arguments), parent=context)
        if not hasattr(command, "resolve_command"):
            return
        arguments = [*getattr(context, "_protected_args", ()), *context.args]
        name, command, arguments = command.resolve_command(context, arguments)


def is_right(words: list[str]) -> str:
    """Returns what is wrong with a command, if it is one that can be checked; else an empty text."""
    if words[0] in TVSNAP:
        try:
            parse(words[1:])
        except Exception as error:
            told = error.format_message() if hasattr(error, "format_message") else str(error)
            # `--help` and `--version` end the parser by themselves.
            return "" if type(error).__name__ == "Exit" else told
    elif words[0] == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return "" if words[1] in targets else f"no target {words[1]}"
    elif words[0] in PYTHON and words[1] == "-m":
        return "" if importlib.util.find_spec(words[2]) else f"no module {words[2]}"
    elif words[0] in PYTHON and words[1].startswith("examples/"):
        return "" if (ROOT / words[1]).exists() else f"no file {words[1]}"
    return ""


SHOWN = [
    pytest.param(words, id=f"{block.page}:{number}")
    for page in pages()
    for block in page.blocks
    if not block.language
    for number, words in commands(block)
    if words[0] in (*TVSNAP, *PYTHON, "make")
]
INLINE = [
    pytest.param(match[1], id=f"{page.name}:{number}")
    for page in pages()
    for number, line in page.prose
    for match in _INLINE.finditer(line)
]


@pytest.mark.parametrize("words", SHOWN)
def test_commands_can_be_given(words: list[str]) -> None:
    assert not is_right(words), f"{shlex.join(words)}: {is_right(words)}"


@pytest.mark.parametrize("text", INLINE)
def test_verbs_and_options_in_the_text_exist(text: str) -> None:
    """In running text arguments may be left out."""
    words = shlex.split(text)[1:]
    command: Any = get_group(make_app())
    options = {"--help"}
    while words:
        options |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        if not hasattr(command, "commands") or words[0].startswith("-"):
            break
        context = command.make_context("tvsnap", [words[0]], resilient_parsing=True)
        below = command.get_command(context, words[0])
        assert below is not None, f"no verb {words[0]}"
        command, words = below, words[1:]
        options |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= options


def test_enough_is_checked() -> None:
    assert len(SHOWN) > 60
    assert len(INLINE) > 20


@pytest.mark.parametrize(
    "line",
    ["tvsnap tre", "tvsnap tree --tsk demo", "tvsnap show", "make everything", "python -m benchmarks.nothing"],
)
def test_what_is_wrong_is_found(line: str) -> None:
    assert is_right(simple_commands(line)[0])


def test_a_line_is_taken_apart() -> None:
    line = "echo 'a|b' | A=1 tvsnap shell 3fa9c1~2 && make docs   # then; look"
    assert simple_commands(line) == [["echo", "a|b"], ["tvsnap", "shell", "3fa9c1~2"], ["make", "docs"]]
