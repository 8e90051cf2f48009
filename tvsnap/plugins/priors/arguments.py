"""Checks of numbers that callers give."""

from __future__ import annotations

from tvsnap import UsageError


def is_number(value: object) -> bool:
    """Returns whether a value is a number, and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_number(value: float, what: str, least: float, most: float) -> None:
    """Raises UsageError unless `value` is a number from `least` to `most`."""
    if not (is_number(value) and least <= value <= most):
        raise UsageError(f"{what} must be a number from {least:g} to {most:g}, not {value!r:.60}")


def check_whole(value: int, what: str) -> None:
    """Raises UsageError unless `value` is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{what} must be a whole number of at least 1, not {value!r:.60}")
