"""Tables as a MySQL dump defines them: CREATE TABLE and what ALTER TABLE adds to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from tvsnap.images.dumps.tokens import Cursor, string_value

Family = Literal["integer", "decimal", "float", "text", "binary", "bits", "date", "time", "json", "spatial"]
_FAMILIES: dict[Family, str] = {
    "integer": "tinyint smallint mediumint int integer bigint int1 int2 int3 int4 int8 middleint year bool "
    "boolean serial",
    "decimal": "decimal dec numeric fixed",
    "float": "float double real float4 float8",
    "text": "char varchar character varcharacter nchar nvarchar text tinytext mediumtext longtext enum set long inet4 "
    "inet6 uuid",
    "binary": "binary varbinary blob tinyblob mediumblob longblob vector",
    "bits": "bit",
    "date": "date datetime timestamp",
    "time": "time",
    "json": "json",
    "spatial": "geometry point linestring polygon multipoint multilinestring multipolygon "
    "geometrycollection geomcollection",
}
_FAMILY_OF: dict[str, Family] = {name: family for family, names in _FAMILIES.items() for name in names.split()}
_ALIASES = {
    "int1": "tinyint", "bool": "tinyint", "boolean": "tinyint", "int2": "smallint", "int3": "mediumint",
    "middleint": "mediumint", "int4": "int", "integer": "int", "int8": "bigint", "serial": "bigint",
    "dec": "decimal", "numeric": "decimal", "fixed": "decimal", "float4": "float", "float8": "double", "real": "double",
    "character": "char", "nchar": "char", "nvarchar": "varchar", "varcharacter": "varchar", "long": "mediumtext",
}  # fmt: skip


_IS_JSON = re.compile(r"json_valid\(`([^`]+)`\)")


@dataclass(frozen=True, slots=True)
class Type:
    """A column's type.

    Attributes:
        name: in lower case, the usual one of several.
        arguments: in its parentheses, as they stand there.
        collation: of text; empty for the table's.
    """

    name: str
    arguments: tuple[str, ...] = ()
    unsigned: bool = False
    collation: str = ""

    @property
    def family(self) -> Family:
        """What kind of values it holds; `text` for one that is not known."""
        if self.collation == "binary" and self.name not in ("enum", "set"):
            return "binary"
        return _FAMILY_OF.get(self.name, "text")


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression in MySQL's words."""

    text: str


@dataclass(slots=True)
class Column:
    """A column.

    Attributes:
        default: a literal's value or an expression; None for none, or NULL.
        auto: it is numbered automatically.
        generated: what it is computed from, and whether the value is stored.
        on_update: it is set to the time whenever its row changes.
    """

    name: str
    type: Type
    nullable: bool = True
    default: str | Expression | None = None
    auto: bool = False
    generated: Expression | None = None
    stored: bool = False
    on_update: bool = False


@dataclass(frozen=True, slots=True)
class KeyPart:
    """What a key holds of a row: a column, or an expression where `column` is empty.

    Attributes:
        length: characters of the column that count; 0 for all.
    """

    column: str
    expression: str = ""
    length: int = 0
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """A primary key, a unique or other index; `fulltext` and `spatial` are those that compare otherwise."""

    kind: Literal["primary", "unique", "index", "fulltext", "spatial"]
    name: str
    parts: tuple[KeyPart, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Its columns, whole or in part."""
        return tuple(part.column for part in self.parts)

    @property
    def whole(self) -> bool:
        """Whether it consists of whole columns."""
        return all(part.column and not part.length for part in self.parts)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Columns that refer to another table's; `actions` is what follows, as `ON DELETE CASCADE`."""

    name: str
    columns: tuple[str, ...]
    table: str
    references: tuple[str, ...]
    actions: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that every row must fulfil."""

    name: str
    expression: Expression


@dataclass(slots=True)
class Table:
    """A table.

    Attributes:
        statement: the number of the one that made it; rows from before belonged to another.
        next_value: the next automatic number; 0 if the dump does not say.
        collation: of the columns that name none.
        left_out: what has no equal outside of MySQL, in words.
    """

    name: str
    statement: int = 0
    columns: list[Column] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    foreign_keys: list[ForeignKey] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    next_value: int = 0
    collation: str = ""
    left_out: list[str] = field(default_factory=list)

    def column(self, name: str) -> Column | None:
        """The column of this name, without regard to case."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)

    @property
    def primary_key(self) -> Key | None:
        """Its primary key, if there is one."""
        return next((key for key in self.keys if key.kind == "primary"), None)

    def identifies(self, columns: tuple[str, ...]) -> bool:
        """Whether there is a primary or unique key of just these columns."""
        wanted = sorted(name.lower() for name in columns)
        keys = (key for key in self.keys if key.kind == "primary" or (key.kind == "unique" and key.whole))
        return any(sorted(name.lower() for name in key.columns) == wanted for key in keys)

    def compares_case(self, column: Column) -> bool:
        """Whether upper and lower case differ in a column of text."""
        collation = column.type.collation or self.collation
        return collation.endswith(("_bin", "_cs", "binary"))


def define(table: Table, cursor: Cursor) -> None:
    """Reads the body of a CREATE TABLE: what follows the table's name.

    Raises:
        ValueError: there is no list of columns.
    """
    if cursor.peek().upper != "(":
        raise ValueError("it has no list of columns")
    for item in cursor.parenthesised().items():
        _item(table, item)
    _options(table, cursor)


def alter(table: Table, cursor: Cursor) -> list[str]:
    """Adds what an ALTER TABLE says: what follows the table's name.

    Returns:
        Those of its parts that were not understood.
    """
    unknown = []
    for item in cursor.items():
        text = item.rest()
        if item.take_any("DISABLE", "ENABLE"):
            continue
        if item.take("ADD"):
            item.take("COLUMN")
            for part in item.parenthesised().items() if item.peek().upper == "(" else [item]:
                _item(table, part)
        elif item.take("MODIFY"):
            item.take("COLUMN")
            _redefine(table, item.peek().text.strip("`"), item)
        elif item.take("CHANGE"):
            item.take("COLUMN")
            _redefine(table, item.name(), item)
        elif item.peek().upper in ("AUTO_INCREMENT", "COMMENT", "ENGINE", "COLLATE", "DEFAULT", "CHARSET"):
            _options(table, item)
        else:
            unknown.append(text)
    return unknown


def _redefine(table: Table, name: str, item: Cursor) -> None:
    place = next((i for i, column in enumerate(table.columns) if column.name.lower() == name.lower()), None)
    _column(table, item)
    if place is not None:
        table.columns[place] = table.columns.pop()


def _options(table: Table, cursor: Cursor) -> None:
    while not cursor.done:
        if cursor.take("PARTITION"):
            table.left_out.append("partitions")
            return
        option = cursor.take_any("AUTO_INCREMENT", "COLLATE", "CHARSET", "CHARACTER")
        if option == "CHARACTER":
            cursor.take("SET")
        if option:
            cursor.take("=")
            value = cursor.next().text.strip("'\"`")
            if option == "AUTO_INCREMENT":
                table.next_value = int(value) if value.isdigit() else 0
            elif option == "COLLATE" or value.lower() == "binary":
                table.collation = value.lower()
        else:
            cursor.next()


def _item(table: Table, item: Cursor) -> None:
    name = ""
    if item.take("CONSTRAINT") and item.peek().upper not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        name = item.name()
    if item.take("PRIMARY", "KEY"):
        _key(table, "primary", name, item)
    elif item.take("UNIQUE"):
        item.take_any("KEY", "INDEX")
        _key(table, "unique", name, item)
    elif item.peek().upper in ("FULLTEXT", "SPATIAL"):
        kind: Literal["fulltext", "spatial"] = "fulltext" if item.next().upper == "FULLTEXT" else "spatial"
        item.take_any("KEY", "INDEX")
        _key(table, kind, name, item)
    elif item.take("FOREIGN", "KEY"):
        name = name or ("" if item.peek().upper == "(" else item.name())
        _reference(table, name, _names(item), item)
    elif item.take("CHECK"):
        _check(table, name, item)
    elif item.take_any("KEY", "INDEX"):
        _key(table, "index", name, item)
    else:
        _column(table, item)


def _key(
    table: Table, kind: Literal["primary", "unique", "index", "fulltext", "spatial"], name: str, item: Cursor
) -> None:
    if item.peek().upper not in ("(", "USING"):
        name = item.name()
    if item.take("USING"):
        item.next()
    parts = []
    for part in item.parenthesised().items():
        if part.peek().upper == "(":
            column, expression, length = "", part.parenthesised().rest(), ""
        else:
            column, expression = part.name(), ""
            length = part.parenthesised().rest() if part.peek().upper == "(" else ""
        parts.append(KeyPart(column, expression, int(length or 0), part.take("DESC")))
    table.keys.append(Key(kind, name, tuple(parts)))
    if kind == "primary":
        for found in filter(None, (table.column(part.column) for part in parts)):
            found.nullable = False


def _names(item: Cursor) -> tuple[str, ...]:
    if item.peek().upper != "(":
        return ()
    return tuple(part.name() for part in item.parenthesised().items())


def _reference(table: Table, name: str, columns: tuple[str, ...], item: Cursor) -> None:
    item.take("REFERENCES")
    _, other = item.qualified_name()
    references = _names(item)
    actions = []
    while item.take("ON"):
        event = item.next().upper
        action = item.next().upper
        if action in ("SET", "NO"):
            action += " " + item.next().upper
        if action not in ("RESTRICT", "NO ACTION"):
            actions.append(f"ON {event} {action}")
    table.foreign_keys.append(ForeignKey(name, columns, other, references, " ".join(actions)))


def _check(table: Table, name: str, item: Cursor) -> None:
    expression = item.parenthesised().rest()
    if item.take("NOT", "ENFORCED"):
        table.left_out.append("a check that is not enforced")
        return
    # What MariaDB makes of a column of type JSON.
    if (json := _IS_JSON.fullmatch(expression)) and (column := table.column(json[1])):
        column.type = Type("json")
        return
    table.checks.append(Check(name, Expression(expression)))


def _type(item: Cursor) -> Type:
    name = item.next().text.lower()
    if name == "national":
        name = item.next().text.lower()
    name = _ALIASES.get(name, name)
    if name == "double":
        item.take("PRECISION")
    elif name in ("char", "mediumtext"):
        name = {"VARYING": "varchar", "VARCHAR": "mediumtext", "VARBINARY": "mediumblob"}.get(
            item.take_any("VARYING", "VARCHAR", "VARBINARY"), name
        )
    arguments: tuple[str, ...] = ()
    if item.peek().upper == "(":
        arguments = tuple(argument.rest() for argument in item.parenthesised().items())
    unsigned, collation = False, ""
    while True:
        word = item.take_any("UNSIGNED", "ZEROFILL", "SIGNED", "CHARSET", "COLLATE", "BINARY", "ASCII", "UNICODE")
        word = word or ("CHARSET" if item.take("CHARACTER", "SET") else "")
        if not word:
            return Type(name, arguments, unsigned, collation)
        if word in ("UNSIGNED", "ZEROFILL"):
            unsigned = True
        elif word == "BINARY":
            collation = collation or "_bin"
        elif word in ("CHARSET", "COLLATE"):
            value = item.next().text.strip("'\"`").lower()
            collation = value if word == "COLLATE" or value == "binary" else collation


def _column(table: Table, item: Cursor) -> None:
    name = item.name()
    serial = item.peek().upper == "SERIAL"
    column = Column(name, _type(item))
    table.columns.append(column)
    if serial:
        column.type = Type("bigint", unsigned=True)
        column.auto, column.nullable = True, False
        table.keys.append(Key("unique", "", (KeyPart(name),)))
    while not item.done:
        if item.take("NOT", "NULL"):
            column.nullable = False
        elif item.take("DEFAULT"):
            column.default = _default(item)
        elif item.take("ON", "UPDATE"):
            column.on_update = True
            item.next()
            if item.peek().upper == "(":
                item.parenthesised()
        elif item.take("AUTO_INCREMENT"):
            column.auto = True
        elif item.take("UNIQUE"):
            item.take("KEY")
            table.keys.append(Key("unique", "", (KeyPart(name),)))
        elif item.take("PRIMARY") or item.take("KEY"):
            item.take("KEY")
            column.nullable = False
            table.keys.append(Key("primary", "", (KeyPart(name),)))
        elif item.take("AS"):
            column.generated = Expression(item.parenthesised().rest())
            column.stored = item.take_any("VIRTUAL", "STORED", "PERSISTENT") in ("STORED", "PERSISTENT")
        elif item.take("COLLATE"):
            column.type = Type(column.type.name, column.type.arguments, collation=item.next().text.lower())
        elif item.take("CHECK"):
            _check(table, "", item)
        elif item.peek().upper == "REFERENCES":
            _reference(table, "", (name,), item)
        elif item.take("INVISIBLE"):
            table.left_out.append(f"the hiding of {name}")
        else:
            item.next()


def _default(item: Cursor) -> str | Expression | None:
    if item.peek().upper == "(":
        return Expression(item.parenthesised().rest())
    if item.peek().upper.startswith("_") and item.peek(1).kind in ("string", "bytes"):
        item.next()
    sign = item.take_any("-", "+")
    token = item.next()
    if token.kind == "string":
        return string_value(token.text)
    if token.kind == "number":
        return sign.strip("+") + token.text
    if token.kind == "bits":
        return str(int(token.text.strip("bB'").removeprefix("0b") or "0", 2))
    if token.kind == "bytes":
        digits = token.text[2:].strip("'")
        return bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0")).decode("utf-8", "surrogateescape")
    if token.upper in ("TRUE", "FALSE"):
        return str(int(token.upper == "TRUE"))
    if token.upper == "NULL":
        return None
    call = ""
    if item.peek().upper == "(":
        call = f"({item.parenthesised().rest()})"
    return Expression(token.text + call)
