"""The signals that stop a server."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import uvicorn


class StoppedBySignals(uvicorn.Server):
    """Stops at SIGTERM or SIGINT, which it does not raise again: that is no failure."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A block in which the signals stop the server."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
