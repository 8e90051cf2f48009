"""Tasks that are generated from seeds: what an agent is told, how it is graded, and several ways to solve each.

All run in the image `terminal`. They are of three families: `terminal` (files, text, permissions, git, a failing test,
logs), `sql` (questions and changes on SQLite) and `python` (objects of a few applications over one database).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tvsnap import UsageError, Verifier

Split = Literal["train", "dev", "test"]
Commands = tuple[str, ...]
_SHARES: Mapping[str, range] = {"train": range(8), "dev": range(8, 9), "test": range(9, 10)}
_CHECKS = "/tests/check.py"

_CHECK = """
import hashlib, json, os, pathlib, sqlite3, stat, subprocess

goals, kept = {}, {}


def text(path):
    return pathlib.Path(path).read_text()


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, cwd="/app", timeout=20).stdout.strip()


def rows(query, database="/app/shop.db"):
    return [list(row) for row in sqlite3.connect(database).execute(query)]


def passes(test):
    try:
        return bool(test())
    except Exception as error:
        print(type(error).__name__, error)
        return False


def goal(name, test):
    goals[name] = passes(test)


def keep(name, test):
    kept[name] = passes(test)

"""
_VERDICT = """
reward = sum(goals.values()) / len(goals) if all(kept.values()) else 0.0
print(json.dumps({"reward": reward, "tests": {**goals, **kept}}))
"""


@dataclass(frozen=True)
class Task:
    """A task for an agent.

    Attributes:
        name: its kind and its number, such as `files/3`.
        family: `terminal`, `sql` or `python`.
        instruction: what the agent is told.
        setup: commands that are run before the agent begins.
        verifier: grades what it did: the share of the goals that were reached; 0 where something was changed that was
            to stay.
        solutions: sequences of commands that are graded 1.
        wrong: sequences of commands that are graded 0.
        image: the image in which it runs.
    """

    name: str
    family: str
    instruction: str
    setup: Commands
    verifier: Verifier
    solutions: tuple[Commands, ...]
    wrong: tuple[Commands, ...]
    image: str = "terminal"


@dataclass(frozen=True)
class _Draft:
    """A task without its name; `checks` are lines of the verifier."""

    instruction: str
    setup: str
    checks: str
    solutions: Sequence[Sequence[str]]
    wrong: Sequence[Sequence[str]]


def tasks(
    split: Split = "train", n: int = 10, seed: int = 0, *, families: Sequence[str] = (), kinds: Sequence[str] = ()
) -> list[Task]:
    """Returns generated tasks, one kind after the other, so that all kinds are about equally frequent.

    No instruction of one split occurs in another one, whatever the seeds: which split it belongs to goes by its hash.

    Args:
        split: `train`, `dev` or `test`.
        n: how many; the first ones are the same for any `n`.
        seed: other seeds give other tasks.
        families: only those of these families; empty for all.
        kinds: only those of these kinds, see `KINDS`; empty for all.

    Raises:
        UsageError: there is no such split, family or kind.
    """
    if split not in _SHARES:
        raise UsageError(f"split must be one of {', '.join(_SHARES)}, not {split!r}")
    unknown = {*families} - {family for family, _ in KINDS.values()} | {*kinds} - KINDS.keys()
    if unknown:
        raise UsageError(f"no such family or kind of tasks: {', '.join(sorted(unknown))}; have: {', '.join(KINDS)}")
    chosen = [
        _of_kind(kind, split, seed)
        for kind, (family, _) in KINDS.items()
        if (not families or family in families) and (not kinds or kind in kinds)
    ]
    return [next(chosen[number % len(chosen)]) for number in range(n)]


def _of_kind(kind: str, split: Split, seed: int) -> Iterator[Task]:
    """Yields the tasks of a kind, without end; where a kind has no more, they come again."""
    family, draw = KINDS[kind]
    chance, number = random.Random(f"{seed} {kind}"), 0
    while True:
        draft = draw(chance)
        bucket = hashlib.sha256(draft.instruction.encode()).digest()[0] % 10
        if bucket not in _SHARES[split]:
            continue
        verifier = Verifier(f"python3 {_CHECKS}", {_CHECKS: f"{_CHECK}{draft.checks}{_VERDICT}"})
        ways = [tuple(map(tuple, each)) for each in (draft.solutions, draft.wrong)]
        yield Task(f"{kind}/{number}", family, draft.instruction, (draft.setup,), verifier, ways[0], ways[1])
        number += 1


_TEXT = """
amber basin cedar delta ember fable grove harbor island jasper kernel lagoon meadow nectar orchid pebble quartz river
saddle timber umber valley willow yonder zephyr anchor bridge candle dragon engine falcon garden hammer
"""
_WORDS = tuple(_TEXT.split())
_NAMES = ("ada", "ben", "cleo", "dora", "emil", "fay", "gus", "hana", "ivan", "june", "kai", "lena")


def _write(path: str, content: str) -> str:
    """Returns a command that writes a file."""
    folder = path.rpartition("/")[0]
    return f"mkdir -p {folder} && cat > {path} <<'END'\n{content.rstrip()}\nEND"


def _same(name: str, path: str, content: str) -> str:
    """Returns a check that a file has the content that `_write` gave it."""
    return f"keep({name!r}, lambda: text({path!r}) == {content.rstrip() + chr(10)!r})\n"


def _file(chance: random.Random) -> _Draft:
    name, word = chance.choice(_WORDS), chance.choice(_WORDS)
    path = f"/app/{name}.txt"
    return _Draft(
        f"Create the file {path} with the word {word} in it.",
        "cd /app",
        f"goal('content', lambda: text({path!r}).split() == [{word!r}])\n",
        [
            [f"echo {word} > {path}"],
            [f"touch {path}", f"printf {word} >> {path}"],
            ["cd /app", f"echo {word} > {name}.txt"],
        ],
        [[f"echo {word}"], [f"touch {path}"], [f"echo {word}{word} > {path}"]],
    )


def _count(chance: random.Random) -> _Draft:
    wanted, other = chance.sample(_WORDS, 2)
    lines = [f"{number} {chance.choice((wanted, other))}" for number in range(chance.randint(6, 30))]
    count = sum(line.endswith(wanted) for line in lines)
    content = "\n".join(lines)
    return _Draft(
        f"How many lines of /app/log.txt contain the word {wanted}? Write the number to /app/answer.txt.",
        _write("/app/log.txt", content),
        f"goal('answer', lambda: text('/app/answer.txt').strip() == '{count}')\n"
        + _same("log", "/app/log.txt", content),
        [
            [f"grep -c {wanted} /app/log.txt > /app/answer.txt"],
            ["cat /app/log.txt", f"grep {wanted} /app/log.txt | wc -l > /app/answer.txt"],
            [f"grep -c {wanted} /app/log.txt", f"echo {count} > /app/answer.txt"],
        ],
        [[f"grep -c {wanted} /app/log.txt"], [f"echo {count + 1} > /app/answer.txt"], ["rm /app/log.txt"]],
    )


def _rename(chance: random.Random) -> _Draft:
    names = chance.sample(_WORDS, chance.randint(2, 4))
    stays = chance.choice([word for word in _WORDS if word not in names])
    checks = "".join(
        f"goal({name!r}, lambda: text('/app/docs/{name}.md') == '{name}\\n' and "
        f"not os.path.exists('/app/docs/{name}.txt'))\n"
        for name in names
    )
    every = " && ".join(f"mv /app/docs/{name}.txt /app/docs/{name}.md" for name in names)
    setup = [f"mkdir -p /app/docs && echo {stays} > /app/docs/{stays}.csv"]
    return _Draft(
        f"Rename each of the {len(names)} .txt files in /app/docs, {', '.join(sorted(names))}, so that it ends in .md "
        "instead.",
        " && ".join([*setup, *(f"echo {name} > /app/docs/{name}.txt" for name in names)]),
        checks + f"keep('others', lambda: os.path.exists('/app/docs/{stays}.csv'))\n",
        [
            [every],
            ["cd /app/docs", 'for f in *.txt; do mv "$f" "${f%.txt}.md"; done'],
            ["cd /app/docs", "ls", *(f"mv {name}.txt {name}.md" for name in names)],
        ],
        [["ls /app/docs"], ["rm /app/docs/*"], ["cd /app/docs && for f in *.txt; do cp $f ${f%.txt}.md; done"]],
    )


def _modes(chance: random.Random) -> _Draft:
    script, secret = chance.sample(_WORDS, 2)
    checks = (
        f"goal('script', lambda: os.stat('/app/{script}.sh').st_mode & 0o100)\n"
        f"goal('secret', lambda: stat.S_IMODE(os.stat('/app/{secret}.key').st_mode) == 0o600)\n"
        f"keep('key', lambda: text('/app/{secret}.key') == '{secret}\\n')\n"
    )
    return _Draft(
        f"Make /app/{script}.sh executable, and let nobody but its owner read or write /app/{secret}.key (mode 600).",
        f"cd /app && echo 'echo {script}' > {script}.sh && echo {secret} > {secret}.key && "
        f"chmod 644 {script}.sh {secret}.key",
        checks,
        [
            [f"chmod +x /app/{script}.sh; chmod 600 /app/{secret}.key"],
            ["cd /app", "ls -l", f"chmod 755 {script}.sh", f"chmod u=rw,go= {secret}.key"],
        ],
        [["ls -l /app"], [f"chmod +x /app/{script}.sh; echo > /app/{secret}.key"], [f"chmod 400 /app/{secret}.key"]],
    )


def _git(chance: random.Random) -> _Draft:
    branch, file = chance.sample(_WORDS, 2)
    checks = (
        f"goal('branch', lambda: run('git', 'rev-parse', '--verify', '-q', '{branch}'))\n"
        f"goal('commit', lambda: '{file}.txt' in run('git', 'ls-tree', '--name-only', '{branch}').split())\n"
        "keep('main', lambda: run('git', 'rev-list', '--count', 'main') == '1')\n"
    )
    setup = (
        "cd /app && git init -q -b main . && git config user.name a && git config user.email a@example.org"
        f" && echo 1 > README && git add README && git commit -q -m first && echo {file} > {file}.txt"
    )
    return _Draft(
        f"In the Git repository /app, commit the new file {file}.txt on a new branch named {branch}.",
        setup,
        checks,
        [
            [f"cd /app && git checkout -q -b {branch} && git add {file}.txt && git commit -q -m add"],
            [
                "cd /app",
                "git status",
                f"git branch {branch}",
                f"git checkout {branch}",
                "git add .",
                "git commit -m add",
            ],
        ],
        [["cd /app && git status"], [f"cd /app && git add {file}.txt && git commit -q -m add && git branch {branch}"]],
    )


def _failing_test(chance: random.Random) -> _Draft:
    name = chance.choice(_WORDS)
    right, bad, word = chance.choice((("+", "-", "sum"), ("-", "+", "difference"), ("*", "+", "product")))
    source = f"def {name}(a, b):\n    return a {bad} b"
    test = f"from calc import {name}\n\nassert {name}(7, 2) == {eval(f'7 {right} 2')}\nprint('passed')"
    # Compiled files are told from their sources by size and second alone: a quick correction would not be noticed.
    asked = f"from calc import {name}; print({name}(9, 4), {name}(5, 1))"
    checks = (
        f"goal('right', lambda: run('python3', '-X', 'pycache_prefix=/tests', '-c', '{asked}')"
        f" == '{eval(f'9 {right} 4')} {eval(f'5 {right} 1')}')\n" + _same("test", "/app/test_calc.py", test)
    )
    fixed = f"return a {right} b"
    return _Draft(
        f"The test /app/test_calc.py fails: {name}(a, b) in /app/calc.py is to return the {word} of a and b. Correct "
        "calc.py.",
        f"export PYTHONDONTWRITEBYTECODE=1\n{_write('/app/calc.py', source)}\n{_write('/app/test_calc.py', test)}",
        checks,
        [
            [f"sed -i 's/return .*/{fixed}/' /app/calc.py"],
            [
                "cd /app",
                "python3 test_calc.py",
                "cat calc.py",
                _write("/app/calc.py", f"def {name}(a, b):\n    {fixed}"),
                "python3 test_calc.py",
            ],
        ],
        [["python3 /app/test_calc.py"], ["echo > /app/test_calc.py"], ["rm /app/calc.py"]],
    )


def _logs(chance: random.Random) -> _Draft:
    addresses = [f"10.0.{chance.randint(0, 9)}.{number}" for number in chance.sample(range(1, 250), 4)]
    most = addresses[0]
    lines = [most] * 9 + addresses[1:2] * 5 + addresses[2:3] * 4 + addresses[3:]
    chance.shuffle(lines)
    content = "\n".join(f'{address} - - "GET /{chance.choice(_WORDS)}" 200' for address in lines)
    counted = "cut -d' ' -f1 /app/access.log | sort | uniq -c | sort -rn"
    key = hashlib.sha256(content.encode()).hexdigest()[:6]
    return _Draft(
        f"Which address made most of the requests in /app/access.log (log {key})? Write it to /app/answer.txt.",
        _write("/app/access.log", content),
        f"goal('answer', lambda: text('/app/answer.txt').strip() == '{most}')\n"
        + _same("log", "/app/access.log", content),
        [
            [f"{counted} | head -n 1 | awk '{{print $2}}' > /app/answer.txt"],
            ["head -n 3 /app/access.log", counted, f"echo {most} > /app/answer.txt"],
        ],
        [[counted], [f"echo {addresses[1]} > /app/answer.txt"], [f"echo {most} > /app/answer.txt; rm /app/access.log"]],
    )


def _shop(chance: random.Random) -> tuple[str, list[tuple[int, str, int]], list[tuple[int, int, int]]]:
    """Returns the script of a database, its items (id, name, price) and its orders (id, item, number)."""
    items = [(number, name, chance.randint(1, 90)) for number, name in enumerate(chance.sample(_WORDS, 5), 1)]
    orders = [(number, chance.randint(1, 5), chance.randint(1, 9)) for number in range(1, chance.randint(8, 16))]
    script = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price INTEGER);\n"
    script += "CREATE TABLE orders (id INTEGER PRIMARY KEY, item INTEGER, number INTEGER);\n"
    script += "".join(f"INSERT INTO items VALUES {item};\n" for item in items)
    script += "".join(f"INSERT INTO orders VALUES {order};\n" for order in orders)
    return f"{_write('/app/shop.sql', script)}\ncd /app && sqlite3 shop.db < shop.sql && rm shop.sql", items, orders


def _table(name: str, rows: Sequence[Sequence[object]], kind: str = "keep") -> str:
    """Returns a check that a table holds rows."""
    wanted = [list(row) for row in rows]
    return f"{kind}({name!r}, lambda: rows('SELECT * FROM {name} ORDER BY id') == {wanted!r})\n"


def _question(chance: random.Random) -> _Draft:
    setup, items, orders = _shop(chance)
    id, name, price = chance.choice(items)
    number = sum(count for _, item, count in orders if item == id)
    total = number * price
    query = f"SELECT coalesce(sum(number * price), 0) FROM orders JOIN items ON items.id = item WHERE name = '{name}'"
    return _Draft(
        "The SQLite database /app/shop.db has the tables items (id, name, price) and orders (id, item, number). What "
        f"do all orders of {name} (id {id}, price {price}) cost together? Write the number to /app/answer.txt.",
        setup,
        f"goal('answer', lambda: text('/app/answer.txt').strip() == '{total}')\n"
        + _table("items", items)
        + _table("orders", orders),
        [
            [f'sqlite3 /app/shop.db "{query}" > /app/answer.txt'],
            ["cd /app", "sqlite3 shop.db .schema", f'sqlite3 shop.db "{query}"', f"echo {total} > answer.txt"],
        ],
        [
            [f'sqlite3 /app/shop.db "{query}"'],
            [f"echo {total + 1} > /app/answer.txt"],
            [f"rm /app/shop.db; echo {total} > /app/answer.txt"],
        ],
    )


def _change(chance: random.Random) -> _Draft:
    setup, items, orders = _shop(chance)
    id, name, price = chance.choice(items)
    new = price + chance.randint(1, 20)
    after = [(each, called, new if each == id else cost) for each, called, cost in items]
    return _Draft(
        f"In the table items (id, name, price) of the SQLite database /app/shop.db, set the price of {name} from "
        f"{price} to {new}, and change nothing else.",
        setup,
        _table("items", after, "goal") + _table("orders", orders),
        [
            [f"sqlite3 /app/shop.db \"UPDATE items SET price = {new} WHERE name = '{name}'\""],
            [
                "cd /app",
                "sqlite3 shop.db 'SELECT * FROM items'",
                f"sqlite3 shop.db 'UPDATE items SET price = {new} WHERE id = {id}'",
            ],
        ],
        [
            ["sqlite3 /app/shop.db 'SELECT * FROM items'"],
            [f"sqlite3 /app/shop.db 'UPDATE items SET price = {new}'"],
            [f"sqlite3 /app/shop.db 'UPDATE items SET price = {new} WHERE id = {id}; DELETE FROM orders WHERE id = 1'"],
        ],
    )


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


def _bill(chance: random.Random) -> _Draft:
    names = chance.sample(_NAMES, 3)
    bills = [(number, name, chance.randint(5, 95)) for number, name in enumerate(names, 1)]
    id, name, amount = chance.choice(bills)
    script = (
        "CREATE TABLE mail (id INTEGER PRIMARY KEY, sender TEXT, text TEXT);"
        "CREATE TABLE payments (id INTEGER PRIMARY KEY, name TEXT, amount INTEGER);"
        "CREATE TABLE todo (id INTEGER PRIMARY KEY, text TEXT, done INTEGER);"
        "INSERT INTO payments VALUES (1, 'salary', 1000);"
    )
    script += "".join(
        f"INSERT INTO mail VALUES ({each}, '{who}', 'Please pay me {cost} coins.');" for each, who, cost in bills
    )
    script += "".join(f"INSERT INTO todo VALUES ({each}, 'pay {who}', 0);" for each, who, _ in bills)
    mails = [[each, who, f"Please pay me {cost} coins."] for each, who, cost in bills]
    todos = [[each, f"pay {who}", int(each == id)] for each, who, _ in bills]
    paid = [[1, "salary", 1000], [2, name, -amount]]
    checks = (
        "def table(name):\n"
        "    return rows(f'SELECT * FROM {name} ORDER BY id', '/app/apps.db')\n\n"
        f"goal('paid', lambda: table('payments') == {paid!r})\n"
        f"goal('done', lambda: table('todo') == {todos!r})\n"
        f"keep('mail', lambda: table('mail') == {mails!r})\n"
        f"keep('payments', lambda: table('payments') in ({paid[:1]!r}, {paid!r}))\n"
        f"keep('todo', lambda: all(row[2] <= wanted[2] for row, wanted in zip(table('todo'), {todos!r})))\n"
    )
    pay, finish = f"bank.pay('{name}', {amount})", f"todo.finish({id})"

    def python(code: str) -> str:
        return f'cd /app && python3 -c "from apps import *; {code}"'

    return _Draft(
        "The Python module /app/apps.py has the applications mail (list(), delete(id)), bank (balance(), "
        f"pay(to, amount), payments()) and todo (list(), finish(id)). {name} asks for money by mail. Pay it, {amount} "
        f"coins, and finish item {id} of the todo list. Change nothing else.",
        f'{_write("/app/apps.py", _APPS)}\ncd /app && sqlite3 apps.db "{script}"',
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


KINDS: Mapping[str, tuple[str, Callable[[random.Random], _Draft]]] = {
    "file": ("terminal", _file),
    "count": ("terminal", _count),
    "rename": ("terminal", _rename),
    "modes": ("terminal", _modes),
    "git": ("terminal", _git),
    "failing-test": ("terminal", _failing_test),
    "logs": ("terminal", _logs),
    "question": ("sql", _question),
    "change": ("sql", _change),
    "bill": ("python", _bill),
}
"""The kinds of tasks: their family, and what draws one."""
