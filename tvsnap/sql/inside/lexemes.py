"""Cuts SQL into words and signs exactly as a database system does: what is a comment to one is executed by another.

The one place where SQL is cut: on the host, to tell what statements do and where those of a dump end; inside, to tell
where SQLite's end. sqlglot's tokenizer would not do: it passes over comments that MariaDB executes (`/*! ... */`), and
over what is a comment to itself alone (`{# ... #}`).
"""

from __future__ import annotations

import re
from typing import Iterator, List, Literal, NamedTuple

SystemName = Literal["sqlite", "postgres", "mariadb"]


class Lexeme(NamedTuple):
    """A part of a statement.

    Attributes:
        kind: `word` (also numbers), `quoted` (a quoted name), `string`, `variable` (`@name`, `@@name`) or `sign`.
        text: in lower case; names and strings without their quotes, doubled or escaped characters as they stand.
        start, end: where it begins in the query, and where it ends.
    """

    kind: str
    text: str
    start: int
    end: int

    def is_word(self, *texts: str) -> bool:
        """Whether this is one of these words, unquoted."""
        return self.kind == "word" and self.text in texts


class Unreadable(Exception):
    """The text cannot be cut up with certainty: the system may read it in another way, or refuse it."""


class Grammar(NamedTuple):
    """How a system writes what consists of neither words nor signs, as regular expressions.

    Attributes:
        comment: without those of PostgreSQL that are nested.
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
    """Cuts a query up, comments left out.

    Settings of a session that change how text is read (`sql_mode` of MariaDB, `standard_conforming_strings` of
    PostgreSQL) are taken to be as a system has them by itself.

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
    # Only ASCII has capitals to a system's grammar: a Kelvin sign is no k.
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
