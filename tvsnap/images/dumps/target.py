"""What an engine other than MySQL's own kind has to say of itself, so that a dump can be written for it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from tvsnap.images.dumps.notes import Notes
from tvsnap.images.dumps.schema import Database
from tvsnap.images.dumps.tables import Column, ForeignKey, Key, Table
from tvsnap.images.dumps.translating import Dialect, Untranslatable, translate

_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


class Target(ABC):
    """Writes the definitions and values of one database in an engine's words.

    Args:
        database: what the dump defines of it.
        notes: what is left out or changed is noted there.
    """

    dialect: ClassVar[Dialect]
    zero_dates: ClassVar[bool]
    """Whether a date such as 0000-00-00 can stay."""
    automatic: ClassVar[bytes]
    """What is inserted to have a number assigned."""

    def __init__(self, database: Database, notes: Notes) -> None:
        self.database = database
        self.notes = notes
        self._taken = {self.folded(name) for name in [*database.tables, *database.views]}

    @abstractmethod
    def folded(self, name: str) -> str:
        """A name as the engine takes it if it stands unquoted."""

    @abstractmethod
    def text(self, value: bytes) -> bytes:
        """A literal of text; `value` may be anything, also what is not UTF-8."""

    @abstractmethod
    def binary(self, value: bytes) -> bytes:
        """A literal of bytes."""

    @abstractmethod
    def as_is(self, statement: bytes) -> bool:
        """Whether strings without a backslash can stay as they are in this statement."""

    @abstractmethod
    def ignoring(self, verb: str) -> tuple[str, str]:
        """How rows are inserted.

        Args:
            verb: `INSERT`, `REPLACE` or `IGNORE`, the last for rows that are not inserted if their key is there.

        Returns:
            The beginning of the statement, up to the table's name, and its end.
        """

    @abstractmethod
    def before(self) -> Iterator[str]:
        """The statements that come before the rows, without semicolons."""

    @abstractmethod
    def after(self, zero_dates: set[tuple[str, str]]) -> Iterator[str]:
        """The statements that come after the rows, without semicolons.

        Args:
            zero_dates: tables and columns, in lower case, in which a date became NULL.
        """

    def quoted(self, name: str) -> str:
        """A name in quotes."""
        return '"' + self.folded(name).replace('"', '""') + '"'

    def quoted_all(self, names: tuple[str, ...]) -> str:
        """Names in quotes, with commas between."""
        return ", ".join(self.quoted(name) for name in names)

    def string(self, value: str) -> str:
        """A literal of text."""
        return self.text(value.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def index_name(self, table: Table, key: Key) -> str:
        """A name for an index, quoted: its own, where nothing else in the database has it.

        Indexes of different tables may have one name in MySQL, but not here.
        """
        name = self.folded(key.name or f"{table.name}_{'_'.join(filter(None, key.columns))}_key")
        candidates = [name, f"{self.folded(table.name)}_{name}"]
        candidates += [f"{candidates[1]}_{number}" for number in range(2, len(self._taken) + 3)]
        chosen = next(candidate for candidate in candidates if candidate.lower() not in self._taken)
        self._taken.add(chosen.lower())
        return self.quoted(chosen)

    def kept_keys(self, table: Table) -> list[Key]:
        """The keys of a table but the primary one; those that search text or space are left out."""
        for key in table.keys:
            if key.kind in ("fulltext", "spatial"):
                self.notes.add(f"{{n}} {key.kind} index{{es}} left out", f"{table.name}.{key.name}")
        return [key for key in table.keys if key.kind in ("unique", "index")]

    def kept_references(self, table: Table) -> list[ForeignKey]:
        """The foreign keys that refer to a key of a table that is there; MySQL asks for less."""
        kept = []
        for foreign in table.foreign_keys:
            other = self.database.table(foreign.table)
            if other and other.identifies(foreign.references):
                kept.append(foreign)
            else:
                reason = f"no unique key of {foreign.table}" if other else f"{foreign.table} is not in the dump"
                self.notes.add(
                    "{n} foreign key{s} left out that refer to no key", f"{table.name}.{foreign.name} ({reason})"
                )
        return kept

    def translated(self, text: str, what: str) -> str | None:
        """An expression or query in the engine's words; None, and a note, if that cannot be."""
        try:
            return translate(text, self.dialect)
        except Untranslatable as reason:
            self.notes.add("{n} expression{s} left out", f"{what} ({reason})")
            return None

    def literal_default(self, table: Table, column: Column) -> str | None:
        """A column's default, if that is a mere value; None if there is none of the kind."""
        value = column.default
        if not isinstance(value, str):
            return None
        family = column.type.family
        if family in ("integer", "decimal", "float", "bits"):
            return value if _NUMBER.fullmatch(value) else self.string(value)
        if family == "binary":
            return self.binary(value.encode("utf-8", "surrogateescape")).decode()
        if family == "date" and not self.zero_dates and is_zero_date(value):
            self.notes.add("{n} default{s} of an impossible date left out", f"{table.name}.{column.name}")
            return None
        return self.string(value)

    def note_columns(self, table: Table) -> None:
        """Notes what is lost of a table."""
        for lost in table.left_out:
            self.notes.add("{n} detail{s} of tables left out", f"{lost} of {table.name}")
        for column in table.columns:
            name = f"{table.name}.{column.name}"
            if column.on_update:
                self.notes.add("{n} column{s} no longer set to the time when their row changes", name)
            if column.type.name in ("enum", "set"):
                self.notes.add("{n} column{s} of type enum or set became text", name)
            if column.type.family == "spatial":
                self.notes.add("{n} spatial column{s} became bytes", name)


def is_zero_date(value: str) -> bool:
    """Whether a date is none: a part of it is zero."""
    return value.startswith("0000") or value[5:7] == "00" or value[8:10] == "00"
