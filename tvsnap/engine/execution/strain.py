"""Tells whether the load of the machine may have influenced the result of a call.

A call that got less processor time, because of other work or of its own limits, may fail where it would not have failed
on an idle machine: a test with a time limit, a verifier that waits for a server. Its result is recorded as usual, with
a note (`ToolResult.strain`). The note is made if

- the call took `LONG` seconds or more, and for `THROTTLED` of that time its sandbox had used up its processor quota, or
  for `WAITED` of that time something waited for a processor;
- or it took at least `NEAR` of a limit without reaching its timeout: of the timeout, or of a limit that its text names
  (`timeout 60`, `--timeout=60`).

A call that reached its timeout although nothing held it up would reach it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tvsnap.host.load import Load
from tvsnap.model.calls import MAIN_ARGUMENTS, ToolCall, ToolResult

LONG = 0.5  # seconds; for shorter calls, only their own limits count
THROTTLED = 0.2  # of the call's time
WAITED = 0.5
NEAR = 0.5

_LIMIT = re.compile(
    r"\btimeout(?:[_-]s(?:ec(?:onds)?)?)?[= ]+(?:-[ks] +\S+ +|-\S+ +)*(\d+(?:\.\d+)?)([smhd]?)(?!\.?\w)"
)
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def held_up(result: ToolResult, load: Load) -> str | None:
    """Returns, in words, the delay of a call by the load of the machine; None if there was none.

    `load`: the delays of its sandbox during the call.
    """
    took = result.duration
    if result.blocked or (took < LONG and not result.timed_out):
        return None
    if load.throttled >= THROTTLED * took:
        return f"was throttled for {min(load.throttled, took):.2g} of its {took:.3g} s"
    if load.waited >= WAITED * took:
        return f"for {min(load.waited, took):.2g} of its {took:.3g} s the processors were taken"
    return None


def near_limit(call: ToolCall, result: ToolResult, timeout: float) -> str | None:
    """Returns, in words, that a call took a good part of a limit that it had; None if it did not, or timed out.

    `timeout` is in seconds.
    """
    if result.timed_out:
        return None
    took = result.duration
    for limit in (timeout, *_named(call)):
        if NEAR * limit <= took:
            return f"took {took:.3g} s of the {limit:.3g} s that it had"
    return None


def _named(call: ToolCall) -> Iterator[float]:
    """Yields the limits that a call's text names, in seconds; 0 stands for no limit."""
    for name in MAIN_ARGUMENTS:
        text = call.arguments.get(name)
        if isinstance(text, str) and "timeout" in text:
            for number, unit in _LIMIT.findall(text):
                if float(number):
                    yield float(number) * _UNITS[unit]
