"""Tasks of several calls, each of which needs what an earlier one did or said; some of the calls take time.

They are done at a shell: tune and build a program in C, evaluate a large table in SQLite, correct a module in Python.
"""

from __future__ import annotations

import random

from tvsnap.plugins.training.tasks.task import WORDS, Draft, stays, write

_WORK = 30_000_000
_PERIOD, _TIMES = 20 * 97, 150
_ROWS = _PERIOD * _TIMES
_TABLES = """
CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price INTEGER);
CREATE TABLE orders (id INTEGER PRIMARY KEY, item INTEGER, number INTEGER);
"""


def tune(chance: random.Random) -> Draft:
    """One of three headers has the constant that is to be changed; then the program is built, checked and run."""
    headers, keys = chance.sample(WORDS, 3), chance.sample(WORDS, 3)
    numbers = [chance.randint(10, 99) for _ in range(3)]
    header, key, old = headers[0], keys[0], numbers[0]
    new = chance.choice([number for number in range(10, 100) if number != old])
    files = {
        f"/app/{name}.h": f"enum {{ {each} = {n} }};" for name, each, n in zip(headers, keys, numbers, strict=True)
    }
    includes = "\n".join(f'#include "{name}.h"' for name in sorted(headers))
    modules = {
        "/app/sum.c": f"{includes}\nint sum(void) {{ return {' + '.join(keys)}; }}",
        "/app/main.c": '#include <stdio.h>\nint sum(void);\nint main(void) { printf("%d\\n", sum()); }',
        "/app/check.c": "#include <stdio.h>\nint sum(void);\nint main(void) {\n    volatile unsigned long n = 0;\n"
        f'    for (unsigned long i = 0; i < {_WORK}; i++) n += sum();\n    printf("checked %lu\\n", n / {_WORK});\n}}',
        "/app/Makefile": "CFLAGS = -O1\nall: main check\nmain: main.o sum.o\ncheck: check.o sum.o\n"
        f"sum.o: {' '.join(f'{name}.h' for name in sorted(headers))}",
    }
    total = sum(numbers) - old + new
    stay = modules | {path: content for path, content in files.items() if path != f"/app/{header}.h"}
    checks = (
        f"goal('constant', lambda: re.findall(r'\\b{key} *= *(\\d+)', text('/app/{header}.h')) == ['{new}'])\n"
        f"goal('built', lambda: run('/app/main').strip() == '{total}')\n"
        f"goal('report', lambda: text('/app/report.txt').strip() == 'checked {total}')\n"
        f"goal('answer', lambda: text('/app/answer.txt').strip() == '{total}')\n" + stays(stay)
    )
    return Draft(
        f"In /app, one of the header files has the constant {key}. Set it to {new}, build with make, write what "
        "./check prints to report.txt and what ./main prints to answer.txt. Leave all else as it is.",
        "\n".join([*(write(path, content) for path, content in (files | modules).items()), "make -s -C /app"]),
        checks,
        [
            [
                "cd /app",
                f"grep -lw {key} *.h",
                f"sed -i 's/= .* /= {new} /' {header}.h",
                "make -s",
                "./check > report.txt",
                "./main > answer.txt",
            ],
            [
                f"cd /app && sed -i 's/{key} = [0-9]*/{key} = {new}/' *.h && make -s",
                "./check > report.txt && ./main > answer.txt",
            ],
        ],
        [
            ["cd /app && make -s"],
            [f"cd /app && sed -i 's/= .* /= {new} /' *.h && make -s && ./check > report.txt && ./main > answer.txt"],
        ],
        outputs=["", f"{header}.h\n", "", "", "", ""],
    )


def report(chance: random.Random) -> Draft:
    """A price is changed, and a large table evaluated with it."""
    names, step = chance.sample(WORDS, 20), chance.choice((7, 11, 13, 17))
    first = chance.randint(10, 70)
    items = [(first + place, name, chance.randint(10, 99)) for place, name in enumerate(names)]
    place = chance.randrange(20)
    id, name, old = items[place]
    new = chance.choice([price for price in range(10, 100) if price != old])
    period = [(n % 20, 1 + n * step % 97) for n in range(_PERIOD)]
    numbers = [number for each, number in period if each == place]
    script = (
        f"{_TABLES.strip()}\n"
        + "".join(f"INSERT INTO items VALUES {item};\n" for item in items)
        + f"WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {_ROWS}) "
        + f"INSERT INTO orders SELECT n, {first} + n % 20, 1 + n * {step} % 97 FROM n;"
    )
    others = [item for item in items if item[0] != id]
    everything = _TIMES * sum(number for _, number in period)
    checks = (
        f"shop = Sqlite('/app/shop.db', {_TABLES!r})\n"
        "keep('schema', shop.has_its_schema)\n"
        f"keep('items', lambda: shop.gives('SELECT * FROM items WHERE id != {id}', {others!r}))\n"
        f"keep('orders', lambda: shop.gives('SELECT count(*), sum(number) FROM orders', [({_ROWS}, {everything})]))\n"
        f"goal('price', lambda: shop.gives('SELECT * FROM items WHERE id = {id}', {[(id, name, new)]!r}))\n"
        f"goal('total', lambda: value(text('/app/answer.txt')) == {_TIMES * sum(numbers) * new})\n"
        f"goal('most', lambda: value(text('/app/most.txt')) == {_TIMES * sum(each > 90 for each in numbers)})\n"
    )
    worth = "SELECT sum(number * price) FROM orders JOIN items ON item = items.id WHERE item = {}"
    many = "SELECT count(*) FROM orders WHERE number > 90 AND item = {}"
    here = f"(SELECT id FROM items WHERE name = '{name}')"
    return Draft(
        f"In the SQLite database /app/shop.db, set the price of {name} to {new}. Write what all orders of it are worth "
        "then (the sum of number times price) to answer.txt, and how many orders of it have a number larger than 90 to "
        "most.txt, both in /app. Leave all else as it is.",
        f"{write('/app/shop.sql', script)}\ncd /app && sqlite3 shop.db < shop.sql && rm shop.sql",
        checks,
        [
            [
                "cd /app",
                f"sqlite3 shop.db \"SELECT id FROM items WHERE name = '{name}'\"",
                f'sqlite3 shop.db "UPDATE items SET price = {new} WHERE id = {id}"',
                f'sqlite3 shop.db "{worth.format(id)}" > answer.txt',
                f'sqlite3 shop.db "{many.format(id)}" > most.txt',
            ],
            [
                f"sqlite3 /app/shop.db \"UPDATE items SET price = {new} WHERE name = '{name}'\"",
                f'sqlite3 /app/shop.db "{worth.format(here)}" > /app/answer.txt; '
                f'sqlite3 /app/shop.db "{many.format(here)}" > /app/most.txt',
            ],
        ],
        [
            ["cd /app && sqlite3 shop.db .schema"],
            [f'sqlite3 /app/shop.db "UPDATE items SET price = {new}"'],
        ],
        outputs=["", f"{id}\n", "", "", ""],
    )


def repair(chance: random.Random) -> Draft:
    """The check of a program in Python names the module that is wrong."""
    modules = chance.sample(WORDS, 3)
    right, bad, word = chance.choice((("+", "-", "plus"), ("-", "+", "minus"), ("*", "+", "times")))
    wrong = chance.choice(modules)
    number = chance.randint(10, 99)
    files = _program(modules, wrong, right, bad)
    stay = {path: files[path] for path in ("/app/check.py", "/app/main.py")} | {
        path: source for path, source in files.items() if path != f"/app/{wrong}.py"
    }
    answer = {"+": 3 * (number * 500_000 + 124_999_750_000), "-": 3 * (number * 500_000 - 124_999_750_000)}.get(
        right, 3 * number * 124_999_750_000
    )
    pairs = [(9, 4), (5, 5), (-3, 4), (0, 8), (1.5, 0.25)]
    checks = (
        f"goal('right', lambda: python('[{wrong}(a, b) for a, b in {pairs!r}]', 'from {wrong} import {wrong}') "
        f"== {[eval(f'{a} {right} {b}') for a, b in pairs]!r})\n"
        "goal('report', lambda: text('/app/report.txt').strip() == 'passed')\n"
        f"goal('answer', lambda: text('/app/answer.txt').strip() == '{answer}')\n" + stays(stay)
    )
    return Draft(
        f"In /app, check.py prints the name of the module with a wrong function, or that all have passed: functions "
        f"are to return a {word} b. Correct the module. Then write what check.py prints to report.txt, and what "
        f"main.py prints when it is given {number} to answer.txt. Leave all else as it is.",
        "\n".join(
            [
                "export PYTHONDONTWRITEBYTECODE=1",
                *(write(path, content) for path, content in files.items()),
            ]
        ),
        checks,
        [
            [
                "cd /app",
                "python3 check.py",
                f"sed -i 's/a . b/a {right} b/' {wrong}.py",
                "python3 check.py > report.txt",
                f"python3 main.py {number} > answer.txt",
            ],
            [
                f"cd /app && sed -i 's/a . b/a {right} b/' {' '.join(f'{name}.py' for name in modules)}",
                f"python3 check.py > report.txt; python3 main.py {number} > answer.txt",
            ],
        ],
        [["cd /app && python3 check.py"], ["cd /app && echo 'print(1)' > check.py"]],
        outputs=["", f"{wrong}\n", "", "", ""],
    )


def _program(modules: list[str], wrong: str, right: str, bad: str) -> dict[str, str]:
    """Returns the files of a program of three modules, one of which computes something else, its check among them."""
    listed = sorted(modules)
    check = (
        f"import sys\nfrom {wrong} import {wrong}\n"
        + "".join(f"from {name} import {name}\n" for name in listed if name != wrong)
        + f"for function in {', '.join(listed)}:\n"
        f"    if any(function(n, 3) != n {right} 3 for n in range(1_000_000)):\n"
        "        sys.exit(print(function.__name__))\nprint('passed')"
    )
    main = (
        "import sys\n"
        + "".join(f"from {name} import {name}\n" for name in listed)
        + "n = int(sys.argv[1])\n"
        + f"print(sum({' + '.join(f'{name}(n, i)' for name in listed)} for i in range(500_000)))"
    )
    sources = {
        f"/app/{name}.py": f"def {name}(a, b):\n    return a {bad if name == wrong else right} b" for name in modules
    }
    return {**sources, "/app/check.py": check, "/app/main.py": main}
