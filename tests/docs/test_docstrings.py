"""The docstrings that the page of the Python API is made of: whole, and with every argument by itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import tvsnap
from tests.docs.pages import DOCS

_SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Attributes):$", re.MULTILINE)


def _without_members() -> set[str]:
    """Returns the classes of which the page shows the constructor only."""
    return set(
        re.findall(r"^::: tvsnap\.(\w+)\n    options:\n      members: false$", (DOCS / "api.md").read_text(), re.M)
    )


def _hidden() -> dict[str, set[str]]:
    """Returns the members that the page leaves out, by class."""
    entries = re.findall(
        r"^::: tvsnap\.(\w+)\n    options:\n(?:      inherited_members: true\n)?      filters: \[(.*)\]$",
        (DOCS / "api.md").read_text(),
        re.M,
    )
    return {name: set(re.findall(r'"!\^(\w+)\$"', filters)) for name, filters in entries}


def _functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields what of the exported classes is called, by name: constructors with a docstring, and public methods."""
    hidden = _hidden()
    yield "tool", tvsnap.tool
    for name in tvsnap.__all__:
        for member, value in _members(getattr(tvsnap, name)).items():
            found = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if not inspect.isfunction(found) or member in hidden.get(name, ()):
                continue
            public = not member.startswith("_") and name not in _without_members()
            if public or (member == "__init__" and found.__doc__):
                yield f"{name}.{member}", found


def _members(of: Any) -> Mapping[str, Any]:
    """Returns what the page shows of a class, with what it inherits where the page shows that, too."""
    if getattr(of, "__name__", "") not in _with_inherited():
        return dict(vars(of))
    ours = [base for base in reversed(of.__mro__) if base.__module__.startswith("tvsnap.")]
    return {name: value for base in ours for name, value in vars(base).items()}


def _with_inherited() -> set[str]:
    """Returns the classes of which the page shows inherited members, too."""
    options = r"^::: tvsnap\.(\w+)\n    options:\n      inherited_members: true$"
    return set(re.findall(options, (DOCS / "api.md").read_text(), re.M))


def _section(text: str, name: str) -> list[str]:
    """Returns the names that a section of a docstring lists."""
    parts = _SECTION.split(text)
    body = next((body for title, body in zip(parts[1::2], parts[2::2], strict=True) if title == name), "")
    return re.findall(r"^    (\S[^:\n]*):(?= )", body, re.MULTILINE)


FUNCTIONS = dict(_functions())


def test_what_the_page_leaves_out_is_there() -> None:
    for name, members in _hidden().items():
        assert members
        assert members <= set(dir(getattr(tvsnap, name)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_is_described(name: str) -> None:
    function = FUNCTIONS[name]
    text = inspect.getdoc(function)
    assert text, "it has a docstring"
    wanted = [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]
    assert _section(text, "Args") == wanted


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_docstring_begins_with_a_sentence(name: str) -> None:
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    first = text.split("\n\n")[0]
    assert first.startswith("Args:") or first.rstrip().endswith((".", ":")), first


@pytest.mark.parametrize("name", tvsnap.__all__)
def test_attributes_are_described_one_by_one(name: str) -> None:
    """A name that is none, as `uid, gid`, would be shown as that of one attribute."""
    listed = _section(inspect.getdoc(getattr(tvsnap, name)) or "", "Attributes")
    assert all(each.isidentifier() for each in listed), listed
    fields = getattr(getattr(tvsnap, name), "__dataclass_fields__", {})
    assert not fields or listed == list(fields)
