"""What MariaDB's databases define that is left to chance, the clock or the server at work: told by the text of it.

The system stores the text of a view, a trigger, a routine, a default and a constraint, in its own words, and shows all
of it. What text may be left to chance is looked for in that, and what stands on it by the names in it. A name counts
whatever database it is in.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Dict, FrozenSet, Iterable, List, Optional, Set, Tuple

from ..dialects import DIALECTS, FILE_TIMES, MARIADB_TIMES
from ..reach import Definitions
from .protocol import Connection, Row
from .schema import OWN

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
"""Kind, name and text of each. A system-versioned table keeps the time at which a row was written. What is `timed`
holds a time of day, or a time that is that of writing where NULL is written."""

_EXECUTES = re.compile(r"\b(execute|call|load|handler)\b", re.IGNORECASE)
_FILES = re.compile(rf"\b({'|'.join(sorted(FILE_TIMES))})\b", re.IGNORECASE)
_SEEDS = re.compile(r"rand_seed", re.IGNORECASE)
_TIMES = re.compile(rf"\b(time|{'|'.join(sorted(MARIADB_TIMES))})\b|\{{\s*t\b", re.IGNORECASE)
_NAME = re.compile(r"[\w$]+")

Definition = Tuple[str, str, str]
"""Kind, name in lower case, and text."""


def definitions(monitor: Connection) -> Definitions:
    """Returns what is defined now.

    Args:
        monitor: a connection of our own.

    Raises:
        Refused, Lost.
    """
    return told_by(_read(row) for reply in monitor.run(_ALL) for row in reply.rows)


def told_by(found: Iterable[Definition]) -> Definitions:
    """Returns what definitions tell of chance."""
    said = list(found)
    timed = {name for kind, name, _ in said if kind == "timed"}
    all_found = [each for each in said if each[0] != "timed"]
    names: Dict[int, FrozenSet[str]] = {
        number: frozenset(_NAME.findall(text.lower())) for number, (_, _, text) in enumerate(all_found)
    }
    doubtful = {number for number, (_, _, text) in enumerate(all_found) if _is_doubtful(text)}
    reads, writes, routines = _spread(all_found, names, doubtful)
    made = {name for kind, name, _ in all_found if kind == "routine"}
    return Definitions(
        reads=frozenset(reads | routines),
        writes=frozenset(writes),
        timed=frozenset(_timed(all_found, names, timed)),
        pure=frozenset(made - routines),
        seeds=any(_SEEDS.search(text) for _, _, text in all_found),
        complete=False,  # temporary tables are listed nowhere
    )


def _spread(
    found: List[Definition], names: Dict[int, FrozenSet[str]], doubtful: Set[int]
) -> Tuple[Set[str], Set[str], Set[str]]:
    """Returns the names that stand for chance where they are read, written and called, to the last that uses one."""
    reads: Set[str] = set()
    writes: Set[str] = set()
    routines: Set[str] = set()
    size = -1
    while size != len(reads) + len(writes) + len(routines):
        size = len(reads) + len(writes) + len(routines)
        for number, (kind, name, _) in enumerate(found):
            read = number in doubtful or not names[number].isdisjoint(reads | routines)
            written = read or not names[number].isdisjoint(writes)
            if kind == "routine":
                if written:  # nobody knows whether it writes or reads
                    routines.add(name)
            elif kind == "write" or not read:
                if written:
                    writes.add(name)
            else:
                reads.add(name)
    return reads, writes, routines


def _timed(found: List[Definition], names: Dict[int, FrozenSet[str]], timed: Set[str]) -> Set[str]:
    """Returns the names of what has to do with times of day, to the last that uses one."""
    timed = timed | {name for _, name, text in found if _TIMES.search(text)}
    size = -1
    while size != len(timed):
        size = len(timed)
        timed |= {name for number, (_, name, _) in enumerate(found) if not names[number].isdisjoint(timed)}
    return timed


def _is_doubtful(text: str) -> bool:
    dialect = DIALECTS["mariadb"]
    return (
        dialect.doubtful.search(text) is not None
        or _EXECUTES.search(text) is not None
        or any(name in text.lower() for name in dialect.variables)
        or ("information_schema" in text.lower() and _FILES.search(text) is not None)
    )


def _read(row: Row) -> Definition:
    kind, name, text = ((value or b"").decode("utf-8", "replace") for value in row)
    return kind, name.lower(), text


class Definers:
    """Looks again at what is defined when that may have changed."""

    def __init__(self) -> None:
        self._at: Optional[str] = None
        self._known = Definitions()

    def look(self, version: str, monitor: Connection) -> Definitions:
        """Returns what is defined; arguments as of `definitions`, and what changes whenever that may have changed."""
        if version != self._at:
            self._known = replace(definitions(monitor), version=version)
            self._at = version
        return self._known
