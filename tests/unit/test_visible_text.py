"""Text that is shown to people: nothing in it is invisible, or moves what is beside it."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest

from cli import tree_view
from cli.text import cut_apart, size, visible
from tests.unit.graph_helpers import snapshot_of
from tvsnap.model.observations import Captures


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "^[[31m"),
        ("\x9b", "\\x9b"),
        ("\udcff", "\\xff"),
        ("a\u202eb", "a\\u202eb"),
        ("\u3164\u115f\u034f", "\\u3164\\u115f\\u034f"),
        ("\U000e0041", "\\U000e0041"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("\U0001f469\u200d\U0001f680 \u2764\ufe0f", "\U0001f469\u200d\U0001f680 \u2764\ufe0f"),
    ],
)
def test_what_is_no_plain_text_is_shown_as_text(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_no_character_of_format_is_left_but_those_that_scripts_need() -> None:
    left = {chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cf", "Cc", "Cs")}
    left = {one for one in left if visible(one) == one}
    assert {"\t", "\n", "\u200c", "\u200d"} <= left
    for one in left - {"\t", "\n", "\u200c", "\u200d"}:
        name = unicodedata.name(one)
        assert "ARABIC" in name or "SYRIAC" in name or "KAITHI" in name or "EGYPTIAN" in name, name


def test_the_longest_size_of_a_snapshot_stands_apart_from_its_forks() -> None:
    snapshot = replace(snapshot_of("0" * 64), size=831 << 10, captures=Captures(True, True, True))
    assert len(tree_view._snapshot_text(snapshot)) < tree_view.SNAPSHOT


def test_sizes_are_told_in_powers_of_1024() -> None:
    assert [size(value) for value in (812, 4096, 109_628_922, 3 << 40)] == ["812 B", "4.0 KiB", "105 MiB", "3.0 TiB"]


def test_texts_that_begin_alike_are_cut_where_they_differ() -> None:
    edits = [f"sed -i 's/int(apples * PRICE)/{new}(apples * PRICE)/' shop.py" for new in ("round", "ceil", "floor")]
    assert [cut_apart(edit, edits, 30) for edit in edits] == [
        "sed …PRICE)/round(apples * PR…",
        "sed …PRICE)/ceil(apples * PRI…",
        "sed …PRICE)/floor(apples * PR…",
    ]
    assert cut_apart(edits[0], edits, 40) == "sed -i 's/int(apples * PRICE)/round(app…", "it differs in sight"
    assert cut_apart(edits[0], [], 20) == "sed -i 's/int(apple…", "nothing is alike"
    assert cut_apart(edits[0], edits, 100) == edits[0]
    assert cut_apart("make build", ["make test"], 8) == "make bu…"
    wide = [f"echo {'a' * 60}{end}" for end in "bc"]
    shown = [cut_apart(one, wide, 30) for one in wide]
    assert [one[-1] for one in shown] == ["b", "c"]
    assert max(map(len, shown)) <= 30
