"""Converts MariaDB's raw values into JSON.

Integers (also YEAR and BIT) are numbers, as are FLOAT and DOUBLE; decimals, dates and times are the system's own text.
A string is binary if its character set is `binary`: that of BINARY, VARBINARY, BLOB and geometry columns, of 0x41 and
of functions such as UNHEX(). All other strings are text, but if they are not UTF-8, they are treated as binary.
"""

from __future__ import annotations

from typing import Any, Optional

from ..results import binary
from .protocol import Field, Refused

_INTEGERS = frozenset({1, 2, 3, 8, 9, 13})  # TINY, SHORT, LONG, LONGLONG, INT24, YEAR
_FLOATS = frozenset({4, 5})
_BIT = 16
_STRINGS = frozenset({15, *range(249, 256)})  # VARCHAR, blobs of all sizes, VAR_STRING, STRING, GEOMETRY
_BINARY_CHARSET = 63
_BINARY_FLAG = 0x80
_UNREADABLE = frozenset({1064, 1065})  # a syntax error, an empty query


def value(field: Field, raw: Optional[bytes]) -> Any:
    """Returns the JSON of a raw value in a row."""
    if raw is None:
        return None
    try:
        if field.kind in _INTEGERS:
            return int(raw)
        if field.kind in _FLOATS:
            return float(raw)
        if field.kind == _BIT:  # a column's value comes as it is stored, an expression's in digits
            return int(raw) if field.flags & _BINARY_FLAG else int.from_bytes(raw, "big")
        if field.kind in _STRINGS and field.charset == _BINARY_CHARSET:
            return binary(raw)
        return raw.decode("utf-8")
    except ValueError:  # the session requested results in another character set
        return binary(raw)


def text(raw: Optional[bytes]) -> str:
    """Returns a raw value that is a name or a message."""
    return (raw or b"").decode("utf-8", "replace")


def unparsed(error: Refused, query: str) -> bool:
    """Returns whether the error, if it is that of the first statement, means that nothing was executed.

    Text that is assembled while a procedure runs may be unreadable, too, so a query with such words does not count.
    """
    words = query.lower()
    return error.number in _UNREADABLE and not any(word in words for word in ("call", "execute", "prepare"))


def quoted(name: str) -> str:
    """Returns a name as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: str) -> str:
    """Returns text as a literal, for a session that interprets backslashes as usual."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"
