"""MySQL's queries and expressions in another engine's words, by sqlglot."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from tvsnap.images.dumps.tokens import Cursor, executed, tokens

if TYPE_CHECKING:
    import sqlglot.expressions as exp

Dialect = Literal["mariadb", "postgres", "sqlite"]


class Untranslatable(Exception):
    """What cannot be said in the other engine's words; the message is the reason, in one line."""


def translate(text: str, dialect: Dialect) -> str:
    """Translates a query or an expression.

    Names lose their database, and are written as the tables' own: in lower case for PostgreSQL.

    Args:
        text: in MySQL's words.

    Raises:
        Untranslatable: with the reason.
    """
    # Deferred: it takes a tenth of a second, and few conversions need it.
    import sqlglot

    bare = _without_character_sets(text)
    log = logging.getLogger("sqlglot")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        tree = sqlglot.parse_one(bare, read="mysql")
        _adapt(tree, dialect)
        return tree.sql(dialect=dialect, unsupported_level=sqlglot.ErrorLevel.RAISE, comments=False)
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError) as error:
        raise Untranslatable(" ".join(str(error).split())[:120] or type(error).__name__) from None
    finally:
        log.setLevel(level)


def tables_of(query: str) -> set[str]:
    """The tables that a query reads, in lower case; none if it cannot be read."""
    import sqlglot
    import sqlglot.expressions as exp

    try:
        return {table.name.lower() for table in sqlglot.parse_one(query, read="mysql").find_all(exp.Table)}
    except (sqlglot.errors.SqlglotError, RecursionError):
        return set()


def _without_character_sets(text: str) -> str:
    """Leaves out `_utf8mb4` before strings, COLLATE clauses and the marks of executed comments."""
    words = executed(tokens(text))
    kept = []
    cursor = Cursor(text, words)
    while not cursor.done:
        if cursor.take("COLLATE"):
            cursor.next()
            continue
        token = cursor.next()
        if token.upper.startswith("_") and cursor.peek().kind == "string":
            continue
        kept.append(token)
    pieces = []
    end = None
    for token in kept:
        pieces.append(token.text if token.start == end else f" {token.text}")
        end = token.end
    return "".join(pieces).strip()


def _adapt(tree: exp.Expr, dialect: Dialect) -> None:
    import sqlglot.expressions as exp

    for table in list(tree.find_all(exp.Table)):
        table.set("db", None)
    for column in list(tree.find_all(exp.Column)):
        column.set("db", None)
    for identifier in list(tree.find_all(exp.Identifier)):
        if dialect == "postgres":
            identifier.set("this", identifier.this.lower())
        identifier.set("quoted", True)
