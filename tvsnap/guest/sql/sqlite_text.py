"""Takes a text of SQL apart into statements, as SQLite does."""

from __future__ import annotations

import re
from typing import Iterator, List

_TOKEN = re.compile(
    r"""
    (?P<space>     [ \t\n\f\r]+ | --[^\n]* | /\*.*?(?:\*/|\Z) )
  | (?P<semicolon> ; )
  | (?P<quoted>    '[^']*(?:''[^']*)*(?:'|\Z) | "[^"]*(?:""[^"]*)*(?:"|\Z) | `[^`]*(?:``[^`]*)*(?:`|\Z) | \[[^\]]*\]? )
  | (?P<word>      [A-Za-z0-9_$\x80-\U0010ffff]+ )
  | (?P<other>     . )
    """,
    re.VERBOSE | re.DOTALL,
)
_TRIGGER = re.compile(r"(EXPLAIN (QUERY PLAN )?)?CREATE (TEMP |TEMPORARY )?TRIGGER\b")


def statements(text: str) -> Iterator[str]:
    """Yields the statements of a text, with their semicolons; what is empty or mere comment is left out.

    A statement ends at its first semicolon, and one that makes a trigger at `; END ;`: the rule of `sqlite3_complete`,
    here in one pass over the text.
    """
    begin = 0
    first: List[str] = []  # what decides whether it makes a trigger
    last = ["", ""]
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "space":
            continue
        said = token.group().upper() if token.lastgroup == "word" else token.group()[0]
        if said == ";" and (last == [";", "END"] or not _TRIGGER.match(" ".join(first))):
            if first:
                yield text[begin : token.end()]
            begin, first, last = token.end(), [], ["", ""]
            continue
        if len(first) < 6:
            first.append(said)
        last = [last[1], said]
    if first:
        yield text[begin:]
