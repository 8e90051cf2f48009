"""The labels of calls and roots: the command line and the page are both tested by these, and so have the same."""

from __future__ import annotations

from typing import Any

_EDITS = [f"sed -i 's/int(apples * PRICE)/{new}(apples * PRICE)/' shop.py" for new in ("round", "ceil", "floor")]
_TESTS = [f"cd /srv/app && python3 -m unittest -v test_prices.Prices.test_{name}" for name in ("one", "many")]

CUT_APART: list[tuple[str, list[str], int, str]] = [
    (_EDITS[0], _EDITS, 30, "sed …PRICE)/round(apples * PR…"),
    (_EDITS[1], _EDITS, 30, "sed …PRICE)/ceil(apples * PRI…"),
    (_EDITS[2], _EDITS, 30, "sed …PRICE)/floor(apples * PR…"),
    (_EDITS[0], _EDITS, 40, "sed -i 's/int(apples * PRICE)/round(app…"),  # it differs in sight
    (_EDITS[0], [], 20, "sed -i 's/int(apple…"),  # nothing is alike
    (_EDITS[0], _EDITS, 100, _EDITS[0]),
    (_TESTS[0], _TESTS, 28, "cd …test_one"),
    (_TESTS[1], _TESTS, 28, "cd …test_many"),
    ("make build", ["make test"], 8, "make bu…"),
    (_TESTS[0], [f"{_TESTS[0]} && make"], 28, "cd …test_one"),  # all of it begins another
]
"""A text, those beside it, the width, and what is shown."""

CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("bash", {"command": "\ncd  /srv\nmake\t-j\n"}, "cd /srv⏎make -j"),
    ("bash", {"command": "make", "timeout": 5}, "make timeout=5"),
    ("read", {"path": "a.py", "from": 1, "to": 20}, "read a.py from=1 to=20"),
    ("look", {}, "look"),
]
"""A tool's name, its arguments, and the call in one line."""

ROOTS: list[tuple[list[dict[str, str]], list[str]]] = [
    ([{}], [""]),
    ([{}, {"image_name": "other", "salt": "b"}], ["", ""]),
    ([{"salt": "run-7"}, {"salt": "run-8"}, {}], ["salt run-7", "salt run-8", "no salt"]),
    (
        [{"image_digest": "0123456789abcdef"}, {"image_digest": "fedcba9876543210", "network": "replay"}],
        ["network none, image 0123456789ab", "network replay, image fedcba987654"],
    ),
    ([{"limits": '{"memory":536870912}'}, {"limits": "{}"}], ["memory 512 MiB", "memory unlimited"]),
]
"""Roots, by what they do not have in common with `ROOT`, and what tells them apart."""

ROOT = {
    "image_name": "terminal",
    "image_digest": "d1",
    "environment": "bash",
    "limits": "",
    "salt": "",
    "network": "none",
}
