"""Translates a dump of MySQL for PostgreSQL or SQLite: tables, rows and views, with sqlglot. All else is refused.

What is left out is noted: users, which belong to the server, full-text indexes, and automatic actions of MySQL.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import sqlglot
from sqlglot import exp

from tvsnap.plugins.sql.databases.dumps.splitting import DumpError, Statement, statements
from tvsnap.plugins.sql.inside.mariadb.scripts import PART

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

    from tvsnap.plugins.sql.inside.lexemes import SystemName

logging.getLogger("sqlglot").addHandler(logging.NullHandler())  # what it cannot parse is refused here

_TYPES = {
    "TINYINT UTINYINT SMALLINT YEAR BOOLEAN": ("INTEGER", "smallint"),
    "USMALLINT MEDIUMINT UMEDIUMINT INT": ("INTEGER", "integer"),
    "UINT BIGINT": ("INTEGER", "bigint"),
    "UBIGINT": ("INTEGER", "numeric(20)"),
    "DECIMAL UDECIMAL": ("NUMERIC", "numeric{}"),
    "FLOAT": ("REAL", "real"),
    "DOUBLE UDOUBLE": ("REAL", "double precision"),
    "CHAR VARCHAR NCHAR NVARCHAR": ("TEXT", "varchar{}"),
    "TEXT TINYTEXT MEDIUMTEXT LONGTEXT ENUM SET": ("TEXT", "text"),
    "JSON": ("TEXT", "jsonb"),
    "BINARY VARBINARY BLOB TINYBLOB MEDIUMBLOB LONGBLOB": ("BLOB", "bytea"),
    "DATE": ("TEXT", "date"),
    "DATETIME TIMESTAMP TIMESTAMPTZ": ("TEXT", "timestamp{}"),
    "TIME": ("TEXT", "interval"),  # MySQL's range is from -838 to 838 hours
}
"""Types of MySQL, and their equivalents in SQLite and in PostgreSQL; `{}` stands for their arguments."""
_TYPE = {name: to for names, to in _TYPES.items() for name in names.split()}

_NOT_KEPT = (
    exp.CharacterSetColumnConstraint,
    exp.CollateColumnConstraint,
    exp.CommentColumnConstraint,
    exp.OnUpdateColumnConstraint,
)
_PASSED_OVER = re.compile(
    r"(?is)(?:SET|USE|LOCK|UNLOCK|BEGIN|START|COMMIT|ANALYZE|OPTIMIZE)\b|(?:CREATE|DROP|ALTER)\s+(?:DATABASE|SCHEMA)\b"
    r"|ALTER\s+TABLE\s+\S+\s+(?:DISABLE|ENABLE)\s+KEYS"
)
"""Statements that mean nothing to another system."""
_USERS = re.compile(r"(?is)(?:CREATE|ALTER|DROP|RENAME)\s+(?:USER|ROLE)\b|GRANT\b|REVOKE\b|FLUSH\b|SET\s+PASSWORD\b")
_VIEW = re.compile(r"(?is)CREATE\s+(?:ALGORITHM\s*=\s*\w+\s+|DEFINER\s*=\s*\S+\s+|SQL\s+SECURITY\s+\w+\s+)+VIEW\b")
_CHECKED_VIEW = re.compile(r"(?is)\s+WITH\s+(?:CASCADED\s+|LOCAL\s+)?CHECK\s+OPTION\s*\Z")
_PARTS = re.compile(PART, re.DOTALL)
_UTF8 = re.compile(r"_(utf8(mb[34])?|ascii)", re.IGNORECASE)
_TERMINAL = re.compile(r"\x1b\[\d*m")
_COMPARES_CASE = re.compile(r"_(bin|cs)$|^binary$", re.IGNORECASE)
_WAY_OUT = "load the dump in an image of mariadb, and what is needed of it as CSV here"


class Translation:
    """Translates a dump for `sqlite` or `postgres`, into scripts in a directory."""

    def __init__(self, directory: Path, system: SystemName) -> None:
        self._directory = directory
        self._system = system
        self._postgres = system == "postgres"
        self._scripts: dict[str, _Script] = {}
        self._notes: Counter[str] = Counter()
        self._name: str | None = None
        self._line = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of omissions and changes, one line per kind."""
        return tuple(f"{what}: {count}" for what, count in self._notes.items())

    def run(self, dump: bytes | mmap.mmap) -> list[tuple[str, Path]]:
        """Translates a dump; returns its databases and a script for each.

        Raises:
            DumpError: it contains something that cannot be translated.
        """
        try:
            for statement in statements(dump):
                self._line = statement.line
                if name := statement.database:
                    self._script(name)
                self._translate(statement)
            for script in self._scripts.values():
                script.write(*script.later, *_ordered(script.views), "COMMIT")
            return [(name, script.path) for name, script in self._scripts.items()]
        except (sqlglot.errors.SqlglotError, RecursionError, ValueError) as error:
            self._fail(_TERMINAL.sub("", str(error)).partition("\n")[0] or type(error).__name__)

    def _fail(self, reason: str) -> NoReturn:
        raise DumpError(f"line {self._line}: this cannot be translated for {self._system}: {reason}; {_WAY_OUT}")

    def _script(self, name: str | None = None) -> _Script:
        """Returns the script of a database, which is in use from now on; without a name, of the one in use."""
        name = name if name is not None else self._name or ""
        self._name = name = name.lower() if self._postgres else name
        if name not in self._scripts:
            self._scripts[name] = _Script(self._directory / f"{len(self._scripts):03}.sql")
        return self._scripts[name]

    def _translate(self, statement: Statement) -> None:
        try:
            text = _executed(statement.text.decode()).strip()
        except UnicodeDecodeError:
            self._fail("it is not UTF-8: dump with --default-character-set=utf8mb4 --hex-blob")
        if _USERS.match(text):
            self._notes["statements about users left out"] += 1
        elif text and not _PASSED_OVER.match(text):
            tree = sqlglot.parse_one(_CHECKED_VIEW.sub("", _VIEW.sub("CREATE VIEW", text)), read="mysql")
            self._add(tree, self._script())

    def _add(self, tree: exp.Expr, script: _Script) -> None:
        kind = str(tree.args.get("kind") or "")
        if isinstance(tree, exp.Create) and kind == "TABLE" and isinstance(tree.this, exp.Schema):
            self._table(tree, script)
        elif isinstance(tree, exp.Create) and kind == "VIEW":
            tree.set("replace", False)
            reads = {table.name.lower() for table in tree.expression.find_all(exp.Table)}
            script.views[tree.this.name.lower()] = (reads, self._text(tree))
        elif isinstance(tree, exp.Drop) and kind == "VIEW":
            for view in tree.find_all(exp.Table):
                script.views.pop(view.name.lower(), None)
        elif (isinstance(tree, exp.Drop) and kind == "TABLE") or _is_change(tree):
            if isinstance(tree, exp.Insert):
                self._check_bytes(tree, script)
            script.write(self._text(tree))
        else:
            self._fail(f"a statement of this kind ({kind or tree.sql('mysql')[:40]})")

    def _check_bytes(self, tree: exp.Insert, script: _Script) -> None:
        """Fails if text goes into a binary column.

        The empty text, never written in hexadecimal, becomes empty bytes.
        """
        into = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        columns = script.columns.get(into.name.lower(), {})
        if not any(columns.values()):
            return
        named = [one.name.lower() for one in tree.this.expressions] if into is not tree.this else list(columns)
        for row in tree.expression.expressions:
            for name, value in zip(named, row.expressions, strict=False):
                if columns.get(name) and isinstance(value, exp.Literal) and value.is_string:
                    if value.name:
                        self._fail(f"text in the binary column {into.name}.{name}: dump with --hex-blob")
                    value.replace(exp.HexString(this=""))

    def _text(self, tree: exp.Expr) -> str:
        """Returns a statement in the system's dialect."""
        for node in list(tree.walk()):
            if isinstance(node, exp.National):
                node = node.replace(exp.Literal.string(node.name))
            if isinstance(node, exp.Table | exp.Column):
                node.set("db", None)
            elif isinstance(node, exp.Identifier):
                node.set("this", node.this.lower() if self._postgres else node.this)
                node.set("quoted", True)
            elif isinstance(node, exp.Boolean):
                node.replace(exp.Literal.number(int(node.this)))
            elif isinstance(node, exp.HexString) and self._postgres:
                node.replace(exp.Literal.string(f"\\x{node.this}"))
            elif isinstance(node, exp.Introducer):
                if not _UTF8.fullmatch(node.name):
                    self._fail(f"a string in {node.name}: dump with --default-character-set=utf8mb4 --hex-blob")
                node.replace(node.expression)
            elif isinstance(node, exp.Literal) and "\0" in node.name:
                self._fail("a NUL character in a text")
            elif isinstance(node, exp.Literal) and "\r" in node.name and not self._postgres:
                # SQLite's shell takes it for part of the line end.
                text = exp.HexString(this=node.name.encode().hex())
                node.replace(exp.Cast(this=text, to=exp.DataType.build("text")))
        return tree.sql(dialect=self._system, unsupported_level=sqlglot.ErrorLevel.RAISE, comments=False)

    def _quoted(self, name: str) -> str:
        return self._text(exp.to_identifier(name))

    def _next_number(self, table: str, column: str) -> str:
        name = self._quoted(table)
        texts = ", ".join(exp.Literal.string(text).sql() for text in (name, column.lower()))
        greatest = f"coalesce(max({self._quoted(column)}), 0) + 1"
        return f"SELECT setval(pg_get_serial_sequence({texts}), {greatest}, false) FROM {name}"

    def _table(self, tree: exp.Create, script: _Script) -> None:
        table = tree.this.this.name
        key = [part.name for one in tree.find_all(exp.PrimaryKey) for part in one.expressions]
        key += [one.name for one in tree.find_all(exp.ColumnDef) if one.find(exp.PrimaryKeyColumnConstraint)]
        collations = [one.name for one in tree.find_all(exp.CollateProperty)]
        items, indexes = [], []
        script.columns[table.lower()] = {}
        for item in tree.this.expressions:
            if isinstance(item, exp.ColumnDef):
                self._column(item, table, key, collations, script)
            elif isinstance(item, exp.IndexColumnConstraint):
                if item.args.get("kind"):
                    self._notes["full-text and spatial indexes left out"] += 1
                else:
                    columns = [part.this if isinstance(part, exp.ColumnPrefix) else part for part in item.expressions]
                    name, key_columns = self._quoted(f"{table}_{item.name}"), ", ".join(map(self._text, columns))
                    indexes.append(f"CREATE INDEX {name} ON {self._quoted(table)} ({key_columns})")
                continue
            elif isinstance(item, exp.UniqueColumnConstraint) and isinstance(item.this, exp.Schema):
                item.this.set("this", None)
            for part in list(item.find_all(exp.ColumnPrefix)):
                self._notes["columns that keys now hold as a whole, and not their beginning"] += 1
                part.replace(part.this)
            if self._postgres and item.find(exp.ForeignKey):  # its table may come later
                script.later.append(f"ALTER TABLE {self._quoted(table)} ADD {self._text(item)} NOT VALID")
            else:
                items.append(item)
        tree.this.set("expressions", items)
        tree.set("properties", None)
        script.write(self._text(tree), *indexes)

    def _column(
        self, column: exp.ColumnDef, table: str, key: list[str], collations: list[str], script: _Script
    ) -> None:
        kind = column.args["kind"]
        mapping = _TYPE.get(kind.this.name)
        if mapping is None:
            self._fail(f"the type {kind.sql('mysql')} of {table}.{column.name}")
        script.columns[table.lower()][column.name.lower()] = mapping[0] == "BLOB"
        constraints = [one for one in column.constraints if not isinstance(one.kind, _NOT_KEPT)]
        for one in column.constraints:
            if isinstance(one.kind, exp.CollateColumnConstraint):
                collations = [one.kind.this.name]
            elif isinstance(one.kind, exp.OnUpdateColumnConstraint):
                self._notes["columns no longer set to the time when their row changes"] += 1
            elif isinstance(one.kind, exp.AutoIncrementColumnConstraint):
                constraints.remove(one)
                if self._postgres:
                    constraints.append(exp.ColumnConstraint(kind=exp.GeneratedAsIdentityColumnConstraint(this=False)))
                    script.later.append(self._next_number(table, column.name))
                elif key != [column.name]:
                    self._fail(f"AUTO_INCREMENT of {table}.{column.name}, which is not the primary key")
        compares_case = any(_COMPARES_CASE.search(name) for name in collations)
        if mapping[1] in ("varchar{}", "text") and not compares_case:
            if self._postgres:
                self._notes["columns in which text is now compared with regard to case"] += 1
            else:
                nocase = exp.CollateColumnConstraint(this=exp.Var(this="NOCASE"))
                constraints.append(exp.ColumnConstraint(kind=nocase))
        if kind.this.name in ("ENUM", "SET"):
            self._notes["columns of type enum or set that became text"] += 1
        arguments = f"({', '.join(one.sql() for one in kind.expressions)})" if kind.expressions else ""
        default = (
            "(0)" if mapping[1].startswith("timestamp") else ""
        )  # MySQL stores fractions of seconds only on request
        to = mapping[self._postgres].format(arguments or default)
        column.set("kind", exp.DataType(this=exp.DType.USERDEFINED, kind=to))
        column.set("constraints", constraints)


class _Script:
    """The script of one database, and the statements at its end.

    Attributes:
        columns: the columns of each table, in lower case, and whether they hold bytes.
        later: statements that need all tables, or their rows.
        views: by their names, each with the names of what it reads; they come last.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: dict[str, dict[str, bool]] = {}
        self.later: list[str] = []
        self.views: dict[str, tuple[set[str], str]] = {}
        path.write_text("BEGIN;\n")

    def write(self, *statements: str) -> None:
        """Appends statements. The file is not kept open, because there may be many databases."""
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.writelines(f"{statement};\n" for statement in statements)


def _ordered(views: dict[str, tuple[set[str], str]]) -> Iterator[str]:
    """Yields views, each after those that it reads."""
    remaining = dict(views)
    while remaining:
        ready = [name for name, (reads, _) in remaining.items() if not reads & (remaining.keys() - {name})]
        yield from [remaining.pop(name)[1] for name in ready or list(remaining)]


def _executed(text: str) -> str:
    """Returns a statement with the contents of comments that MySQL executes."""
    if "/*!" not in text and "/*M!" not in text:
        return text
    return _PARTS.sub(lambda part: " " if part["mark"] else part[0], text)


def _is_change(tree: exp.Expr) -> bool:
    """Returns whether it changes rows, in a way that both systems know."""
    if isinstance(tree, exp.Insert):
        return isinstance(tree.expression, exp.Values) and not tree.args.get("conflict") and not tree.args.get("ignore")
    return isinstance(tree, exp.Update | exp.Delete)
