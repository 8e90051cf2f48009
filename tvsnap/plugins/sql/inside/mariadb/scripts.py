"""Splits a script of SQL into statements, as the command-line client of MySQL and MariaDB does."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Iterator, List, Pattern, Tuple, Union

from ..lexemes import GRAMMARS

if TYPE_CHECKING:
    import mmap

_GRAMMAR = GRAMMARS["mariadb"]
PART = rf"(?P<mark>/\*M?!\d*|\*/)|(?P<kept>{_GRAMMAR.comment}|{_GRAMMAR.string}|{_GRAMMAR.quoted})"
"""The parts of a script: the marks of comments that are executed, and comments, strings and quoted names."""

_SANDBOX_MODE = r"/\*M?!999999\\-.*?\*/"
"""The beginning of newer dumps of MariaDB: a command for the client, which other clients treat as a comment."""
_LEADING = re.compile(
    rf"(?:\s|\xef\xbb\xbf|{_SANDBOX_MODE}|(?!/\*M?!)(?:{_GRAMMAR.comment}))*".encode("latin-1"), re.DOTALL
)
_COMMAND = re.compile(rb"delimiter[ \t]+(\S+)[^\n]*", re.IGNORECASE)
_COMMANDS = re.compile(r"^\s*delimiter[ \t]+\S", re.IGNORECASE | re.MULTILINE)


class Unended(Exception):
    """A string, name or comment does not end.

    Attributes:
        line: the line of its beginning, from 1.
        what: its kind.
    """

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: a {what} does not end")
        self.line, self.what = line, what


def cut_script(script: Union[bytes, mmap.mmap]) -> Iterator[Tuple[int, int, int]]:
    """Yields the statements of a script, without their delimiters and the comments before them.

    Yields:
        The line in which a statement begins, from 1; its first byte, and the one after its last.

    Raises:
        Unended: the script ends within a string, a name or a comment.
    """
    delimiter, position, line = b";", 0, 1
    while True:
        start = _end(_LEADING, script, position)
        line += script[position:start].count(b"\n")
        if start == len(script):
            return
        command = _COMMAND.match(script, start)
        if command:
            delimiter, position = command[1], command.end()
            continue
        end = _end_of_statement(script, start, delimiter, line)
        text = script[start:end].rstrip()
        if text:
            yield line, start, start + len(text)
        line += script[start:end].count(b"\n")
        position = end + len(delimiter)


def requests(query: str) -> List[str]:
    """Splits a query into the requests to send to the server, one after the other.

    The server splits a query at its semicolons itself, except those within procedures. It does not know the client's
    command DELIMITER, with which scripts mark where procedures end: a query with that is split as the client would.
    """
    if not _COMMANDS.search(query):
        return [query]
    script = query.encode("utf-8", "surrogatepass")
    try:
        return [script[start:end].decode("utf-8", "surrogatepass") for _, start, end in cut_script(script)]
    except Unended:
        return [query]


def _end(pattern: Pattern[bytes], script: Union[bytes, mmap.mmap], position: int) -> int:
    match = pattern.match(script, position)
    return match.end() if match else position


@lru_cache(maxsize=16)
def _parts(delimiter: bytes) -> Pattern[bytes]:
    ends = rb"(?P<ends>" + re.escape(delimiter) + rb")|"
    return re.compile(ends + PART.encode("latin-1") + rb"|(?P<open>['\"`]|/\*)", re.DOTALL)


def _end_of_statement(script: Union[bytes, mmap.mmap], start: int, delimiter: bytes, line: int) -> int:
    executed = False
    for part in _parts(delimiter).finditer(script, start):
        if part.lastgroup == "ends" and not executed:
            return part.start()
        if part.lastgroup == "mark":
            executed = part["mark"] != b"*/"
        elif part.lastgroup == "open":
            line += script[start : part.start()].count(b"\n")
            raise Unended(line, "comment" if part["open"] == b"/*" else "string or quoted name")
    return len(script)
