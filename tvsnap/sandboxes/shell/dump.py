"""Parses the persistent shell's report on itself (`rc`), completely or not at all.

`tvsnap.sandboxes.shell_report` makes fingerprints and listings of the same text and may guess; here nothing is guessed,
since a fresh shell is made from the result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SECTIONS = (
    "functions", "aliases", "options", "limits", "hard limits", "cwd", "directories", "history", "jobs", "slack",
    "clock", "last", "arguments", "traps",
)  # fmt: skip
DYNAMIC = frozenset({
    "_", "BASHOPTS", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS", "BASH_COMMAND",
    "BASH_LINENO", "BASH_SOURCE", "BASH_SUBSHELL", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "FUNCNAME", "GROUPS",
    "HISTCMD", "LINENO", "PIPESTATUS", "RANDOM", "SECONDS", "SHELLOPTS", "SRANDOM",
})  # fmt: skip
"""Variables that bash sets: their values are no state, or are elsewhere in the dump."""

_PLAIN = r'"[^"\\$`]*(?:\\.[^"\\$`]*)*"'
_ANSI = r"\$'[^'\\]*(?:\\.[^'\\]*)*'"
_STRING = rf"(?:{_PLAIN}|{_ANSI})"
_KEY = rf"(?:[A-Za-z0-9_./:@%+,=-]+|{_STRING})"
_ELEMENT = rf"\[{_KEY}\]={_STRING}"
_DECLARATION = re.compile(
    rf"declare -(?P<flags>[-a-zA-Z]+) (?P<name>\w+)"
    rf"(?:=(?:(?P<scalar>{_STRING})|\((?P<elements>(?:{_ELEMENT} ?)*)\)))?\n",
    re.DOTALL | re.ASCII,
)
_FUNCTION_NAMES = re.compile(r"(?:^declare -f[a-z]* [^\n]+\n)*\Z", re.MULTILINE)
_UNSET_TRAP = re.compile(r"^trap -- - \w+\n", re.MULTILINE)
"""In POSIX mode bash also lists signals without a trap."""
_LIMIT = re.compile(r"^[^\n]*?-(?P<flag>\w)\) (?P<value>\w+)$", re.MULTILINE)
_CLOCK = re.compile(r"(\d{0,18}) (\d{1,18})\n(\d{0,18}) (\d{1,18})\n")
_OPTIONS = {
    "set_options": re.compile(r"(set [-+]o [\w-]+)"),
    "shell_options": re.compile(r"(shopt -[su] \w+)"),
    "enabled": re.compile(r"enable (?:-s )?([^-\s]\S*)"),
    "disabled": re.compile(r"enable -n (\S+)"),
    "completions": re.compile(r"(complete (?:\\.|[^\n'\\]|'[^'\n]*')*)"),
}
"""The format of lines of the options section, by the attribute of a dump that they belong to."""


_MOST = 1 << 20
"""Bytes of a dump: commands control its size, and parsing takes some hundred times as much memory."""


class NotUnderstood(Exception):
    """The dump contains something unknown; the message quotes it."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, with its value as bash quotes it.

    Attributes:
        flags: its attributes, as letters of `declare`.
        scalar: the value; None for an array, or if there is none.
        elements: an array's elements, each `[key]=value`; None for a scalar, or if there is none.
    """

    flags: frozenset[str]
    scalar: str | None
    elements: tuple[str, ...] | None

    @property
    def has_value(self) -> bool:
        return self.scalar is not None or self.elements is not None


@dataclass(frozen=True, slots=True)
class ShellDump:
    """A shell's parsed report; each text is bytes read as Latin-1, so that writing it back reproduces them.

    Attributes:
        variables: by name, without those of `rc` itself.
        functions: definitions, as bash prints them.
        function_flags: by name, letters of `declare` (`f` always).
        aliases, traps: commands that make them.
        set_options, shell_options, completions: commands, one each.
        disabled: builtins that were switched off.
        enabled: the others.
        umask: octal.
        soft_limits, hard_limits: by option letter of `ulimit`, in its units.
        cwd: as the shell calls it.
        directories: the stack, cwd first.
        history: its entries.
        jobs: the job table.
        slack: the timer slack in nanoseconds, which /proc shows only to the process itself.
        ahead: seconds that SECONDS was set ahead since the shell started.
        status: of the last command.
        background: process id of the last background job; empty if there never was one.
        arguments: `$0` and the positional parameters, quoted.
    """

    variables: dict[str, Variable]
    functions: str
    function_flags: dict[str, str]
    aliases: str
    traps: str
    set_options: tuple[str, ...]
    shell_options: tuple[str, ...]
    completions: tuple[str, ...]
    disabled: tuple[str, ...]
    enabled: tuple[str, ...]
    umask: str
    soft_limits: dict[str, str]
    hard_limits: dict[str, str]
    cwd: str
    directories: tuple[str, ...]
    history: str
    jobs: str
    slack: str
    ahead: int
    status: int
    background: str
    arguments: str


def parse_dump(dump: bytes) -> ShellDump:
    """Parses a shell's dump; raises NotUnderstood if it contains anything unknown."""
    if len(dump) > _MOST:
        raise NotUnderstood(f"variables and functions of {len(dump)} bytes")
    variables, *parts = dump.decode("latin-1").split("\1")
    pairs = [part.split("\n", 1) for part in parts]
    if tuple(pair[0] for pair in pairs) != _SECTIONS or any(len(pair) < 2 for pair in pairs):
        raise NotUnderstood("a control character in a function, an alias or a path")
    sections = {title: text for title, text in pairs}
    definitions = sections["functions"]
    names = _FUNCTION_NAMES.search(definitions)
    listed = names[0] if names else ""
    status, _, background = sections["last"].strip("\n").partition(" ")
    umask, _, limits = sections["limits"].partition("\n")
    cwd = _one_line(sections["cwd"], "the working directory")
    directories = tuple(_lines(sections["directories"]))
    if not directories or not all(path.startswith("/") for path in directories):
        raise NotUnderstood("a name with a line break in the directory stack")
    return ShellDump(
        variables=_variables(variables),
        functions=definitions[: len(definitions) - len(listed)],
        function_flags=dict(_function(line) for line in _lines(listed)),
        aliases=sections["aliases"],
        traps=_UNSET_TRAP.sub("", sections["traps"]),
        **_options(sections["options"]),
        umask=umask,
        soft_limits=_limits(limits),
        hard_limits=_limits(sections["hard limits"]),
        cwd=cwd,
        directories=directories,
        history=sections["history"],
        jobs=sections["jobs"],
        slack=sections["slack"].strip("\n"),
        ahead=_ahead(sections["clock"]),
        status=int(status),
        background=background,
        arguments=sections["arguments"].strip("\n"),
    )


def _variables(text: str) -> dict[str, Variable]:
    variables: dict[str, Variable] = {}
    end = 0
    while match := _DECLARATION.match(text, end):
        end = match.end()
        if match["name"].startswith("__tvsnap_"):
            continue
        elements = match["elements"]
        variables[match["name"]] = Variable(
            flags=frozenset(match["flags"]) - {"-"},
            scalar=match["scalar"],
            elements=None if elements is None else tuple(re.findall(_ELEMENT, elements, re.DOTALL | re.ASCII)),
        )
    if end != len(text) or not variables:
        raise NotUnderstood(f"the declaration {text[end : end + 60]!r}")
    return variables


def _options(text: str) -> dict[str, tuple[str, ...]]:
    """Sorts the lines of the options section by the attribute of a dump that they belong to."""
    options: dict[str, list[str]] = {kind: [] for kind in _OPTIONS}
    for line in _lines(text):
        for kind, form in _OPTIONS.items():
            if match := form.fullmatch(line):
                options[kind].append(match[1])
                break
        else:
            raise NotUnderstood(f"the option {line[:60]!r}")
    if not options["set_options"] or not options["shell_options"]:
        raise NotUnderstood("a shell that does not tell its options")
    return {kind: tuple(lines) for kind, lines in options.items()}


def _lines(text: str) -> list[str]:
    """Returns the lines of a text, which only line feeds end; Latin-1 has other line breaks."""
    return text.removesuffix("\n").split("\n") if text else []


def _function(line: str) -> tuple[str, str]:
    _, flags, name = line.split(" ", 2)
    return name, flags[1:]


def _ahead(text: str) -> int:
    match = _CLOCK.fullmatch(text)
    if not match:
        raise NotUnderstood("SECONDS that is no number")
    (then, began), (now, clock) = match.group(1, 2), match.group(3, 4)
    return int(now) - int(clock) - int(then) + int(began) if now and then else 0  # empty: it was unset


def _limits(text: str) -> dict[str, str]:
    limits = {match["flag"]: match["value"] for match in _LIMIT.finditer(text)}
    if len(limits) != len(_lines(text)):
        raise NotUnderstood("a line of `ulimit -a`")
    return limits


def _one_line(text: str, what: str) -> str:
    line = text.removesuffix("\n")
    if "\n" in line or not line.startswith("/"):
        raise NotUnderstood(f"{what} {line[:60]!r}")
    return line


def quote(text: str) -> str:
    """Returns a text as one word for the shell."""
    return "'" + text.replace("'", r"'\''") + "'"
