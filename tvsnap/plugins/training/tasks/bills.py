"""Tasks on objects of a few applications, at a shell."""

from __future__ import annotations

import random

from tvsnap.plugins.training.tasks.task import NAMES, Draft, stays, write

_APPS = '''
"""A few applications over one database: mail, bank and todo."""

import sqlite3

_database = sqlite3.connect("/app/apps.db", isolation_level=None)


def _rows(query, *values):
    cursor = _database.execute(query, values)
    return [dict(zip([column[0] for column in cursor.description or ()], row)) for row in cursor]


class mail:
    def list():
        return _rows("SELECT * FROM mail")

    def delete(id):
        _rows("DELETE FROM mail WHERE id = ?", id)


class bank:
    def balance():
        return _rows("SELECT sum(amount) AS balance FROM payments")[0]["balance"]

    def pay(to, amount):
        _rows("INSERT INTO payments (name, amount) VALUES (?, ?)", to, -amount)

    def payments():
        return _rows("SELECT * FROM payments")


class todo:
    def list():
        return _rows("SELECT * FROM todo")

    def finish(id):
        _rows("UPDATE todo SET done = 1 WHERE id = ?", id)
'''


_TABLES = (
    "CREATE TABLE mail (id INTEGER PRIMARY KEY, sender TEXT, text TEXT);"
    "CREATE TABLE payments (id INTEGER PRIMARY KEY, name TEXT, amount INTEGER);"
    "CREATE TABLE todo (id INTEGER PRIMARY KEY, text TEXT, done INTEGER);"
)


def bill(chance: random.Random) -> Draft:
    names = chance.sample(NAMES, 3)
    bills = [(number, name, chance.randint(5, 95)) for number, name in enumerate(names, 1)]
    id, name, amount = chance.choice(bills)
    script = f"{_TABLES}INSERT INTO payments VALUES (1, 'salary', 1000);"
    script += "".join(
        f"INSERT INTO mail VALUES ({each}, '{who}', 'Please pay me {cost} coins.');" for each, who, cost in bills
    )
    script += "".join(f"INSERT INTO todo VALUES ({each}, 'pay {who}', 0);" for each, who, _ in bills)
    mails = [[each, who, f"Please pay me {cost} coins."] for each, who, cost in bills]
    todos = [[each, f"pay {who}", 0] for each, who, _ in bills]
    todos_done = [[each, text, int(each == id)] for each, text, _ in todos]
    entries = [["salary", 1000], [name, -amount]]
    checks = (
        f"apps = Sqlite('/app/apps.db', {_TABLES!r})\n"
        "paid = 'SELECT name, amount FROM payments'\n"
        f"goal('paid', lambda: apps.gives(paid, {entries!r}))\n"
        f"goal('done', lambda: apps.holds({ {'todo': todos_done}!r}))\n"
        f"keep('mail', lambda: apps.holds({ {'mail': mails}!r}))\n"
        "keep('salary', lambda: apps.gives('SELECT * FROM payments WHERE id = 1', [[1, 'salary', 1000]]))\n"
        f"keep('payments', lambda: goals['paid'] or apps.gives(paid, {entries[:1]!r}))\n"
        f"keep('todo', lambda: goals['done'] or apps.holds({ {'todo': todos}!r}))\n"
        "keep('schema', apps.has_its_schema)\n" + stays({"/app/apps.py": _APPS})
    )
    pay, finish = f"bank.pay('{name}', {amount})", f"todo.finish({id})"

    def python(code: str) -> str:
        return f'cd /app && python3 -c "from apps import *; {code}"'

    return Draft(
        "The Python module /app/apps.py has the applications mail (list(), delete(id)), bank (balance(), "
        f"pay(to, amount), payments()) and todo (list(), finish(id)). {name} asks for money by mail. Pay it, {amount} "
        f"coins, and finish item {id} of the todo list. Change nothing else.",
        f'{write("/app/apps.py", _APPS)}\ncd /app && sqlite3 apps.db "{script}"',
        checks,
        [
            [python(f"{pay}; {finish}")],
            [python("print(mail.list(), todo.list())"), python(pay), python(finish), python("print(bank.balance())")],
            [python("print(mail.list())"), python(finish), python("print(todo.list())"), python(pay)],
        ],
        [
            [python("print(mail.list())")],
            [python(f"{pay}; {finish}; mail.delete(1)")],
            [python(f"{pay}; {pay}; {finish}")],
        ],
    )
