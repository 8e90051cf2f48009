"""Server-sent events, as a client reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a server; docs/server.md lists the names.

    Attributes:
        name: what happened, such as `call` or `rollout_opened`.
        data: what is told of it.
    """

    name: str
    data: Mapping[str, Any]


class EventParser:
    """Finds events in what comes, in pieces, from a server."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""

    def take(self, piece: bytes) -> list[Event]:
        """Returns the events that end in the next piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        found: list[Event] = []
        for line in lines:
            name, _, value = line.partition(b": ")
            if name == b"event":
                self._name = value.decode()
            elif name == b"data":
                found.append(Event(self._name, json.loads(value)))
        return found
