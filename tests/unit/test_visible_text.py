"""Text that is shown to people: nothing in it is invisible, or moves what is beside it."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import Any

import pytest

from cli import tree_view
from cli.roots import told_apart
from cli.text import call_line, cut_apart, size, visible
from tests import labels
from tests.unit.graph_helpers import snapshot_of
from tvsnap.graph import RootInfo
from tvsnap.model.calls import ToolCall
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


@pytest.mark.parametrize(("text", "others", "width", "shown"), labels.CUT_APART)
def test_texts_that_begin_alike_are_cut_where_they_differ(text: str, others: list[str], width: int, shown: str) -> None:
    assert cut_apart(text, others, width) == shown


def test_wide_characters_are_cut_where_they_differ() -> None:
    wide = [f"echo {'a' * 60}{end}" for end in "bc"]
    shown = [cut_apart(one, wide, 30) for one in wide]
    assert [one[-1] for one in shown] == ["b", "c"]
    assert max(map(len, shown)) <= 30


@pytest.mark.parametrize(("name", "arguments", "line"), labels.CALLS)
def test_a_call_is_one_line(name: str, arguments: dict[str, Any], line: str) -> None:
    assert call_line(ToolCall(name, arguments)) == line


@pytest.mark.parametrize(("roots", "apart"), labels.ROOTS)
def test_roots_are_told_apart_by_what_differs(roots: list[dict[str, str]], apart: list[str]) -> None:
    infos = [RootInfo(hash=str(number), created=0.0, **{**labels.ROOT, **root}) for number, root in enumerate(roots)]
    assert list(told_apart(infos).values()) == apart
