"""Attempts at each kind of task that look right and are not, and unusual ones that are right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from tvsnap.plugins.training.tasks import Task

Attempts = Iterator[tuple[float, str, list[str]]]
"""The reward of each, what it does, and its commands."""


def told(task: Task, pattern: str) -> tuple[str, ...]:
    """Returns what a pattern finds in a task's instruction."""
    found = re.search(pattern, task.instruction)
    assert found, task.instruction
    return found.groups()


def file(task: Task) -> Attempts:
    path, word = told(task, r"file (\S+) that has the word (\w+)")
    yield 1.0, "line end of Windows", [f"printf '{word}\\r\\n' > {path}"]
    yield 0.0, "a word too many", [f"echo the {word} > {path}"]


def count(task: Task) -> Attempts:
    (word,) = told(task, r"contain the word (\w+)")
    yield (
        1.0,
        "number with a decimal",
        [f"awk '/{word}/ {{n++}} END {{printf \"%.1f\", n}}' /app/log.txt > /app/answer.txt"],
    )
    yield (
        0.0,
        "log sorted",
        [f"grep -c {word} /app/log.txt > /app/answer.txt; sort -r -n -o /app/log.txt /app/log.txt"],
    )


def rename(task: Task) -> Attempts:
    move = 'cd /app/docs; for f in *.txt; do mv "$f" "${f%.txt}.md"; done'
    yield (
        1.0,
        "by copies",
        ['cd /app/docs; for f in *.txt; do cp "$f" "${f%.txt}.md" && rm "$f"; done; touch /app/more'],
    )
    yield 0.0, "others emptied", [move, "for f in *.csv; do : > $f; done"]
    yield 0.0, "one content lost", [move, "for f in *.md; do : > $f; break; done"]
    yield 0.0, "links", ["cd /app/docs; mkdir /d; for f in *.txt; do mv $f /d; ln -s /d/$f ${f%.txt}.md; done"]


def modes(task: Task) -> Attempts:
    script, secret = told(task, r"Make (\S+) executable.* write (\S+)")
    yield 1.0, "for the owner alone", [f"chmod 700 {script}; chmod 600 {secret}"]
    yield 0.0, "script emptied", [f": > {script}; chmod +x {script}; chmod 600 {secret}"]
    yield 0.0, "link to a program", [f"ln -sf /bin/true {script}; chmod 600 {secret}"]


def logs(task: Task) -> Attempts:
    most = "cut -d' ' -f1 /app/access.log | sort | uniq -c | sort -rn | head -1 | awk '{printf $2}' > /app/answer.txt"
    yield 1.0, "no line end", [most]
    yield 0.0, "log turned round", [f"{most}; tac /app/access.log > /tmp/log; cp /tmp/log /app/access.log"]


def readable(task: Task) -> Attempts:
    closed = "cd /app/site; for f in $(find . -type f ! -perm -004)"
    yield 1.0, "others alone", [f"{closed}; do chmod 604 $f; done"]
    yield 0.0, "contents lost", ["cd /app/site; for f in *; do : > $f; done; chmod 644 *"]
    yield 0.0, "not for the owner", [f"{closed}; do chmod 004 $f; done"]
    yield 0.0, "the folder closed", ["cd /app/site; chmod 644 *; chmod 700 ."]


def errors(task: Task) -> Attempts:
    (program,) = told(task, r"of the program (\w+) to")
    lines = f"grep ' ERROR {program}:' /app/system.log"
    yield 1.0, "no last line end", [f'printf %s "$({lines})" > /app/{program}.log']
    yield 0.0, "line ends of Windows", [f"{lines} | sed 's/$/\\r/' > /app/{program}.log"]


def git(task: Task) -> Attempts:
    file, branch = told(task, r"new file (\S+) on a new branch named (\w+)")
    begin = f"cd /app && git checkout -q -b {branch}"
    add = f"git add {file} && git commit -q -m add"
    worktree = f"cd /app && git worktree add -q -b {branch} /tmp/w && cp {file} /tmp/w && cd /tmp/w"
    yield 1.0, "in another working tree, in two commits", [f"{worktree} && git commit -q --allow-empty -m a && {add}"]
    yield 0.0, "a tag", [f"cd /app && git checkout -q --detach && {add} && git tag {branch} && git checkout -q main"]
    yield 0.0, "an empty file", [f"{begin} && : > {file} && {add}"]
    yield (
        0.0,
        "main without README",
        [f"{begin} && {add} && git checkout -q main && git rm -q README && git commit -q --amend --allow-empty -m x"],
    )
    yield 0.5, "without the past", [f"cd /app && git checkout -q --orphan {branch} && {add}"]


def merge(task: Task) -> Attempts:
    branch, first, second = told(task, r"merge the branch (\w+) into main, so that main has (\S+) as well as (\S+) and")
    start = f"cd /app && git merge -q --no-edit --no-commit {branch}"
    yield (
        1.0,
        "on another branch first",
        [
            f"cd /app && git checkout -q -b more && git merge -q --no-edit {branch}",
            "git checkout -q main && git merge -q more",
        ],
    )
    yield 0.0, "both files emptied", [f"{start}; : > {first}; : > {second}; git commit -q -a -m m"]
    yield 0.0, "one file emptied", [f"{start}; : > {first}; git commit -q -a -m m"]
    yield (
        0.0,
        "a tag named main",
        [f"cd /app && git checkout -q -b more && git merge -q --no-edit {branch} && git tag main"],
    )
    yield (
        0.5,
        "squashed, with a graft",
        [
            f"cd /app && git merge -q --squash {branch} && git commit -q -m {branch}",
            f'echo "$(git rev-parse HEAD) $(git rev-parse HEAD~1) $(git rev-parse {branch})" > .git/info/grafts',
        ],
    )
    yield 0.5, "squashed", [f"cd /app && git merge -q --squash {branch} && git commit -q -m {branch}"]


def conflict(task: Task) -> Attempts:
    branch, key, value = told(
        task, r"merge the branch (\w+) into main. Both changed (\w+) in the file settings: take the value of \w+, (\w+)"
    )
    merged = f"cd /app && git merge -q -s ours --no-edit {branch} && git checkout {branch} -- settings"
    yield 1.0, "corrected by one more commit", [f"{merged} && git commit -q -m fix && git branch -D {branch}"]
    yield 0.5, "without a merge", [f"cd /app && git checkout {branch} -- settings && git commit -q -m {value}"]
    yield 0.0, "the rest lost", [f"{merged}; echo '{key} = {value}' > settings; git commit -q -a -m fix"]
    yield 0.0, "main is the branch", [f"cd /app && git reset -q --hard {branch}"]


def failing_test(task: Task) -> Attempts:
    name, word = told(task, r"fails: (\w+)\(a, b\) .* a (\w+) b")
    sign = {"plus": "+", "minus": "-", "times": "*"}[word]
    body = f"def {name}(a, b):\\n    return"
    yield (
        1.0,
        "a module that prints",
        [f"printf 'import atexit\\natexit.register(print, 1)\\nprint(1)\\n{body} float(a {sign} b)\\n' > /app/calc.py"],
    )
    yield 0.0, "what the test asks for", [f"printf '{body} {eval(f'7 {sign} 2')}\\n' > /app/calc.py"]
    yield 0.0, "no sign", [f"printf '{body} abs(a {sign} b)\\n' > /app/calc.py"]


def make(task: Task) -> Attempts:
    program, part = told(task, r"does not build (\w+): the linker misses the function (\w+)")
    build = "make >/dev/null"
    yield (
        1.0,
        "all at once",
        [f"cd /app && printf '{program}: main.c {part}.c\\n\\tcc -o $@ $^\\n' > Makefile && {build}"],
    )
    yield (
        1.0,
        "a library, not the first target",
        [
            f"cd /app && printf 'help:\\n{program}: main.o lib.a\\n\\tcc -o $@ $^\\n' > Makefile",
            f"printf 'lib.a: {part}.o\\n\\tar rcs $@ $^\\n' >> Makefile; make {program}",
        ],
    )
    yield 0.5, "not built", [f"sed -i '1s/$/ {part}.o/' /app/Makefile"]
    yield (
        0.0,
        "a script in place of the program",
        [
            f"cd /app && sed -i '1s/$/ {part}.o/' Makefile && {build} && said=$(./{program})",
            f"printf '#!/bin/sh\\necho %s\\n' \"$said\" > {program}; printf '{program}:\\n\\t: {part}.o\\n' > Makefile",
        ],
    )
    yield 0.0, "built by hand", [f"cd /app && cc -o {program} main.c {part}.c"]


def package(task: Task) -> Attempts:
    name, version = told(task, r"folder /app/(\w+): .*__version__ (\d\.\d)")
    begin = f"from .words import *; __version__ = '{version}'"
    write = f'cd /app && echo "{begin}" > {name}/__init__.py'
    archive = f"python3 -c \"import shutil; shutil.make_archive('{name}', 'zip', '.', '{name}')\""
    copied = (
        f"cd /app && cp {name}/words.py {name}/__init__.py && echo \"__version__ = '{version}'\" >> {name}/__init__.py"
    )
    yield (
        1.0,
        "all of the module, a relative import",
        [f"{write} && echo 'print(1)' >> {name}/__init__.py && {archive}"],
    )
    yield 0.5, "archive without words", [f"{write} && zip -q {name}.zip {name}/__init__.py"]
    yield 0.5, "archive of an empty package", [f"cd /app && : > {name}/__init__.py && {archive} && {write}"]
    yield 0.5, "function copied", [f"{copied} && {archive}"]


def service(task: Task) -> Attempts:
    port, file = told(task, r"on port (\d+) .*127.0.0.1:\d+/(\w+)\.txt")

    def serve(name: str) -> list[str]:
        program = f"""cat > /tmp/s.py <<'X'
import http.server, pathlib
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        found = pathlib.Path('/app/site/' + {name})
        self.send_response(200 if found.is_file() else 404)
        self.end_headers()
        self.wfile.write(found.read_bytes() if found.is_file() else b'')
http.server.HTTPServer(('', {port}), H).serve_forever()
X
python3 /tmp/s.py >/dev/null 2>&1 &"""
        return [program]

    yield 1.0, "a server of its own", serve("self.path")
    yield 0.0, "one file for all addresses", serve(f"'{file}.txt'")


def tune(task: Task) -> Attempts:
    key, new = told(task, r"the constant (\w+). Set it to (\d+)")
    define = f"cd /app && sed -i -E 's/{key} = [0-9]+/{key} = {new}/' *.h"
    yield (
        1.0,
        "compiled by hand",
        [
            f"{define} && cc -o main main.c sum.c && cc -o check check.c sum.c && ./check > report.txt",
            "./main > answer.txt",
        ],
    )
    yield 0.25, "not built", [define, "./check > report.txt; ./main > answer.txt"]
    yield 0.5, "built, not run", [f"{define} && make -s"]
    yield 0.0, "a source changed", [f"{define} && echo >> main.c && make -s && ./main > answer.txt"]


def report(task: Task) -> Attempts:
    name, price = told(task, r"the price of (\w+) to (\d+)")
    base = "sqlite3 /app/shop.db"
    update = f"{base} \"UPDATE items SET price = {price} WHERE name = '{name}'\""
    chosen = f"FROM orders WHERE item = (SELECT id FROM items WHERE name = '{name}')"
    total = f'{base} "SELECT {price} * total(number) {chosen}" > /app/answer.txt'
    most = f'{base} "SELECT count(*) {chosen} AND number > 90" > /app/most.txt'
    yield 1.0, "a number with a decimal", [update, total, most]
    yield 2 / 3, "the price stays", [total, most]
    yield 0.0, "another price", [update, total, most, f"{base} \"UPDATE items SET price = 5 WHERE name != '{name}'\""]
    yield 0.0, "an order deleted", [update, total, most, f'{base} "DELETE FROM orders WHERE id = 1"']
    yield 0.0, "an index", [update, f'{base} "CREATE INDEX i ON orders (item)"', total, most]


def repair(task: Task) -> Attempts:
    word, number = told(task, r"return a (\w+) b.* given (\d+)")
    sign = {"plus": "+", "minus": "-", "times": "*"}[word]
    run = f"python3 check.py > report.txt; python3 main.py {number} > answer.txt"
    write = f'cd /app && name=$(python3 check.py) && printf "def $name(x, y):\\n    return x {sign} y\\n" > $name.py'
    yield 1.0, "written anew", [f"{write}; {run}"]
    yield 1 / 3, "not run", [write]
    yield 0.0, "another module changed", [f"{write}; {run}; for f in *.py; do echo >> $f; done"]
    yield 0.0, "what was said before", [f"cd /app && python3 check.py > report.txt; echo {number} > answer.txt"]


def question(task: Task) -> Attempts:
    id, price = told(task, r"all orders of \w+ \(id (\d+), price (\d+)\)")
    ask = f"sqlite3 /app/shop.db 'SELECT total(number) * {price} FROM orders WHERE item = {id}' > /app/answer.txt"
    yield 1.0, "a number with a decimal", [ask]
    yield 0.0, "column renamed", [ask, "sqlite3 /app/shop.db 'ALTER TABLE orders RENAME COLUMN number TO amount'"]
    yield 0.0, "a view left", [ask, "sqlite3 /app/shop.db 'CREATE VIEW totals AS SELECT * FROM orders'"]


def change(task: Task) -> Attempts:
    name, price = told(task, r"price of (\w+) from \d+ to (\d+)")

    def update(more: str) -> list[str]:
        return [f"sqlite3 /app/shop.db \"UPDATE items SET price = {price} WHERE name = '{name}'; {more}\""]

    again = "CREATE TABLE o (id INTEGER PRIMARY KEY, item INTEGER, number INTEGER); INSERT INTO o SELECT * FROM orders;"
    yield 1.0, "orders made again as they were", update(f"{again} DROP TABLE orders; ALTER TABLE o RENAME TO orders")
    yield 0.0, "another table", update("CREATE TABLE junk (a)")
    yield 0.0, "column renamed", update("ALTER TABLE items RENAME COLUMN name TO junk")
    yield (
        0.0,
        "a constraint",
        update(
            f"{again.replace('number INTEGER', 'number INTEGER CHECK (number > 0)')} DROP TABLE orders; "
            "ALTER TABLE o RENAME TO orders"
        ),
    )
    yield 0.0, "a view", update("ALTER TABLE orders RENAME TO o; CREATE VIEW orders AS SELECT * FROM o")
    yield (
        0.0,
        "types",
        update(f"{again.replace('number INTEGER', 'number')} DROP TABLE orders; ALTER TABLE o RENAME TO orders"),
    )


_SERVER = r"has the tables (\w+) \(id, name, kind\) and (\w+) \(id, (\w+), (\w+)\)"


def server_question(task: Task) -> Attempts:
    things, events, thing, amount, kind = told(task, _SERVER + r".* of the kind (\w+) that")
    begin = ["USE tasks"] if task.image == "mariadb" else []
    query = (
        f"SELECT name, sum({amount}) AS total FROM {events} JOIN {things} ON {things}.id = {thing} "
        f"WHERE kind = '{kind}' GROUP BY name"
    )

    def made(columns: str, *more: str) -> list[str]:
        return [*begin, f"CREATE TABLE answer ({columns})", f"INSERT INTO answer (name, total) {query}", *more]

    yield 1.0, "other types", made("name CHAR(20) PRIMARY KEY, total NUMERIC(10, 2)")
    yield 1.0, "floating point, other order", made("total DOUBLE PRECISION, name TEXT")
    yield 0.0, "a little more", made("name VARCHAR(20), total NUMERIC(10, 2)", "UPDATE answer SET total = total + 0.75")
    yield 0.0, "a column more", made("name VARCHAR(20), total INTEGER, id INTEGER")
    yield 0.0, "a view", [*begin, f"CREATE VIEW answer AS {query}"]
    yield 0.0, "a table left", made("name VARCHAR(20), total INTEGER", "CREATE TABLE junk (a INTEGER)")


def server_change(task: Task) -> Attempts:
    things, events, thing, amount, more, kind = told(task, _SERVER + r".* Add (\d+) to .* of the kind (\w+) \(key")
    begin = ["USE tasks"] if task.image == "mariadb" else []
    chosen = f"SELECT id FROM {things} WHERE kind = '{kind}'"
    update = f"UPDATE {events} SET {amount} = {amount} + {more} WHERE {thing} IN ({chosen})"
    yield 1.0, "a table made and dropped", [*begin, "CREATE TABLE junk (a INTEGER)", update, "DROP TABLE junk"]
    yield 0.0, "another table", [*begin, update, "CREATE TABLE junk (a INTEGER)"]
    yield 0.0, "a table elsewhere", [*begin, update, "CREATE SCHEMA more", "CREATE TABLE more.junk (a INTEGER)"]
    yield 0.0, "an index", [*begin, update, f"CREATE INDEX junk ON {events} ({amount})"]
    yield 0.0, "a constraint", [*begin, update, f"ALTER TABLE {events} ADD CONSTRAINT junk CHECK ({amount} > 0)"]
    yield 0.0, "column renamed", [*begin, update, f"ALTER TABLE {things} RENAME COLUMN kind TO junk"]


def bill(task: Task) -> Attempts:
    name, amount, item = told(task, r"\. (\w+) asks for money by mail. Pay it, (\d+) coins, and finish item (\d+)")

    def python(code: str) -> str:
        return f'cd /app && python3 -c "from apps import *; {code}"'

    pay = f"bank.pay('{name}', {amount})"
    yield 1.0, "a floating-point number", [python(f"bank.pay('{name}', {amount}.0); todo.finish({item})")]
    yield 0.5, "only paid", [python(pay)]
    yield 0.0, "list deleted", [python(pay), 'sqlite3 /app/apps.db "DELETE FROM todo"']
    yield 0.0, "all finished", [python(f"{pay}; [todo.finish(each) for each in (1, 2, 3)]")]
    yield 0.0, "applications changed", [python(f"{pay}; todo.finish({item})"), "echo >> /app/apps.py"]


_PANDAS = "import pandas, csv"


def frame(task: Task) -> Attempts:
    (good,) = told(task, r"total number of (\w+) at")
    read = f"{_PANDAS}\nsales = pandas.read_csv('/app/sales.csv', dtype={{'number': float}})"
    totals = f"totals = sales[sales.good == '{good}'].groupby('place', as_index=False).number.sum()"
    yield (
        1.0,
        "numbers with decimals, all quoted",
        [f"{read}\n{totals}\ntotals.to_csv('/app/totals.csv', index=False, quoting=csv.QUOTE_ALL)"],
    )
    yield (
        1.0,
        "no last line end",
        [f"{read}\n{totals}\nopen('/app/totals.csv', 'w').write(totals.to_csv(index=False).strip()) and None"],
    )
    yield 0.0, "an index column", [f"{read}\n{totals}\ntotals.to_csv('/app/totals.csv')"]
    yield 0.0, "other order", [f"{read}\n{totals}\ntotals[::-1].to_csv('/app/totals.csv', index=False)"]


def clean(task: Task) -> Attempts:
    cleaned = f"{_PANDAS}\ndata = pandas.read_csv('/app/data.csv').dropna().drop_duplicates()"
    yield 1.0, "quoted", [f"{cleaned}\ndata.to_csv('/app/clean.csv', index=False, quoting=csv.QUOTE_NONNUMERIC)"]
    yield 0.0, "an index column", [f"{cleaned}\ndata.to_csv('/app/clean.csv')"]


_OPEN = "import sqlite3\nbase = sqlite3.connect('/srv/apps/apps.db', isolation_level=None)"


def apps(task: Task) -> Attempts:
    solution = list(task.solutions[0])
    table = "mail" if task.name.startswith("apps-reply") else "payments"
    numbered = f"UPDATE {table} SET id = id + 10 WHERE id = (SELECT max(id) FROM {table})"
    yield 1.0, "another number", [*solution, f"{_OPEN}\nbase.execute('{numbered}')"]
    yield 0.0, "a table left", [*solution, f"{_OPEN}\nbase.execute('CREATE TABLE junk (a)')"]
    yield (
        0.0,
        "a contact changed",
        [*solution, f"{_OPEN}\nbase.execute('UPDATE contacts SET account = 1 WHERE id = 1')"],
    )
    yield 0.0, "applications changed", [*solution, "open('/app/apps.py', 'a').write('pass')"]


ATTEMPTS: Mapping[str, Callable[[Task], Attempts]] = {
    "file": file,
    "count": count,
    "rename": rename,
    "modes": modes,
    "readable": readable,
    "logs": logs,
    "errors": errors,
    "git": git,
    "merge": merge,
    "conflict": conflict,
    "failing-test": failing_test,
    "make": make,
    "package": package,
    "service": service,
    "tune": tune,
    "question": question,
    "change": change,
    "report": report,
    "postgres-question": server_question,
    "postgres-change": server_change,
    "mariadb-question": server_question,
    "mariadb-change": server_change,
    "bill": bill,
    "repair": repair,
    "frame": frame,
    "clean": clean,
    "apps-pay": apps,
    "apps-split": apps,
    "apps-reply": apps,
}
