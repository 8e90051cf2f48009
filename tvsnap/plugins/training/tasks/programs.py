"""Tasks on programs: correct, build, serve."""

from __future__ import annotations

import random

from tvsnap.plugins.training.tasks.task import WORDS, Draft, stays, write


def failing_test(chance: random.Random) -> Draft:
    name = chance.choice(WORDS)
    right, bad, word = chance.choice((("+", "-", "plus"), ("-", "+", "minus"), ("*", "+", "times")))
    source = f"def {name}(a, b):\n    return a {bad} b"
    test = f"from calc import {name}\n\nassert {name}(7, 2) == {eval(f'7 {right} 2')}\nprint('passed')"
    pairs = [(9, 4), (5, 5), (2, 7), (-3, 4), (-6, 2), (0, 8), (1.5, 0.25)]
    wanted = [eval(f"{a} {right} {b}") for a, b in pairs]
    checks = (
        f"asked = '[{name}(a, b) for a, b in {pairs!r}]'\n"
        f"goal('right', lambda: python(asked, 'from calc import {name}') == {wanted!r})\n"
        + stays({"/app/test_calc.py": test})
    )
    fixed = f"return a {right} b"
    return Draft(
        f"The test /app/test_calc.py fails: {name}(a, b) in /app/calc.py is to return a {word} b, for all numbers. "
        "Correct calc.py. Leave the test as it is.",
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
    # With another source, too, make is to build a program that does what its sources say.
    other = f"int {part}(int n) {{ return n + 1000; }}"
    checks = (
        stays({"/app/main.c": main, f"/app/{part}.c": source}) + "def rebuilt(*target):\n"
        "    run('make', *target)\n"
        f"    return run('/app/{program}').strip() == '{word} {number + 1000}'\n\n"
        f"ways = [], [{program!r}], ['-B'], ['-B', {program!r}]\n"
        f"goal('runs', lambda: run('/app/{program}').strip() == '{word} {number * number}')\n"
        f"passes(lambda: open('/app/{part}.c', 'w').write({other!r}))\n"
        f"goal('rule', lambda: any(passes(lambda: rebuilt(*words)) for words in ways))\n"
        "goals['runs'] &= goals['rule']\n"
    )
    setup = "\n".join(
        (write("/app/main.c", main), write(f"/app/{part}.c", source), write("/app/Makefile", rules), "cd /app")
    )
    return Draft(
        f"In /app, make does not build {program}: the linker misses the function {part}, which is in {part}.c. Correct "
        "the Makefile, and build it. Leave the sources as they are.",
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
    exports, exported = f"import {name}", f"({name}.{function}(), str({name}.__version__))"
    # The function is that of words: with other words, the package in the archive says something else.
    other = module.replace(word, word[::-1])
    checks = (
        "import zipfile\n\n"
        "def unpacked():\n"
        "    folder = tempfile.mkdtemp()\n"
        f"    zipfile.ZipFile('/app/{name}.zip').extractall(folder)\n"
        f"    words = f'{{folder}}/{name}/words.py'\n"
        f"    if not unchanged({{words: {module + chr(10)!r}}}):\n"
        "        return None\n"
        f"    open(words, 'w').write({other!r})\n"
        f"    return python({exported!r}, {exports!r}, folder)\n\n"
        f"goal('imports', lambda: python({exported!r}, {exports!r}) == {(word, version)!r})\n"
        f"goal('archive', lambda: unpacked() == {(word[::-1], version)!r})\n" + stays({f"/app/{name}/words.py": module})
    )
    begin = f"from {name}.words import {function}\n\n__version__ = '{version}'"
    line = begin.replace("\n\n", "; ")
    return Draft(
        f"Make a Python package of the folder /app/{name}: it is to export {function} of its module words, and to have "
        f"the __version__ {version}. Pack the folder into the zip archive /app/{name}.zip, as the folder {name}. Leave "
        "words.py as it is.",
        f"{write(f'/app/{name}/words.py', module)}\ncd /app && export PYTHONDONTWRITEBYTECODE=1",
        checks,
        [
            [f'cd /app && echo "{line}" > {name}/__init__.py && zip -q -r {name}.zip {name}'],
            [
                "cd /app",
                f"cat {name}/words.py",
                write(f"/app/{name}/__init__.py", begin),
                f'python3 -c "{exports}; print{exported}"',
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
    file, word, other, content = chance.sample(WORDS, 4)
    port = chance.randint(8000, 8999)
    files = {f"/app/site/{file}.txt": word, f"/app/site/{other}.txt": content}
    checks = (
        "import time, urllib.error, urllib.request\n\n"
        "end = time.monotonic() + 3\n"
        "open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open\n\n"
        "def served(name):\n"
        "    while time.monotonic() < end:\n"
        "        try:\n"
        f"            return open_url(f'http://127.0.0.1:{port}/{{name}}', timeout=2).read().decode()\n"
        "        except urllib.error.HTTPError:\n"
        "            return 'missing'\n"
        "        except OSError:  # it may still be about to listen\n"
        "            time.sleep(0.05)\n\n"
        f"wanted = {{'{file}.txt': '{word}\\n', '{other}.txt': '{content}\\n', 'none.txt': 'missing'}}\n"
        "goal('served', lambda: all(served(name) == said for name, said in wanted.items()))\n" + stays(files)
    )
    quiet = "> /dev/null 2>&1 &"
    return Draft(
        f"Serve the folder /app/site by HTTP on port {port} in the background: http://127.0.0.1:{port}/{file}.txt is "
        "to return that file, other addresses the other files, or status 404. Leave the files as they are.",
        "\n".join([*(write(path, each) for path, each in files.items()), "cd /app"]),
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
