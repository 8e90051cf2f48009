"""Determines from their words what SQL statements do: whether they may change anything, and what depends on chance.

The text is split as the system splits it (`sql/inside/lexemes.py`), and every name before a parenthesis must be known
(`dialects.py`); sqlglot distinguishes names of tables and columns from functions where the words alone do not. Words
that stand for chance are found by `chance.py`. Whatever is not known for sure counts as a change. The effects of a
view, a trigger or a stored function are not visible here: a system's own counters show the changes that they make, and
`sql/inside/reach.py` deals with their use of chance.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

from tvsnap.plugins.sql.chance import DEEPEST, STORED, UNSURE, Phrase
from tvsnap.plugins.sql.inside.dialects import DIALECTS, PRAGMA_LOOKUPS, PRAGMA_QUESTIONS, STABLE_SHOWS
from tvsnap.plugins.sql.inside.lexemes import Lexeme, SystemName, Unreadable, lexemes

logging.getLogger("sqlglot").addHandler(logging.NullHandler())  # nobody needs to know what it cannot parse

Kind = Literal["read", "write", "other"]

LONGEST = 100_000
"""The most characters of a query that is analysed; of a longer one nothing is known."""

_LONGEST_PARSED = 10_000
"""A limit for sqlglot, in characters, as DEEPEST is: its time may grow disproportionately."""

_LONGEST_REMEMBERED = 10_000
"""The most characters of a query whose words are remembered, as each word takes some 200 bytes of memory."""

_ORDER: tuple[Kind, ...] = ("read", "write", "other")

_QUERIES = frozenset({"select", "values", "with", "table"})
_CHANGES = frozenset({"insert", "update", "delete", "replace", "merge", "truncate"})
_EXPLAINED = (_QUERIES - {"table"}) | _CHANGES | {"create", "execute", "declare", "refresh"}
_BEFORE_INTO = frozenset({"insert", "replace", "ignore", "delayed", "low_priority", "high_priority"})
_FILLED = ("as", "execute", "select", "values")
"""Words of a CREATE TABLE that evaluates something."""
_TELLING = ("where", "having", "returning")
"""Words after which chance influences how many rows, or which, a change reports."""
_SHOW_OPTIONS = ("all", "extended", "full", "global", "local", "session", "storage")


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of a query according to its words.

    Attributes:
        kind: `read` changes nothing, whatever the data; `write` at most what the system's own counters show; `other`
            anything, such as settings and locks of the session, transactions, procedures, and everything unknown.
        stochastic: its result depends on chance or the clock.
        volatile: its writes depend on chance or the clock: executing it again leads to another state.
    """

    kind: Kind
    stochastic: bool = False
    volatile: bool = False


def effects(query: str, dialect: SystemName) -> Effects:
    if len(query) > LONGEST:
        return _unknown(query, dialect)
    return _effects(query, dialect)


def statements(query: str, dialect: SystemName) -> tuple[Statement, ...]:
    """Returns the statements of a query; raises Unreadable if it cannot be split with certainty."""
    return (_statements if len(query) <= _LONGEST_REMEMBERED else _statements.__wrapped__)(query, dialect)


@lru_cache(maxsize=16)
def _statements(query: str, dialect: SystemName) -> tuple[Statement, ...]:
    return tuple(Statement(part, query, dialect) for part in _split(lexemes(query, dialect)))


@lru_cache(maxsize=1024)
def _effects(query: str, dialect: SystemName) -> Effects:
    try:
        parts = [statement.effects for statement in statements(query, dialect)]
    except Unreadable:
        return _unknown(query, dialect)
    return Effects(
        max((each.kind for each in parts), key=_ORDER.index, default="read"),
        any(each.stochastic for each in parts),
        any(each.volatile for each in parts),
    )


def _unknown(text: str, dialect: SystemName) -> Effects:
    doubtful = DIALECTS[dialect].doubtful.search(text) is not None
    return Effects("other", doubtful, doubtful)


def _split(tokens: list[Lexeme]) -> list[list[Lexeme]]:
    """Splits at every semicolon, even within a body: the definition of a body with several is then `other`."""
    parts: list[list[Lexeme]] = [[]]
    for lexeme in tokens:
        if lexeme.kind == "sign" and lexeme.text == ";":
            parts.append([])
        else:
            parts[-1].append(lexeme)
    return [part for part in parts if part]


class Statement(Phrase):
    @cached_property
    def effects(self) -> Effects:
        first = self.first
        if first in _QUERIES or first in _CHANGES:
            return self._effects_of_kind(self._body("write" if first in _CHANGES else "read"))
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
        return self._effects_of_kind("other")

    def _effects_of_kind(self, kind: Kind) -> Effects:
        """Returns the effects of a statement of a kind, with what depends on chance."""
        if kind == "read":
            return Effects(kind, stochastic=bool(self._chance))
        if kind == "write":
            volatile = bool(self._chance) or self.converts
            telling = next((i for i, each in enumerate(self.lexemes) if each.is_word(*_TELLING)), len(self.lexemes))
            return Effects(kind, any(i > telling for i in self._chance), volatile)
            # Strings may contain statements that are executed.
        strings = [each.text for each in self.lexemes if each.kind == "string"]
        doubtful = bool(self._chance) or any(self._dialect.doubtful.search(text) for text in strings)
        return Effects(kind, doubtful, doubtful or self.converts)

    def _explain(self, first: str) -> Effects:
        start = next((i for i, each in enumerate(self.lexemes) if i and each.is_word(*_EXPLAINED)), None)
        if start is None:
            if first == "analyze" or self._name != "mariadb":
                return self._effects_of_kind("other")
            return Effects("read", stochastic=self._has("connection"))  # a table's columns, or another's plan
        inner = Statement(self.lexemes[start:], self._query, self._name).effects
        executed = any(each.is_word("analyze", "analyse") for each in self.lexemes[:start])
        if executed:
            return Effects(inner.kind, stochastic=True, volatile=inner.volatile)
        # A plan may depend on the values of constant functions.
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
        return self._effects_of_kind("other")

    def _definition(self, first: str) -> Effects:
        if first == "comment":
            return Effects("write")
        result = self._defined(first, self.kind_of_object)
        # Such a text is evaluated when something is defined with it: DEFAULT 'now' is one fixed time from then on.
        return replace(result, volatile=True) if self._has_moment else result

    def _defined(self, first: str, kind: str) -> Effects:
        if kind in UNSURE or not kind or self._has("soname"):
            return self._effects_of_kind("other")
        if first in ("drop", "rename"):
            return Effects("write")
        if first == "alter" and kind == "database":
            return self._effects_of_kind("other")
        if first == "create" and (kind in STORED or (kind == "table" and not self._has(*_FILLED))):
            return Effects("write")
        if first == "create" and kind == "index" and self._name == "mariadb":
            return Effects("write")  # of columns alone
        return self._effects_of_kind(self._body("write"))

    def _body(self, kind: Kind) -> Kind:
        """Returns what a query or a change does according to its contents; at least `kind`."""
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
        """Names before a parenthesis that may be functions with unknown effects."""
        calls = [
            lexeme
            for i, lexeme in enumerate(self.lexemes)
            if self._text(i + 1) == "(" and not self._known_before_parenthesis(i)
        ]
        if calls:
            names = self._names()
            calls = [lexeme for lexeme in calls if lexeme.start not in names]
        return calls

    def _known_before_parenthesis(self, i: int) -> bool:
        """Returns whether the text before a parenthesis is known to have no effect.

        Otherwise it may still be no function.
        """
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
        """Returns the positions in the query of names of tables, columns and the like, according to sqlglot."""
        begin, end = self.lexemes[0].start, self.lexemes[-1].end
        if end - begin > _LONGEST_PARSED or self._depth > DEEPEST:
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


def _identifiers(text: str, dialect: str) -> set[int]:
    """Returns the positions in a statement of names that are no functions; none if sqlglot cannot parse it."""
    from sqlglot import exp, parse

    try:
        trees = parse(text, dialect=dialect)
    except Exception:  # any error means that it cannot parse it
        return set()
    return {
        node.meta["start"]
        for tree in trees
        if tree is not None
        for node in tree.find_all(exp.Identifier)
        if "start" in node.meta and not isinstance(node.parent, exp.Func)
    }
