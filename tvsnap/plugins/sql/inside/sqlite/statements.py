"""Splits a text of SQL into statements, as SQLite does."""

from __future__ import annotations

import re
from typing import Iterator, List

from ..lexemes import Unreadable, cut

_TRIGGER = re.compile(r"(explain (query plan )?)?create (temp |temporary )?trigger\b")


def statements(text: str) -> Iterator[str]:
    """Yields the statements of a text, with their semicolons, except empty ones and mere comments.

    A statement ends at its first semicolon, and one that creates a trigger at `; END ;`: the rule of
    `sqlite3_complete`, here in one pass over the text. Text that cannot be split is passed to SQLite as one statement,
    for its error.
    """
    begin = 0
    first: List[str] = []  # decides whether it creates a trigger
    last = ["", ""]
    try:
        for lexeme in cut(text, "sqlite"):
            word = lexeme.text if lexeme.kind in ("word", "sign") else "?"
            if word == ";" and (last == [";", "end"] or not _TRIGGER.match(" ".join(first))):
                if first:
                    yield text[begin : lexeme.end]
                begin, first, last = lexeme.end, [], ["", ""]
                continue
            if len(first) < 6:
                first.append(word)
            last = [last[1], word]
    except Unreadable:
        first.append("?")
    if first:
        yield text[begin:]
