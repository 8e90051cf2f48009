"""Results as compact JSON, for agents to read.

Rows are lists in the order of the columns. NULL is null; integers and finite floats are numbers; booleans are true and
false if the system has them; decimals, dates, times, and values of other types without an equivalent in JSON are text
in the system's own format, so that nothing is rounded; binary data is `{"base64": "..."}`; a float that is not finite
is text.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Dict, List, Optional, Tuple

from .system import Answer, Result

_CUT = " [... cut here ...] "
_TOO_LARGE = "the first row takes {} bytes, more than there is room for: ask for less of it, as by substr()"
_FRAME = 40
"""Bytes of JSON for the names and brackets around what is counted."""


def binary(data: bytes) -> Dict[str, str]:
    """Returns the JSON of binary data in a row."""
    return {"base64": base64.b64encode(data).decode("ascii")}


def render(answer: Answer, limit: int) -> Tuple[str, bool]:
    """Returns an answer as one line of JSON of at most `limit` bytes, and whether anything was left out for that.

    One result is `{"columns": [...], "rows": [[...], ...]}`, `{"affected": n}`, or `{"ok": true}` if the system reports
    no more; several are `{"results": [...]}`; an error is `{"error": text, "code": text}`, after the results of earlier
    statements if there are any. `more` says that there were more rows, or more results, `note` that the first row alone
    was too large; `messages` contains notices and warnings.
    """
    error, cut = shorten(answer.error, limit // 2)
    messages, left_out = fitting(answer.messages, limit // 4)
    after: Dict[str, Any] = {}
    if error:
        after["error"] = error
        if answer.code:
            after["code"] = answer.code
    if messages:
        after["messages"] = messages
    room = limit - _size(after) - _FRAME
    parts: List[Dict[str, Any]] = []
    more = False
    for result in answer.results:
        part, short = _part(result, room)
        if part is None:
            more = True
            break
        cut = cut or short
        room -= _size(part) + 1
        parts.append(part)
    content: Dict[str, Any] = {}
    if len(answer.results) == 1 and parts and not error:
        content.update(parts[0])
    elif parts:
        content["results"] = parts
    if more:
        content["more"] = True
    return dump({**content, **after} or {"ok": True}), cut or more or left_out


def shorten(text: str, limit: int) -> Tuple[str, bool]:
    """Returns a text, without its middle if it takes more than `limit` bytes of JSON, and whether that was so."""
    length = len(text)
    shown = text
    while length and _size(shown) > limit:
        length = min(length - 1, length * limit // _size(shown))
        shown = f"{text[: length // 2]}{_CUT}{text[len(text) - length // 2 :]}"
    return shown, shown != text


def fitting(values: List[Any], limit: int) -> Tuple[List[Any], bool]:
    """Returns the first of `values`, as many as take at most `limit` bytes of JSON, and whether there were more."""
    fits: List[Any] = []
    for value in values:
        limit -= _size(value) + 1
        if limit < 0:
            return fits, True
        fits.append(value)
    return fits, False


def dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=str)


def _size(value: Any) -> int:
    return len(dump(value).encode("utf-8", "surrogatepass"))


def _part(result: Result, room: int) -> Tuple[Optional[Dict[str, Any]], bool]:
    """Returns a result as JSON, None if it does not fit at all, and whether rows were left out."""
    part: Dict[str, Any] = {}
    cut = False
    if result.columns is not None:
        part["columns"] = result.columns
        part["rows"], cut = fitting(result.rows, room - _size(part) - _FRAME)
        if cut and not part["rows"]:
            part["note"] = _TOO_LARGE.format(_size(result.rows[0]))
        if result.more or cut:
            part["more"] = True
    elif result.affected is not None:
        part["affected"] = result.affected
    else:
        part["ok"] = True
    return (None, True) if _size(part) > room else (part, cut)
