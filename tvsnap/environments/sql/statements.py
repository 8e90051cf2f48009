"""What SQL statements do, told by their words: whether they may change anything, and what they leave to chance.

The text is cut up as the system cuts it (`guest/sql/lexemes.py`), and every name that stands before a parenthesis
must be known (`dialects.py`); sqlglot tells names of tables and columns from functions where the words leave it open.
Whatever is not known for sure counts as a change. What a view, a trigger or a stored function does cannot be seen here:
a system's own counters show the changes that they make, and what they leave to chance is for `guest/sql/reach.py`.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

from tvsnap.guest.sql.dialects import DIALECTS, FILE_TIMES, PRAGMA_LOOKUPS, PRAGMA_QUESTIONS, STABLE_SHOWS, Dialect
from tvsnap.guest.sql.lexemes import Lexeme, SystemName, Unreadable, lexemes

logging.getLogger("sqlglot").addHandler(logging.NullHandler())  # what it cannot read is no news to anyone

Kind = Literal["read", "write", "other"]

LONGEST = 100_000
"""Characters of a query that is looked at closely; of a longer one nothing is known."""

_LONGEST_PARSED = 10_000
_DEEPEST_PARSED = 30
"""Bounds for sqlglot, in characters and nested parentheses: its time may grow out of proportion."""

_LONGEST_CAST = 200
"""Lexemes in which the type of a CAST is looked for."""

_ORDER: tuple[Kind, ...] = ("read", "write", "other")

_QUERIES = frozenset({"select", "values", "with", "table"})
_CHANGES = frozenset({"insert", "update", "delete", "replace", "merge", "truncate"})
_EXPLAINED = (_QUERIES - {"table"}) | _CHANGES | {"create", "execute", "declare", "refresh"}
_BEFORE_INTO = frozenset({"insert", "replace", "ignore", "delayed", "low_priority", "high_priority"})
_STORED = frozenset(
    {"aggregate", "collation", "database", "domain", "function", "operator", "package", "policy", "procedure", "rule"}
    | {"schema", "sequence", "statistics", "trigger", "type", "view", "virtual"}
)
"""Objects whose making executes nothing of what they say."""
_EVALUATED = frozenset({"event", "index", "materialized", "table"})
_UNSURE = frozenset(
    {"access", "cast", "connection", "conversion", "default", "extension", "foreign", "group", "instance", "language"}
    | {"large", "logfile", "prepare", "publication", "role", "routine", "server", "subscription", "system"}
    | {"tablespace", "text", "transform", "user"}
)
_FILLED = ("as", "execute", "select", "values")
"""Words of a CREATE TABLE that evaluates something."""
_TELLING = ("where", "having", "returning")
"""Words after which chance has a say in how many rows a change reports, or which."""
_WITH_BODY = ("function", "procedure")
"""Objects whose text, after AS, is kept as it stands."""
_SHOW_OPTIONS = ("all", "extended", "full", "global", "local", "session", "storage")

_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL | re.ASCII
)
_LETTERS = re.compile("[a-z]+")


@dataclass(frozen=True, slots=True)
class Effects:
    """What a query does by its words.

    Attributes:
        kind: `read` changes nothing, whatever the data; `write` at most what the system's own counters tell; `other`
            anything, such as settings and locks of the session, transactions, procedures, and all that is not known.
        stochastic: its result is left to chance or the clock.
        volatile: what it writes is left to chance or the clock: doing it again leads elsewhere.
    """

    kind: Kind
    stochastic: bool = False
    volatile: bool = False


def effects(query: str, dialect: SystemName) -> Effects:
    """Returns what one or more statements do by their words; of several, the worst counts."""
    if len(query) > LONGEST:
        return _unknown(query, dialect)
    return _effects(query, dialect)


@lru_cache(maxsize=16)
def statements(query: str, dialect: SystemName) -> tuple[Statement, ...]:
    """Returns the statements of a query.

    Raises:
        Unreadable: it cannot be cut up with certainty.
    """
    return tuple(Statement(part, query, dialect) for part in _split(lexemes(query, dialect)))


@lru_cache(maxsize=1024)
def _effects(query: str, dialect: SystemName) -> Effects:
    try:
        told = [statement.effects for statement in statements(query, dialect)]
    except Unreadable:
        return _unknown(query, dialect)
    return Effects(
        max((each.kind for each in told), key=_ORDER.index, default="read"),
        any(each.stochastic for each in told),
        any(each.volatile for each in told),
    )


def _unknown(text: str, dialect: SystemName) -> Effects:
    doubtful = DIALECTS[dialect].doubtful.search(text) is not None
    return Effects("other", doubtful, doubtful)


def _split(found: list[Lexeme]) -> list[list[Lexeme]]:
    """Cuts at every semicolon, also at those within a body: what defines one with several is `other` then."""
    parts: list[list[Lexeme]] = [[]]
    for lexeme in found:
        if lexeme.kind == "sign" and lexeme.text == ";":
            parts.append([])
        else:
            parts[-1].append(lexeme)
    return [part for part in parts if part]


class Statement:
    """One statement.

    Attributes:
        lexemes: of which it consists.
    """

    def __init__(self, found: list[Lexeme], query: str, dialect: SystemName) -> None:
        self.lexemes = found
        self._query = query
        self._name = dialect
        self._dialect: Dialect = DIALECTS[dialect]

    @cached_property
    def effects(self) -> Effects:
        """What it does."""
        first = self.first
        if first in _QUERIES or first in _CHANGES:
            return self._told(self._body("write" if first in _CHANGES else "read"))
        if first in ("explain", "describe", "desc") or (first == "analyze" and self._name == "mariadb"):
            return self._explain(first)
        if first == "show":
            return self._show()
        if first == "help":
            return Effects("read")
        if first == "pragma":
            return self._pragma()
        if first in ("create", "alter", "drop", "rename", "comment"):
            return self._definition(first)
        return self._told("other")

    def _told(self, kind: Kind) -> Effects:
        """Adds to a kind what is left to chance."""
        if kind == "read":
            return Effects(kind, stochastic=bool(self._chance))
        if kind == "write":
            volatile = bool(self._chance) or self.converts
            telling = next((i for i, each in enumerate(self.lexemes) if each.is_word(*_TELLING)), len(self.lexemes))
            return Effects(kind, any(i > telling for i in self._chance), volatile)
        # What is to be executed may be given as a string.
        strings = [each.text for each in self.lexemes if each.kind == "string"]
        doubtful = bool(self._chance) or any(self._dialect.doubtful.search(text) for text in strings)
        return Effects(kind, doubtful, doubtful or self.converts)

    def _explain(self, first: str) -> Effects:
        start = next((i for i, each in enumerate(self.lexemes) if i and each.is_word(*_EXPLAINED)), None)
        if start is None:
            if first == "analyze" or self._name != "mariadb":
                return self._told("other")
            return Effects("read", stochastic=self._has("connection"))  # the columns of a table, or another's plan
        inner = Statement(self.lexemes[start:], self._query, self._name).effects
        executed = any(each.is_word("analyze", "analyse") for each in self.lexemes[:start])
        if executed:
            return Effects(inner.kind, stochastic=True, volatile=inner.volatile)
        # A plan may be made with the values of constant functions.
        return Effects("other" if inner.kind == "other" else "read", stochastic=inner.stochastic or inner.volatile)

    def _show(self) -> Effects:
        if self._name != "mariadb":
            return Effects("read")
        subject = next((each.text for each in self.lexemes[1:] if not each.is_word(*_SHOW_OPTIONS)), "")
        stable = subject in STABLE_SHOWS or (subject == "variables" and self._names_stable_variables())
        return Effects(self._body("read"), stochastic=not stable or bool(self._chance))

    def _names_stable_variables(self) -> bool:
        if not (len(self.lexemes) >= 2 and self.lexemes[-2].is_word("like") and self.lexemes[-1].kind == "string"):
            return False
        pattern = re.escape(self.lexemes[-1].text.replace("\\_", "_")).replace("%", ".*").replace("_", ".")
        return not any(re.fullmatch(pattern, name) for name in self._dialect.variables)

    def _pragma(self) -> Effects:
        words = self.lexemes[1:]
        if len(words) > 2 and words[1].text == ".":
            words = words[2:]
        name = words[0].text if words else ""
        if len(words) == 1 and name in PRAGMA_QUESTIONS:
            return Effects("read")
        if len(words) > 1 and words[1].text == "(" and name in PRAGMA_LOOKUPS:
            return Effects("read")
        return self._told("other")

    def _definition(self, first: str) -> Effects:
        if first == "comment":
            return Effects("write")
        told = self._defined(first, self.kind_of_object)
        # What a text stands for is looked up when something is defined by it: DEFAULT 'now' is one time from then on.
        return replace(told, volatile=True) if self._has_moment else told

    @cached_property
    def kind_of_object(self) -> str:
        """What a definition is of: `table`, `function` and so on; empty if that is not clear."""
        objects = _STORED | _EVALUATED | _UNSURE
        return next((each.text for each in self.lexemes[1:] if each.kind == "word" and each.text in objects), "")

    def _defined(self, first: str, kind: str) -> Effects:
        if kind in _UNSURE or not kind or self._has("soname"):
            return self._told("other")
        if first in ("drop", "rename"):
            return Effects("write")
        if first == "alter" and kind == "database":
            return self._told("other")
        if first == "create" and (kind in _STORED or (kind == "table" and not self._has(*_FILLED))):
            return Effects("write")
        if first == "create" and kind == "index" and self._name == "mariadb":
            return Effects("write")  # of columns alone
        return self._told(self._body("write"))

    def _body(self, kind: Kind) -> Kind:
        """Returns what a query or a change does, by what it holds; at least `kind`."""
        for i, lexeme in enumerate(self.lexemes):
            if lexeme.kind == "sign" and lexeme.text == ":=" and self._dialect.assigns:
                return "other"
            if lexeme.kind != "word" or self._text(i - 1) == ".":
                continue
            following = self._text(i + 1)
            if lexeme.text in _CHANGES and following != "(":
                kind = "write"
            elif lexeme.text == "into" and self._text(i - 1) not in _BEFORE_INTO:
                if self._dialect.into == "other":
                    return "other"
                kind = "write"
            elif (
                (lexeme.text == "for" and following in ("update", "share", "no", "key"))
                or (lexeme.text == "lock" and following == "in")
                or (lexeme.text == "next" and following == "value")
            ):
                return "other"
        return "other" if self.unexplained else kind

    @cached_property
    def unexplained(self) -> list[Lexeme]:
        """What stands before a parenthesis and may be a function of which nobody knows what it does."""
        found = [
            lexeme
            for i, lexeme in enumerate(self.lexemes)
            if self._text(i + 1) == "(" and not self._known_before_parenthesis(i)
        ]
        if found:
            names = self._names()
            found = [lexeme for lexeme in found if lexeme.start not in names]
        return found

    def _known_before_parenthesis(self, i: int) -> bool:
        """Whether what stands before a parenthesis is known to do nothing; if not, it may yet be no function."""
        lexeme, before = self.lexemes[i], self._text(i - 1)
        if lexeme.kind in ("sign", "variable"):
            return True
        if lexeme.kind != "word":
            return False
        if before == ".":
            return self._text(i - 2) == "pg_catalog" and lexeme.text in self._dialect.functions
        if before in (")", "as", "into") or (i and self.lexemes[i - 1].kind == "string"):
            return True  # an alias, a type, a clause or a table
        if lexeme.text in self._dialect.bare:
            return self._text(i + 2) == ")"
        dialect = self._dialect
        if lexeme.text in dialect.functions or lexeme.text in dialect.clock:
            return True
        return lexeme.text in dialect.grammar or f"{before} {lexeme.text}" in dialect.grammar

    def _names(self) -> set[int]:
        """Returns where in the query names of tables, columns and the like begin, as sqlglot reads it."""
        begin, end = self.lexemes[0].start, self.lexemes[-1].end
        if end - begin > _LONGEST_PARSED or self._depth > _DEEPEST_PARSED:
            return set()
        return {begin + start for start in _identifiers(self._query[begin:end], self._dialect.parser)}

    @property
    def _depth(self) -> int:
        depth = deepest = 0
        for lexeme in self.lexemes:
            if lexeme.kind == "sign" and lexeme.text in "()":
                depth += 1 if lexeme.text == "(" else -1
                deepest = max(deepest, depth)
        return deepest

    @property
    def has_chance(self) -> bool:
        """Whether its words name what is left to chance or the clock, though it may not be evaluated now."""
        return bool(self._chance)

    @cached_property
    def first(self) -> str:
        """Its first word; empty if it begins with none."""
        start = next((i for i, lexeme in enumerate(self.lexemes) if lexeme.text != "("), len(self.lexemes))
        return self._text(start) if start < len(self.lexemes) and self.lexemes[start].kind == "word" else ""

    @cached_property
    def _chance(self) -> list[int]:
        """Where something is left to chance or the clock."""
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
            return True  # where no column has that name, it is a string
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
        """Whether PostgreSQL's TIME is one with a zone: that is the one of today where nothing else is said."""
        after = i + 4 if self._text(i + 1) == "(" else i + 1
        return [self._text(after + each) for each in range(3)] == ["with", "time", "zone"]

    @property
    def _has_moment(self) -> bool:
        return any(self.lexemes[i].kind == "string" for i in self._chance) and self._name == "postgres"

    def _holds_moment(self, i: int) -> bool:
        """Whether one of the words is in a literal of PostgreSQL: as such, in an array, a range, a row or JSON."""
        if i and self.lexemes[i - 1].kind == "string":
            return False  # the rest of a literal, which was looked at with its beginning
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
            return True  # with escapes of a kind of its own
        words = set(_LETTERS.findall(text.lower())) | set(_LETTERS.findall(_unescaped(text).lower()))
        return not words.isdisjoint(self._dialect.moments)

    def _literal(self, lexeme: Lexeme) -> str:
        """Returns the text between the quotes of a literal of PostgreSQL as it stands."""
        text = self._query[lexeme.start : lexeme.end]
        if text[0] == "$":
            return text.split("$", 2)[2].rsplit("$", 2)[0]
        return text[text.index("'") + 1 : -1]

    @cached_property
    def converts(self) -> bool:
        """Whether something is converted that may be the time, though its words do not name it."""
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
        """Whether a literal or a type of MariaDB's times of day stands there."""
        before, following = self._text(i - 1), self._text(i + 1)
        literal = i + 1 < len(self.lexemes) and self.lexemes[i + 1].kind == "string"
        if self.lexemes[i].is_word("t"):
            return before == "{" and literal
        typed = following == "(" or (before in ("as", ",") and following == ")")
        return self.lexemes[i].is_word("time") and (literal or typed)

    def _target_of_cast(self, opening: int) -> int | None:
        """Returns where the type of a CAST begins, whose parenthesis is at `opening`; None if that is far off."""
        depth = 0
        for at in range(opening, min(opening + _LONGEST_CAST, len(self.lexemes))):
            text = self._text(at)
            depth += {"(": 1, ")": -1}.get(text, 0)
            if depth == 1 and text == "as":
                return at + 1
        return None

    def _is_type(self, i: int) -> bool:
        """Whether an unquoted name of a type stands there, of no schema."""
        return i < len(self.lexemes) and self.lexemes[i].kind == "word" and self._text(i + 1) != "."

    def _is_timeless(self, i: int) -> bool:
        if self._text(i) == "pg_catalog" and self._text(i + 1) == ".":
            i += 2
        elif self._text(i + 1) == ".":
            return False
        return self._text(i) in (self._dialect.timeless or ())

    def _is_plain(self, i: int) -> bool:
        """Whether a literal or a number stands there."""
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
        """Returns how many arguments follow an opening parenthesis; 0 where they are nested beyond all measure."""
        depth, count = 0, 0 if self._text(opening + 1) == ")" else 1
        for lexeme in self.lexemes[opening:]:
            if lexeme.kind == "sign":
                depth += {"(": 1, ")": -1}.get(lexeme.text, 0)
                count += depth == 1 and lexeme.text == ","
            if not 0 < depth <= _DEEPEST_PARSED:
                break
        return count if depth <= _DEEPEST_PARSED else 0

    def _has(self, *words: str) -> bool:
        return any(lexeme.is_word(*words) for lexeme in self.lexemes)

    def _text(self, i: int) -> str:
        """The text of a word or sign; empty for what is quoted, and beyond the ends."""
        if 0 <= i < len(self.lexemes) and self.lexemes[i].kind in ("word", "sign"):
            return self.lexemes[i].text
        return ""


def _unescaped(text: str) -> str:
    """Returns a text with the characters for which its backslashes stand."""

    def one(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        if code or match[4]:
            number = int(code, 16) if code else int(match[4], 8)
            return chr(number) if number < 128 else " "
        return " " if match[5] in "bfnrt" else match[5]

    return _ESCAPE.sub(one, text)


def _identifiers(text: str, dialect: str) -> set[int]:
    """Returns where in a statement sqlglot sees names that are no functions; none if it cannot read it."""
    from sqlglot import exp, parse

    try:
        trees = parse(text, dialect=dialect)
    except Exception:  # of whatever kind: it has then no say
        return set()
    return {
        node.meta["start"]
        for tree in trees
        if tree is not None
        for node in tree.find_all(exp.Identifier)
        if "start" in node.meta and not isinstance(node.parent, exp.Func)
    }
