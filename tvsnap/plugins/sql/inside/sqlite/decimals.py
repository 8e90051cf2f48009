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
from typing import Any, Callable, Iterator, NoReturn, Optional, Tuple

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
    functions = _Functions(complain)
    for name, arguments, function in functions.scalars():
        base.create_function(name, arguments, function, deterministic=True)
    # Python has window functions since 3.11, where SQLite has them.
    make: Callable[..., None] = getattr(base, "create_window_function", base.create_aggregate)
    make("decimal_sum", 1, lambda: _Sum(functions))


class _Functions:
    """The functions of one connection. A function of NULL is NULL."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._texts = sqlite3.connect(":memory:", check_same_thread=False)  # converts a float as SQLite does

    def scalars(self) -> Iterator[Tuple[str, int, Callable[..., Any]]]:
        """Yields the functions, each with its name and the number of its arguments."""
        yield "decimal", 1, self._of_one(_plain)
        yield "decimal_exp", 1, self._of_one(_scientific)
        yield "decimal_add", 2, self._of_two(_EXACT.add)
        yield "decimal_sub", 2, self._of_two(_EXACT.subtract)
        yield "decimal_mul", 2, self._of_two(_product)
        yield "decimal_cmp", 2, self._compare
        yield "decimal_pow2", 1, self._power

    def read(self, value: Any) -> Optional[Decimal]:
        """Returns the number of a value."""
        if value is None:
            return None
        if not isinstance(value, str):
            text = self._texts.execute("SELECT CAST(CAST(? AS TEXT) AS BLOB)", (value,)).fetchone()[0]
            value = text.decode("utf-8", "replace")
        return self.checked(_parsed(value))

    def checked(self, number: Decimal) -> Decimal:
        """Returns a number; raises ValueError if it is too long."""
        if number.adjusted() >= MOST_DIGITS or -_exponent(number) > MOST_DIGITS:
            self._fail(f"a decimal has more than {MOST_DIGITS} digits")
        return number

    def _fail(self, message: str) -> NoReturn:
        self._complain(message)
        raise ValueError(message)

    def _whole(self, value: Any) -> Optional[Decimal]:
        """Returns the number of a value, with all digits of a float if the program returns them."""
        if not EXPANDED or not isinstance(value, (float, bytes)):
            return self.read(value)
        if isinstance(value, bytes):
            if len(value) != 8:
                return None
            value = struct.unpack(">d", value)[0]
        return Decimal(value) if math.isfinite(value) else None

    def _of_one(self, form: Callable[[Decimal], str]) -> Callable[[Any], Optional[str]]:
        def function(value: Any) -> Optional[str]:
            number = self._whole(value)
            return None if number is None else form(number)

        return function

    def _of_two(self, work: Callable[[Decimal, Decimal], Decimal]) -> Callable[[Any, Any], Optional[str]]:
        def function(one: Any, two: Any) -> Optional[str]:
            first, second = self.read(one), self.read(two)
            return None if first is None or second is None else _plain(self.checked(work(first, second)))

        return function

    def _compare(self, one: Any, two: Any) -> Optional[int]:
        first, second = self.read(one), self.read(two)
        return None if first is None or second is None else (first > second) - (first < second)

    def _power(self, exponent: Any) -> Optional[str]:
        if not isinstance(exponent, int):
            return None
        if abs(exponent) > MOST_POWER:
            self._fail(f"decimal_pow2({exponent}): the exponent must be from {-MOST_POWER} to {MOST_POWER}")
        return _scientific(Decimal(2**exponent) if exponent >= 0 else Decimal(5**-exponent).scaleb(exponent, _EXACT))


class _Sum:
    """The aggregate `decimal_sum`, and that of a window."""

    def __init__(self, functions: _Functions) -> None:
        self._functions = functions
        self._sum = _ZERO
        self._any = False

    def step(self, value: Any) -> None:
        self._any = True
        number = self._functions.read(value)
        if number is not None:
            self._sum = self._functions.checked(_EXACT.add(self._sum, number))

    def inverse(self, value: Any) -> None:
        number = self._functions.read(value)
        if number is not None:
            self._sum = _EXACT.subtract(self._sum, number)

    def value(self) -> Optional[str]:
        return _plain(self._sum) if self._any else None

    finalize = value


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
