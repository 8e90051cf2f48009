"""Finds the names in SQL statements; the database system knows what is behind them: views, defaults, triggers."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from tvsnap.plugins.sql.inside.lexemes import Lexeme, SystemName, Unreadable
from tvsnap.plugins.sql.inside.reach import ANY, ENDS, UNKNOWN, Words, together
from tvsnap.plugins.sql.statements import LONGEST, Statement, statements

MOST_NAMES = 5000
"""The most names of one request; one with more may reach anything."""

_ROWS = frozenset({"insert", "update", "delete", "replace", "truncate"})
_DEFINES = frozenset({"create", "alter", "drop", "rename", "comment"})
_KNOWN = (
    _ROWS
    | _DEFINES
    | {"abort", "attach", "begin", "close", "commit", "deallocate", "declare", "desc", "describe", "detach", "discard"}
    | {"end", "explain", "flush", "help", "kill", "listen", "lock", "merge", "notify", "pragma", "prepare", "release"}
    | {"reset", "rollback", "savepoint", "select", "set", "show", "start", "table", "unlisten", "unlock", "use"}
    | {"values", "with"}
)
"""Verbs that execute nothing but what the statement itself contains."""
_TURNS = frozenset({"begin", "start", "commit", "end", "rollback", "savepoint", "release"})
"""Verbs of transactions."""
_LONGEST_TURN = 5
_EXECUTING = frozenset({"execute", "call", "tablesample", "immediate"})
_OBJECTS = frozenset(
    {"aggregate", "cast", "domain", "event", "function", "index", "materialized", "operator", "policy", "procedure"}
    | {"database", "role", "rule", "schema", "sequence", "server", "table", "trigger", "type", "user", "view"}
)
_ATTACHED = ("trigger", "rule", "policy", "domain", "operator", "cast", "event")
"""Objects that are executed although no statement names them."""
_SKIPPED = frozenset({"if", "not", "exists", "only", "concurrently", "view"})
_ANYWHERE = frozenset({"access", "cast", "event", "extension", "language", "operator", "transform"})
"""Objects of PostgreSQL by which any statement may execute something; so may types with functions of their own."""
_ROUTINES = frozenset({"aggregate", "function", "procedure", "routine"})
_RESTLESS = {
    "sqlite": frozenset[str](),
    "postgres": frozenset({"role", "user", "extension", "system", "subscription", "server"}),
    "mariadb": frozenset({"user", "role", "trigger", "function", "procedure", "event", "server", "package"}),
}
"""Objects whose creation draws a salt or records the time."""
_UNICODE = re.compile(r"\bu&[\"']", re.IGNORECASE)
_TOKEN = re.compile(r"[^\W\d][\w$]*")


@lru_cache(maxsize=1024)
def words(query: str, dialect: SystemName) -> Words:
    """Returns what the words of one or more statements name."""
    if len(query) > LONGEST or (dialect == "postgres" and _UNICODE.search(query)):
        return UNKNOWN
    try:
        parts = [_words_of(statement, dialect) for statement in statements(query, dialect)]
    except Unreadable:
        return UNKNOWN
    plain = bool(parts) and all(one.plain for one in parts)
    union = Words(**{**together(parts), "plain": plain})
    return UNKNOWN if len(union.names or ()) > MOST_NAMES else union


def _words_of(statement: Statement, dialect: SystemName) -> Words:
    effects, first, lexemes = statement.effects, statement.first, statement.lexemes
    calls = frozenset(lexeme.text.lower() for lexeme in statement.unexplained)
    spoken = frozenset(lexeme.text for lexeme in lexemes if lexeme.kind == "word")
    executes = unseen = first not in _KNOWN or not spoken.isdisjoint(_EXECUTING)
    routine = first in _DEFINES and statement.kind_of_object in _ROUTINES
    if routine:
        calls = frozenset()  # an action on a function does not call it
    defines = first in ("create", "alter")
    defined = objects = frozenset[str]()
    if defines:
        objects = _defined(lexemes)
        executes = executes or not spoken.isdisjoint(_RESTLESS[dialect])
        doubtful = effects.stochastic or effects.volatile or statement.has_chance or bool(calls)
        if dialect == "postgres":
            doubtful = doubtful or statement.converts
            # It may have the same name as an object of the system's own: until PostgreSQL reports it, the name counts.
        shadows = dialect == "postgres" and (routine or statement.kind_of_object == "foreign")
        if doubtful or shadows or not spoken.isdisjoint(_ATTACHED):
            defined = objects | (ENDS if "deferrable" in spoken else frozenset())
        kind = statement.kind_of_object
        if dialect == "postgres" and (kind in _ANYWHERE or (kind == "type" and "input" in spoken)):
            defined |= {ANY}
        # The database system reports the columns of tables that last.
    lists_nothing = dialect == "mariadb" and (first == "alter" or (defines and "temporary" in spoken))
    timed = lists_nothing and (statement.converts or not spoken.isdisjoint({"time", "timestamp"}))
    clean = not (effects.stochastic or effects.volatile or executes or calls)
    rows = first in _ROWS and not (first == "truncate" and dialect == "mariadb")
    definition = first in _DEFINES and dialect != "mariadb"  # there, files and triggers have times of their own
    # PostgreSQL's BEGIN records the time.
    turns = _TURNS - {"begin", "start"} if dialect == "postgres" else _TURNS
    turned = first in turns and len(lexemes) <= _LONGEST_TURN and spoken.isdisjoint({"not", "chain"})
    turned = turned or (first in ("set", "use") and spoken.isdisjoint({"password", "role", "authorization"}))
    return Words(
        _names(lexemes, effects.kind == "other"),
        calls,
        frozenset() if routine else _called(lexemes),
        defined,
        objects,
        timed,
        defines,
        executes,
        unseen,
        clean and (turned or (effects.kind == "write" and (rows or definition))),
    )


def _called(lexemes: list[Lexeme]) -> frozenset[str]:
    return frozenset(
        _spelt(lexeme)
        for lexeme, following in pairwise(lexemes)
        if following.text == "(" and following.kind == "sign" and lexeme.kind in ("word", "quoted")
    )


def _spelt(lexeme: Lexeme) -> str:
    return lexeme.text.replace('""', '"').replace("``", "`").lower()


def _names(lexemes: list[Lexeme], with_strings: bool) -> frozenset[str]:
    """Returns everything that may be a name; also the words of strings, if one of those may be executed."""
    names = set()
    for lexeme in lexemes:
        if lexeme.kind == "quoted":
            names.add(_spelt(lexeme))
        elif lexeme.kind == "word" and not lexeme.text[0].isdigit():
            names.add(lexeme.text.lower())
        elif with_strings and lexeme.kind == "string":
            names.update(_TOKEN.findall(lexeme.text.lower()))
    return frozenset(names)


def _defined(lexemes: list[Lexeme]) -> frozenset[str]:
    """Returns the names of the defined object and of what it is attached to; all names, if that is not clear."""
    at = next((i for i, lexeme in enumerate(lexemes) if lexeme.is_word(*_OBJECTS)), None)
    if at is None:
        return _names(lexemes, True)
    names = {_name(lexemes, at + 1)}
    attached = next((i for i, lexeme in enumerate(lexemes) if i > at and lexeme.is_word("on", "to", "for")), None)
    if attached is not None:
        names.add(_name(lexemes, attached + 1))
    names.discard("")
    return frozenset(names) or _names(lexemes, True)


def _name(lexemes: list[Lexeme], at: int) -> str:
    """Returns the last part of a name that may be qualified."""
    while at < len(lexemes) and lexemes[at].is_word(*_SKIPPED):
        at += 1
    while at + 2 < len(lexemes) and lexemes[at + 1].text == "." and lexemes[at + 1].kind == "sign":
        at += 2
    return lexemes[at].text.lower() if at < len(lexemes) and lexemes[at].kind in ("word", "quoted") else ""
