"""A MySQL database in PostgreSQL's words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tvsnap.images.dumps.notes import Notes
from tvsnap.images.dumps.schema import Database, View
from tvsnap.images.dumps.tables import Column, Expression, Key, Table, Type
from tvsnap.images.dumps.target import Target
from tvsnap.images.dumps.translating import tables_of

_INTEGERS = {
    "tinyint": "smallint",
    "smallint": "smallint",
    "mediumint": "integer",
    "int": "integer",
    "year": "smallint",
}
_UNSIGNED = {"tinyint": "smallint", "smallint": "integer", "mediumint": "integer", "int": "bigint", "year": "smallint"}
_SPECIAL = re.compile(rb"[\\'\x00-\x1f]")
_NAMED = {b"'": b"''", b"\\": b"\\\\", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t"}


class Postgres(Target):
    """All names are in lower case, so that a query finds them however it writes them without quotes.

    What cannot be known to work here (expressions, views, keys that the rows may break) comes after the rows, each in
    a block of its own: what the server refuses is then missing, with a warning, and the rest is there.
    """

    dialect = "postgres"
    zero_dates = False
    automatic = b"DEFAULT"

    def __init__(self, database: Database, notes: Notes) -> None:
        super().__init__(database, notes)
        self._noted_collation = False

    def folded(self, name: str) -> str:
        return name.lower()

    def text(self, value: bytes) -> bytes:
        if b"\0" in value:
            self.notes.add("{n} text{s} with zero bytes, which PostgreSQL cannot hold, lost them")
            value = value.replace(b"\0", b"")
        try:
            value.decode()
        except UnicodeDecodeError:
            self.notes.add("{n} text{s} that were no UTF-8 had characters replaced")
            value = value.decode("utf-8", "replace").encode()
        escaped = _SPECIAL.sub(lambda match: _NAMED.get(match[0], b"\\x%02x" % match[0][0]), value)
        return (b"E'" if b"\\" in escaped else b"'") + escaped + b"'"

    def binary(self, value: bytes) -> bytes:
        return b"'\\x" + value.hex().encode() + b"'"

    def as_is(self, statement: bytes) -> bool:
        try:
            statement.decode()
        except UnicodeDecodeError:
            return False
        return b"\0" not in statement

    def ignoring(self, verb: str) -> tuple[str, str]:
        return "INSERT INTO ", " ON CONFLICT DO NOTHING" if verb == "IGNORE" else ""

    def before(self) -> Iterator[str]:
        yield "SET client_encoding = 'UTF8'"
        yield "SET standard_conforming_strings = on"
        yield "BEGIN"
        for table in self.database.tables.values():
            self.note_columns(table)
            whole = self._table(table, generated=True)
            if any(column.generated for column in table.columns):
                yield self._guarded(whole, otherwise=self._table(table, generated=False))
            else:
                yield whole

    def after(self, zero_dates: set[tuple[str, str]]) -> Iterator[str]:
        tables = list(self.database.tables.values())
        for table in tables:
            yield from self._columns_after(table, zero_dates)
            for key in self.kept_keys(table):
                if key.kind == "index" or not key.whole:
                    yield from self._index(table, key)
            for check in table.checks:
                if expression := self.translated(check.expression.text, f"check {table.name}.{check.name}"):
                    name = f"CONSTRAINT {self.quoted(check.name)} " if check.name else ""
                    yield self._guarded(f"ALTER TABLE {self.quoted(table.name)} ADD {name}CHECK ({expression})")
        for table in tables:
            yield from self._references(table)
        yield from self._views()
        yield "COMMIT"

    def _guarded(self, statement: str, otherwise: str = "", quietly: bool = False) -> str:
        """A statement that may fail: then there is a warning, and another one is run instead."""
        warning = "" if quietly else "RAISE WARNING 'left out: %', SQLERRM; "
        instead = f"EXECUTE {self.string(otherwise)}; " if otherwise else ""
        body = f"BEGIN EXECUTE {self.string(statement)}; EXCEPTION WHEN OTHERS THEN {warning}{instead or 'NULL; '}END"
        return f"DO {self.string(body)}"

    def _table(self, table: Table, generated: bool) -> str:
        lines = [self._column(table, column, generated) for column in table.columns]
        if table.primary_key:
            lines.append(f"PRIMARY KEY ({self.quoted_all(table.primary_key.columns)})")
        whole = [key for key in table.keys if key.kind == "unique" and key.whole]
        lines += [f"UNIQUE ({self.quoted_all(key.columns)})" for key in whole]
        return f"CREATE TABLE {self.quoted(table.name)} (\n  " + ",\n  ".join(lines) + "\n)"

    def _column(self, table: Table, column: Column, generated: bool) -> str:
        kind = _type(column.type, column.auto)
        line = f"{self.quoted(column.name)} {kind}"
        if column.type.family == "text" and not table.compares_case(column) and not self._noted_collation:
            self._noted_collation = True
            self.notes.add("{n} database{s} in which text is now compared with regard to case", self.database.name)
        if column.generated and generated:
            if expression := self.translated(column.generated.text, f"{table.name}.{column.name}"):
                return f"{line} GENERATED ALWAYS AS ({expression}) STORED"
            return line
        if not column.nullable and not column.generated and not self._may_lack(column):
            line += " NOT NULL"
        if column.auto:
            start = f" (START WITH {table.next_value})" if table.next_value else ""
            return f"{line} GENERATED BY DEFAULT AS IDENTITY{start}"
        default = self.literal_default(table, column)
        if _is_now(column.default):
            default = "CURRENT_TIMESTAMP"
        return line + (f" DEFAULT {default}" if default else "")

    def _may_lack(self, column: Column) -> bool:
        """Whether a value may turn out to be no date, so that only the rows tell whether NULL must be allowed."""
        return column.type.family == "date"

    def _columns_after(self, table: Table, zero_dates: set[tuple[str, str]]) -> Iterator[str]:
        name = self.quoted(table.name)
        for column in table.columns:
            quoted = self.quoted(column.name)
            if self._may_lack(column) and not column.nullable and not column.generated:
                if (table.name.lower(), column.name.lower()) in zero_dates:
                    self.notes.add(
                        "{n} column{s} that may now be NULL, for impossible dates", f"{table.name}.{column.name}"
                    )
                else:
                    yield f"ALTER TABLE {name} ALTER {quoted} SET NOT NULL"
            if (default := self._computed(column.default, column)) and not _is_now(column.default):
                yield self._guarded(f"ALTER TABLE {name} ALTER {quoted} SET DEFAULT {default}")
            if value := self._computed(column.generated, column):
                # Where the column could not be a generated one, it gets its values at least. It refuses them if it is.
                yield self._guarded(f"UPDATE {name} SET {quoted} = {value}", quietly=True)
            if column.auto:
                sequence = f"pg_get_serial_sequence({self.string(name)}, {self.string(self.folded(column.name))})"
                yield (
                    f"SELECT setval({sequence}, greatest({max(table.next_value, 1)}, coalesce(max({quoted}), 0) + 1), "
                    f"false) FROM {name}"
                )

    def _computed(self, value: str | Expression | None, column: Column) -> str | None:
        return self.translated(value.text, column.name) if isinstance(value, Expression) else None

    def _index(self, table: Table, key: Key) -> Iterator[str]:
        parts = []
        for part in key.parts:
            expression = self.translated(part.expression, f"{table.name}.{key.name}") if part.expression else ""
            if expression is None:
                return
            if part.length:
                expression = f"left({self.quoted(part.column)}, {part.length})"
            parts.append((f"({expression})" if expression else self.quoted(part.column)) + " DESC" * part.descending)
        unique = "UNIQUE " if key.kind == "unique" else ""
        name = self.index_name(table, key)
        # Guarded also where it is but of columns: PostgreSQL cannot index a text of more than 2,700 bytes.
        yield self._guarded(f"CREATE {unique}INDEX {name} ON {self.quoted(table.name)} ({', '.join(parts)})")

    def _references(self, table: Table) -> Iterator[str]:
        """Foreign keys; the rows that are there may break them, as MySQL does not check a dump's."""
        for foreign in self.kept_references(table):
            name = self.quoted(foreign.name or f"{table.name}_{'_'.join(foreign.columns)}_fkey")
            change = f"ALTER TABLE {self.quoted(table.name)}"
            yield self._guarded(
                f"{change} ADD CONSTRAINT {name} FOREIGN KEY ({self.quoted_all(foreign.columns)}) REFERENCES "
                f"{self.quoted(foreign.table)} ({self.quoted_all(foreign.references)}) {foreign.actions} NOT VALID"
            )
            yield self._guarded(f"{change} VALIDATE CONSTRAINT {name}", quietly=True)

    def _views(self) -> Iterator[str]:
        for view in _ordered(self.database.views):
            if query := self.translated(view.query, f"view {view.name}"):
                columns = f" ({self.quoted_all(view.columns)})" if view.columns else ""
                yield self._guarded(f"CREATE VIEW {self.quoted(view.name)}{columns} AS {query}")


def _ordered(views: dict[str, View]) -> list[View]:
    """Views, each after those that it reads."""
    done: dict[str, View] = {}

    def visit(name: str, above: frozenset[str]) -> None:
        if name in views and name not in done and name not in above:
            for other in sorted(tables_of(views[name].query)):
                visit(other, above | {name})
            done[name] = views[name]

    for name in views:
        visit(name, frozenset())
    return list(done.values())


def _is_now(value: str | Expression | None) -> bool:
    return isinstance(value, Expression) and value.text.upper().partition("(")[0] in (
        "CURRENT_TIMESTAMP",
        "NOW",
        "LOCALTIMESTAMP",
        "LOCALTIME",
    )


def _type(kind: Type, auto: bool) -> str:
    """The type's name; one that can be numbered automatically if that is asked for."""
    family = kind.family
    precision = f"({','.join(kind.arguments)})" if kind.arguments else ""
    if family == "integer":
        large = "numeric(20)" if kind.unsigned and not auto else "bigint"
        return (_UNSIGNED if kind.unsigned else _INTEGERS).get(kind.name, large)
    if auto:
        return "bigint"
    if family == "decimal":
        return f"numeric{precision or '(10,0)'}"
    if family == "float":
        return "real" if kind.name == "float" and not _is_double(kind) else "double precision"
    if family == "date":
        # MySQL keeps no fraction of a second unless told to.
        return "date" if kind.name == "date" else f"timestamp{precision or '(0)'}"
    if family == "time":
        # MySQL's go from -838 to 838 hours, and an interval is written in the same way.
        return f"interval{precision or '(0)'}"
    if family == "bits":
        return "smallint" if precision in ("", "(1)") else "bigint" if precision != "(64)" else "numeric(20)"
    if family in ("binary", "spatial"):
        return "bytea"
    if family == "json":
        return "jsonb"
    # Spaces at the end do not count in MySQL's char(n), and are not returned.
    return f"varchar{precision}" if kind.name in ("char", "varchar") and precision else "text"


def _is_double(kind: Type) -> bool:
    """`float(p)` with a precision of more than 24 bits is a double."""
    return len(kind.arguments) == 1 and kind.arguments[0].isdigit() and int(kind.arguments[0]) > 24
