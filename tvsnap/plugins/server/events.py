"""Events of a server, sent to clients that listen: server-sent events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from tvsnap.plugins.server.bodies import encode
from tvsnap.plugins.server.tenants import Tenant

MEDIA_TYPE = "text/event-stream"
MOST_WAITING = 1000
"""Events that wait for a client that does not take them; beyond that, the newest are dropped and counted."""
LISTENING = b": events\n\n"
"""The comment by which a client knows that it misses nothing from then on."""
HEARTBEAT = 15.0
"""Seconds without an event after which a comment is sent: a connection is to be seen to live."""


class Events:
    """Tells what happens to all who listen. It is used on one event loop."""

    def __init__(self) -> None:
        self._listeners: set[_Listener] = set()
        self._closed = False

    @property
    def heard(self) -> bool:
        """Whether anybody listens; if nobody does, nothing need be told."""
        return bool(self._listeners)

    def tell(self, name: str, data: Any, tenant: Tenant | None = None) -> None:
        """Tells an event to those who may see it.

        Args:
            name: the event's name.
            data: data that `encode` takes.
            tenant: whose it is; None if it is no tenant's, which those see who may see all.
        """
        if self._listeners:
            event = event_bytes(name, data)
            for listener in self._listeners:
                if listener.tenant is None or listener.tenant == tenant:
                    listener.add(event)

    async def listen(self, tenant: Tenant | None) -> AsyncIterator[bytes]:
        """Yields events, until the server is stopped.

        Args:
            tenant: the tenant that listens; None for one who may see all.
        """
        listener = _Listener(tenant)
        self._listeners.add(listener)
        try:
            yield LISTENING
            while not self._closed:
                yield await listener.next()
        finally:
            self._listeners.discard(listener)

    def close(self) -> None:
        """Ends all listening."""
        self._closed = True
        for listener in self._listeners:
            listener.wake()


class _Listener:
    """The events that wait for one client."""

    def __init__(self, tenant: Tenant | None) -> None:
        self.tenant = tenant
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        self._there = asyncio.Event()

    def add(self, event: bytes) -> None:
        """Has an event wait, or counts it if too many do."""
        if len(self._waiting) < MOST_WAITING and not self._dropped:
            self._waiting.append(event)
        else:  # in one gap, which is told once those before it were taken
            self._dropped += 1
        self._there.set()

    def wake(self) -> None:
        """Has `next` return."""
        self._there.set()

    async def next(self) -> bytes:
        """Returns what is to be sent next."""
        if not self._waiting and not self._dropped:
            self._there.clear()
            try:
                await asyncio.wait_for(self._there.wait(), HEARTBEAT)
            except asyncio.TimeoutError:
                return b": nothing happened\n\n"
        if self._waiting:
            return self._waiting.popleft()
        dropped, self._dropped = self._dropped, 0
        return event_bytes("dropped", {"count": dropped}) if dropped else b": the server stops\n\n"


def event_bytes(name: str, data: Any) -> bytes:
    """Returns a server-sent event.

    Args:
        name: the event's name.
        data: data that `encode` takes.
    """
    return b"event: " + name.encode() + b"\ndata: " + encode(data) + b"\n\n"
