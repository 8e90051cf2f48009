"""Checks of arguments: each error names the argument, the values that it may have, and its value."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TypeVar

from tvsnap.model.errors import UsageError

LONGEST = 366 * 86400
"""The greatest number of seconds for any argument: a year. The limits of the system are not much higher."""
LARGEST = 2**63 - 1
"""The largest whole number that the graph and the system can store."""

LONGEST_OUTCOME = 500
"""Characters of a rollout's outcome at most."""

_STATE = re.compile("[0-9a-f]{64}")
T = TypeVar("T")


def check_seconds(value: object, what: str = "a timeout", *, least: float | None = None) -> float:
    """Returns a number of seconds as float; `least` is the smallest that is allowed, None for any above 0.

    Raises:
        UsageError: it is no such number, or more than `LONGEST`.
    """
    number = _number(value)
    if not (number > 0 if least is None else number >= least):
        bound = "above 0" if least is None else f"of at least {least:g}"
        raise UsageError(f"{what} must be a number of seconds {bound}, not {value!r}")
    if number > LONGEST:
        raise UsageError(f"{what} must be at most {LONGEST} seconds, which is a year, not {value!r}")
    return number


def check_number(value: object, what: str, least: float, most: float = math.inf) -> None:
    """Raises UsageError unless `value` is a finite number from `least` to `most`."""
    number = _number(value)
    if not least <= number <= most or number == math.inf:
        bound = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        raise UsageError(f"{what} must be a number {bound}, not {value!r}")


def check_whole(value: object, what: str, least: int, most: int = LARGEST) -> None:
    """Raises UsageError unless `value` is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{what} must be a whole number of at least {least}, not {value!r}")
    if value > most:
        raise UsageError(f"{what} must be at most {most}, not {value!r}")


def check_text(value: object, what: str) -> str:
    """Returns a text that can be stored and shown as it is.

    Raises:
        UsageError: it is no string, or contains characters that are no text.
    """
    if not isinstance(value, str):
        raise UsageError(f"{what} must be a string, not {value!r}")
    if "\0" in value:
        raise UsageError(f"{what} must not hold a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is no text: it has bytes that are no UTF-8, or half of a surrogate pair") from None
    return value


def check_variables(variables: Mapping[str, str]) -> None:
    """Raises UsageError unless each name and value can be one of an environment variable."""
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name:
            raise UsageError(
                f"{name!r} cannot be the name of an environment variable: it is empty, or has a = or a NUL"
            )
        if "\0" in value:
            raise UsageError(f"the environment variable {name} must not hold a NUL character")


def check_type(value: object, kind: type[T], what: str) -> T:
    """Returns `value`, or raises UsageError if it is no `kind`."""
    if not isinstance(value, kind):
        raise UsageError(f"{what} must be a tvsnap.{kind.__name__}, not {value!r}")
    return value


def check_provides(value: T, method: str, what: str) -> T:
    """Returns `value`, or raises UsageError if it lacks a method of the protocol that it should implement.

    `what`: the argument's name and its required kind, in words.
    """
    if not callable(getattr(value, method, None)):
        raise UsageError(f"{what}, with a method {method}(); not {value!r}")
    return value


def check_state(value: object) -> bytes:
    """Returns the bytes of a state's full name; raises UsageError if it is none."""
    if not isinstance(value, str) or not _STATE.fullmatch(value):
        raise UsageError(
            f"{value!r} is no state: give its full hash, 64 digits from 0 to 9 and a to f, as Rollout.state has it "
            "(Graph.resolve finds it by a prefix)"
        )
    return bytes.fromhex(value)


def _number(value: object) -> float:
    """Returns a number as float, infinite if it is too large for that; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_epoch(epoch: object) -> None:
    """Raises UsageError unless `epoch` is None or a whole number from 0 on."""
    if epoch is not None:
        check_whole(epoch, "epoch", 0)


def check_reward(reward: object) -> float:
    """Returns `reward`; raises `UsageError` unless it is a finite number."""
    number = _number(reward)
    if not math.isfinite(number):
        raise UsageError(f"reward must be a finite number, not {reward!r}")
    return number


def check_outcome(outcome: object) -> str | None:
    """Returns `outcome`, shortened; raises `UsageError` unless it is None or a text."""
    return None if outcome is None else check_text(outcome, "outcome")[:LONGEST_OUTCOME]


def outcome_of(error: BaseException | None) -> str | None:
    """Returns the outcome of a rollout that an exception ended, in words; None if there is none."""
    if error is None:
        return None
    words = " ".join(str(error).replace("\0", " ").split())
    return (f"{type(error).__name__}: {words}" if words else type(error).__name__)[:LONGEST_OUTCOME]
