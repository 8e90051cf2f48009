"""Reads the commands of tests for the fake backend: lists of simple commands, as the shell writes them, and no more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TOKEN = re.compile(
    r"[ \t]*(?:(?P<operator>&&|\|\||[;&()\n]|\d?>>?)|(?P<word>(?:'[^']*'|\"[^\"]*\"|\\.|[^\s;&|()<>'\"\\`])+))"
)
_PIECE = re.compile(r"'(?P<plain>[^']*)'|\"(?P<quoted>[^\"]*)\"|\\(?P<escaped>.)|(?P<bare>[^'\"\\]+)", re.DOTALL)
_VARIABLE = re.compile(r"\$(\w+|[?!])")


class NotScripted(AssertionError):
    """A test uses a command that the fake does not understand: it belongs on a backend with a real shell."""


@dataclass(frozen=True)
class Redirection:
    """`> word`, `>> word` or `2> word`."""

    descriptor: int
    append: bool
    word: str


@dataclass(frozen=True)
class Command:
    """A simple command, or the list of a subshell in parentheses."""

    words: tuple[str, ...]
    inner: tuple[Item, ...] | None
    redirections: tuple[Redirection, ...]


@dataclass(frozen=True)
class Item:
    """Commands joined by `&&` and `||` (each with the operator before it), perhaps in the background."""

    commands: tuple[tuple[str, Command], ...]
    background: bool
    text: str


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int, int]] = []
        end = 0
        while end < len(text.rstrip(" \t")):
            match = _TOKEN.match(text, end)
            if match is None:
                raise NotScripted(f"the fake does not understand {text!r} from {text[end:]!r} on")
            kind = "operator" if match["operator"] else "word"
            self.tokens.append((kind, match[kind], match.start(kind), match.end()))
            end = match.end()
        self.position = 0

    def peek(self, *wanted: str) -> bool:
        """Returns whether one of these operators comes next."""
        if self.position >= len(self.tokens):
            return False
        kind, text, *_ = self.tokens[self.position]
        return kind == "operator" and text in wanted

    def take(self) -> str:
        if self.position >= len(self.tokens):
            raise NotScripted(f"the fake does not understand {self.text!r}: it has no end")
        self.position += 1
        return self.tokens[self.position - 1][1]

    def items(self) -> tuple[Item, ...]:
        found = []
        while self.position < len(self.tokens) and not self.peek(")"):
            if self.peek("\n"):
                self.take()
                continue
            first = self.position
            commands = [("", self.command())]
            while self.peek("&&", "||"):
                commands.append((self.take(), self.command()))
            text = self.text[self.tokens[first][2] : self.tokens[self.position - 1][3]]
            background = self.peek("&")
            if self.peek(";", "&", "\n"):
                self.take()
            elif self.position < len(self.tokens) and not self.peek(")"):
                raise NotScripted(f"the fake does not understand {self.text!r}")
            found.append(Item(tuple(commands), background, text))
        return tuple(found)

    def command(self) -> Command:
        inner = None
        if self.peek("("):
            self.take()
            inner = self.items()
            if self.take() != ")":
                raise NotScripted(f"the fake does not understand {self.text!r}")
        words, redirections = [], []
        while self.position < len(self.tokens):
            kind, text, *_ = self.tokens[self.position]
            if kind == "operator" and ">" in text:
                self.take()
                redirections.append(Redirection(int(text.strip(">") or 1), text.endswith(">>"), self.take()))
            elif kind == "word" and inner is None:
                words.append(self.take())
            else:
                break
        if not words and inner is None:
            raise NotScripted(f"the fake does not understand {self.text!r}: a command is missing")
        return Command(tuple(words), inner, tuple(redirections))


def parse(text: str) -> tuple[Item, ...]:
    """Returns the commands of a text.

    Raises:
        NotScripted: it holds something else.
    """
    parser = _Parser(text)
    items = parser.items()
    if parser.position < len(parser.tokens):
        raise NotScripted(f"the fake does not understand {text!r}")
    return items


def expand(word: str, values: Mapping[str, str]) -> str:
    """Returns a word without its quotes, variables replaced; it stays one word whatever they hold."""

    def piece(match: re.Match[str]) -> str:
        if match["plain"] is not None:
            return match["plain"]
        if match["escaped"] is not None:
            return match["escaped"]
        text = match["bare"] if match["quoted"] is None else match["quoted"]
        text = _VARIABLE.sub(lambda found: values.get(found[1], ""), text)
        if "$" in text or (match["bare"] and re.search(r"[*?~{}#]", text)):
            raise NotScripted(f"the fake does not understand the word {word!r}")
        return text

    return _PIECE.sub(piece, word)
