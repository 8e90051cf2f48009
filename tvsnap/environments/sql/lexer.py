"""Cuts SQL into words and signs exactly as an engine does: what is a comment to one is executed by another."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

DialectName = Literal["sqlite", "postgres", "mariadb"]


class Lexeme(NamedTuple):
    """A part of a statement.

    Attributes:
        kind: `word` (also numbers), `quoted` (a quoted name), `string`, `variable` (`@name`, `@@name`) or `sign`.
        text: in lower case; names and strings without their quotes, doubled or escaped characters as they stand.
        start: where it begins in the query.
        end: where it ends, exclusive.
    """

    kind: str
    text: str
    start: int
    end: int

    def is_word(self, *texts: str) -> bool:
        """Whether this is one of these words, unquoted."""
        return self.kind == "word" and self.text in texts


class Unreadable(Exception):
    """The text cannot be cut up with certainty: the engine may read it in another way, or refuse it."""


_NAME = r"[A-Za-z0-9_$\x80-\U0010ffff]+"
_SPACE = r"[ \t\r\n\f\v]+"
_PLAIN = r"'(?:[^']|'')*'"


def _pattern(gap: str, string: str, quoted: str, variable: str, executed: str = r"(?!)") -> re.Pattern[str]:
    return re.compile(
        rf"(?P<executed>{executed})|(?P<gap>{_SPACE}|{gap})|(?P<string>{string})|(?P<quoted>{quoted})"
        rf"|(?P<variable>{variable})|(?P<word>{_NAME})|(?P<sign>::|:=|[^'\"`\0])",
        re.DOTALL,
    )


_PATTERNS: dict[DialectName, re.Pattern[str]] = {
    "sqlite": _pattern(
        gap=r"--[^\n]*|/\*.*?(?:\*/|\Z)",
        string=_PLAIN,
        quoted=r'"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]',
        variable=rf"[@#$]{_NAME}",
    ),
    "postgres": _pattern(
        gap=r"--[^\n\r]*",
        string=rf"[eE]'(?:[^'\\]|\\.|'')*'|{_PLAIN}|\$(?P<tag>(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)?)\$.*?\$(?P=tag)\$",
        quoted=r'"(?:[^"]|"")*"',
        variable=r"\$[0-9]+",
    ),
    "mariadb": _pattern(
        gap=r"#[^\n]*|--(?=[\x01-\x20]|\Z)[^\n]*|/\*.*?\*/",
        string=r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""",
        quoted=r"`(?:[^`]|``)*`",
        variable=rf"@@?(?:{_NAME}|`(?:[^`]|``)*`)(?:\.{_NAME})*|@'(?:[^'\\]|\\.|'')*'|@\"(?:[^\"\\]|\\.|\"\")*\"",
        executed=r"/\*M?!|/\*(?!.*?\*/)",
    ),
}
_COMMENT_MARK = re.compile(r"/\*|\*/")


def lexemes(query: str, dialect: DialectName) -> list[Lexeme]:
    """Cuts a query up, comments left out.

    Settings of a session that change how text is read (`sql_mode` of MariaDB, `standard_conforming_strings` of
    PostgreSQL) are taken to be as an engine has them by itself.

    Raises:
        Unreadable: a string or comment without end, a NUL, or a comment that MariaDB executes.
    """
    pattern = _PATTERNS[dialect]
    nested = dialect == "postgres"
    found: list[Lexeme] = []
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
            found.append(Lexeme(kind, _content(kind, text), position, match.end()))
        position = match.end()
    return found


def _kind(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    return "string" if kind == "tag" else kind


def _content(kind: str, text: str) -> str:
    if kind == "quoted" or (kind == "string" and text[0] in "'\""):
        text = text[1:-1]
    elif kind == "string":
        text = text.strip("$") if text[0] == "$" else text[2:-1]
    # Only ASCII has capitals to an engine's grammar: a Kelvin sign is no k.
    return text.lower() if text.isascii() else text


def _end_of_nested(query: str, position: int) -> int:
    depth = 0
    while mark := _COMMENT_MARK.search(query, position):
        depth += 1 if mark[0] == "/*" else -1
        position = mark.end()
        if depth == 0:
            return position
    raise Unreadable
