"""Results as compact JSON, for agents to read.

Rows are lists in the order of the columns. NULL is null; integers and finite floats are numbers; booleans are
true and false where the engine has them; decimals, dates, times, and all that JSON has no type for are text in the
engine's own words, so that nothing is rounded; binary data is `{"base64": "..."}`; a float that is not finite is text.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Dict, List, Tuple

from .engine import Answer, Result


def binary(data: bytes) -> Dict[str, str]:
    """Returns what stands in a row for binary data."""
    return {"base64": base64.b64encode(data).decode("ascii")}


def render(answer: Answer, limit: int) -> Tuple[str, bool]:
    """Returns an answer as one line of JSON, and whether rows were left out to keep it within `limit` bytes.

    One result is `{"columns": [...], "rows": [[...], ...]}` or `{"affected": n}`; several are `{"results": [...]}`; an
    error is `{"error": text, "code": text}`, after the results of earlier statements if there are any. `more` says that
    there were more rows, `messages` holds notices and warnings.
    """
    room = limit
    parts: List[Dict[str, Any]] = []
    cut = False
    for result in answer.results:
        part, used, short = _part(result, room)
        room -= used
        cut = cut or short
        parts.append(part)
    said: Dict[str, Any] = {}
    if len(parts) == 1 and not answer.error:
        said.update(parts[0])
    elif parts:
        said["results"] = parts
    if answer.error:
        said["error"] = answer.error
        if answer.code:
            said["code"] = answer.code
    if answer.messages:
        said["messages"] = answer.messages
    return dump(said), cut


def dump(value: Any) -> str:
    """Returns JSON without insignificant space."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=str)


def _part(result: Result, room: int) -> Tuple[Dict[str, Any], int, bool]:
    if result.columns is None:
        return ({} if result.affected is None else {"affected": result.affected}), 20, False
    used = len(dump(result.columns)) + 40
    kept: List[List[Any]] = []
    cut = False
    for row in result.rows:
        size = len(dump(row).encode("utf-8", "replace")) + 1
        if used + size > room:
            cut = True
            break
        used += size
        kept.append(row)
    part: Dict[str, Any] = {"columns": result.columns, "rows": kept}
    if result.more or cut:
        part["more"] = True
    return part, used, cut
