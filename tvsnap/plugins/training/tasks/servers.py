"""Tasks on PostgreSQL and MariaDB, with the tool `sql`: questions and changes over generated schemas.

What is graded is what another connection sees: the rows of all tables, and the answer in a table of its own. A
transaction that was not committed changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tvsnap.plugins.training.tasks.task import WORDS, Draft, write

_THEMES = (
    ("items", "orders", "item", "number", ("red", "green", "blue")),
    ("books", "loans", "book", "days", ("novel", "poems", "history")),
    ("machines", "repairs", "machine", "hours", ("lathe", "press", "drill")),
    ("courses", "visits", "course", "minutes", ("art", "physics", "music")),
)
_CLIENTS = {
    "postgres": "psql -X -q -v ON_ERROR_STOP=1 -d postgres -U postgres -h /run/postgresql",
    "mariadb": "mariadb -u root tasks",
}


@dataclass(frozen=True)
class _Schema:
    """Two tables: things of some kind, and what happened to each."""

    system: str
    things: str
    events: str
    thing: str
    amount: str
    kind: str
    rows: Sequence[tuple[int, str, str]]
    happened: Sequence[tuple[int, int, int]]

    @property
    def tables(self) -> str:
        """Makes the tables."""
        return (
            f"CREATE TABLE {self.things} (id INTEGER PRIMARY KEY, name VARCHAR(20) NOT NULL, kind VARCHAR(20));\n"
            f"CREATE TABLE {self.events} (id INTEGER PRIMARY KEY, {self.thing} INTEGER NOT NULL REFERENCES "
            f"{self.things} (id), {self.amount} INTEGER NOT NULL);\n"
        )

    @property
    def setup(self) -> str:
        """Makes the tables and fills them."""
        script = self.tables + "".join(f"INSERT INTO {self.things} VALUES {row};\n" for row in self.rows)
        script += "".join(f"INSERT INTO {self.events} VALUES {row};\n" for row in self.happened)
        first = "mariadb -u root -e 'CREATE DATABASE IF NOT EXISTS tasks' && " if self.system == "mariadb" else ""
        load = f"{_CLIENTS[self.system]} < /app/tables.sql && rm /app/tables.sql"
        return f"{write('/app/tables.sql', script)}\n{first}{load}"

    @property
    def told(self) -> str:
        """What an agent is told of it."""
        named = {"postgres": "PostgreSQL", "mariadb": "MariaDB"}[self.system]
        return (
            f"The {named} database {self.database} has the tables {self.things} (id, name, kind) and {self.events} "
            f"(id, {self.thing}, {self.amount}); {self.thing} is an id of {self.things}."
        )

    @property
    def database(self) -> str:
        """The name of the database."""
        return {"postgres": "postgres", "mariadb": "tasks"}[self.system]

    @property
    def begin(self) -> list[str]:
        """What is to be said first, so that names are those of its tables."""
        return {"postgres": [], "mariadb": ["USE tasks"]}[self.system]

    def checks(self, *lines: str) -> str:
        """Returns checks, whose database is `base`."""
        return "".join(f"{line}\n" for line in (f"base = {self.system.title()}({self.tables!r})", *lines))


def _schema(chance: random.Random, system: str) -> _Schema:
    things, events, thing, amount, kinds = chance.choice(_THEMES)
    names = chance.sample(WORDS, chance.randint(4, 7))
    rows = [(number, name, chance.choice(kinds)) for number, name in enumerate(names, 1)]
    happened = [
        (number, chance.randint(1, len(rows)), chance.randint(1, 60)) for number in range(1, chance.randint(10, 25))
    ]
    return _Schema(system, things, events, thing, amount, rows[happened[0][1] - 1][2], rows, happened)


def _question(chance: random.Random, system: str) -> Draft:
    of = _schema(chance, system)
    totals = {
        name: [each for _, id, each in of.happened if id == number] for number, name, kind in of.rows if kind == of.kind
    }
    wanted = [(name, sum(each)) for name, each in totals.items() if each]
    query = (
        f"SELECT name, sum({of.amount}) AS total FROM {of.events} JOIN {of.things} ON {of.things}.id = {of.thing} "
        f"WHERE kind = '{of.kind}' GROUP BY name"
    )
    values = ", ".join(map(str, wanted)) if len(wanted) > 1 else str(wanted[0])
    other = ", ".join(str((name, total + 1)) for name, total in wanted)
    create = "CREATE TABLE answer (name VARCHAR(20), total INTEGER)"
    checks = of.checks(
        "goal('answer', lambda: base.is_table('answer', 'name', 'total') and "
        f"base.gives('SELECT rtrim(name), total FROM answer', {wanted!r}))",
        "keep('schema', lambda: base.has_its_schema(but='answer'))",
        f"keep('rows', lambda: base.holds({ {of.things: of.rows, of.events: of.happened}!r}))",
    )
    begin = of.begin
    return Draft(
        f"{of.told} Of each of the {of.things} of the kind {of.kind} that has any {of.events}, which total of "
        f"{of.amount} is there (key {sum(each for _, _, each in of.happened)})? Write it to a new table, "
        "answer (name, total), and change nothing else.",
        of.setup,
        checks,
        [
            ["; ".join([*begin, f"CREATE TABLE answer AS {query}"])],
            [*begin, create, f"INSERT INTO answer {query}"],
            [*begin, f"SELECT * FROM {of.things}", query, create, f"INSERT INTO answer VALUES {values}"],
            [*begin, create, "BEGIN", f"INSERT INTO answer {query}", "SELECT * FROM answer", "COMMIT"],
        ],
        [
            ["; ".join([*begin, query])],
            [*begin, create, f"INSERT INTO answer VALUES {other}"],
            [*begin, create, "BEGIN", f"INSERT INTO answer {query}"],
            [*begin, f"CREATE TABLE answer AS {query}", f"DELETE FROM {of.events}"],
        ],
        system,
        "sql",
    )


def _change(chance: random.Random, system: str) -> Draft:
    of = _schema(chance, system)
    ids = [number for number, _, kind in of.rows if kind == of.kind]
    more = chance.randint(1, 9)
    after = [(number, id, each + more if id in ids else each) for number, id, each in of.happened]
    condition = f"{of.thing} IN (SELECT id FROM {of.things} WHERE kind = '{of.kind}')"
    update = f"UPDATE {of.events} SET {of.amount} = {of.amount} + {more}"
    checks = of.checks(
        f"goal({of.events!r}, lambda: base.holds({ {of.events: after}!r}))",
        "keep('schema', base.has_its_schema)",
        f"keep({of.things!r}, lambda: base.holds({ {of.things: of.rows}!r}))",
    )
    begin = of.begin
    return Draft(
        f"{of.told} Add {more} to {of.amount} in all {of.events} of {of.things} of the kind {of.kind} (key "
        f"{sum(each for _, _, each in of.happened)}), and change nothing else.",
        of.setup,
        checks,
        [
            ["; ".join([*begin, f"{update} WHERE {condition}"])],
            [
                *begin,
                f"SELECT id FROM {of.things} WHERE kind = '{of.kind}'",
                f"{update} WHERE {of.thing} IN ({', '.join(map(str, ids))})",
            ],
            [*begin, "BEGIN", f"{update} WHERE {condition}", f"SELECT * FROM {of.events}", "COMMIT"],
            [*begin, "BEGIN", update, "ROLLBACK", f"{update} WHERE {condition}"],
        ],
        [
            ["; ".join([*begin, f"SELECT * FROM {of.events}"])],
            [*begin, "BEGIN", f"{update} WHERE {condition}"],
            [*begin, f"{update} WHERE {condition}", f"{update} WHERE {condition}"],
            [*begin, f"{update} WHERE {condition}", f"UPDATE {of.things} SET kind = 'none' WHERE id = 1"],
        ],
        system,
        "sql",
    )


def postgres_question(chance: random.Random) -> Draft:
    return _question(chance, "postgres")


def postgres_change(chance: random.Random) -> Draft:
    return _change(chance, "postgres")


def mariadb_question(chance: random.Random) -> Draft:
    return _question(chance, "mariadb")


def mariadb_change(chance: random.Random) -> Draft:
    return _change(chance, "mariadb")
