"""Tasks on programs: correct, build, serve."""

from __future__ import annotations

import random

from tvsnap.training.tasks.task import WORDS, Draft, same, write


def failing_test(chance: random.Random) -> Draft:
    name = chance.choice(WORDS)
    right, bad, word = chance.choice((("+", "-", "sum"), ("-", "+", "difference"), ("*", "+", "product")))
    source = f"def {name}(a, b):\n    return a {bad} b"
    test = f"from calc import {name}\n\nassert {name}(7, 2) == {eval(f'7 {right} 2')}\nprint('passed')"
    # Compiled files are told from their sources by size and second alone: a quick correction would not be noticed.
    asked = f"from calc import {name}; print({name}(9, 4), {name}(5, 1))"
    checks = (
        f"goal('right', lambda: run('python3', '-X', 'pycache_prefix=/tests', '-c', '{asked}')"
        f" == '{eval(f'9 {right} 4')} {eval(f'5 {right} 1')}')\n" + same("test", "/app/test_calc.py", test)
    )
    fixed = f"return a {right} b"
    return Draft(
        f"The test /app/test_calc.py fails: {name}(a, b) in /app/calc.py is to return the {word} of a and b. Correct "
        "calc.py.",
        f"export PYTHONDONTWRITEBYTECODE=1\n{write('/app/calc.py', source)}\n{write('/app/test_calc.py', test)}",
        checks,
        [
            [f"sed -i 's/return .*/{fixed}/' /app/calc.py"],
            [
                "cd /app",
                "python3 test_calc.py",
                "cat calc.py",
                write("/app/calc.py", f"def {name}(a, b):\n    {fixed}"),
                "python3 test_calc.py",
            ],
        ],
        [["python3 /app/test_calc.py"], ["echo > /app/test_calc.py"], ["rm /app/calc.py"]],
    )


def make(chance: random.Random) -> Draft:
    program, part, word = chance.sample(WORDS, 3)
    number = chance.randint(2, 99)
    main = f'#include <stdio.h>\nint {part}(int);\nint main(void) {{ printf("{word} %d\\n", {part}({number})); }}'
    source = f"int {part}(int n) {{ return n * n; }}"
    rules = f"{program}: main.o\n\tcc -o $@ $^\n\n%.o: %.c\n\tcc -c -o $@ $<"
    fixed = rules.replace("main.o", f"main.o {part}.o")
    checks = (
        f"goal('runs', lambda: run('/app/{program}') == '{word} {number * number}')\n"
        f"goal('rule', lambda: {part + '.o'!r} in run('make', '-n', '-B', '{program}'))\n"
        + same("main", "/app/main.c", main)
        + same("part", f"/app/{part}.c", source)
    )
    setup = "\n".join(
        (write("/app/main.c", main), write(f"/app/{part}.c", source), write("/app/Makefile", rules), "cd /app")
    )
    return Draft(
        f"In /app, make does not build {program}: the linker misses the function {part}, which is in {part}.c. Correct "
        "the Makefile, and build it.",
        setup,
        checks,
        [
            [f"cd /app && sed -i 's/main.o$/main.o {part}.o/' Makefile && make"],
            [f"sed -i '1s/$/ {part}.o/' /app/Makefile", "make -s -C /app"],
            ["cd /app", "make", "cat Makefile", write("/app/Makefile", fixed), "make", f"./{program}"],
        ],
        [
            ["make -C /app"],
            [f"cd /app && echo 'int {part}(int n) {{ return 0; }}' >> main.c && make"],
            [f"cd /app && sed -i 's/main.o$/main.o {part}.o/' Makefile && make && rm {part}.c"],
        ],
    )


def package(chance: random.Random) -> Draft:
    name, function, word = chance.sample(WORDS, 3)
    version = f"{chance.randint(0, 9)}.{chance.randint(0, 9)}"
    module = f'def {function}():\n    return "{word}"'
    asked = f"import {name}; print({name}.{function}(), {name}.__version__)"
    checks = (
        f"goal('imports', lambda: run('python3', '-X', 'pycache_prefix=/tests', '-c', '{asked}') == "
        f"'{word} {version}')\n"
        f"goal('archive', lambda: {f'{name}/__init__.py'!r} in run('python3', '-m', 'zipfile', '-l', "
        f"'/app/{name}.zip'))\n" + same("module", f"/app/{name}/words.py", module)
    )
    begin = f"from {name}.words import {function}\n\n__version__ = '{version}'"
    line = begin.replace("\n\n", "; ")
    return Draft(
        f"Make a Python package of the folder /app/{name}: it is to export {function} of its module words, and to have "
        f"the __version__ {version}. Pack the folder into the zip archive /app/{name}.zip, as the folder {name}.",
        f"{write(f'/app/{name}/words.py', module)}\ncd /app && export PYTHONDONTWRITEBYTECODE=1",
        checks,
        [
            [f'cd /app && echo "{line}" > {name}/__init__.py && zip -q -r {name}.zip {name}'],
            [
                "cd /app",
                f"cat {name}/words.py",
                write(f"/app/{name}/__init__.py", begin),
                f'python3 -c "{asked}"',
                f"python3 -m zipfile -c {name}.zip {name}",
                f"unzip -l {name}.zip",
            ],
        ],
        [
            [f"ls /app/{name}"],
            [f'cd /app && echo "{line}" > {name}/__init__.py && zip -q -r {name}.zip {name} && rm {name}/words.py'],
        ],
    )


def service(chance: random.Random) -> Draft:
    file, word = chance.sample(WORDS, 2)
    port = chance.randint(8000, 8999)
    checks = (
        "import time, urllib.request\n\n"
        "def served():\n"
        "    for attempt in range(50):\n"
        "        try:\n"
        f"            return urllib.request.urlopen('http://127.0.0.1:{port}/{file}.txt', timeout=5).read().decode()\n"
        "        except urllib.error.HTTPError:\n"
        "            raise\n"
        "        except OSError:  # it may still be about to listen\n"
        "            time.sleep(0.05)\n\n"
        f"goal('served', lambda: served() == '{word}\\n')\n" + same("file", f"/app/site/{file}.txt", word)
    )
    quiet = "> /dev/null 2>&1 &"
    return Draft(
        f"Serve the folder /app/site by HTTP on port {port} in the background: http://127.0.0.1:{port}/{file}.txt is "
        "to return the file.",
        f"{write(f'/app/site/{file}.txt', word)}\ncd /app",
        checks,
        [
            [f"python3 -m http.server {port} --directory /app/site {quiet}"],
            [
                "cd /app/site",
                f"nohup python3 -m http.server {port} {quiet}",
                "sleep 1",
                f"curl -s http://127.0.0.1:{port}/{file}.txt",
            ],
        ],
        [
            [f"curl -s http://127.0.0.1:{port}/{file}.txt"],
            [f"cd / && python3 -m http.server {port} {quiet}"],
            [f"cd /app/site && mkdir a && cd a && python3 -m http.server {port} {quiet}"],
        ],
    )
