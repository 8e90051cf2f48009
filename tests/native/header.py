"""Reads the constants of native/init/protocol.h, the definition of the protocol with PID 1."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.native.building import NATIVE

_ENUM = re.compile(r"\benum\s*(\w*)\s*\{(.*?)\};", re.DOTALL)
_DEFINE = re.compile(r"^#define (\w+) (\S.*)$", re.MULTILINE)
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.LShift: operator.lshift,
}


@dataclass(frozen=True, slots=True)
class Header:
    """The constants by name: letters and paths are text, the rest numbers.

    Attributes:
        enums: the members of each enum that has a name.
        others: the rest, `#define`d or of an enum without a name.
    """

    enums: dict[str, dict[str, str | int]]
    others: dict[str, str | int]


def read_header() -> Header:
    """Returns what the header defines."""
    text = re.sub(r"/\*.*?\*/", "", (NATIVE / "init/protocol.h").read_text(), flags=re.DOTALL)
    others: dict[str, str | int] = {}
    for name, value in _DEFINE.findall(text):
        others[name] = _value(value.strip(), others)
    enums: dict[str, dict[str, str | int]] = {}
    for enum, body in _ENUM.findall(text):
        members = enums.setdefault(enum, {}) if enum else others
        for member in filter(None, map(str.strip, body.split(","))):
            name, given, value = (part.strip() for part in member.partition("="))
            if given:  # those without a value only count the others
                members[name] = _value(value, others)
    return Header(enums, others)


def _value(text: str, known: dict[str, str | int]) -> str | int:
    if letter := re.fullmatch(r"'(.)'", text):
        return letter[1]
    if '"' in text:
        parts = re.findall(r'"([^"]*)"|(\w+)', text)
        return "".join(quoted or str(known[name]) for quoted, name in parts)
    return _number(ast.parse(re.sub(r"(\d)[uUlL]+\b", r"\1", text), mode="eval").body)


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    assert isinstance(node, ast.BinOp), ast.dump(node)
    return _OPERATORS[type(node.op)](_number(node.left), _number(node.right))
