"""Tasks on a stateful API of a few applications over one database, with the tool `python`.

Each application is to be logged in to, which the interpreter remembers; passwords are asked of `supervisor`. What is
graded are the rows of all tables: what nobody asked for, such as a mail that was deleted, makes the reward 0.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from tvsnap.plugins.training.tasks.task import NAMES, WORDS, Draft, stays, write

_DATABASE = "/srv/apps/apps.db"
_MODULE = "/app/apps.py"
_SOURCE = '''
"""Applications of one person: supervisor, mail, contacts, notes and payments.

Each but supervisor needs login(password) first: supervisor.passwords() returns the passwords by application.
"""

import sqlite3

_database = sqlite3.connect("/srv/apps/apps.db", isolation_level=None)


def _rows(query, *values):
    cursor = _database.execute(query, values)
    return [dict(zip([column[0] for column in cursor.description or ()], row)) for row in cursor]


class Refused(Exception):
    pass


class _App:
    def __init__(self):
        self._open = False

    def login(self, password):
        """Logs in; needed once."""
        rows = _rows("SELECT password FROM passwords WHERE app = ?", type(self).__name__.lower())
        if rows[0]["password"] != password:
            raise Refused("this is not the password")
        self._open = True

    def _ask(self, query, *values):
        if not self._open:
            raise Refused("log in first: login(password)")
        return _rows(query, *values)


class Supervisor:
    def passwords(self):
        """Returns the passwords by application."""
        return {row["app"]: row["password"] for row in _rows("SELECT * FROM passwords")}


class Mail(_App):
    def inbox(self):
        """Returns id, sender and subject of each mail received."""
        return self._ask("SELECT id, sender, subject FROM mail WHERE sender != 'me' ORDER BY id")

    def read(self, id):
        """Returns a mail with its text."""
        return self._ask("SELECT * FROM mail WHERE id = ?", id)[0]

    def send(self, to, subject, text):
        """Sends a mail to an address."""
        self._ask("INSERT INTO mail (sender, receiver, subject, text) VALUES ('me', ?, ?, ?)", to, subject, text)

    def delete(self, id):
        """Deletes a mail."""
        self._ask("DELETE FROM mail WHERE id = ?", id)


class Contacts(_App):
    def all(self):
        """Returns name, address and account of everybody."""
        return self._ask("SELECT * FROM contacts ORDER BY id")

    def find(self, name):
        """Returns the entries of a name."""
        return self._ask("SELECT * FROM contacts WHERE name = ?", name)


class Notes(_App):
    def titles(self):
        """Returns the titles of all notes."""
        return [row["title"] for row in self._ask("SELECT title FROM notes ORDER BY id")]

    def read(self, title):
        """Returns a note's text."""
        return self._ask("SELECT text FROM notes WHERE title = ?", title)[0]["text"]

    def write(self, title, text):
        """Writes a new note."""
        self._ask("INSERT INTO notes (title, text) VALUES (?, ?)", title, text)


class Payments(_App):
    def history(self):
        """Returns all payments and requests: kind ('pay' or 'request'), account, amount, text."""
        return self._ask("SELECT * FROM payments ORDER BY id")

    def pay(self, account, amount, text=""):
        """Pays to an account."""
        self._enter("pay", account, amount, text)

    def request(self, account, amount, text=""):
        """Asks the owner of an account for money."""
        self._enter("request", account, amount, text)

    def _enter(self, *values):
        self._ask("INSERT INTO payments (kind, account, amount, text) VALUES (?, ?, ?, ?)", *values)


supervisor, mail, contacts, notes, payments = Supervisor(), Mail(), Contacts(), Notes(), Payments()
__all__ = ["Refused", "contacts", "mail", "notes", "payments", "supervisor"]
'''
_TABLES = """
CREATE TABLE passwords (app TEXT, password TEXT);
CREATE TABLE mail (id INTEGER PRIMARY KEY, sender TEXT, receiver TEXT, subject TEXT, text TEXT);
CREATE TABLE contacts (id INTEGER PRIMARY KEY, name TEXT, address TEXT, account INTEGER);
CREATE TABLE notes (id INTEGER PRIMARY KEY, title TEXT, text TEXT);
CREATE TABLE payments (id INTEGER PRIMARY KEY, kind TEXT, account INTEGER, amount INTEGER, text TEXT);
"""
_MAKE = """
import pathlib, sqlite3

pathlib.Path("/srv/apps").mkdir()
made = sqlite3.connect("/srv/apps/apps.db")
made.executescript(tables)
for table, rows in contents.items():
    for row in rows:
        made.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
made.commit()
"""
_TOLD = (
    "The Python module apps (in /app/apps.py) has the applications of one person: supervisor, mail, contacts, notes "
    "and payments; help(apps) tells what they do. Log in to each with its password of supervisor.passwords(). "
)
Rows = list[list[object]]


class _World:
    """One person's applications: what is in them, and what is to be in them at the end."""

    def __init__(self, chance: random.Random) -> None:
        self.names = chance.sample(NAMES, 4)
        self.passwords = {app: chance.choice(WORDS) for app in ("mail", "contacts", "notes", "payments")}
        accounts = chance.sample(range(1000, 9999), len(self.names))
        self.account = dict(zip(self.names, accounts, strict=True))
        self.begin: dict[str, Rows] = {
            "passwords": [list(pair) for pair in self.passwords.items()],
            "mail": [],
            "contacts": [
                [number, name, f"{name}@example.org", self.account[name]] for number, name in enumerate(self.names, 1)
            ],
            "notes": [[1, "shopping", ", ".join(chance.sample(WORDS, 3))]],
            "payments": [[1, "pay", accounts[-1], chance.randint(1, 99), "rent"]],
        }

    def receive(self, name: str, subject: str, text: str) -> None:
        """Puts a mail into the inbox."""
        mails = self.begin["mail"]
        mails.append([len(mails) + 1, f"{name}@example.org", "me", subject, text])

    def setup(self) -> str:
        """Returns the command that makes it."""
        script = write("/app/make.py", f"tables, contents = {_TABLES!r}, {self.begin!r}\n{_MAKE}")
        return f"{write(_MODULE, _SOURCE)}\n{script}\npython3 /app/make.py && rm /app/make.py && cd /app"

    def checks(self, table: str, columns: str, added: Sequence[Sequence[object]]) -> str:
        """Returns the checks of what was added to a table, in any order, and that nothing else was done."""
        query = f"SELECT {columns} FROM {table} WHERE id > {len(self.begin[table])}"
        goals = "".join(
            f"goal('{table} {number}', lambda: added()[tuple(values([{list(row)!r}])[0])] == 1)\n"
            for number, row in enumerate(added, 1)
        )
        others = {name: rows for name, rows in self.begin.items() if name != table}
        return (
            f"apps = Sqlite({_DATABASE!r}, {_TABLES!r})\n"
            f"added = lambda: Counter(values(apps.rows({query!r})))\n"
            f"{goals}"
            f"keep('nothing more', lambda: added() <= Counter(values({added!r})))\n"
            f"keep({table!r}, lambda: apps.gives('SELECT * FROM {table} WHERE id <= {len(self.begin[table])}', "
            f"{self.begin[table]!r}))\n"
            f"keep('others', lambda: apps.holds({others!r}))\n"
            "keep('schema', apps.has_its_schema)\n" + stays({_MODULE: _SOURCE})
        )

    def login(self, *apps: str) -> str:
        """Returns the code that logs in to applications."""
        return "\n".join(f"{app}.login(supervisor.passwords()['{app}'])" for app in apps)


def _draft(world: _World, instruction: str, checks: str, ways: Mapping[bool, Sequence[Sequence[str]]]) -> Draft:
    return Draft(_TOLD + instruction, world.setup(), checks, ways[True], ways[False], "python", "python")


_IMPORT = "from apps import *"


def pay(chance: random.Random) -> Draft:
    world = _World(chance)
    bills = {name: (chance.choice(WORDS), chance.randint(5, 95)) for name in world.names[:3]}
    for name, (good, amount) in bills.items():
        world.receive(name, f"bill for the {good}", f"Please pay me {amount} coins for the {good}.")
    name = chance.choice(list(bills))
    good, amount = bills[name]
    account = world.account[name]
    added = [["pay", account, amount]]
    checks = world.checks("payments", "kind, account, amount", added)
    number = list(bills).index(name) + 1
    do = f"payments.pay({account}, {amount}, '{good}')"
    return _draft(
        world,
        f"{name.title()} ({name}@example.org) sent a bill for the {good} by mail. Pay it once, to the account that "
        f"contacts has of {name}, and do nothing else.",
        checks,
        {
            True: [
                [
                    f"{_IMPORT}\n{world.login('mail', 'contacts', 'payments')}\ntext = mail.read({number})['text']\n"
                    f"payments.pay(contacts.find('{name}')[0]['account'], int(text.split()[3]))"
                ],
                [
                    _IMPORT,
                    world.login("mail", "contacts"),
                    "mail.inbox()",
                    f"mail.read({number})",
                    f"contacts.find('{name}')",
                    world.login("payments"),
                    do,
                    "payments.history()",
                ],
            ],
            False: [
                [_IMPORT, do],
                [f"{_IMPORT}\n{world.login('payments')}", do, do],
                [f"{_IMPORT}\n{world.login('payments', 'mail')}", do, f"mail.delete({number})"],
                [f"{_IMPORT}\n{world.login('payments')}\npayments.pay({account}, {amount + 1})"],
            ],
        },
    )


def split(chance: random.Random) -> Draft:
    world = _World(chance)
    guests = chance.sample(world.names, 2)
    share = chance.randint(4, 40)
    title = chance.choice(("dinner", "concert", "journey"))
    text = f"I paid {share * 3} coins for {guests[0]}, {guests[1]} and me."
    world.begin["notes"].append([2, title, text])
    world.receive(chance.choice(world.names), "thanks", f"The {title} was good!")
    added = [["request", world.account[name], share] for name in guests]
    checks = world.checks("payments", "kind, account, amount", added)
    each = [f"payments.request({world.account[name]}, {share}, '{title}')" for name in guests]
    return _draft(
        world,
        f"A note says what the {title} cost and who was there (key {sum(world.account.values())}). All share it alike: "
        "request the share of each of the others from the account that contacts has of them, and do nothing else.",
        checks,
        {
            True: [
                [
                    f"{_IMPORT}\n{world.login('contacts', 'payments')}\nfor name in {guests!r}:\n"
                    f"    payments.request(contacts.find(name)[0]['account'], {share})"
                ],
                [
                    _IMPORT,
                    world.login("notes", "contacts", "payments"),
                    "notes.titles()",
                    f"notes.read('{title}')",
                    "contacts.all()",
                    *reversed(each),
                ],
            ],
            False: [
                [f"{_IMPORT}\n{world.login('notes')}\nprint(notes.read('{title}'))"],
                [f"{_IMPORT}\n{world.login('payments')}\n{each[0].replace('request', 'pay')}"],
                [f"{_IMPORT}\n{world.login('payments', 'notes')}", *each, "notes.write('done', 'requested')"],
            ],
        },
    )


def reply(chance: random.Random) -> Draft:
    world = _World(chance)
    name, other = chance.sample(world.names, 2)
    title, answer = chance.sample(WORDS, 2)
    world.begin["notes"].append([2, title, answer])
    world.receive(other, "hello", "How are you?")
    world.receive(name, "a question", f"What does your note {title} say?")
    added = [["me", f"{name}@example.org", answer]]
    checks = world.checks("mail", "sender, receiver, text", added)
    send = f"mail.send('{name}@example.org', 'answer', '{answer}')"
    return _draft(
        world,
        f"{name.title()} ({name}@example.org) asks by mail what a note says. Send exactly the text of the note to "
        f"{name}, once, and do nothing else.",
        checks,
        {
            True: [
                [
                    f"{_IMPORT}\n{world.login('mail', 'notes')}\n"
                    f"mail.send(mail.read(2)['sender'], 'answer', notes.read('{title}'))"
                ],
                [
                    _IMPORT,
                    world.login("mail"),
                    "mail.inbox()",
                    "mail.read(2)",
                    world.login("notes"),
                    f"notes.read('{title}')",
                    send,
                ],
            ],
            False: [
                [f"{_IMPORT}\n{send}"],
                [f"{_IMPORT}\n{world.login('mail')}", send, f"mail.send('{other}@example.org', 'answer', '{answer}')"],
                [f"{_IMPORT}\n{world.login('mail')}", send, "mail.delete(1)"],
            ],
        },
    )
