"""A MySQL database in SQLite's words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from tvsnap.images.dumps.notes import Notes
from tvsnap.images.dumps.schema import Database
from tvsnap.images.dumps.tables import Column, Expression, Key, Table, Type
from tvsnap.images.dumps.target import Target

_TYPES = {"integer": "INTEGER", "float": "REAL", "binary": "BLOB", "bits": "INTEGER", "spatial": "BLOB", "json": "TEXT"}


class SQLite(Target):
    """Text is compared without regard to case, as far as SQLite can (A to Z), where MySQL does so.

    What cannot be known to work is tried in a database of this process first.
    """

    dialect = "sqlite"
    zero_dates = True
    automatic = b"NULL"

    def __init__(self, database: Database, notes: Notes) -> None:
        super().__init__(database, notes)
        self._trial = sqlite3.connect(":memory:")

    def folded(self, name: str) -> str:
        return name

    def text(self, value: bytes) -> bytes:
        # The command-line shell reads lines, and loses a carriage return at their end.
        if b"\0" in value or b"\r" in value or not _is_utf8(value):
            return b"CAST(X'" + value.hex().encode() + b"' AS TEXT)"
        return b"'" + value.replace(b"'", b"''") + b"'"

    def binary(self, value: bytes) -> bytes:
        return b"X'" + value.hex().encode() + b"'"

    def as_is(self, statement: bytes) -> bool:
        return b"\r" not in statement and b"\0" not in statement and _is_utf8(statement)

    def ignoring(self, verb: str) -> tuple[str, str]:
        return {"IGNORE": "INSERT OR IGNORE", "REPLACE": "REPLACE"}.get(verb, "INSERT") + " INTO ", ""

    def before(self) -> Iterator[str]:
        yield "PRAGMA foreign_keys = OFF"
        yield "BEGIN"
        for table in self.database.tables.values():
            self.note_columns(table)
            statement = self._table(table)
            self._trial.execute(statement)
            yield statement

    def after(self, zero_dates: set[tuple[str, str]]) -> Iterator[str]:
        for table in self.database.tables.values():
            for key in self.kept_keys(table):
                if key.kind == "index" or not key.whole:
                    yield from self._index(table, key)
            yield from self._numbering(table)
        yield from self._views()
        self._trial.close()
        yield "COMMIT"

    def _table(self, table: Table) -> str:
        lines = [self._column(table, column) for column in table.columns]
        primary = table.primary_key
        if primary and not self._row_id(table):
            lines.append(f"PRIMARY KEY ({self.quoted_all(primary.columns)})")
        # Their notes come with the indexes.
        whole = [key for key in table.keys if key.kind == "unique" and key.whole]
        lines += [f"UNIQUE ({self.quoted_all(key.columns)})" for key in whole]
        for foreign in self.kept_references(table):
            name = f"CONSTRAINT {self.quoted(foreign.name)} " if foreign.name else ""
            lines.append(
                f"{name}FOREIGN KEY ({self.quoted_all(foreign.columns)}) REFERENCES {self.quoted(foreign.table)} "
                f"({self.quoted_all(foreign.references)}) {foreign.actions}".rstrip()
            )
        for check in table.checks:
            translated = self._tried(table, check.expression, f"check {table.name}.{check.name}", "CHECK ({})")
            if translated:
                lines.append((f"CONSTRAINT {self.quoted(check.name)} " if check.name else "") + translated)
        return f"CREATE TABLE {self.quoted(table.name)} (\n  " + ",\n  ".join(lines) + "\n)"

    def _column(self, table: Table, column: Column) -> str:
        kind = column.type
        line = f"{self.quoted(column.name)} {_type(kind)}"
        if self._row_id(table) is column:
            return line + (" PRIMARY KEY AUTOINCREMENT" if column.auto else " PRIMARY KEY")
        if column.auto:
            self.notes.add("{n} column{s} no longer numbered automatically", f"{table.name}.{column.name}")
        if kind.family == "text" and not table.compares_case(column):
            line += " COLLATE NOCASE"
        what = f"{table.name}.{column.name}"
        if column.generated:
            form = f"GENERATED ALWAYS AS ({{}}) {'STORED' if column.stored else 'VIRTUAL'}"
            if generated := self._tried(table, column.generated, what, form):
                line += f" {generated}"
        if not column.nullable and not column.generated:
            line += " NOT NULL"
        default = self.literal_default(table, column)
        if isinstance(column.default, Expression):
            default = self._default(table, column.default, what)
        return line + (f" DEFAULT {default}" if default else "")

    def _default(self, table: Table, expression: Expression, what: str) -> str | None:
        word = expression.text.upper().partition("(")[0]
        if word in ("CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP", "LOCALTIME"):
            return "CURRENT_TIMESTAMP"
        tried = self._tried(table, expression, what, "DEFAULT ({})")
        return tried.removeprefix("DEFAULT ") if tried else None

    def _tried(self, table: Table, expression: Expression, what: str, form: str) -> str | None:
        """An expression as part of a table, if SQLite takes it there."""
        translated = self.translated(expression.text, what)
        if translated is None:
            return None
        part = form.format(translated)
        columns = ", ".join(self.quoted(column.name) for column in table.columns)
        place = f", {part}" if part.startswith("CHECK") else f', " trial" {part}'
        try:
            self._trial.execute(f"CREATE TABLE temp.trial ({columns}{place})")
            self._trial.execute("DROP TABLE temp.trial")
        except sqlite3.Error as error:
            self.notes.add("{n} expression{s} left out", f"{what} ({error})")
            return None
        return part

    def _row_id(self, table: Table) -> Column | None:
        """The column that is the table's own numbering, as a sole integer key is in SQLite."""
        primary = table.primary_key
        if not primary:  # MySQL is content with any key for what it numbers.
            numbered = next((column for column in table.columns if column.auto), None)
            return numbered if numbered and table.identifies((numbered.name,)) else None
        if len(primary.parts) != 1 or not (column := table.column(primary.columns[0])):
            return None
        return column if column.type.family == "integer" and not column.generated else None

    def _index(self, table: Table, key: Key) -> Iterator[str]:
        parts = []
        for part in key.parts:
            expression = self.translated(part.expression, f"{table.name}.{key.name}") if part.expression else ""
            if expression is None:
                return
            if part.length and key.kind == "unique":
                expression = f"substr({self.quoted(part.column)}, 1, {part.length})"
            parts.append((expression or self.quoted(part.column)) + (" DESC" if part.descending else ""))
        unique = "UNIQUE " if key.kind == "unique" else ""
        statement = (
            f"CREATE {unique}INDEX {self.index_name(table, key)} ON {self.quoted(table.name)} ({', '.join(parts)})"
        )
        if self._accepts(statement, "{n} index{es} left out", f"{table.name}.{key.name}"):
            yield statement

    def _numbering(self, table: Table) -> Iterator[str]:
        column = self._row_id(table)
        if column and column.auto:
            name = self.string(table.name)
            yield f"DELETE FROM sqlite_sequence WHERE name = {name}"
            yield (
                f"INSERT INTO sqlite_sequence SELECT {name}, max({max(table.next_value, 1) - 1}, "
                f"ifnull(max({self.quoted(column.name)}), 0)) FROM {self.quoted(table.name)}"
            )

    def _views(self) -> Iterator[str]:
        """Views, once more as long as one could be made that others need."""
        waiting = [
            (view, query)
            for view in self.database.views.values()
            if (query := self.translated(view.query, f"view {view.name}"))
        ]
        while waiting:
            reasons = {}
            for view, query in list(waiting):
                columns = f" ({self.quoted_all(view.columns)})" if view.columns else ""
                statement = f"CREATE VIEW {self.quoted(view.name)}{columns} AS {query}"
                if not (reason := self._refuses(statement, view.name)):
                    waiting.remove((view, query))
                    yield statement
                reasons[view.name] = reason
            if all(reasons.values()):
                for name, reason in reasons.items():
                    self.notes.add("{n} view{s} left out", f"{name} ({reason})")
                return

    def _accepts(self, statement: str, kind: str, name: str) -> bool:
        try:
            self._trial.execute(statement)
        except sqlite3.Error as error:
            self.notes.add(kind, f"{name} ({error})")
            return False
        return True

    def _refuses(self, statement: str, name: str) -> str:
        """Why a view cannot be made and read; empty if it can."""
        try:
            self._trial.execute(statement)
        except sqlite3.Error as error:
            return str(error)
        try:
            self._trial.execute(f"SELECT * FROM {self.quoted(name)} LIMIT 0")
        except sqlite3.Error as error:
            self._trial.execute(f"DROP VIEW {self.quoted(name)}")
            return str(error)
        return ""


def _type(kind: Type) -> str:
    if kind.family in _TYPES:
        return _TYPES[kind.family]
    if kind.family == "text":
        counted = kind.name in ("char", "varchar") and kind.arguments
        return f"VARCHAR({kind.arguments[0]})" if counted else "TEXT"
    if kind.family == "decimal":
        return f"DECIMAL({','.join(kind.arguments or ('10', '0'))})"
    return kind.name.upper()


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
