"""A dump of MySQL or MariaDB, statement by statement, as their command-line client would send them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tvsnap.guest.sql.lexemes import GRAMMARS
from tvsnap.model.errors import UsageError

if TYPE_CHECKING:
    import mmap

_GRAMMAR = GRAMMARS["mariadb"]
PART = rf"(?P<mark>/\*M?!\d*|\*/)|(?P<kept>{_GRAMMAR.comment}|{_GRAMMAR.string}|{_GRAMMAR.quoted})"
"""What is looked at as a whole: the marks of comments that are executed, and comments, strings and quoted names."""

_SANDBOX_MODE = r"/\*M?!999999\\-.*?\*/"
"""How newer dumps of MariaDB begin: a command for the client, which others take for a comment."""
_LEADING = re.compile(
    rf"(?:\s|\xef\xbb\xbf|{_SANDBOX_MODE}|(?!/\*M?!)(?:{_GRAMMAR.comment}))*".encode("latin-1"), re.DOTALL
)
_COMMAND = re.compile(rb"delimiter[ \t]+(\S+)[^\n]*", re.IGNORECASE)
_CHOOSES = re.compile(
    rb"(?:/\*!\d*\s*)?(?:USE|CREATE\s+(?:DATABASE|SCHEMA)(?:\s+(?:/\*!\d*\s*)?IF\s+NOT\s+EXISTS(?:\s*\*/)?)?)"
    rb"\s+(?:`([^`]+)`|([\w$]+))",
    re.IGNORECASE,
)
_OWN = {"mysql", "sys", "performance_schema", "information_schema", "ndbinfo"}
"""The server's own databases."""


class DumpError(UsageError):
    """A dump that cannot be read or translated; the message names the line, the reason and the way out."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as it stands in the dump.

    Attributes:
        line: where it begins, from 1.
        start, end: its first byte, and the one after its last.
        text: without its delimiter and the comments before it.
    """

    line: int
    start: int
    end: int
    text: bytes

    @property
    def database(self) -> str:
        """The database that it makes or puts in use; empty if it does neither.

        Raises:
            DumpError: it is the server's own, which cannot be replaced by another's.
        """
        found = _CHOOSES.match(self.text)
        name = (found[1] or found[2]).decode("utf-8", "replace") if found else ""
        if name.lower() in _OWN:
            raise DumpError(
                f"line {self.line}: {name} is the server's own database; dump yours by name, as with "
                "`mysqldump --databases NAME`"
            )
        return name


def statements(dump: bytes | mmap.mmap) -> Iterator[Statement]:
    """Yields the statements of a dump.

    Raises:
        DumpError: it ends within a string or comment.
    """
    delimiter, position, line = b";", 0, 1
    while True:
        start = _end(_LEADING, dump, position)
        line += dump[position:start].count(b"\n")
        if start == len(dump):
            return
        if command := _COMMAND.match(dump, start):
            delimiter, position = command[1], command.end()
            continue
        end = _end_of_statement(dump, start, delimiter, line)
        if text := dump[start:end].rstrip():
            yield Statement(line, start, start + len(text), text)
        line += dump[start:end].count(b"\n")
        position = end + len(delimiter)


def _end(pattern: re.Pattern[bytes], dump: bytes | mmap.mmap, position: int) -> int:
    found = pattern.match(dump, position)
    return found.end() if found else position


@cache
def _parts(delimiter: bytes) -> re.Pattern[bytes]:
    ends = rb"(?P<ends>" + re.escape(delimiter) + rb")|"
    return re.compile(ends + PART.encode("latin-1") + rb"|(?P<open>['\"`]|/\*)", re.DOTALL)


def _end_of_statement(dump: bytes | mmap.mmap, start: int, delimiter: bytes, line: int) -> int:
    executed = False
    for part in _parts(delimiter).finditer(dump, start):
        if part.lastgroup == "ends" and not executed:
            return part.start()
        if part.lastgroup == "mark":
            executed = part["mark"] != b"*/"
        elif part.lastgroup == "open":
            line += dump[start : part.start()].count(b"\n")
            what = "comment" if part["open"] == b"/*" else "string or quoted name"
            raise DumpError(f"line {line}: a {what} does not end; the file may have been cut off: dump it again")
    return len(dump)
