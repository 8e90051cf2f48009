"""Priors over HTTP: a request whose header says what a prior is asked for is answered with one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.responses import Response

from tvsnap.model.errors import TvsnapError, UsageError
from tvsnap.plugins.priors.cache import PriorCache
from tvsnap.plugins.priors.prior import Prior
from tvsnap.plugins.proxy.keys import once
from tvsnap.plugins.proxy.upstream import Head

HEADER = "x-tvsnap-prior"
"""Its value is JSON: an object with `goal`, `actions`, and `state` or `text` or both."""
MEMBERS = {"goal": str, "actions": list, "state": str, "text": str}
AT_ONCE = 64
"""Priors that are looked up at once; each has a thread, which waits for the model if it must."""

Ask = Callable[[], Awaitable[tuple[Head, bytes]]]


class _Refused(Exception):
    """The model's server answered with an error."""

    def __init__(self, head: Head, body: bytes) -> None:
        super().__init__(head.status)
        self.head, self.body = head, body


class Priors:
    """A `PriorCache` behind HTTP. It is used on one event loop."""

    def __init__(self, path: Path, delta: float, refresh: float) -> None:
        """
        Args:
            path: the cache's file, which is opened when it is first needed.
            delta: the least cosine of similar states.
            refresh: the probability with which the model is asked although there is an answer.

        Raises:
            UsageError: a parameter makes no sense.
        """
        self._path = path
        self._delta = delta
        self._refresh = refresh
        if not 0.0 <= refresh <= 1.0 or not delta > 0.0:
            raise UsageError(
                f"delta must be above 0 and refresh a probability, not {delta!r} and {refresh!r} (--delta, --refresh)"
            )
        self._cache: PriorCache | None = None
        self._requests: set[Future[tuple[Head, bytes]]] = set()
        self._threads = ThreadPoolExecutor(AT_ONCE, "tvsnap-priors")

    async def answer(self, asked_for: str, request: bytes, asks_for: list[str], ask: Ask) -> Response:
        """Answers with a prior: what the model proposed in this state before, or proposes now.

        Args:
            asked_for: the header's value.
            request: the body, a request for completions.
            asks_for: all else that tells priors apart: server, path, and the client's account.
            ask: makes the request.

        Raises:
            UsageError: the header or the body makes no sense.
            TvsnapError: the model's server or the cache's file cannot be reached.
        """
        question, model = _question(asked_for), _model(request)
        goal = json.dumps([*asks_for, model, question["goal"]])
        loop = asyncio.get_running_loop()

        async def asking() -> tuple[Head, bytes]:
            return await ask()

        def propose() -> list[str]:
            request_to_model = asyncio.run_coroutine_threadsafe(asking(), loop)
            self._requests.add(request_to_model)
            try:
                head, body = request_to_model.result()
            finally:
                self._requests.discard(request_to_model)
            if head.status != 200:
                raise _Refused(head, body)
            return _proposals(body)

        def look_up() -> Prior:
            return self._opened().prior(
                goal, question["actions"], propose, state=question.get("state"), text=question.get("text")
            )

        if self._cache is None:  # on the event loop: one at a time
            self._opened()
        try:
            prior = await loop.run_in_executor(self._threads, look_up)
        except _Refused as refused:
            return Response(refused.body, refused.head.status, media_type=refused.head.content_type or None)
        response = Response(json.dumps(asdict(prior)), media_type="application/json")
        response.headers["x-tvsnap-cache"] = "hit" if prior.is_hit else "miss"
        return response

    def close(self) -> None:
        """Ends requests to the model's server that are under way, and closes the cache's file."""
        for request in list(self._requests):
            request.cancel()
        self._threads.shutdown()
        if self._cache is not None:
            self._cache.close()

    def _opened(self) -> PriorCache:
        if self._cache is None:
            self._cache = PriorCache(self._path, delta=self._delta, refresh=self._refresh)
        return self._cache


def _question(text: str) -> dict[str, Any]:
    try:
        question = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError):
        question = None
    if not isinstance(question, dict) or not {"goal", "actions"} <= set(question) <= set(MEMBERS):
        raise UsageError(
            f'the header {HEADER} must be JSON as {{"goal": ..., "actions": [...], "state": ..., "text": ...}}, of '
            f"which state or text may be left out, each member once, not {text[:80]!r}"
        )
    for name, value in question.items():
        if not isinstance(value, MEMBERS[name]):
            raise UsageError(f"{name} in the header {HEADER} is {value!r:.60}, which is not of the right type")
    return question


def _model(body: bytes) -> str:
    try:
        request = json.loads(body.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict) or request.get("stream"):
        raise UsageError(
            f"with the header {HEADER}, the body must be a request for completions that is no stream, as JSON that "
            "names no member twice"
        )
    return str(request.get("model", ""))


def _proposals(body: bytes) -> list[str]:
    """Returns what the choices of a completion propose, without blanks around."""
    try:
        texts = [
            (choice.get("message") or {}).get("content") or choice.get("text") for choice in json.loads(body)["choices"]
        ]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise TvsnapError(f"the model's server did not answer with choices: {body[:80]!r}") from None
    proposals = [text.strip() for text in texts if isinstance(text, str) and text.strip()]
    if not proposals:
        raise TvsnapError(f"the model proposed nothing: {body[:80]!r}")
    return proposals
