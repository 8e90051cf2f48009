"""Loads what `pg_dump` writes: scripts by `psql`, and archives by way of scripts that `pg_restore` makes."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from typing import Dict, Iterator, List, Set, Tuple

from ..system import SystemFailed
from .server import Server

_ARCHIVES = (b"PGDMP", b"toc.dat\0")
"""Beginnings of archives in the formats custom and tar."""
_MESSAGES = re.compile(r"^(?=psql:)", re.MULTILINE)
_ERROR = re.compile(r"psql:.*?:\d+: (?!NOTICE:|WARNING:|INFO:)")
_PASSED_OVER = {
    "owners and rights of roles that are not there": re.compile(r'ERROR:  role "(.*)" does not exist'),
    "settings that this version does not know": re.compile(r'ERROR:  unrecognized configuration parameter "(.*)"'),
    "extensions that are not installed": re.compile(r'ERROR:  extension "(.*)" (?:is not available|does not exist)'),
    "commands that this psql does not know": re.compile(r"error: invalid command \\((?:un)?restrict)\b"),
}
"""Statements of a dump from another server without which no row is lost; what else needs them fails by itself."""


def load_script(server: Server, path: str, database: str) -> List[str]:
    """Runs a script, or restores an archive, in a database; returns what was passed over, a line for each kind.

    Raises:
        SystemFailed: with the first of the other errors; nothing that holds rows is passed over.
    """
    passed_over: Dict[str, Set[str]] = {}
    with _script(server, path) as script:
        psql = [server.program("psql"), "-X", "-q", "-o", os.devnull, "-d", database, "-f", script]
        process = server.run(psql)
    text = process.stdout.decode("utf-8", "backslashreplace").strip()
    for message in _MESSAGES.split(text):
        if _ERROR.match(message):
            kind, name = _kind(message)
            passed_over.setdefault(kind, set()).add(name)
    if process.returncode:
        raise SystemFailed(text)
    return [f"{kind} were passed over: {', '.join(sorted(names))}" for kind, names in passed_over.items()]


def _kind(message: str) -> Tuple[str, str]:
    for kind, form in _PASSED_OVER.items():
        match = form.search(message)
        if match:
            return kind, match[1]
    raise SystemFailed(message.strip())


@contextlib.contextmanager
def _script(server: Server, path: str) -> Iterator[str]:
    """Yields a script: the file itself, or what an archive comes to."""
    with open(path, "rb") as stream:
        is_script = not stream.read(8).startswith(_ARCHIVES)
    if is_script:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="tvsnap-", suffix=".sql") as script:
        process = server.run([server.program("pg_restore"), "-f", script.name, path])
        if process.returncode:
            message = process.stdout.decode("utf-8", "backslashreplace").strip()
            newer = "; write it as a script: pg_dump --format=plain" if "unsupported version" in message else ""
            raise SystemFailed(message + newer)
        yield script.name
