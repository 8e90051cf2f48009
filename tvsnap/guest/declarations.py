"""Finds the declarations in a shell's report of its variables, in time and memory proportional to its length.

Commands control this text: with a backtracking regular expression they could keep the host busy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_SIMPLE = re.compile(rb"declare -[-a-zA-Z]{1,20} (\w+)(?:=\"[^\"\\]*\")?\n")
_HEAD = re.compile(rb"declare -[-a-zA-Z]{1,20} (\w+)(=?)")
_SPECIAL = {ord('"'): re.compile(rb"[\"\\]"), ord("'"): re.compile(rb"['\\]")}
_IN_ARRAY = re.compile(rb"[()\"']")


class Declaration(NamedTuple):
    """A variable's declaration, as printed by `declare -p`; it ends after its line feed."""

    name: str
    start: int
    end: int


def declarations(text: bytes) -> Iterator[Declaration]:
    """Yields the declarations in `text`, in order; skips other text up to a line that may begin a declaration."""
    at = 0
    while at < len(text):
        if simple := _SIMPLE.match(text, at):
            yield Declaration(simple[1].decode(), at, simple.end())
            at = simple.end()
            continue
        head = _HEAD.match(text, at)
        end = _end_of_value(text, head.end()) if head and head[2] else head.end() if head else -1
        if head and end >= 0 and text[end : end + 1] == b"\n":
            yield Declaration(head[1].decode(), at, end + 1)
            at = end + 1
            continue
        following = text.find(b"\ndeclare -", max(at, end))
        if following < 0:
            return
        at = following + 1


def _end_of_value(text: bytes, at: int) -> int:
    """Returns the end of the value that begins at `at`; the end of the text if it is unterminated."""
    if text[at : at + 1] == b"(":
        return _end_of_array(text, at + 1)
    if text[at : at + 1] == b'"':
        return _end_of_string(text, at)
    if text[at : at + 2] == b"$'":
        return _end_of_string(text, at + 1)
    end = text.find(b"\n", at)
    return len(text) if end < 0 else end


def _end_of_array(text: bytes, at: int) -> int:
    while match := _IN_ARRAY.search(text, at):
        if match[0] == b")":
            return match.end()
        if match[0] == b"(":
            return match.start()  # bash quotes a parenthesis in an element
        at = _end_of_string(text, match.start())
    return len(text)


def _end_of_string(text: bytes, at: int) -> int:
    """Returns the end of the string whose quotation mark is at `at`."""
    special = _SPECIAL[text[at]]
    at += 1
    while match := special.search(text, at):
        if match[0] != b"\\":
            return match.end()
        at = match.end() + 1
    return len(text)
