"""Limits of repeated requests: after a broken connection, and while a server is busy or being restarted."""

from __future__ import annotations

import random
import time

from tvsnap.plugins.client.http import Address
from tvsnap.plugins.client.liveness import Life, Silent
from tvsnap.plugins.client.wire.errors import Busy, Stopping, Unreachable

TRIES = 5
"""Attempts to send a request whose connection breaks."""
RETRY_S = 10.0
"""Seconds after the first failure during which a request is sent again."""
RESTART_PATIENCE = 60.0
"""Seconds for which it waits at most for a server that is being stopped and started again."""


class Retrying:
    """The attempts to send a request whose connection could not be made, or broke: `TRIES`, for a while at most."""

    def __init__(self, address: Address, life: Life) -> None:
        self._address, self._life = address, life
        self._attempt = 0
        self._began = time.monotonic()
        self._failing: float | None = None  # the time of the first failure

    def pause_after(self, error: OSError | Unreachable) -> float:
        """Returns the seconds to wait before the request is sent again; raises the error after the last attempt.

        Raises:
            Unreachable: the server is lost.
        """
        self._attempt += 1
        now = time.monotonic()
        if self._failing is None:
            self._failing = self._began if isinstance(error, Unreachable) else now
        if self._attempt < TRIES and now - self._failing < RETRY_S and not isinstance(error, Silent):
            return 0.0 if self._attempt == 1 else float(0.1 * 2**self._attempt) * random.uniform(0.5, 1.0)
        lost = error if isinstance(error, Unreachable) else broken(self._address, error)
        self._life.lose(lost)
        raise lost from None


class Waiting:
    """The wait of a request for a server that is busy, or that is being stopped and started again."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._until = time.monotonic() + patience
        self._stopping = False

    def pause_after(self, error: Busy | Unreachable) -> float:
        """Returns the seconds to wait before the request is sent again; raises the error after the longest wait."""
        now, pause = time.monotonic(), 1.0
        if isinstance(error, Stopping) and not self._stopping:
            self._stopping = True
            self._until = now + min(self._patience, RESTART_PATIENCE)
        if isinstance(error, Busy):
            pause = error.retry_after
        elif not self._stopping:
            raise error
        if now + pause > self._until:
            raise error
        return pause * random.uniform(0.5, 1.0)


def broken(address: Address, error: OSError) -> Unreachable:
    """Returns the error for a connection that broke again and again."""
    hint = (
        "if the server asks for certificates (--tls-client-ca), it takes none without (certificate=, "
        "TVSNAP_CERTIFICATE)"
        if address.tls
        else "if it speaks TLS (--tls-certificate), its address begins with https://"
    )
    return Unreachable(f"the connection to {address} broke {TRIES} times: {error}; {hint}")
