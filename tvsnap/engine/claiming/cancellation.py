"""Ends a call from another thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from tvsnap.model.errors import CallCancelled, InfrastructureError
from tvsnap.sandboxes.protocol import Sandbox

_AGAIN = 0.1  # seconds between two interrupts: one that is sent before a command has begun has no effect


class Cancellation:
    """The request to end one call, and the sandbox that must be interrupted for it. Thread-safe."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._sandbox: Sandbox | None = None

    @property
    def wanted(self) -> bool:
        """Whether the call is to end."""
        return self._wanted.is_set()

    def cancel(self) -> None:
        """Ends the call, whatever it does at the moment, and waits until it has ended; safe to repeat."""
        self._wanted.set()
        self._interrupt_until(self._over)

    def supersede(self, executed: threading.Event) -> None:
        """Ends the execution of a call that was answered otherwise, and waits until the execution sets `executed`."""
        self._wanted.set()
        self._interrupt_until(executed)

    def pause(self, seconds: float) -> None:
        """Waits for some seconds; raises CallCancelled as soon as the call is to end."""
        self._wanted.wait(seconds)
        self.check()

    def check(self) -> None:
        """Raises CallCancelled if the call is to end; called before it is executed."""
        if self.wanted:
            raise CallCancelled("the call was cancelled before it was executed")

    @contextlib.contextmanager
    def executing(self, sandbox: Sandbox) -> Iterator[None]:
        """A block in which the call is executed in a sandbox; raises CallCancelled if the call is to end already."""
        with self._lock:
            self.check()
            self._sandbox = sandbox
        try:
            yield
        finally:
            with self._lock:
                self._sandbox = None

    def _interrupt_until(self, over: threading.Event) -> None:
        while not over.is_set():
            with self._lock, contextlib.suppress(InfrastructureError):  # the sandbox has ended
                if self._sandbox is not None:
                    self._sandbox.interrupt()
            over.wait(_AGAIN)

    def end(self) -> None:
        """Notes that the call has ended, with or without a result."""
        self._over.set()
