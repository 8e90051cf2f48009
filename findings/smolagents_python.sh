#!/usr/bin/env bash
# smolagents 1.26.0: Python that a CodeAgent has written, run by its default executor
#
# Guess: Python's results, or an error that says what is not supported, as for `yield`, `global` and `match`.
# Behaviour: other results without a word: `else` of a loop is left out, [*a, *b] is not unpacked, defaults are computed at
# each call, @property makes a method and a function's decorator nothing, loops' variables are bound at once, surplus
# arguments are dropped, a local variable that has no value yet is the global one, and sep and end of `print` are ignored.
. "$(dirname "$0")/common.sh"
# Only what its executor imports.
packages huggingface-hub==1.2.3 pillow==12.0.0 requests==2.32.5 rich==14.2.0 jinja2==3.1.6 python-dotenv==1.2.1
packages_alone smolagents==1.26.0

cat >run.py <<'PYTHON'
from smolagents.local_python_executor import LocalPythonExecutor
for code in (
    "r = 'none found'\nfor i in range(3):\n    pass\nelse:\n    r = 'all seen'",
    "r = [*[1, 2], *[3]]",
    "def add(item, to=[]):\n    to.append(item)\n    return to\nadd(1)\nr = add(2)",
    "n = 1\ndef kept(n=n):\n    return n\nn = 2\nr = kept()",
    "class Box:\n    @property\n    def side(self):\n        return 3\nr = callable(Box().side)",
    "def twice(f):\n    def inner(x):\n        return 2 * f(x)\n    return inner\n@twice\ndef one(x):\n    return x\nr = one(1)",
    "r = [f() for f in [lambda: i for i in range(3)]]",
    "def first(a):\n    return a\nr = 'an error'\ntry:\n    r = first(1, 2)\nexcept TypeError:\n    pass",
    "n = 1\nr = 'an error'\ndef local():\n    m = n\n    n = 2\n    return m\ntry:\n    r = local()\nexcept NameError:\n    pass",
):
    names = {}
    exec(code, names)
    executor = LocalPythonExecutor([])
    executor.send_tools({})
    executor(code)
    print(names["r"], "|", executor.state["r"])
print(repr(executor("print(1, 2, sep='-', end='')").logs))
PYTHON
python run.py 2>errors >out || { cat errors >&2; exit 2; }
cat >expected <<'LINES'
all seen | none found
[1, 2, 3] | [[1, 2], [3]]
[1, 2] | [2]
1 | 2
False | True
2 | 1
[2, 2, 2] | [0, 1, 2]
an error | 1
an error | 1
'1 2\n'
LINES
seen "Python | the executor" "$(cat out)" "$(cat expected)"
