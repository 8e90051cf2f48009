"""Finds commands that may change shell state which is not reported, by the words of commands and functions.

A shell's dump (`rc`) has nearly all state that later commands can see. The rest is changed by few builtins only: the
position of getopts within a cluster of options, key bindings, the ended jobs that `wait` knows, the parts of the
history that were read from and written to files, a job that is exempt from SIGHUP. A command may have changed such
state if it may run one of these builtins, or text that is not visible here (`eval`, `source`, an expanded command
word).

Any word in the position of a command counts as one; a text that cannot be parsed may run anything.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

ANY = "*"
"""In a set of names: any command may change something (a trap runs one of the builtins)."""

_BUILTINS = frozenset({
    ".", "bind", "disown", "enable", "eval", "fc", "getopts", "history", "source", "suspend", "wait",
})  # fmt: skip
_STANDARD = frozenset({
    ".", ":", "[", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command", "compgen", "complete",
    "compopt", "continue", "declare", "dirs", "disown", "echo", "enable", "eval", "exec", "exit", "export", "false",
    "fc", "fg", "getopts", "hash", "help", "history", "jobs", "kill", "let", "local", "logout", "mapfile", "popd",
    "printf", "pushd", "pwd", "read", "readarray", "readonly", "return", "set", "shift", "shopt", "source", "suspend",
    "test", "times", "trap", "true", "type", "typeset", "ulimit", "umask", "unalias", "unset", "wait",
})  # fmt: skip
"""Builtins of bash; others were loaded, and their effects are unknown."""
_LATER = frozenset({"alias", "trap", "mapfile", "readarray"})
"""Builtins with commands as arguments that run later, some within the same call."""
_TRANSPARENT = frozenset({
    "!", "{", "}", "if", "then", "elif", "else", "fi", "do", "done", "while", "until", "esac", "time", "command",
    "builtin", "coproc",
})  # fmt: skip
"""Words after which a command word may follow."""
_VARIABLES = re.compile(r"OPTIND|(?<![$])(?<![$][{])\bRANDOM\b|BASH_ALIASES")
"""Variables that have hidden effects when assigned."""
_REDIRECTION = re.compile(r"(?:[0-9]+|\{\w+\})?(?:<<<|<<-?|<>|<&|>>|>&|>\||&>>|&>|<(?!\()|>(?!\())")
_WRITES = re.compile(r"(?:[0-9]+|\{\w+\})?(?:>|>>|>\||&>|&>>)")
"""Redirections that write to a file."""
_EDITS = re.compile(r"(?:[ \t]+-\S*)*[ \t]+(?:-[a-zA-Z]*i|--in-place)")
"""The text after `sed` if it writes to the files that it reads."""
_ASSIGNMENT = re.compile(r"\w+(?:\[.*\])?\+?=", re.DOTALL)
_ALONE = re.compile(r"(?:\[\[?|\{)(?=[\s;]|$)")
"""Brackets that are words of their own, and not patterns."""
_TRAP = re.compile(r"trap -- ('(?:[^']|'\\'')*') \S+\n")
_ENDS = frozenset(" \t\n;&|()<>")
_SHOWS = re.compile(r"[ \t]*(?:[0-9]+[ \t]*)?(?:[|;&>)\n]|$)")
"""The text after `history` if it only displays entries."""
_FUNCTION = re.compile(r"(\S+) \(\) *")
"""The line before a function's body, which ends at a line with only a bracket."""
_NAMES = re.compile(r"[^\s;&|()<>'\"`$=]+")
_ALIAS = re.compile(r"^alias (?:-- )?([^=\n]+)=(.*)$", re.MULTILINE)
_A_PATH = "/"
_MOST, _MOST_DEFINITIONS = 1 << 16, 1 << 18
"""Limits for the characters of a command, and of all definitions of a shell; parsing takes some tenths of a second."""


class _Unreadable(Exception):
    """The text is no command, or cannot be parsed here."""


def may_change_unseen(command: str, hidden: frozenset[str]) -> bool:
    """Whether a command may change state that its shell does not report; see `hidden_commands` for `hidden`."""
    return ANY in hidden or _changes(command, hidden)


def writes(command: str) -> bool:
    """Whether a command writes to files, by a redirection or `sed -i`, or sets a variable; False if it is not parsed.

    It may still not do so, for example if it ends before.
    """
    if len(command) > _MOST:
        return False
    reader = _Reader(command)
    with contextlib.suppress(_Unreadable, RecursionError):
        for word, _, end in reader.command_words():
            if reader.writes or (word == "sed" and _EDITS.match(command, end)):
                return True
    return reader.writes


def hidden_commands(functions: str, aliases: str, traps: str, builtins: str) -> frozenset[str]:
    """Returns the functions, aliases and loaded builtins that may change state which the shell does not report.

    The arguments are the output of `declare -f`, `alias -p`, `trap -p` and `enable -a`. If they exceed 256 KiB in
    total, they are not parsed, and any command counts.
    """
    if len(functions) + len(aliases) + len(traps) + len(builtins) > _MOST_DEFINITIONS:
        return frozenset({ANY})  # before the cache, which should not hold such long texts
    return _hidden(functions, aliases, traps, builtins)


@lru_cache(maxsize=64)
def _hidden(functions: str, aliases: str, traps: str, builtins: str) -> frozenset[str]:
    try:
        bodies = {name: body for name, body in _functions(functions) if not name.startswith("__tvsnap_")}
        handlers = list(_handlers(traps))
    except _Unreadable:
        return frozenset({ANY})
    for name, text in _ALIAS.findall(aliases):
        bodies[name] = "eval" if text.endswith((" '", "\t'")) else _unquoted(text)  # then the next word is expanded too
    loaded = frozenset(re.findall(r"^enable (?:-s )?(\w\S*)$", builtins, re.MULTILINE)) - _STANDARD
    hidden = _that_lead_to(loaded, {name: _look(body) for name, body in bodies.items()})
    return hidden | {ANY} if any(_changes(handler, hidden) for handler in handlers) else hidden


def _that_lead_to(loaded: frozenset[str], looks: Mapping[str, _Look]) -> frozenset[str]:
    """Returns the commands that may change something, and those that call them, directly or not."""
    callers: dict[str, list[str]] = {}
    for name, look in looks.items():
        for called in look.called:
            callers.setdefault(called, []).append(name)
    hidden = {*loaded, *(name for name, look in looks.items() if look.changes)}
    waiting = list(hidden)
    while waiting:
        name = waiting.pop()
        for caller in (*callers.get(name, ()), *(callers.pop(_A_PATH, ()) if "/" in name else ())):
            if caller not in hidden:
                hidden.add(caller)
                waiting.append(caller)
    return frozenset(hidden)


def _functions(text: str) -> Iterator[tuple[str, str]]:
    """Yields the names and bodies of the functions in `declare -f`; raises _Unreadable if one does not end."""
    name, body = "", list[str]()
    for line in text.split("\n"):
        if name and line == "}":
            yield name, "\n".join((*body, ""))
            name, body = "", []
        elif name:
            body.append(line)
        elif head := _FUNCTION.fullmatch(line):
            name = head[1]
    if name:
        raise _Unreadable


def _handlers(traps: str) -> Iterator[str]:
    """Yields the commands of traps; raises _Unreadable for anything else."""
    at = 0
    while trap := _TRAP.match(traps, at):
        yield _unquoted(trap[1])
        at = trap.end()
    if traps[at:].strip():
        raise _Unreadable


@dataclass(frozen=True)
class _Look:
    """The findings in a command.

    Attributes:
        changes: it may change something itself.
        called: commands that it may call; `_A_PATH` for an expanded one that contains a slash.
    """

    changes: bool
    called: frozenset[str] = frozenset()


def _changes(command: str, hidden: frozenset[str]) -> bool:
    look = _look(command)
    by_path = _A_PATH in look.called and any("/" in name for name in hidden)
    return look.changes or by_path or not look.called.isdisjoint(hidden)


def _look(command: str) -> _Look:
    """Parses a command, regardless of which commands are known to change something."""
    if len(command) > _MOST or _VARIABLES.search(command):
        return _Look(changes=True)
    called: set[str] = set()
    try:
        for word, plain, end in _Reader(command).command_words():
            if not plain and "/" not in word:
                return _Look(changes=True)
            if plain and word in _BUILTINS and not (word == "history" and _SHOWS.match(command, end)):
                return _Look(changes=True)
            called.add(word if plain else _A_PATH)
    except (_Unreadable, RecursionError):
        return _Look(changes=True)
    if not called.isdisjoint(_LATER):
        named = set(_NAMES.findall(command.replace("\\", "")))
        if "$" in command or not named.isdisjoint(_BUILTINS):
            return _Look(changes=True)
        called |= named
    return _Look(changes=False, called=frozenset(called))


def _unquoted(text: str) -> str:
    return text[1:-1].replace(r"'\''", "'") if text.startswith("'") else text


class _Reader:
    """Scans a command's text once, from word to word."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._delimiters: list[tuple[str, bool]] = []  # of here-documents that begin after this line
        self.writes = False  # it came by a redirection that writes to a file, or an assignment

    def command_words(self) -> Iterator[tuple[str, bool, int]]:
        """Yields each word that may name a command, whether it is literal, and its end.

        Raises _Unreadable for unterminated quotes, parentheses and the like.
        """
        text = self._text
        expected, skip = True, 0  # whether a command word comes next, or after how many other words
        assigned = False  # before a command word, which alone would see it
        while self._at < len(text):
            char = text[self._at]
            if char in " \t":
                self._at += 1
            elif text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                self._at = (text.find("\n", self._at) + 1 or len(text) + 1) - 1
            elif redirection := _REDIRECTION.match(text, self._at):
                self._redirect(redirection)
            elif text.startswith("((", self._at) and expected:
                self._at = self._closed(self._at)
                expected = False
            elif char in _ENDS:
                self._at += 1
                expected = True
                self.writes, assigned = self.writes or assigned, False
                if char == "\n":
                    self._pass_documents()
            else:
                word, plain = self._word()
                if not expected:
                    skip -= 1
                    expected = skip == 0
                elif plain and word == "[[":
                    self._pass_test()
                    expected = False
                elif plain and word in ("function", "for", "select", "case"):
                    expected, skip = False, 1 if word == "function" else 0
                elif _ASSIGNMENT.match(word):
                    assigned = True
                elif plain and word.startswith("-"):
                    pass
                else:
                    assigned = False
                    expected = plain and word in _TRANSPARENT
                    if not expected:
                        yield word, plain, self._at
        self.writes = self.writes or assigned
        if self._delimiters:
            raise _Unreadable

    def _word(self) -> tuple[str, bool]:
        """Returns the word that begins here, without its quotes, and whether nothing in it is expanded."""
        text, pieces, plain = self._text, [], True
        if alone := _ALONE.match(text, self._at):
            self._at = alone.end()
            return alone[0], True
        while self._at < len(text) and text[self._at] not in _ENDS:
            char = text[self._at]
            if char == "\\":
                pieces.append(text[self._at + 1 : self._at + 2].replace("\n", ""))
                self._at += 2
            elif char in "'\"$`":
                end = self._closed(self._at)
                piece = text[self._at : end]
                if char == "'" or (char == '"' and not re.search(r"[$`\\]", piece)):
                    pieces.append(piece[1:-1])
                else:
                    plain = plain and piece == "$"
                    pieces.append("/" if "/" in piece and char == '"' else "")
                self._at = end
            else:
                plain = plain and char not in "*?[{~"
                pieces.append(char)
                self._at += 1
        return "".join(pieces), plain

    def _closed(self, at: int) -> int:
        """Returns the end of the quoted string, expansion, or parenthesised text that begins at `at`."""
        text = self._text
        if text.startswith("$'", at):
            at += 1
            while (at := at + 1) < len(text) and text[at] != "'":
                at += text[at] == "\\"
            return self._checked(at + 1)
        if text[at] == "'":
            return self._checked(text.find("'", at + 1) + 1)
        if text[at] == '"':
            at += 1
            while at < len(text) and text[at] != '"':
                at = at + 2 if text[at] == "\\" else self._closed(at) if text[at] in "$`" else at + 1
            return self._checked(at + 1)
        if text[at] == "`":
            while (at := at + 1) < len(text) and text[at] != "`":
                at += text[at] == "\\"
            return self._checked(at + 1)
        if text[at] == "$":
            if text[at + 1 : at + 2] == '"':
                return self._closed(at + 1)
            if text[at + 1 : at + 2] not in ("(", "{"):
                match = re.compile(r"\w+|[-@*#?$!]|").match(text, at + 1)
                return match.end() if match else at + 1
            at += 1
        end = ")" if text[at] == "(" else "}"
        at += 1
        while at < len(text) and text[at] != end:
            if text[at] == "\\":
                at += 2
            elif text[at] in "'\"`$" or (text[at] == "(" and end == ")"):
                at = self._closed(at)
            else:
                at += 1
        return self._checked(at + 1)

    def _checked(self, end: int) -> int:
        if not 0 < end <= len(self._text):
            raise _Unreadable
        return end

    def _redirect(self, operator: re.Match[str]) -> None:
        self._at = operator.end()
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        target, _ = self._word()
        if _WRITES.fullmatch(operator[0]) and not target.startswith("/dev/"):
            self.writes = True
        if operator[0].endswith(("<<", "<<-")) and not operator[0].endswith("<<<"):
            self._delimiters.append((target, operator[0].endswith("-")))

    def _pass_documents(self) -> None:
        """Skips the here-documents that begin here."""
        for delimiter, indented in self._delimiters:
            while True:
                if self._at >= len(self._text):
                    break  # for bash, the end of the text ends the document
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = min(end + 1, len(self._text))
                if (line.lstrip("\t") if indented else line) == delimiter:
                    break
        self._delimiters.clear()

    def _pass_test(self) -> None:
        """Skips to the end of a `[[`."""
        while self._at < len(self._text):
            if self._text[self._at] in _ENDS:
                self._at += 1
            elif self._word()[0] == "]]":
                return
        raise _Unreadable
