"""The words of a MySQL statement, and a cursor that walks over them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--(?=\s|$)[^\n]*|\#[^\n]*|/\*(?!M?!).*?\*/)
    |(?P<open>/\*M?!\d*)
    |(?P<close>\*/)
    |(?P<bytes>0[xX][0-9a-fA-F]+\b|[xX]'[0-9a-fA-F]*')
    |(?P<bits>0b[01]+\b|[bB]'[01]*')
    |(?P<string>[nN]?'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'|"[^"\\]*(?:(?:\\.|"")[^"\\]*)*")
    |(?P<name>`[^`]*(?:``[^`]*)*`)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
    |(?P<word>[@\w$]+)
    |(?P<symbol>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPED = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPED_DOUBLE = re.compile(r'\\(.)|""', re.DOTALL)


class Token(NamedTuple):
    """A piece of a statement.

    Attributes:
        kind: `word`, `name` (in backticks), `string`, `number`, `bytes`, `bits`, `symbol`, or `open` and `close` of a
            comment whose contents are executed.
        text: as it stands there.
        start, end: where it stands, in characters.
    """

    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """A word or symbol in upper case; empty for what can be neither."""
        return self.text.upper() if self.kind in ("word", "symbol") else ""


def tokens(text: str) -> list[Token]:
    """Splits a statement; comments are left out, and those whose contents are executed become part of it."""
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "symbol"
        if kind != "space":
            found.append(Token(kind, match.group(), match.start(), match.end()))
    return found


def executed(every: Sequence[Token]) -> list[Token]:
    """Leaves out the marks of executed comments."""
    return [token for token in every if token.kind not in ("open", "close")]


def string_value(text: str) -> str:
    """What a string literal stands for: `'it\\'s'` -> `it's`."""
    text = text.lstrip("nN")
    pattern = _ESCAPED if text[0] == "'" else _ESCAPED_DOUBLE
    quote = text[0]
    return pattern.sub(lambda match: _ESCAPES.get(match[1], match[1]) if match[1] else quote, text[1:-1])


class Cursor:
    """Walks over the tokens of a statement.

    Args:
        text: the statement.
        rest: its tokens, without the marks of executed comments.
    """

    def __init__(self, text: str, rest: Sequence[Token]) -> None:
        self.text = text
        self._tokens = rest
        self._index = 0

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return self._index >= len(self._tokens)

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or one further on; an empty one at the end."""
        index = self._index + ahead
        if index < len(self._tokens):
            return self._tokens[index]
        return Token("end", "", len(self.text), len(self.text))

    def next(self) -> Token:
        """The next token, and goes past it."""
        token = self.peek()
        self._index += 1
        return token

    def take(self, *words: str) -> bool:
        """Goes past these words and symbols (upper case) if they come next."""
        if all(self.peek(ahead).upper == word for ahead, word in enumerate(words)):
            self._index += len(words)
            return True
        return False

    def take_any(self, *words: str) -> str:
        """Goes past one of these words, and says which; empty if none comes next."""
        return next((word for word in words if self.take(word)), "")

    def name(self) -> str:
        """A name in backticks or without; empty, and nothing passed, if there is none."""
        token = self.peek()
        if token.kind == "name":
            self._index += 1
            return token.text[1:-1].replace("``", "`")
        if token.kind == "word":
            self._index += 1
            return token.text
        return ""

    def qualified_name(self) -> tuple[str, str]:
        """`database.name`: the database (may be empty) and the name."""
        first = self.name()
        return (first, self.name()) if self.take(".") else ("", first)

    def parenthesised(self) -> Cursor:
        """What stands between the parenthesis that comes next and its closing one, which are passed."""
        start = self._index + 1
        depth = 0
        while not self.done:
            token = self.next()
            depth += (token.upper == "(") - (token.upper == ")")
            if depth == 0:
                break
        return Cursor(self.text, self._tokens[start : self._index - 1])

    def items(self) -> list[Cursor]:
        """The rest, split at commas outside of parentheses."""
        found = []
        start, depth = self._index, 0
        for index in range(self._index, len(self._tokens)):
            sign = self._tokens[index].upper
            depth += (sign == "(") - (sign == ")")
            if sign == "," and depth == 0:
                found.append(Cursor(self.text, self._tokens[start:index]))
                start = index + 1
        self._index = len(self._tokens)
        if start < self._index:
            found.append(Cursor(self.text, self._tokens[start:]))
        return found

    @property
    def remaining(self) -> Sequence[Token]:
        """The tokens that are left."""
        return self._tokens[self._index :]

    def rest(self) -> str:
        """The text of what is left."""
        if self.done:
            return ""
        return self.text[self.peek().start : self._tokens[-1].end]
