"""Splits SQL into words and signs exactly as a database system does: a comment in one system is executed by another.

This is the only place where SQL is split: on the host, to find out what statements do and where those of a dump end;
inside, to find where SQLite's end. sqlglot's tokenizer is not suitable: it skips comments that MariaDB executes
(`/*! ... */`), and others that only it treats as comments (`{# ... #}`).
"""

from __future__ import annotations

import re
from typing import Iterator, List, Literal, NamedTuple

SystemName = Literal["sqlite", "postgres", "mariadb"]


class Lexeme(NamedTuple):
    """A part of a statement.

    Attributes:
        kind: `word` (also numbers), `quoted` (a quoted name), `string`, `variable` (`@name`, `@@name`) or `sign`.
        text: in lower case; names and strings without their quotes, but with doubled or escaped characters.
        start, end: its position in the query, from its beginning to its end.
    """

    kind: str
    text: str
    start: int
    end: int

    def is_word(self, *texts: str) -> bool:
        """Returns whether this is one of these words, unquoted."""
        return self.kind == "word" and self.text in texts


class Unreadable(Exception):
    """The text cannot be split with certainty: the system may read it in another way, or refuse it."""


class Grammar(NamedTuple):
    """The syntax, as regular expressions, of everything that is no word.

    Attributes:
        comment: without the nested ones of PostgreSQL.
        quoted: names in quotes.
        executed: the beginning of a comment that is executed, or of one without an end.
        sign: a sign of one character.
    """

    comment: str
    string: str
    quoted: str
    variable: str
    executed: str = r"(?!)"
    space: str = r"[ \t\r\n\f\v]+"
    sign: str = r"[^'\"`\0]"


_NAME = r"[A-Za-z0-9_$\x80-\U0010ffff]+"
_PLAIN = r"'(?:[^']|'')*'"
_TAG = r"(?P<tag>(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)?)"

GRAMMARS: dict[SystemName, Grammar] = {
    "sqlite": Grammar(
        comment=r"--[^\n]*|/\*.*?(?:\*/|\Z)",
        string=_PLAIN,
        quoted=r'"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]',
        variable=rf"[@#$]{_NAME}",
        space=r"[ \t\r\n\f]+",
        sign=r"[^'\"`\0\[]",
    ),
    "postgres": Grammar(
        comment=r"--[^\n\r]*",
        string=rf"[eE]'(?:[^'\\]|\\.|'')*'|{_PLAIN}|\${_TAG}\$.*?\$(?P=tag)\$",
        quoted=r'"(?:[^"]|"")*"',
        variable=r"\$[0-9]+",
    ),
    "mariadb": Grammar(
        comment=r"#[^\n]*|--(?=[\x01-\x20]|\Z)[^\n]*|/\*.*?\*/",
        string=r"""'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'|"[^"\\]*(?:(?:\\.|"")[^"\\]*)*\"""",
        quoted=r"`(?:[^`]|``)*`",
        variable=rf"@@?(?:{_NAME}|`(?:[^`]|``)*`)(?:\.{_NAME})*|@'(?:[^'\\]|\\.|'')*'|@\"(?:[^\"\\]|\\.|\"\")*\"",
        executed=r"/\*M?!|/\*(?!.*?\*/)",
    ),
}


def _pattern(of: Grammar) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<executed>{of.executed})|(?P<gap>{of.space}|{of.comment})|(?P<string>{of.string})"
        rf"|(?P<quoted>{of.quoted})|(?P<variable>{of.variable})|(?P<word>{_NAME})|(?P<sign>::|:=|{of.sign})",
        re.DOTALL,
    )


_PATTERNS = {name: _pattern(grammar) for name, grammar in GRAMMARS.items()}
_COMMENT_MARK = re.compile(r"/\*|\*/")


def lexemes(query: str, system: SystemName) -> List[Lexeme]:
    """Returns the lexemes of a query; see `cut`."""
    return list(cut(query, system))


def cut(query: str, system: SystemName) -> Iterator[Lexeme]:
    """Yields the lexemes of a query, without comments.

    Settings of a session that change how text is read (`sql_mode` of MariaDB, `standard_conforming_strings` of
    PostgreSQL) are assumed to have the system's defaults.

    Raises:
        Unreadable: at a string or comment without end, a NUL, or a comment that MariaDB executes.
    """
    pattern = _PATTERNS[system]
    nested = system == "postgres"
    position = 0
    while position < len(query):
        if nested and query.startswith("/*", position):
            position = _end_of_nested(query, position)
            continue
        match = pattern.match(query, position)
        if match is None or match.lastgroup == "executed":
            raise Unreadable
        kind, text = _kind(match), match[0]
        if kind != "gap":
            yield Lexeme(kind, _content(kind, text), position, match.end())
        position = match.end()


def _kind(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    return "string" if kind == "tag" else kind


def _content(kind: str, text: str) -> str:
    if kind == "quoted" or (kind == "string" and text[0] in "'\""):
        text = text[1:-1]
    elif kind == "string":
        text = text.strip("$") if text[0] == "$" else text[2:-1]
    # In a system's grammar, only ASCII letters have capitals: a Kelvin sign is no k.
    return text.lower() if text.isascii() else text


def _end_of_nested(query: str, position: int) -> int:
    depth = 0
    while True:
        mark = _COMMENT_MARK.search(query, position)
        if mark is None:
            raise Unreadable
        depth += 1 if mark[0] == "/*" else -1
        position = mark.end()
        if depth == 0:
            return position
