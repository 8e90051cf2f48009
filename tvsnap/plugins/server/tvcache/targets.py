"""Requests whose query is longer than the parser of addresses takes: TVCache's clients send whole histories in one."""

from __future__ import annotations

from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from tvsnap.plugins.server.patience import Patient

LONGEST_PARSED = 60_000
"""Bytes of a request's target that are left to the parser, which takes at most 65,535."""
LONGEST = 16 * 1024 * 1024
"""Bytes that a target may have; the connection is closed where it has more."""
_QUERY = "tvsnap.query"


class LongTargets(Patient):
    """Takes the query out of a long target before that is parsed, for `QueryInPlace`."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._longest += LONGEST

    def on_url(self, url: bytes) -> None:
        """Takes the next piece of a target."""
        super().on_url(url)
        if len(self.url) > LONGEST:
            raise ValueError(f"the target of the request has more than {LONGEST} bytes")  # answered with 400

    def on_headers_complete(self) -> None:
        """Begins to answer a request."""
        if len(self.url) > LONGEST_PARSED:
            self.url, _, query = self.url.partition(b"?")
            cast("dict[str, Any]", self.scope)[_QUERY] = query
        super().on_headers_complete()


class QueryInPlace:
    """Puts the query of a long target where applications look for it."""

    def __init__(self, app: ASGIApp) -> None:
        """
        Args:
            app: what is behind it.
        """
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if _QUERY in scope:
            scope["query_string"] = scope.pop(_QUERY)
        await self._app(scope, receive, send)
