"""Variables in Dockerfiles and Compose files: `$NAME`, `${NAME}`, `${NAME:-default}` and so on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tvsnap.images.errors import ImageSpecError

_REFERENCE = re.compile(r"\$(?:(\$)|([A-Za-z_]\w*)|\{)", re.ASCII)
_BRACED = re.compile(r"([A-Za-z_]\w*)(?:(:?[-+?])(.*))?", re.ASCII)


class VariableMissing(ImageSpecError):
    """A variable has no value, and the text demands one (`${NAME:?why}`)."""


class InvalidReference(ImageSpecError):
    """A text has `${` that begins no reference to a variable."""


def expand(
    text: str, values: Mapping[str, str], missing: Callable[[str], None] | None = None, *, lenient: bool = False
) -> str:
    """Replaces variables in a text by their values, and `$$` by a dollar.

    Raises VariableMissing where `${NAME?why}` demands a variable, or `${NAME:?why}` one that is not empty, and
    InvalidReference if a reference is not closed or written in another way; with `lenient`, that stays as it is.
    `missing` gets the names of variables that have neither a value nor a default, and are replaced by nothing.
    """

    def value_of(name: str, operator: str, word: str) -> str:
        value = values.get(name)
        there = bool(value) if operator.startswith(":") else value is not None
        if there != operator.endswith("+"):
            return value or ""
        if operator.endswith("?"):
            raise VariableMissing(f"${name}: {within(word) or 'must have a value'}")
        if operator:
            return within(word)
        if missing is not None:
            missing(name)
        return ""

    def within(word: str) -> str:
        return expand(word, values, missing, lenient=lenient)

    parts, position = [], 0
    while match := _REFERENCE.search(text, position):
        parts.append(text[position : match.start()])
        position = match.end()
        if match[1]:
            parts.append("$")
        elif match[2]:
            parts.append(value_of(match[2], "", ""))
        elif braced := _BRACED.fullmatch(text, position, end := _closing_brace(text, position)):
            parts.append(value_of(braced[1], braced[2] or "", braced[3] or ""))
            position = end + 1
        elif lenient:
            parts.append("${")
        else:
            raise InvalidReference(f"{text!r} has an invalid reference to a variable; a dollar itself is written $$")
    return "".join((*parts, text[position:]))


def _closing_brace(text: str, start: int) -> int:
    """Returns the position of the brace that closes the one before `start`; `start` if it is not closed."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if not depth:
            return at
    return start
