"""The functions of the program sqlite3 that compute with decimals of any length, which are texts.

They take and return what that program's do (https://www.sqlite.org/floatingpoint.html), and their values are exact: a
zero has no sign, and 1 equals 1.0, which is not so in all versions of the program.
"""

from __future__ import annotations

import math
import re
import sqlite3
import struct
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Callable, Optional

MOST_DIGITS = 1_000_000
MOST_POWER = 20_000
"""The largest and, negative, the smallest exponent of `decimal_pow2`."""
NAMES = "decimal decimal_add decimal_cmp decimal_exp decimal_mul decimal_pow2 decimal_sub decimal_sum"
EXPANDED = sqlite3.sqlite_version_info >= (3, 43)
"""Whether the program's `decimal(X)` returns all digits of a float, and takes eight bytes for one."""

_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_ZERO = Decimal(0)
_PARTS = re.compile(r"[ \t\n\v\f\r]*([+-]?)([^eE]*)(?:[eE]([+-]?)(.*))?", re.DOTALL)
_NO_DIGITS = re.compile(r"[^0-9]+")


def register(base: sqlite3.Connection, complain: Callable[[str], None]) -> None:
    """Makes the functions known to a connection.

    Args:
        base: the connection.
        complain: takes the message of a function that fails, before it raises ValueError.
    """
    texts = sqlite3.connect(":memory:", check_same_thread=False)  # what SQLite makes of a float

    def read(value: Any) -> Optional[Decimal]:
        if value is None:
            return None
        if not isinstance(value, str):
            text = texts.execute("SELECT CAST(CAST(? AS TEXT) AS BLOB)", (value,)).fetchone()[0]
            value = text.decode("utf-8", "replace")
        return checked(_parsed(value))

    def checked(number: Decimal) -> Decimal:
        if number.adjusted() >= MOST_DIGITS or -_exponent(number) > MOST_DIGITS:
            message = f"a decimal has more than {MOST_DIGITS} digits"
            complain(message)
            raise ValueError(message)
        return number

    def whole(value: Any) -> Optional[Decimal]:
        if not EXPANDED or not isinstance(value, (float, bytes)):
            return read(value)
        if isinstance(value, bytes):
            if len(value) != 8:
                return None
            value = struct.unpack(">d", value)[0]
        return Decimal(value) if math.isfinite(value) else None

    def of_two(work: Callable[[Decimal, Decimal], Decimal]) -> Callable[[Any, Any], Optional[str]]:
        def made(one: Any, two: Any) -> Optional[str]:
            first, second = read(one), read(two)
            return None if first is None or second is None else _plain(checked(work(first, second)))

        return made

    def compared(one: Any, two: Any) -> Optional[int]:
        first, second = read(one), read(two)
        return None if first is None or second is None else (first > second) - (first < second)

    def shown(form: Callable[[Decimal], str]) -> Callable[[Any], Optional[str]]:
        def made(value: Any) -> Optional[str]:
            number = whole(value)
            return None if number is None else form(number)

        return made

    def power(exponent: Any) -> Optional[str]:
        if not isinstance(exponent, int):
            return None
        if abs(exponent) > MOST_POWER:
            message = f"decimal_pow2({exponent}): the exponent must be from {-MOST_POWER} to {MOST_POWER}"
            complain(message)
            raise ValueError(message)
        return _scientific(Decimal(2**exponent) if exponent >= 0 else Decimal(5**-exponent).scaleb(exponent, _EXACT))

    class Sum:
        """The aggregate, and a window's."""

        def __init__(self) -> None:
            self._sum = _ZERO
            self._any = False

        def step(self, value: Any) -> None:
            self._any = True
            number = read(value)
            if number is not None:
                self._sum = checked(_EXACT.add(self._sum, number))

        def inverse(self, value: Any) -> None:
            number = read(value)
            if number is not None:
                self._sum = _EXACT.subtract(self._sum, number)

        def value(self) -> Optional[str]:
            return _plain(self._sum) if self._any else None

        finalize = value

    functions = (
        ("decimal", 1, shown(_plain)),
        ("decimal_exp", 1, shown(_scientific)),
        ("decimal_add", 2, of_two(_EXACT.add)),
        ("decimal_sub", 2, of_two(_EXACT.subtract)),
        ("decimal_mul", 2, of_two(_product)),
        ("decimal_cmp", 2, compared),
        ("decimal_pow2", 1, power),
    )
    for name, arguments, function in functions:
        base.create_function(name, arguments, function, deterministic=True)
    # Python has window functions since 3.11, where SQLite has them.
    make: Callable[..., None] = getattr(base, "create_window_function", base.create_aggregate)
    make("decimal_sum", 1, Sum)


def _parsed(text: str) -> Decimal:
    """Returns the number that a text says. As in the program, no text is an error: what is no digit is passed over."""
    match = _PARTS.match(text)
    assert match is not None
    sign, mantissa, minus, exponent = match.groups()
    before, _, after = mantissa.rpartition(".")
    digits, fraction = _NO_DIGITS.sub("", before + after), len(_NO_DIGITS.sub("", after)) if "." in mantissa else 0
    shift = int(_NO_DIGITS.sub("", exponent or "")[:7] or 0) * (-1 if minus == "-" else 1)
    number = Decimal(f"{sign}{digits or '0'}e{shift - fraction}")
    return number if number else abs(number)


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent


def _product(one: Decimal, two: Decimal) -> Decimal:
    """Returns a product. Of the zeros at its end, those stay that fill the digits which both factors have."""
    product = _EXACT.multiply(one, two)
    least = max(min(_exponent(one), 0), min(_exponent(two), 0))
    exponent = min(_exponent(product.normalize(_EXACT)), least)
    return product.quantize(Decimal((0, (1,), exponent)), context=_EXACT)


def _plain(number: Decimal) -> str:
    return format(number if number else number.copy_abs(), "f")


def _scientific(number: Decimal) -> str:
    """Returns a number with its sign, one digit before the point, and no zeros at its end but a lone one."""
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    if not digits:
        return "+0.0e+00"
    return f"{'-' if number < 0 else '+'}{digits[0]}.{digits[1:] or '0'}e{number.adjusted():+03d}"
