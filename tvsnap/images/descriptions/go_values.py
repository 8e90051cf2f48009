"""Scalars and command lines as Docker Compose, a program in Go, reads and writes them.

Compose reads YAML by gopkg.in/yaml.v3, prints values that are no texts by Go's `fmt`, and splits command lines by
github.com/mattn/go-shellwords.
"""

from __future__ import annotations

import datetime
import re
from decimal import Decimal

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))", re.ASCII)
_BASES = (16, 2, 8, 10)
_LEAST, _MOST, _MOST_SIGNED = -(2**63), 2**64 - 1, 2**63 - 1
_NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_CLOCK = r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]+))?"
_DATE = r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_TIME = re.compile(rf"{_DATE}(?:[Tt]{_CLOCK}(Z|[-+][0-9]{{2}}:[0-9]{{2}})| {_CLOCK})?")
_LARGE_POWER, _SMALL_POWER = 6, -4  # of ten, from and below which Go writes an exponent
_SPACE = " \t\r\n"
_OPERATORS = ";&|<>"


class GoFloat(float):
    """A number that is written as by Go: `24.1` for 24.10, `3` for 3.0, `1e+06` for a million."""

    def __str__(self) -> str:
        sign, digits, exponent = Decimal(repr(float(self))).normalize().as_tuple()
        assert isinstance(exponent, int)
        power, text = len(digits) - 1 + exponent, "".join(map(str, digits))
        before, after = "-" if sign else "", ""
        if self and not _SMALL_POWER <= power < _LARGE_POWER:
            power, after = 0, f"e{power:+03d}"
        if power < 0:
            return f"{before}0.{'0' * (-power - 1)}{text}{after}"
        whole, part = text[: power + 1].ljust(power + 1, "0"), text[power + 1 :]
        return f"{before}{whole}{'.' * bool(part)}{part}{after}"


def plain_value(text: str) -> bool | int | float | str | None:
    """Returns the value of a scalar without quotes; a date or time is the text that Go prints for it.

    Args:
        text: the scalar.

    Raises:
        ValueError: it is infinite or no number (`.inf`, `.nan`), which Compose does not accept.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789+-.":
        return text
    if _NO_NUMBER.fullmatch(text):
        raise ValueError(f"{text} is a number that Compose refuses; if it is a text, put it in quotes")
    if (moment := _TIME.fullmatch(text)) and (moment_value := _told(moment)):
        return moment_value
    number = text.replace("_", "") if text[0] != "." else text
    if match := _INTEGER.fullmatch(number):
        whole = next(int(digits, base) for digits, base in zip(match.groups()[1:], _BASES, strict=True) if digits)
        whole = -whole if match[1] == "-" else whole
        if _LEAST <= whole <= (_MOST_SIGNED if match[1] else _MOST):
            return whole
    if _FLOAT.fullmatch(number) and abs(value := GoFloat(number)) != float("inf"):
        return value
    return text


def _told(moment: re.Match[str]) -> str | None:
    """Returns a date or a time as Go prints it; None if there is no such moment."""
    year, month, day = map(int, moment.groups()[:3])
    clock = moment.groups()[3:7] if moment[8] else moment.groups()[8:]
    hour, minute, second = (int(part or 0) for part in clock[:3])
    try:
        datetime.datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    part = (clock[3] or "")[:9].rstrip("0")
    zone = (moment[8] or "Z").replace(":", "")
    zone = "+0000 UTC" if zone in ("Z", "+0000", "-0000") else f"{zone} {zone}"
    time = f"{hour:02}:{minute:02}:{second:02}{'.' * bool(part)}{part}"
    return f"{year:04}-{month:02}-{day:02} {time} {zone}"


def command_words(text: str) -> tuple[list[str], str]:
    """Returns the words of a command line up to an unquoted operator of the shell, such as `;` and `>`, and the rest.

    Raises:
        ValueError: a quote or a parenthesis is not closed, or has no meaning at its place.
    """
    words: list[str] = []
    word, is_word, escaped, rest = "", False, False, ""
    quote = ""  # the one that is open: ', ", ` or (, the last for $(...)
    for at, character in enumerate(text):
        if escaped:
            word, is_word, escaped = word + character, True, False
        elif character == "\\" and quote != "'":
            escaped = True
        elif character in _SPACE and not quote:
            if is_word:
                words.append(word)
            word, is_word = "", False
        elif character in "'\"" and quote in ("", character):
            if quote == character:
                quote, is_word = "", True
            else:
                quote = character
        elif character in _OPERATORS and not quote:
            is_word, rest = is_word and not (character == ">" and word[:1].isdigit()), text[at:]
            break
        else:
            if character == "`" and quote in ("", "`"):
                quote = "" if quote else "`"
            elif character == ")" and quote in ("", "("):
                quote = "" if quote else "("
            elif character == "(" and quote in ("", "("):
                if quote or not word.endswith("$"):
                    raise ValueError(f'"{text}" has a parenthesis that is not quoted: Compose refuses such a command')
                quote = "("
            word, is_word = word + character, True
    if escaped or quote:
        raise ValueError(f'"{text}" has a quote, a parenthesis or a backslash that is not closed')
    return ([*words, word] if is_word else words), rest
