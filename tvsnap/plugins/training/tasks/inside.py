"""What verifiers begin with. It runs in a sandbox, by the system's Python, before the checks of a task.

A goal is what was asked for, told by its effect. What is kept is what was to stay: files, commits, the tables of a
database with their columns.
"""

from __future__ import annotations

import ast
import csv
import json
import os
import re
import sqlite3
import stat
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation

goals: dict[str, bool] = {}
kept: dict[str, bool] = {}


def goal(name: str, test: Callable[[], object]) -> None:
    goals[name] = passes(test)


def keep(name: str, test: Callable[[], object]) -> None:
    kept[name] = passes(test)


def passes(test: Callable[[], object]) -> bool:
    try:
        return bool(test())
    except Exception as error:
        print(type(error).__name__, error)
        return False


def verdict() -> None:
    reward = sum(goals.values()) / len(goals) if all(kept.values()) else 0.0
    print(json.dumps({"reward": reward, "tests": {**goals, **kept}}))


# Files.


def text(path: str) -> str:
    """Returns what is in a file, with line ends as they are."""
    with open(path, newline="", encoding="utf-8") as file:
        return file.read()


def unchanged(files: Mapping[str, str]) -> bool:
    """Are these regular files, with these contents."""
    return all(
        os.path.isfile(path) and not os.path.islink(path) and text(path) == content for path, content in files.items()
    )


def mode(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def read_by_others(path: str) -> bool:
    """Can somebody read a file who is neither its owner nor of its group."""
    other = 4321  # of nobody
    program = subprocess.run(
        ["cat", path], stdout=subprocess.DEVNULL, user=other, group=other, extra_groups=[], check=False
    )
    return program.returncode == 0


def value(cell: object) -> object:
    """Returns a number as such, whatever its type or writing, and anything else as it is."""
    try:
        number = Decimal(cell.strip() if isinstance(cell, str) else str(cell))
    except InvalidOperation:
        return cell
    return number if number.is_finite() else cell


def values(rows: Iterable[Iterable[object]]) -> list[tuple[object, ...]]:
    return [tuple(map(value, row)) for row in rows]


def records(path: str, *columns: str) -> list[tuple[object, ...]]:
    """Returns the rows of a CSV file that has these columns and no others."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        names, rows = reader.fieldnames or (), list(reader)
    if sorted(names) != sorted(columns) or any(None in row for row in rows):
        raise ValueError(f"{path} has other columns than {columns}")
    return values([row[column] for column in columns] for row in rows)


# Programs.


def run(*words: str, folder: str = "/app", **more: str) -> str:
    """Returns what a program prints, run in a folder with more variables."""
    program = subprocess.run(
        words, stdout=subprocess.PIPE, cwd=folder, env={**os.environ, **more}, timeout=10, check=False
    )
    return program.stdout.decode()


def python(expression: str, imports: str, folder: str = "/app") -> object:
    """Returns the value of an expression in a Python of its own, whatever modules print when they are imported."""
    # Compiled files are told from their sources by size and second alone: a quick correction would not be noticed.
    elsewhere = tempfile.mkdtemp()
    begin = "from builtins import open as _open, repr as _repr"  # those of no module that is imported
    end = f"_open({elsewhere + '/value'!r}, 'w').write(_repr({expression}))"
    run("python3", "-X", f"pycache_prefix={elsewhere}", "-c", f"{begin}\n{imports}\n{end}", folder=folder)
    return ast.literal_eval(text(f"{elsewhere}/value"))


# Git repositories.


def git(*words: str, folder: str = "/app") -> str:
    """Returns what Git prints, which reads no settings but the repository's."""
    alone = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_NO_REPLACE_OBJECTS": "1"}
    alone["GIT_GRAFT_FILE"] = "/dev/null"
    return run("git", "-c", "safe.directory=*", *words, folder=folder, **alone)


def tips(folder: str = "/app") -> dict[str, str]:
    """Returns the last commit of each branch."""
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", folder=folder).splitlines()
    return {name[len("refs/heads/") :]: commit for name, commit in (line.split() for line in lines)}


def begun(script: str) -> dict[str, str]:
    """Returns the last commits of the branches that the task began with, by beginning it again elsewhere."""
    folder = tempfile.mkdtemp()
    run("bash", "-c", script, folder=folder, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1")
    return tips(folder)


def tree(branch: str) -> dict[str, str]:
    """Returns the files in the last commit of a branch."""
    commit = tips()[branch]
    names = git("ls-tree", "-r", "-z", "--name-only", commit).split("\0")[:-1]
    return {name: git("cat-file", "blob", f"{commit}:{name}") for name in names}


def has(branch: str, commit: str) -> bool:
    """Is a commit in the history of a branch."""
    return commit in git("rev-list", tips()[branch]).split()


# Databases.

_SQLITE = "SELECT type, tbl_name, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'"
_SERVER = (
    "SELECT 'column', table_name, column_name, data_type, character_maximum_length, numeric_precision, numeric_scale, "
    "is_nullable, column_default, collation_name FROM information_schema.columns WHERE table_schema {of}",
    "SELECT 'trigger', event_object_table, trigger_name FROM information_schema.triggers "
    "WHERE event_object_schema {of}",
    "SELECT 'routine', routine_name FROM information_schema.routines WHERE routine_schema {of}",
)
_POSTGRES = (
    "SELECT 'relation', relname, relkind, relrowsecurity, nullif(nullif(nspname, 'again'), 'public') FROM pg_class "
    "JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE relkind NOT IN ('i', 't') AND nspname {of}",
    "SELECT 'rule', tablename, rulename FROM pg_rules WHERE schemaname {of}",
    "SELECT 'index', tablename, count(*) FROM pg_indexes WHERE schemaname {of} GROUP BY tablename",
    "SELECT 'constraint', relname, contype, count(*) FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid "
    "JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname {of} GROUP BY relname, contype",
)
_MARIADB = (
    "SELECT 'relation', table_name, table_type, nullif(nullif(table_schema, 'again'), 'tasks') "
    "FROM information_schema.tables WHERE table_schema {of}",
    "SELECT 'event', event_name FROM information_schema.events WHERE event_schema {of}",
    "SELECT 'index', table_name, count(DISTINCT index_name) FROM information_schema.statistics "
    "WHERE table_schema {of} GROUP BY table_name",
    "SELECT 'constraint', table_name, constraint_type, count(*) FROM information_schema.table_constraints "
    "WHERE table_schema {of} GROUP BY table_name, constraint_type",
)
Rows = Sequence[Sequence[object]]


class Database:
    """A database, and the statements that made its tables."""

    def rows(self, query: str) -> Rows:
        """Returns the rows of a query, or of several, as a new connection sees them."""
        raise NotImplementedError

    def schema(self) -> Rows:
        """Returns tables, views, indexes, triggers and routines, and the columns of tables with their types."""
        raise NotImplementedError

    def schema_made(self) -> Rows:
        """Returns the schema that the statements make elsewhere."""
        raise NotImplementedError

    def gives(self, query: str, rows: Rows) -> bool:
        """Does a query give these rows, in any order."""
        return Counter(values(self.rows(query))) == Counter(values(rows))

    def holds(self, tables: Mapping[str, Rows]) -> bool:
        """Do tables hold these rows and no others."""
        return all(self.gives(f"SELECT * FROM {table}", rows) for table, rows in tables.items())

    def has_its_schema(self, but: str = "") -> bool:
        """Is the schema what the statements made, apart from one table."""
        return {*values(row for row in self.schema() if row[1] != but)} == {*values(self.schema_made())}

    def is_table(self, name: str, *columns: str) -> bool:
        """Is there such a table, with these columns and no others."""
        of_table = [row for row in self.schema() if row[1] == name]
        return sorted(str(row[2]).lower() for row in of_table if row[0] == "column") == sorted(columns) and any(
            row[0] == "relation" and row[2] in ("r", "BASE TABLE") for row in of_table
        )


class Sqlite(Database):
    def __init__(self, path: str, made: str) -> None:
        self.path = path
        self.made = made

    def rows(self, query: str) -> Rows:
        return sqlite3.connect(self.path).execute(query).fetchall()

    def schema(self) -> Rows:
        return self._listed(sqlite3.connect(self.path))

    def schema_made(self) -> Rows:
        fresh = sqlite3.connect(":memory:")
        fresh.executescript(self.made)
        return self._listed(fresh)

    def _listed(self, base: sqlite3.Connection) -> Rows:
        # A table that was renamed has its name in quotation marks.
        return [(*row, re.sub(r'[\s"]', "", sql or "").lower()) for *row, sql in base.execute(_SQLITE)]


class Server(Database):
    """PostgreSQL or MariaDB; `again` is a schema that has only what the statements make."""

    def __init__(self, made: str) -> None:
        self.made = made

    def schema(self) -> Rows:
        return self._listed(self.here)

    def schema_made(self) -> Rows:
        self.rows(f"CREATE SCHEMA again; {self.use}; {self.made}")
        return self._listed("= 'again'")

    def _listed(self, of: str) -> Rows:
        return self.rows("; ".join((*_SERVER, *self.more)).format(of=of))

    here = use = ""
    more: Sequence[str] = ()


class Postgres(Server):
    here = "!~ '^(pg_.*|information_schema|again)$'"
    use = "SET search_path TO again"
    more = _POSTGRES

    def rows(self, query: str) -> Rows:
        words = ("psql", "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-d", "postgres")
        return _cells(words, query, PGHOST="/run/postgresql", PGUSER="postgres", PGOPTIONS="-c statement_timeout=5s")


class Mariadb(Server):
    here = "NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema', 'again')"
    use = "USE again"
    more = _MARIADB

    def rows(self, query: str) -> Rows:
        return _cells(("mariadb", "-N", "-B", "-u", "root", "tasks"), f"SET lock_wait_timeout = 5; {query}")


def _cells(words: Sequence[str], query: str, **more: str) -> Rows:
    """Returns the rows that a client prints, whose cells have a tab between them."""
    environ = {**os.environ, **more}
    program = subprocess.run(words, input=query, stdout=subprocess.PIPE, text=True, env=environ, timeout=10, check=True)
    return [line.split("\t") for line in program.stdout.splitlines()]
