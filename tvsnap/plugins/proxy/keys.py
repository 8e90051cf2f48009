"""Which requests have one answer, and what tells them apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SAMPLED = ("/chat/completions", "/completions")
"""The ends of paths whose answers are drawn: they have one answer if the temperature is 0 or a seed is given."""
FIXED = ("/embeddings",)
"""The ends of paths whose answers are not drawn."""
_REAL = ("temperature", "top_p", "frequency_penalty", "presence_penalty")
"""Members that are real numbers for every server: 0, 0.0 and -0.0 are one value of them."""
ELSEWHERE = ("web_search_options", "previous_response_id", "background", "store")
"""Members of a request that make its answer depend on more than the request, or that ask for more than an answer."""
_OF_NO_ANSWER = frozenset(
    (
        *("accept", "accept-encoding", "baggage", "cache-control", "connection", "content-length", "date", "host"),
        *("idempotency-key", "pragma", "priority", "referer", "traceparent", "tracestate", "user-agent"),
        *("x-correlation-id", "x-request-id"),
    )
)
_BEGIN_OF_NO_ANSWER = ("sec-", "x-stainless-")
"""Headers of these names differ from request to request, or from program to program, and no answer depends on them.

All others may say who asks, or for whom: a cookie, a key of any name, the header of a gateway.
"""
_SAME_FOR_ALL = frozenset(("accept-encoding", "host"))
"""Headers that the proxy makes itself: an answer may vary by them, because they are the same in each request."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A request that has one answer.

    Attributes:
        key: the digest of all that the answer depends on.
        model: the name of the model; empty if the request names none.
        streams: whether the answer is asked for as a stream of events.
    """

    key: bytes
    model: str
    streams: bool


def keyed(
    method: str, path: str, query: str, headers: Iterable[tuple[str, str]], body: bytes, *, upstream: str, tenant: str
) -> Keyed | None:
    """Returns the key of a request; None if it need not have the same answer the next time.

    Args:
        method: the method of HTTP.
        path: as the client asks for it.
        query: the text after the question mark.
        headers: names in small letters, with values, as they are passed on to the model's server.
        body: JSON.
        upstream: the address of the model's server.
        tenant: the tenant that asks; empty for no tenant.
    """
    if method != "POST" or not path.endswith((*SAMPLED, *FIXED)):
        return None
    try:
        request = json.loads(body.decode(), object_pairs_hook=once, parse_constant=_no_number)
        if not isinstance(request, dict) or not _has_one_answer(path, request):
            return None
        reals = {name: value for name in _REAL if isinstance(value := request.get(name), float)}
        request |= {name: int(value) for name, value in reals.items() if value.is_integer()}
        whole = [upstream, path, query, tenant, account_of(headers), request]
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError):  # UnicodeDecodeError is one
        return None
    return Keyed(hashlib.sha256(text).digest(), str(request.get("model", "")), request.get("stream") is True)


def is_in_key(header: str) -> bool:
    """Returns whether requests that differ in a header have different keys.

    Args:
        header: its name, in small letters.
    """
    return header in _SAME_FOR_ALL or not (header in _OF_NO_ANSWER or header.startswith(_BEGIN_OF_NO_ANSWER))


def account_of(headers: Iterable[tuple[str, str]]) -> str:
    """Returns a digest of what the model's server is shown of who asks, and for whom.

    Args:
        headers: names in small letters, with values, as they are passed on.
    """
    shown = sorted((name, value) for name, value in headers if name not in _SAME_FOR_ALL and is_in_key(name))
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def _has_one_answer(path: str, request: Mapping[str, Any]) -> bool:
    if any(request.get(name) not in (None, False) for name in ELSEWHERE):
        return False
    if path.endswith(FIXED):
        return True
    temperature, seed = request.get("temperature"), request.get("seed")
    greedy = type(temperature) in (int, float) and temperature == 0
    return greedy or type(seed) is int


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object whose members have different names; programs differ in which of two of one name they take.

    Raises:
        ValueError: a name is there twice.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is there twice")
    return members


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")
