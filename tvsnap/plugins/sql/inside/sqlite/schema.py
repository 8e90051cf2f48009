"""Describes the tables of a SQLite database, from its own pragmas."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from typing import Any, Callable, Dict, List

from ..system import quoted

Ask = Callable[[str], List[Any]]
"""Returns all rows of a query."""

_RELATIONS = "SELECT '{place}', name, type, sql FROM {place}.sqlite_master"
_HIDDEN = 1
"""The mark of a virtual table's own columns in `PRAGMA table_xinfo`; 2 and 3 mark generated ones."""


@dataclass(frozen=True)
class Relation:
    """A table or a view; `place` is `main` or `temp`."""

    place: str
    name: str
    kind: str


def relations(ask: Ask) -> List[Relation]:
    """Returns the tables and views in the order of their names, without SQLite's own and those of virtual tables."""
    listed = ask("PRAGMA table_list")
    inner = {row[1] for row in listed if row[2] == "shadow"}
    # The temporary database is created when it is first read, and SQLite 3.40 then refuses a checkpoint of the log
    # after `journal_mode = WAL`. Before 3.37 there is no list that shows whether it exists.
    temporary = not listed or any(row[0] == "temp" and not row[1].startswith("sqlite_") for row in listed)
    places = ("main", "temp") if temporary else ("main",)
    rows = [row for place in places for row in ask(_RELATIONS.format(place=place))]
    listing = []
    for place, name, kind, text in sorted(rows, key=lambda row: (row[1], row[0])):
        if kind not in ("table", "view") or name.startswith("sqlite_") or name in inner:
            continue
        if (text or "").upper().startswith("CREATE VIRTUAL"):
            kind = "virtual table"
        listing.append(Relation(place, name, f"temporary {kind}" if place == "temp" else kind))
    return listing


def describe(ask: Ask, relation: Relation) -> Dict[str, Any]:
    description: Dict[str, Any] = {"name": relation.name, "kind": relation.kind}
    rows = []
    # A view of missing tables has no columns; this must not prevent the description of others.
    with contextlib.suppress(sqlite3.OperationalError) if "view" in relation.kind else contextlib.nullcontext():
        rows = [row for row in _pragma(ask, relation, "table_xinfo") if row[6] != _HIDDEN]
    key = [row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5]]
    description["columns"] = [_column(row, key) for row in rows]
    if key:
        description["primary_key"] = key
    more = {"foreign_keys": _foreign_keys(ask, relation), "indexes": _indexes(ask, relation)}
    description.update((name, value) for name, value in more.items() if value)
    return description


def _pragma(ask: Ask, relation: Relation, pragma: str) -> List[Any]:
    return ask(f"PRAGMA {relation.place}.{pragma}({quoted(relation.name)})")


def _column(row: Any, key: List[str]) -> Dict[str, Any]:
    _, name, kind, not_null, default, _, _ = row
    number = key == [name] and kind.upper() == "INTEGER"  # another name for the rowid
    column = {"name": name, "type": kind, "nullable": not not_null and not number}
    if default is not None:
        column["default"] = default
    return column


def _foreign_keys(ask: Ask, relation: Relation) -> List[Dict[str, Any]]:
    keys: Dict[int, Dict[str, Any]] = {}
    for number, _, table, column, other, *_ in _pragma(ask, relation, "foreign_key_list"):
        key = keys.setdefault(number, {"columns": [], "table": table, "references": []})
        key["columns"].append(column)
        if other is not None:
            key["references"].append(other)
    for key in keys.values():
        if not key["references"]:  # the other table's primary key is meant
            rows = _pragma(ask, Relation(relation.place, key["table"], "table"), "table_info")
            key["references"] = [row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5]]
    return [keys[number] for number in sorted(keys, reverse=True)]  # SQLite lists the last one first


def _indexes(ask: Ask, relation: Relation) -> List[Dict[str, Any]]:
    indexes = []
    for _, name, unique, origin, *_ in _pragma(ask, relation, "index_list"):
        if origin != "pk":
            columns = ask(f"PRAGMA {relation.place}.index_info({quoted(name)})")
            names = ["(expression)" if row[2] is None else row[2] for row in columns]
            indexes.append({"name": name, "columns": names, "unique": bool(unique)})
    return sorted(indexes, key=lambda one: str(one["name"]))
