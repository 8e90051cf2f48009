"""Files of environment variables (`.env`, `env_file`), in the syntax of Docker Compose.

The rules are those of `docker compose`, version 2 (its documentation on interpolation, "env file syntax"): values are
bare, in single or in double quotes; quoted ones may span several lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tvsnap.images.descriptions.variables import InvalidReference, VariableMissing, expand
from tvsnap.images.errors import ImageSpecError
from tvsnap.images.small_files import read_small_text

_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_NAME = re.compile(r"(?:export[ \t]+)?([A-Za-z_][\w.-]*)[ \t]*([=:]?)[ \t]*")
_QUOTED = {
    "'": re.compile(r"'((?:[^'\\]|\\.)*)'[^\n]*", re.DOTALL),
    '"': re.compile(r'"((?:[^"\\]|\\.)*)"[^\n]*', re.DOTALL),
}
_BARE = re.compile(r"[^\n]*")
_COMMENT = re.compile(" #.*")
_ESCAPE = re.compile(r'\\(?:([abfnrtv"\\$])|0([0-7]{0,3}))')
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "$": "$$"}
"""Escaped characters by letter; an escaped dollar does not begin a variable, so it becomes `$$`."""


def read_env_file(path: Path, outer: Mapping[str, str] | None = None, *, raw: bool = False) -> dict[str, str]:
    """Reads the variables of a file; a missing file has none.

    Values may refer to variables in `outer` and, if these lack the name, to earlier ones in the file; other variables
    are empty. A name alone has the value in `outer`, or is left out. This machine's environment is not used, because
    images must not depend on it. With `raw`, values are the unchanged text after the `=` (`format: raw`). Raises
    ImageSpecError, with the line in the message, if the file is unreadable or invalid.
    """
    if not path.is_file():
        return {}
    try:
        text = read_small_text(path, "replace").removeprefix("\ufeff")
    except OSError as error:
        raise ImageSpecError(f"{path}: {error.strerror}") from None
    if raw:
        lines = (line for line in map(str.lstrip, text.splitlines()) if "=" in line and not line.startswith("#"))
        return {name.strip(): value for name, _, value in (line.partition("=") for line in lines)}
    outer, variables = outer or {}, dict[str, str]()
    position = _end(_BLANK, text, 0)
    while position < len(text):
        name = _NAME.match(text, position)
        if name is None or not (name[2] or text[name.end() : name.end() + 1] in ("", "\n")):
            raise _complaint(path, text, position, "begins with no name of a variable")
        position = name.end()
        if name[2]:
            try:
                value, end = _value(path, text, position, {**variables, **outer})
            except (InvalidReference, VariableMissing) as error:
                raise _complaint(path, text, position, f"has a value that cannot be read: {error}") from None
            variables[name[1]], position = value, end
        elif name[1] in outer:
            variables[name[1]] = outer[name[1]]
        position = _end(_BLANK, text, position)
    return variables


def _value(path: Path, text: str, position: int, variables: Mapping[str, str]) -> tuple[str, int]:
    """Returns the value that begins at a position, and its end."""
    quote = text[position : position + 1]
    if quote in _QUOTED:
        quoted = _QUOTED[quote].match(text, position)
        if quoted is None:
            raise _complaint(path, text, position, f"has a value whose quote ({quote}) is not closed")
        if quote == "'":
            return quoted[1].replace("\\'", "'"), quoted.end()
        return expand(_ESCAPE.sub(_unescaped, quoted[1]), variables), quoted.end()
    bare = text[position : (end := _end(_BARE, text, position))]
    return expand(_COMMENT.sub("", bare).rstrip(), variables), end


def _unescaped(match: re.Match[str]) -> str:
    if match[1] is None:
        return chr(int(match[2] or "0", 8))
    return _ESCAPED.get(match[1], match[1])


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return position if match is None else match.end()


def _complaint(path: Path, text: str, position: int, reason: str) -> ImageSpecError:
    return ImageSpecError(f"{path}: line {text.count(chr(10), 0, position) + 1} {reason}")
