"""Finds, word by word, what in a statement depends on chance or the clock."""

from __future__ import annotations

import re
from functools import cached_property

from tvsnap.plugins.sql.inside.dialects import DIALECTS, FILE_TIMES, Dialect
from tvsnap.plugins.sql.inside.lexemes import Lexeme, SystemName

DEEPEST = 30
"""Levels of nested parentheses that are examined."""

_LONGEST_CAST = 200
"""The number of lexemes among which the type of a CAST is looked for."""

STORED = frozenset(
    {"aggregate", "collation", "database", "domain", "function", "operator", "package", "policy", "procedure", "rule"}
    | {"schema", "sequence", "statistics", "trigger", "type", "view", "virtual"}
)
"""Objects whose definition does not execute anything that it contains."""
_EVALUATED = frozenset({"event", "index", "materialized", "table"})
UNSURE = frozenset(
    {"access", "cast", "connection", "conversion", "default", "extension", "foreign", "group", "instance", "language"}
    | {"large", "logfile", "prepare", "publication", "role", "routine", "server", "subscription", "system"}
    | {"tablespace", "text", "transform", "user"}
)
_WITH_BODY = ("function", "procedure")
"""Objects whose text, after AS, is stored as it is."""
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL | re.ASCII
)
_LETTERS = re.compile("[a-z]+")


class Phrase:
    """The words of one statement."""

    def __init__(self, lexemes: list[Lexeme], query: str, dialect: SystemName) -> None:
        self.lexemes = lexemes
        self._query = query
        self._name = dialect
        self._dialect: Dialect = DIALECTS[dialect]

    @cached_property
    def kind_of_object(self) -> str:
        """The kind of object that it defines: `table`, `function` and so on; empty if that is not clear."""
        objects = STORED | _EVALUATED | UNSURE
        return next((each.text for each in self.lexemes[1:] if each.kind == "word" and each.text in objects), "")

    @property
    def has_chance(self) -> bool:
        """Whether its words name something that depends on chance or the clock, though it may not be evaluated now."""
        return bool(self._chance)

    @cached_property
    def first(self) -> str:
        start = next((i for i, lexeme in enumerate(self.lexemes) if lexeme.text != "("), len(self.lexemes))
        return self._text(start) if start < len(self.lexemes) and self.lexemes[start].kind == "word" else ""

    @cached_property
    def _chance(self) -> list[int]:
        """The positions of everything that depends on chance or the clock."""
        return [i for i in range(len(self.lexemes)) if self._is_chance(i)]

    def _is_chance(self, i: int) -> bool:
        lexeme, dialect, before = self.lexemes[i], self._dialect, self._text(i - 1)
        if lexeme.kind == "variable":
            return lexeme.text.startswith("@@") and lexeme.text.split(".")[-1].strip("@`") in dialect.variables
        if lexeme.kind == "string":
            return self._holds_moment(i) if self._name == "postgres" else self._is_moment(lexeme.text)
        if lexeme.kind == "sign":
            return False
        if self._name == "sqlite" and lexeme.kind == "quoted" and self._is_moment(lexeme.text):
            return True  # if no column has that name, it is a string
        if self._text(i + 1) == "(":
            least = dialect.arguments.get(lexeme.text, 0)
            if lexeme.text in dialect.chance or (least and self._count_arguments(i + 1) < least):
                return True
        if lexeme.kind == "word" and before != "." and (lexeme.text in dialect.clock or lexeme.text == "tablesample"):
            return True
        if self._name == "postgres" and lexeme.is_word("time") and self._has_zone(i):
            return True
        qualified = f"{self.lexemes[i - 2].text}.{lexeme.text}" if before == "." and i > 1 else lexeme.text
        if dialect.relations.fullmatch(lexeme.text) or dialect.relations.fullmatch(qualified):
            return True
        if self._name != "mariadb" or lexeme.text not in ("tables", "partitions"):
            return False
        return before in (".", ",", "from", "join") and self._shows_file_times

    def _is_moment(self, text: str) -> bool:
        words = re.findall(r"[a-z]+", text) if len(text) < 50 and re.fullmatch(r"[\w\s:.+-]*", text) else []
        zones = {"allballs", "utc", "gmt", "z"}
        return any(word in self._dialect.moments for word in words) and all(
            word in self._dialect.moments or word in zones for word in words
        )

    def _has_zone(self, i: int) -> bool:
        """Returns whether PostgreSQL's TIME has a zone: without further data, that is today's."""
        after = i + 4 if self._text(i + 1) == "(" else i + 1
        return [self._text(after + each) for each in range(3)] == ["with", "time", "zone"]

    @property
    def _has_moment(self) -> bool:
        return any(self.lexemes[i].kind == "string" for i in self._chance) and self._name == "postgres"

    def _holds_moment(self, i: int) -> bool:
        """Returns whether a literal of PostgreSQL contains such a word: alone, in an array, a range, a row or JSON."""
        if i and self.lexemes[i - 1].kind == "string":
            return False  # the rest of a literal, which was examined with its beginning
        parts = []
        after = i
        while after < len(self.lexemes) and self.lexemes[after].kind == "string":
            parts.append(self._literal(self.lexemes[after]))
            after += 1
        if self._text(i - 1) in ("like", "ilike") and self._text(after) != "::":
            return False  # a pattern
        if self._text(i - 1) == "as" and self.first == "create" and self.kind_of_object in _WITH_BODY:
            return False
        text = "".join(parts)
        if self._text(after) == "uescape" or (self._text(i - 1) == "&" and "\\" in text and self._text(i - 2) == "u"):
            return True  # with special escapes
        words = set(_LETTERS.findall(text.lower())) | set(_LETTERS.findall(_unescaped(text).lower()))
        return not words.isdisjoint(self._dialect.moments)

    def _literal(self, lexeme: Lexeme) -> str:
        text = self._query[lexeme.start : lexeme.end]
        if text[0] == "$":
            return text.split("$", 2)[2].rsplit("$", 2)[0]
        return text[text.index("'") + 1 : -1]

    @cached_property
    def converts(self) -> bool:
        """Whether something is converted that may be a time, though its words do not name one."""
        return any(self._is_conversion(i) for i in range(len(self.lexemes)))

    def _is_conversion(self, i: int) -> bool:
        dialect, lexeme, following = self._dialect, self.lexemes[i], self._text(i + 1)
        if lexeme.kind not in ("word", "sign"):
            return False
        if self._name == "mariadb":
            return (lexeme.text in dialect.converts and following == "(") or self._is_time_of_day(i)
        if dialect.timeless is None:
            return False
        if lexeme.text == "::":
            return not (self._is_timeless(i + 1) or (self._is_plain(i - 1) and self._is_type(i + 1)))
        if lexeme.kind == "word" and lexeme.text in ("cast", "treat") and following == "(":
            to = self._target_of_cast(i + 1)
            return to is None or not (self._is_timeless(to) or (to == i + 4 and self._is_plain(i + 2)))
        if lexeme.is_word("at") and following in ("time", "local"):
            return True
        if lexeme.text not in dialect.converts or following != "(":
            return False
        if lexeme.text.startswith(("date", "time", "ts")) and lexeme.text != "timezone":
            plain = self._is_plain(i + 2) and self._text(i + 3) == ")"
            return self._count_arguments(i + 1) == 1 and not plain
        return True

    def _is_time_of_day(self, i: int) -> bool:
        """Returns whether a literal or a type of MariaDB's times of day is at a position."""
        before, following = self._text(i - 1), self._text(i + 1)
        literal = i + 1 < len(self.lexemes) and self.lexemes[i + 1].kind == "string"
        if self.lexemes[i].is_word("t"):
            return before == "{" and literal
        typed = following == "(" or (before in ("as", ",") and following == ")")
        return self.lexemes[i].is_word("time") and (literal or typed)

    def _target_of_cast(self, opening: int) -> int | None:
        """Returns where the type of a CAST begins, whose parenthesis is at `opening`; None if that is too far away."""
        depth = 0
        for at in range(opening, min(opening + _LONGEST_CAST, len(self.lexemes))):
            text = self._text(at)
            depth += {"(": 1, ")": -1}.get(text, 0)
            if depth == 1 and text == "as":
                return at + 1
        return None

    def _is_type(self, i: int) -> bool:
        """Returns whether an unquoted name of a type, without a schema, is at a position."""
        return i < len(self.lexemes) and self.lexemes[i].kind == "word" and self._text(i + 1) != "."

    def _is_timeless(self, i: int) -> bool:
        if self._text(i) == "pg_catalog" and self._text(i + 1) == ".":
            i += 2
        elif self._text(i + 1) == ".":
            return False
        return self._text(i) in (self._dialect.timeless or ())

    def _is_plain(self, i: int) -> bool:
        """Returns whether a literal or a number is at a position."""
        lexeme = self.lexemes[i] if 0 <= i < len(self.lexemes) else None
        return lexeme is not None and (
            lexeme.kind == "string" or (lexeme.kind == "word" and lexeme.text[0] in "0123456789")
        )

    @cached_property
    def _shows_file_times(self) -> bool:
        return any(
            lexeme.text in FILE_TIMES or (lexeme.text == "*" and self._text(i - 1) != "(")
            for i, lexeme in enumerate(self.lexemes)
        )

    def _count_arguments(self, opening: int) -> int:
        """Returns how many arguments follow an opening parenthesis; 0 if they are nested too deeply."""
        depth, count = 0, 0 if self._text(opening + 1) == ")" else 1
        for lexeme in self.lexemes[opening:]:
            if lexeme.kind == "sign":
                depth += {"(": 1, ")": -1}.get(lexeme.text, 0)
                count += depth == 1 and lexeme.text == ","
            if not 0 < depth <= DEEPEST:
                break
        return count if depth <= DEEPEST else 0

    def _has(self, *words: str) -> bool:
        return any(lexeme.is_word(*words) for lexeme in self.lexemes)

    def _text(self, i: int) -> str:
        """Returns the text of a word or sign; empty for quoted text, and beyond the ends."""
        if 0 <= i < len(self.lexemes) and self.lexemes[i].kind in ("word", "sign"):
            return self.lexemes[i].text
        return ""


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        if code or match[4]:
            number = int(code, 16) if code else int(match[4], 8)
            return chr(number) if number < 128 else " "
        return " " if match[5] in "bfnrt" else match[5]

    return _ESCAPE.sub(one, text)
