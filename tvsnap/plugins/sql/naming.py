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
        told = [_words_of(statement, dialect) for statement in statements(query, dialect)]
    except Unreadable:
        return UNKNOWN
    plain = bool(told) and all(one.plain for one in told)
    found = Words(**{**together(told), "plain": plain})
    return UNKNOWN if len(found.names or ()) > MOST_NAMES else found


def _words_of(statement: Statement, dialect: SystemName) -> Words:
    known, first, found = statement.effects, statement.first, statement.lexemes
    calls = frozenset(lexeme.text.lower() for lexeme in statement.unexplained)
    spoken = frozenset(lexeme.text for lexeme in found if lexeme.kind == "word")
    executes = unseen = first not in _KNOWN or not spoken.isdisjoint(_EXECUTING)
    routine = first in _DEFINES and statement.kind_of_object in _ROUTINES
    if routine:
        calls = frozenset()  # an action on a function does not call it
    defines = first in ("create", "alter")
    defined = made = frozenset[str]()
    if defines:
        made = _defined(found)
        executes = executes or not spoken.isdisjoint(_RESTLESS[dialect])
        doubtful = known.stochastic or known.volatile or statement.has_chance or bool(calls)
        if dialect == "postgres":
            doubtful = doubtful or statement.converts
            # It may have the same name as an object of the system's own: until PostgreSQL reports it, the name counts.
        shadows = dialect == "postgres" and (routine or statement.kind_of_object == "foreign")
        if doubtful or shadows or not spoken.isdisjoint(_ATTACHED):
            defined = made | (ENDS if "deferrable" in spoken else frozenset())
        kind = statement.kind_of_object
        if dialect == "postgres" and (kind in _ANYWHERE or (kind == "type" and "input" in spoken)):
            defined |= {ANY}
        # The database system reports the columns of tables that last.
    lists_nothing = dialect == "mariadb" and (first == "alter" or (defines and "temporary" in spoken))
    timed = lists_nothing and (statement.converts or not spoken.isdisjoint({"time", "timestamp"}))
    clean = not (known.stochastic or known.volatile or executes or calls)
    rows = first in _ROWS and not (first == "truncate" and dialect == "mariadb")
    definition = first in _DEFINES and dialect != "mariadb"  # there, files and triggers have times of their own
    # PostgreSQL's BEGIN records the time.
    turns = _TURNS - {"begin", "start"} if dialect == "postgres" else _TURNS
    turned = first in turns and len(found) <= _LONGEST_TURN and spoken.isdisjoint({"not", "chain"})
    turned = turned or (first in ("set", "use") and spoken.isdisjoint({"password", "role", "authorization"}))
    return Words(
        _names(found, known.kind == "other"),
        calls,
        frozenset() if routine else _called(found),
        defined,
        made,
        timed,
        defines,
        executes,
        unseen,
        clean and (turned or (known.kind == "write" and (rows or definition))),
    )


def _called(found: list[Lexeme]) -> frozenset[str]:
    return frozenset(
        _spelt(lexeme)
        for lexeme, following in pairwise(found)
        if following.text == "(" and following.kind == "sign" and lexeme.kind in ("word", "quoted")
    )


def _spelt(lexeme: Lexeme) -> str:
    return lexeme.text.replace('""', '"').replace("``", "`").lower()


def _names(found: list[Lexeme], with_strings: bool) -> frozenset[str]:
    """Returns everything that may be a name; also the words of strings, if one of those may be executed."""
    names = set()
    for lexeme in found:
        if lexeme.kind == "quoted":
            names.add(_spelt(lexeme))
        elif lexeme.kind == "word" and not lexeme.text[0].isdigit():
            names.add(lexeme.text.lower())
        elif with_strings and lexeme.kind == "string":
            names.update(_TOKEN.findall(lexeme.text.lower()))
    return frozenset(names)


def _defined(found: list[Lexeme]) -> frozenset[str]:
    """Returns the names of the defined object and of what it is attached to; all names, if that is not clear."""
    at = next((i for i, lexeme in enumerate(found) if lexeme.is_word(*_OBJECTS)), None)
    if at is None:
        return _names(found, True)
    names = {_name(found, at + 1)}
    attached = next((i for i, lexeme in enumerate(found) if i > at and lexeme.is_word("on", "to", "for")), None)
    if attached is not None:
        names.add(_name(found, attached + 1))
    names.discard("")
    return frozenset(names) or _names(found, True)


def _name(found: list[Lexeme], at: int) -> str:
    """Returns the last part of a name that may be qualified."""
    while at < len(found) and found[at].is_word(*_SKIPPED):
        at += 1
    while at + 2 < len(found) and found[at + 1].text == "." and found[at + 1].kind == "sign":
        at += 2
    return found[at].text.lower() if at < len(found) and found[at].kind in ("word", "quoted") else ""
