"""Reads server-sent events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a server; docs/server.md lists the names.

    Attributes:
        name: the kind of event, such as `call` or `rollout_opened`.
        data: its facts.
    """

    name: str
    data: Mapping[str, Any]


class EventParser:
    """Finds events in the stream of a server, which comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""

    def take(self, piece: bytes) -> list[Event]:
        """Returns the events that end in the next piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events: list[Event] = []
        for line in lines:
            name, _, value = line.partition(b": ")
            if name == b"event":
                self._name = value.decode()
            elif name == b"data":
                events.append(Event(self._name, json.loads(value)))
        return events
