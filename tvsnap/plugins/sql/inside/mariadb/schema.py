"""Describes databases and tables by MariaDB's information_schema."""

from __future__ import annotations

from typing import Any, Dict, List

from .protocol import Connection
from .values import literal, text

OWN = ("information_schema", "mysql", "performance_schema", "sys")
"""The server's own databases."""

_TABLES = """
SELECT table_name, table_type FROM information_schema.TABLES WHERE table_schema = {} ORDER BY table_name
"""
_COLUMNS = """
SELECT table_name, column_name, column_type, is_nullable, column_default FROM information_schema.COLUMNS
WHERE table_schema = {} ORDER BY table_name, ordinal_position
"""
_INDEXES = """
SELECT table_name, index_name, non_unique, column_name FROM information_schema.STATISTICS
WHERE table_schema = {} ORDER BY table_name, index_name, seq_in_index
"""
_FOREIGN_KEYS = """
SELECT table_name, constraint_name, column_name, referenced_table_schema, referenced_table_name, referenced_column_name
FROM information_schema.KEY_COLUMN_USAGE WHERE table_schema = {} AND referenced_table_name IS NOT NULL
ORDER BY table_name, constraint_name, ordinal_position
"""


def databases(connection: Connection) -> List[str]:
    return sorted(name for (name,) in _texts(connection, "SHOW DATABASES") if name not in OWN)


def describe(connection: Connection, database: str, table: str) -> Dict[str, Any]:
    """Describes a database, or one of its tables: see `DatabaseSystem.schema`.

    Raises:
        LookupError: no such database or table.
        Refused, Lost.
    """
    there = databases(connection)
    schema_name = next((name for name in (*there, *OWN) if name == database.lower()), "")
    if not schema_name:
        wanted = f'no database "{database}"' if database else "no database is in use"
        raise LookupError(f"{wanted}; there are: {', '.join(there) or 'none'}")
    tables: Dict[str, Dict[str, Any]] = {
        name: {"name": name, "kind": "table" if kind == "BASE TABLE" else kind.lower(), "columns": []}
        for name, kind in _texts(connection, _TABLES, schema_name)
    }
    if table:
        names = [name for name in tables if name.lower() == table.lower()]
        if not names:
            raise LookupError(f'no table "{table}" in {schema_name}; there are: {", ".join(tables) or "none"}')
        tables = {names[0]: tables[names[0]]}
    for name, column, kind, nullable, default in _texts(connection, _COLUMNS, schema_name):
        if name in tables:
            description = {"name": column, "type": kind, "nullable": nullable == "YES"}
            if default and not (nullable == "YES" and default == "NULL"):
                description["default"] = default
            tables[name]["columns"].append(description)
    for name, index, non_unique, column in _texts(connection, _INDEXES, schema_name):
        if name in tables and index == "PRIMARY":
            tables[name].setdefault("primary_key", []).append(column)
        elif name in tables:
            _last(tables[name], "indexes", index, unique=non_unique == "0")["columns"].append(column)
    keys = []
    for name, key, column, schema, target, referenced in _texts(connection, _FOREIGN_KEYS, schema_name):
        if name in tables:
            other = target if schema == schema_name else f"{schema}.{target}"
            keys.append(_last(tables[name], "foreign_keys", key, table=other, references=[]))
            keys[-1]["columns"].append(column)
            keys[-1]["references"].append(referenced)
    for each in keys:
        each.pop("name", None)
    return {"database": schema_name, "tables": list(tables.values())}


def _last(of: Dict[str, Any], what: str, name: str, **more: Any) -> Dict[str, Any]:
    """Returns the index or key of a name: the last one of a table, or a new one."""
    entries: List[Dict[str, Any]] = of.setdefault(what, [])
    if not entries or entries[-1]["name"] != name:
        entries.append({"name": name, "columns": [], **more})
    return entries[-1]


def _texts(connection: Connection, query: str, database: str = "") -> List[List[str]]:
    return [[text(value) for value in row] for row in connection.rows(query.format(literal(database)))]
