"""Says of text that the database system refuses, but its command-line client knows, where that is at home."""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Pattern


class _Client(NamedTuple):
    """A client's name, the form of its own commands, and of errors about functions that only it has."""

    name: str
    commands: Pattern[str]
    missing: Pattern[str]


_NEVER = re.compile(r"(?!)")
_CLIENTS: Dict[str, _Client] = {
    "sqlite": _Client(
        "sqlite3",
        re.compile(r"^\s*(\.[a-z]+)\b", re.MULTILINE),
        re.compile(
            r"no such (?:function|table|module): (generate_series|sha3\w*|readfile|writefile|fsdir|lsmode|"
            r"ieee754\w*|base64|base85|edit|completion|zipfile|csv|usleep)$"
            r"|no such collation sequence: (decimal|uint)$"
        ),
    ),
    "postgres": _Client("psql", re.compile(r"^\s*(\\[A-Za-z!?]\S*)", re.MULTILINE), _NEVER),
    "mariadb": _Client(
        "mariadb",
        re.compile(
            r"^\s*((?:source|tee|notee|pager|nopager|system|status)\b|\\[A-Za-z.!])|(\\[gG])\s*;?\s*$",
            re.MULTILINE | re.IGNORECASE,
        ),
        _NEVER,
    ),
}


_SINCE = {"base64": "3.41", "base85": "3.41"}
"""Versions of sqlite3 from which on it has a function."""
_CSV = (
    "csv is an extension of SQLite, which neither this tool nor the program sqlite3 has: `sqlite3 FILE.db "
    "'.import --csv FILE.csv TABLE'` in the terminal loads a file"
)


def advice(system: str, query: str, error: str) -> str:
    """Returns a message about a query that failed; "" if it is not the client's business.

    Args:
        system: the database system's name.
        query: the text that was asked.
        error: in the database system's words.
    """
    client = _CLIENTS[system]
    missing, command = client.missing.search(error), client.commands.search(query)
    if missing:
        name = next(filter(None, missing.groups()))
        if name == "csv":
            return _CSV
        since = f" (from version {_SINCE[name]} on)" if name in _SINCE else ""
        return f"{name} belongs to the program {client.name}{since}: use that in the terminal, or write it in SQL"
    if command:
        named = next(filter(None, command.groups()))
        where = "use that in the terminal, or the tool schema"
        return f"{named} is a command of the program {client.name}, and no SQL: {where}"
    return ""
