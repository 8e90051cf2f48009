"""Variables in Dockerfiles and Compose files: `$NAME`, `${NAME}`, `${NAME:-default}` and so on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tvsnap.images.errors import ImageSpecError

_VARIABLE = re.compile(r"\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-+?])((?:[^{}]|\{[^{}]*\})*))?\})")


class VariableMissing(ImageSpecError):
    """A variable has no value, and the text demands one (`${NAME:?why}`)."""


def expand(text: str, values: Mapping[str, str], missing: Callable[[str], None] | None = None) -> str:
    """Replaces variables in a text by their values, and `$$` by a dollar.

    Raises VariableMissing where `${NAME?why}` demands a variable, or `${NAME:?why}` one that is not empty.
    `missing` gets the names of variables that have neither a value nor a default, and are replaced by nothing.
    """

    def value_of(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        name, operator, word = match[2] or match[3], match[4] or "", match[5] or ""
        value = values.get(name)
        there = bool(value) if operator.startswith(":") else value is not None
        if operator.endswith("+"):
            return expand(word, values, missing) if there else ""
        if there:
            return value or ""
        if operator.endswith("?"):
            raise VariableMissing(f"${name}: {expand(word, values, missing) or 'must have a value'}")
        if operator.endswith("-"):
            return expand(word, values, missing)
        if missing is not None and value is None:
            missing(name)
        return ""

    return _VARIABLE.sub(value_of, text)
