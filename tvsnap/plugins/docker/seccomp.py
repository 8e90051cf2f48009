"""The filter of system calls that an engine sets for a sandbox: the one that PID 1 sets if it may (confine.c)."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tvsnap.host import native

_NAME = re.compile(r"^    (?:SYS_(\w+),|\d+, /\* (\w+) \*/)$", re.MULTILINE)
_RULE = re.compile(r"^    \{SYS_(\w+), (\w+), \{(.*)\}\},$", re.MULTILINE)
_CONDITION = re.compile(r"\{(\d), (\w+), (\w+)\}")
_ALL = 0xFFFFFFFF
_OF_PID_1 = ["pidfd_getfd"]
"""Calls that are allowed here, where PID 1 examines what waits in pipes and sockets of other processes (waiting.c).
Elsewhere the host does that, and they are refused: with them a command could change a sleeping process' sockets
unseen."""

_Box = Mapping[int, tuple[int, int]]
"""Calls of which each argument with such a number, masked by the first, is the second; only lower halves count."""


@cache
def profile() -> str:
    """Returns the filter as JSON for an engine. It names no machine: only calls of the engine's own are allowed."""
    text = native.SYSTEM_CALLS.read_text()
    names = sorted([*_OF_PID_1, *(system or newer for system, newer in _NAME.findall(text))])
    rules: list[dict[str, Any]] = [{"names": names, "action": "SCMP_ACT_ALLOW"}]
    earlier: dict[str, list[_Box]] = {}
    for call, error, conditions in _RULE.findall(text):
        whole = {int(index): (_number(mask), _number(value)) for index, mask, value in _CONDITION.findall(conditions)}
        rest: list[_Box] = [whole]  # rules of one call are alternatives for an engine, whatever their order
        for other in earlier.setdefault(call, []):
            rest = [part for box in rest for part in _without(box, other)]
        earlier[call].append(whole)
        if error != "EPERM":  # this is the result if no rule matches
            refusal = {"action": "SCMP_ACT_ERRNO", "errnoRet": getattr(errno, error, 0)}
            action = {"action": "SCMP_ACT_ALLOW"} if error == "0" else refusal
            rules += [{"names": [call], **action, **_arguments(box)} for box in rest]
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules})


def _number(text: str) -> int:
    return _ALL if text == "ALL" else int(text, 0)


def _arguments(box: _Box) -> dict[str, Any]:
    fits = [
        {"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value}
        for index, (mask, value) in box.items()
    ]
    return {"args": fits} if fits else {}


def _without(box: _Box, other: _Box) -> Iterator[_Box]:
    """Yields disjoint boxes with the calls in a box that are not in another."""
    inside = dict(box)
    for index, (mask, value) in other.items():
        for bit in (1 << number for number in reversed(range(32)) if mask >> number & 1):
            had, is_value = inside.get(index, (0, 0))
            if not had & bit:
                yield {**inside, index: (had | bit, is_value | ~value & bit)}
                inside[index] = (had | bit, is_value | value & bit)
            elif (is_value ^ value) & bit:
                yield inside
                return
