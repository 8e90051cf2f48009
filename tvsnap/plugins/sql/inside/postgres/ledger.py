"""Keeps account of state that a PostgreSQL session may have and that the server does not report."""

from __future__ import annotations

import re
from typing import List

_READS = frozenset(("SELECT",))
"""Tags of statements that change nothing by themselves."""
_ROWS = frozenset(("SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "FETCH"))
"""Tags of statements that see or change rows: after the first of these, SET TRANSACTION is too late."""
_ENDS = frozenset(("BEGIN", "START", "COMMIT", "ROLLBACK", "PREPARE"))
"""Tags of statements after which another transaction may be open than before."""
_SETS = frozenset(("SET", "DO", "CALL", "LOAD"))
"""Tags of statements that may give a value to a setting which is not in the server's list."""

_WRITES_ROWS = re.compile(r"\b(insert|update|delete|merge|into)\b", re.IGNORECASE)
_SETS_CONFIG = re.compile(r"set_config", re.IGNORECASE)
_SEEDS = re.compile(r"seed", re.IGNORECASE)


class Ledger:
    """The account of one connection.

    Attributes:
        turns: grows with each request in a transaction that was more than a mere read, as rows in temporary tables,
            savepoints, cursors and settings are not visible; and with the first read.
        settled: one more read changes nothing for later statements in the same transaction.
        kept: a setting with a name chosen by the agent may have a value.
        seeded: the agent may have set the seed of the random numbers.
    """

    def __init__(self) -> None:
        self.turns = 0
        self.settled = False
        self.kept = False
        self.seeded = False

    def note(self, query: str, tags: List[str], idle: bool) -> None:
        """Notes a request.

        Args:
            query: its text.
            tags: the first words of the tags of the statements that succeeded; `SELECT INTO` if one returned no rows,
                `DISCARD ALL` in full.
            idle: no transaction is open after it.
        """
        self.seeded = self.seeded or bool(_SEEDS.search(query))
        if not _SETS.isdisjoint(tags) or _SETS_CONFIG.search(query):
            self.kept = True
        if tags[-1:] == ["DISCARD ALL"]:
            self.kept = False
        if idle:
            self.settled = False
        elif tags and set(tags) != {"SHOW"}:
            only_reads = _READS.issuperset(tags) and not _WRITES_ROWS.search(query)
            if not (only_reads and self.settled):
                self.turns += 1
            self.settled = _ENDS.isdisjoint(tags) and (self.settled or not _ROWS.isdisjoint(tags))
