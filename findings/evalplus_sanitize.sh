#!/usr/bin/env bash
# EvalPlus 0.3.1: what its sanitizer keeps of right programs, before they are tested
#
# Guess: text around the program is removed, and functions that the tested one does not need.
# Behaviour: at the top only imports, plain assignments, functions and classes are kept: a function with a decorator
# (@lru_cache) is dropped, the tested one too, and so are `try` around an import, a loop that fills a table, and `N += 1`.
# Right programs fail, or give other values.
. "$(dirname "$0")/common.sh"
packages tree-sitter==0.25.2 tree-sitter-python==0.25.0 termcolor==3.1.0 tqdm==4.67.1
packages_alone evalplus==0.3.1

cat >clean.py <<'PYTHON'
import sys, unittest.mock
sys.modules["evalplus.data"] = unittest.mock.MagicMock()  # the data sets, of which none is used
from evalplus.sanitize import sanitize
def value(code):
    names = {}
    try:
        exec(code, names)
        return names["square"](3)
    except Exception as error:
        return type(error).__name__
for code in (
    "import math\n# squares\ndef square(n):\n    return n * n",
    "from functools import lru_cache\n@lru_cache\ndef square(n):\n    return n * n",
    "try:\n    from math import prod\nexcept ImportError:\n    prod = None\ndef square(n):\n    return prod([n, n])",
    "table = [0] * 5\nfor i in range(5):\n    table[i] = i * i\ndef square(n):\n    return table[n]",
    "power = 1\npower += 1\ndef square(n):\n    return n ** power",
):
    print(value(code), value(sanitize(code, "square")))
PYTHON
python clean.py 2>errors >out || { cat errors >&2; exit 2; }
seen "value before and after, a plain program" "$(sed -n 1p out)" "9 9"
seen "with @lru_cache" "$(sed -n 2p out)" "9 KeyError"
seen "with an import in try" "$(sed -n 3p out)" "9 NameError"
seen "with a table that a loop fills" "$(sed -n 4p out)" "9 0"
seen "with power += 1" "$(sed -n 5p out)" "9 3"
