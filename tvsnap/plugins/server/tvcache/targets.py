"""Requests whose query is longer than the parser of addresses takes: TVCache's clients send whole histories in one."""

from __future__ import annotations

from typing import Any

from tvsnap.plugins.server.patience import Patient

LONGEST_PARSED = 60_000
"""Bytes of a request's target that are left to the parser, which takes at most 65,535."""
LONGEST = 16 * 1024 * 1024
"""Bytes that a target may have; the connection is closed where it has more."""


class LongTargets(Patient):
    """Takes the query out of a long target before that is parsed, and puts it where applications look for it."""

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
        if len(self.url) <= LONGEST_PARSED:
            super().on_headers_complete()
            return
        self.url, _, query = self.url.partition(b"?")
        super().on_headers_complete()
        self.scope["query_string"] = query  # the task that was begun there has not come to it yet
