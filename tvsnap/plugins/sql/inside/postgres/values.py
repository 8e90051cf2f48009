"""Converts PostgreSQL's text of values for rows, text for COPY, and connection settings for libpq."""

from __future__ import annotations

import codecs
import math
import re
from typing import Any, Iterable, Iterator, List

from ..results import binary
from ..system import SystemFailed

PART = 64 * 1024
"""Characters of rows that are sent at once when a table is filled."""

_BOOLEAN, _BYTEA = 16, 17
_INTEGERS = frozenset((20, 21, 23, 26))
_FLOATS = frozenset((700, 701))
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def value(text: bytes, kind: int, encoding: str) -> Any:
    """Converts a value for a row, by the OID of its type and the codec of its text."""
    if kind in _INTEGERS:
        return int(text)
    if kind == _BOOLEAN:
        return text == b"t"
    if kind in _FLOATS:
        number = float(text)
        return number if math.isfinite(number) else text.decode("ascii")
    if kind == _BYTEA:
        return binary(bytea(text))
    return text.decode(encoding, "backslashreplace")


def plain(text: bytes, _: int, encoding: str) -> str:
    return text.decode(encoding, "backslashreplace")


def bytea(text: bytes) -> bytes:
    """Converts the database system's text, in either of its two notations, into bytes."""
    if text.startswith(b"\\x"):
        return bytes.fromhex(text[2:].decode("ascii"))

    def one(match: re.Match[bytes]) -> bytes:
        return b"\\" if match[0] == b"\\\\" else bytes((int(match[1], 8),))

    return re.sub(rb"\\(?:\\|([0-7]{3}))", one, text)


def codec(encoding: str) -> str:
    if encoding in ("UTF8", "SQL_ASCII"):
        return "utf-8"
    try:
        return codecs.lookup(encoding.replace("WIN", "cp")).name
    except LookupError:
        return "utf-8"


def conninfo(**settings: object) -> str:
    quoted = {name: str(setting).replace("\\", "\\\\").replace("'", "\\'") for name, setting in settings.items()}
    return " ".join(f"{name}='{setting}'" for name, setting in quoted.items())


def refusal(message: str) -> str:
    """Returns the server's words in libpq's message about a failed connection."""
    return re.sub(r"^connection to server .*? failed: ", "", message.strip(), flags=re.DOTALL)


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def copy_text(rows: Iterable[Iterable[Any]]) -> Iterator[bytes]:
    """Yields rows in the text format of COPY, in parts of about `PART`."""
    lines: List[str] = []
    size = 0
    for number, row in enumerate(rows, 1):
        line = "\t".join(map(_field, row)) + "\n"
        if "\0" in line:
            raise SystemFailed(f"row {number} holds a NUL character, which PostgreSQL cannot store in a text")
        lines.append(line)
        size += len(line)
        if size >= PART:
            yield "".join(lines).encode("utf-8", "surrogatepass")
            lines, size = [], 0
    if lines:
        yield "".join(lines).encode("utf-8", "surrogatepass")


def _field(cell: Any) -> str:
    if cell is None:
        return "\\N"
    if isinstance(cell, bytes):
        return "\\\\x" + cell.hex()
    return str(cell).translate(_ESCAPES)
