"""Finds the definitions in MariaDB's databases that depend on chance, the clock or the server's activity.

The system stores the text of a view, a trigger, a routine, a default and a constraint, in its own words, and shows all
of it. The text is searched for what may depend on chance, and for names, which connect definitions. A name counts in
whatever database it is.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Iterable, Tuple

from ..dialects import DIALECTS, FILE_TIMES, MARIADB_TIMES
from ..reach import Definitions, closed
from .protocol import Connection
from .schema import OWN
from .values import text

_MOST = 1 << 62

_ALL = f"""
SELECT 'view', table_name, view_definition FROM information_schema.VIEWS
WHERE table_schema NOT IN {OWN} LIMIT {_MOST};
SELECT 'write', event_object_table, CONCAT_WS(' ', 'trigger', action_statement) FROM information_schema.TRIGGERS
WHERE event_object_schema NOT IN {OWN} LIMIT {_MOST};
SELECT 'routine', routine_name, COALESCE(routine_definition, 'now') FROM information_schema.ROUTINES
WHERE routine_schema NOT IN {OWN} LIMIT {_MOST};
SELECT 'write', table_name, CONCAT_WS(' ', column_default, extra) FROM information_schema.COLUMNS
WHERE table_schema NOT IN {OWN} AND (column_default IS NOT NULL OR extra <> '') LIMIT {_MOST};
SELECT 'column', table_name, generation_expression FROM information_schema.COLUMNS
WHERE table_schema NOT IN {OWN} AND generation_expression IS NOT NULL LIMIT {_MOST};
SELECT 'write', table_name, check_clause FROM information_schema.CHECK_CONSTRAINTS
WHERE constraint_schema NOT IN {OWN} LIMIT {_MOST};
SELECT 'write', table_name, 'now' FROM information_schema.TABLES
WHERE table_schema NOT IN {OWN} AND table_type = 'SYSTEM VERSIONED' LIMIT {_MOST};
SELECT DISTINCT 'timed', table_name, '' FROM information_schema.COLUMNS WHERE table_schema NOT IN {OWN}
AND (data_type = 'time' OR (data_type = 'timestamp' AND is_nullable = 'NO')) LIMIT {_MOST};
SELECT 'timed', routine_name, '' FROM information_schema.ROUTINES
WHERE routine_schema NOT IN {OWN} AND data_type = 'time' LIMIT {_MOST}
"""
"""Kind, name and text of each.

A system-versioned table stores the time at which a row was written. `timed` ones contain a time of day, or a time that
is set to that of writing where NULL is written.
"""

_EXECUTES = re.compile(r"\b(execute|call|load|handler)\b", re.IGNORECASE)
_FILES = re.compile(rf"\b({'|'.join(sorted(FILE_TIMES))})\b", re.IGNORECASE)
_SEEDS = re.compile(r"rand_seed", re.IGNORECASE)
_TIMES = re.compile(rf"\b(time|{'|'.join(sorted(MARIADB_TIMES))})\b|\{{\s*t\b", re.IGNORECASE)
_NAME = re.compile(r"[\w$]+")

Definition = Tuple[str, str, str]
"""Kind, name in lower case, and text."""

_READ, _RUN, _WRITTEN = "read ", "run ", "written "
_READING = ((_READ, (_READ, _RUN)), (_WRITTEN, (_WRITTEN,)))
_MEETING = {kind: ((how, (_READ, _RUN, _WRITTEN)),) for kind, how in (("routine", _RUN), ("write", _WRITTEN))}
"""Ways in which chance enters by a definition, each with those in which it must enter by the names in it.
The effects of a routine are unknown."""


def definitions(monitor: Connection, version: str) -> Definitions:
    """Returns the present definitions, which have a version; queried over a connection of our own."""
    rows = ([text(value) for value in row] for reply in monitor.run(_ALL) for row in reply.rows)
    return replace(meaning((kind, name.lower(), body) for kind, name, body in rows), version=version)


def meaning(rows: Iterable[Definition]) -> Definitions:
    """Returns what definitions mean with regard to chance."""
    entries = list(rows)
    bodies = [(kind, name, body, set(_NAME.findall(body.lower()))) for kind, name, body in entries if kind != "timed"]
    edges = [
        (how + name, lower + word)
        for kind, name, _, words in bodies
        for how, lowers in _MEETING.get(kind, _READING)
        for lower in lowers
        for word in words
    ]
    doubtful = {_MEETING.get(kind, _READING)[0][0] + name for kind, name, body, _ in bodies if _is_doubtful(body)}
    met = [each.split(" ", 1) for each in closed(doubtful, edges)]
    reads, runs, writes = (frozenset(name for how, name in met if how + " " == one) for one in (_READ, _RUN, _WRITTEN))
    times = {name for kind, name, body in entries if kind == "timed" or _TIMES.search(body)}
    return Definitions(
        reads=reads | runs,
        writes=writes,
        timed=frozenset(closed(times, [(name, word) for _, name, _, words in bodies for word in words])),
        pure=frozenset(name for kind, name, *_ in bodies if kind == "routine") - runs,
        seeds=any(_SEEDS.search(body) for _, _, body, _ in bodies),
        complete=False,  # temporary tables are listed nowhere
    )


def _is_doubtful(text: str) -> bool:
    dialect = DIALECTS["mariadb"]
    return (
        dialect.doubtful.search(text) is not None
        or _EXECUTES.search(text) is not None
        or any(name in text.lower() for name in dialect.variables)
        or ("information_schema" in text.lower() and _FILES.search(text) is not None)
    )
