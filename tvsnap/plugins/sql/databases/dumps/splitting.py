"""Splits a dump of MySQL or MariaDB into statements, as their command-line client would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvsnap.model.errors import UsageError
from tvsnap.plugins.sql.inside.mariadb.scripts import Unended, cut_script

if TYPE_CHECKING:
    import mmap

_CHOOSES = re.compile(
    rb"(?:/\*!\d*\s*)?(?:USE|CREATE\s+(?:DATABASE|SCHEMA)(?:\s+(?:/\*!\d*\s*)?IF\s+NOT\s+EXISTS(?:\s*\*/)?)?)"
    rb"\s+(?:`([^`]+)`|([\w$]+))",
    re.IGNORECASE,
)
_SOURCE = re.compile(rb"(?:source|\\\.)[ \t]+([^\r\n]+)", re.IGNORECASE)
"""The client's command that reads another script, up to the end of its line."""
_OWN = {"mysql", "sys", "performance_schema", "information_schema", "ndbinfo"}
"""The server's own databases."""


class DumpError(UsageError):
    """A dump that cannot be read or translated; the message names the line, the reason and a remedy."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of the dump.

    Attributes:
        line: the line of its beginning, from 1.
        start, end: its first byte, and the one after its last.
        text: without its delimiter and the comments before it.
    """

    line: int
    start: int
    end: int
    text: bytes

    @property
    def database(self) -> str:
        """The database that it creates or selects; empty if it does neither.

        Raises:
            DumpError: it is the server's own, which cannot be replaced by another one.
        """
        match = _CHOOSES.match(self.text)
        name = (match[1] or match[2]).decode("utf-8", "replace") if match else ""
        if name.lower() in _OWN:
            raise DumpError(
                f"line {self.line}: {name} is the server's own database; dump yours by name, as with "
                "`mysqldump --databases NAME`"
            )
        return name


def statements(dump: bytes | mmap.mmap) -> Iterator[Statement]:
    """Yields the statements of a dump; raises DumpError if it ends within a string or comment, or reads another."""
    try:
        for line, start, end in cut_script(dump):
            if source := _SOURCE.match(dump, start, end):
                file = source[1].decode("utf-8", "replace").rstrip(" \t;")
                raise DumpError(
                    f"line {line}: another script, {file}, is not read from here: give the database a list of its "
                    "files in their order, as `stock: [schema.sql, rows.sql]`, and remove this line"
                )
            yield Statement(line, start, end, dump[start:end])
    except Unended as error:
        raise DumpError(f"{error}; the file may have been cut off: dump it again") from None
