"""Describes a PostgreSQL database: its tables, views, keys and indexes, as the session sees them."""

from __future__ import annotations

import json
from typing import Any, Dict, List

from .connection import Connection

_KINDS = {"r": "table", "p": "table", "v": "view", "m": "materialized view", "f": "foreign table"}

_TABLES = """SELECT c.oid, c.relkind, c.relpersistence, n.nspname, c.relname, pg_catalog.pg_table_is_visible(c.oid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname !~ '^pg_toast' AND NOT pg_catalog.pg_is_other_temp_schema(n.oid)"""

_COLUMNS = """SELECT a.attrelid, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,
    a.attidentity, a.attgenerated, pg_catalog.pg_get_expr(d.adbin, d.adrelid)
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY('{{{tables}}}') AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum"""

_NAMES = """(SELECT pg_catalog.json_agg(a.attname ORDER BY k.place)
    FROM unnest({keys}) WITH ORDINALITY k(number, place)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = {table} AND a.attnum = k.number)"""

_KEYS = f"""SELECT c.conrelid, c.contype, {_NAMES.format(keys="c.conkey", table="c.conrelid")},
    {_NAMES.format(keys="c.confkey", table="c.confrelid")}, c.confrelid, r.relname, n.nspname,
    pg_catalog.pg_table_is_visible(r.oid)
FROM pg_catalog.pg_constraint c
LEFT JOIN pg_catalog.pg_class r ON r.oid = c.confrelid LEFT JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
WHERE c.conrelid = ANY('{{{{{{tables}}}}}}') AND c.contype IN ('p', 'f')
ORDER BY c.conrelid, c.conname"""

_INDEXES = """SELECT i.indrelid, c.relname, i.indisunique,
    (SELECT pg_catalog.json_agg(pg_catalog.pg_get_indexdef(i.indexrelid, number, true) ORDER BY number)
     FROM pg_catalog.generate_series(1, i.indnkeyatts) number)
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = ANY('{{{tables}}}') AND NOT i.indisprimary
ORDER BY i.indrelid, c.relname"""


def describe(connection: Connection, table: str) -> Dict[str, Any]:
    """Describes the database of a connection, or one of its tables; see `DatabaseSystem.schema`.

    A table that is not on the search path is named with its schema.

    Raises:
        LookupError: there is no such table.
        StatementFailed: the database system refused.
    """
    tables: Dict[str, Dict[str, Any]] = {}
    others: List[str] = []
    for oid, kind, persistence, schema, name, visible in connection.ask(_TABLES):
        plain = _name(schema, name, visible)
        words = _KINDS[str(kind)]
        if persistence == "t":
            words = f"temporary {words}"
        if not table or _is(table, str(schema), str(name), visible):
            tables[str(oid)] = {"name": plain, "kind": words, "columns": []}
        else:
            others.append(plain)
    if table and not tables:
        there = f"there are: {', '.join(sorted(others))}" if others else "there is none"
        raise LookupError(f'no table "{table}" in database "{connection.database}"; {there}')
    if tables:
        _fill(connection, tables)
    ordered = sorted(tables.values(), key=lambda one: str(one["name"]))
    return {"database": connection.database, "tables": ordered}


def _fill(connection: Connection, tables: Dict[str, Dict[str, Any]]) -> None:
    which = {"tables": ",".join(tables)}
    for oid, name, kind, required, identity, generated, expression in connection.ask(_COLUMNS.format(**which)):
        column: Dict[str, Any] = {"name": name, "type": kind, "nullable": required != "t"}
        if identity:
            column["default"] = f"GENERATED {'ALWAYS' if identity == 'a' else 'BY DEFAULT'} AS IDENTITY"
        elif generated:
            column["default"] = f"GENERATED ALWAYS AS ({expression}) STORED"
        elif expression is not None:
            column["default"] = expression
        tables[str(oid)]["columns"].append(column)
    for oid, kind, own, referenced, _, target, schema, visible in connection.ask(_KEYS.format(**which)):
        if kind == "p":
            tables[str(oid)]["primary_key"] = json.loads(own or "[]")
        else:
            key = {"columns": json.loads(own or "[]"), "table": _name(schema, target, visible)}
            key["references"] = json.loads(referenced or "[]")
            tables[str(oid)].setdefault("foreign_keys", []).append(key)
    for oid, name, unique, columns in connection.ask(_INDEXES.format(**which)):
        index = {"name": name, "columns": json.loads(columns or "[]"), "unique": unique == "t"}
        tables[str(oid)].setdefault("indexes", []).append(index)


def _name(schema: Any, name: Any, visible: Any) -> str:
    return str(name) if visible == "t" else f"{schema}.{name}"


def _is(wanted: str, schema: str, name: str, visible: Any) -> bool:
    """Returns whether a table is the wanted one: by its exact name, quoted, or in lower case."""
    spelt = {name, f"{schema}.{name}"} if visible == "t" else {f"{schema}.{name}"}
    plain = wanted.replace('"', "")
    return plain in spelt or plain.lower() in spelt
