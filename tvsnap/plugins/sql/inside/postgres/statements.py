"""Splits a text of SQL into statements, as `psql` does, which sends one after the other."""

from __future__ import annotations

import re
from typing import List

from ..lexemes import Unreadable, cut

_WITH_BODY = re.compile(r"create (or replace )?(function|procedure)\b")


def statements(text: str) -> List[str]:
    """Returns the statements of a text, without empty ones; the text itself if it has no more than one.

    A statement ends at a semicolon outside of parentheses, and of the body (BEGIN ... END) of a function. Text that
    cannot be split is one statement, for the server's error.
    """
    if ";" not in text.rstrip(" \t\r\n;"):  # a long text of one statement takes long to split
        return [text]
    parts: List[str] = []
    begin = inside = body = 0
    first: List[str] = []  # decides whether it has a body
    empty = True
    try:
        for lexeme in cut(text, "postgres"):
            if lexeme.kind == "sign" and lexeme.text == ";" and not inside and not body:
                if not empty:
                    parts.append(text[begin : lexeme.end].lstrip())
                begin, first, empty = lexeme.end, [], True
                continue
            empty = False
            if lexeme.kind == "sign":
                inside = max(0, inside + {"(": 1, ")": -1}.get(lexeme.text, 0))
            elif lexeme.kind == "word":
                if len(first) < 4:
                    first.append(lexeme.text)
                if not inside and _WITH_BODY.match(" ".join(first)):
                    if lexeme.is_word("begin") or (body and lexeme.is_word("case")):
                        body += 1
                    elif body and lexeme.is_word("end"):
                        body -= 1
    except Unreadable:
        empty = False
    if not empty:
        parts.append(text[begin:].lstrip())
    return parts if len(parts) > 1 else [text]
