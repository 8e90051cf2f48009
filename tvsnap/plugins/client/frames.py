"""The client's side of WebSockets, without input or output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvsnap.plugins.client.http import LONGEST_HEAD, read_answer
from tvsnap.plugins.client.wire.errors import Unreachable

RESTARTS = 1012  # the status of the protocol with which a server that is being stopped ends a WebSocket
LONGEST_MESSAGE = 65_536
"""Bytes of keys that are sent at once."""


class Frames:
    """The client's side of a WebSocket, without input or output.

    Attributes:
        opening: the bytes to send first.
        accepted: whether the server has joined it.
        closed: whether it has ended.
        code: the status of the protocol with which it ended.
    """

    def __init__(self, host: str, path: str, headers: Mapping[str, str]) -> None:
        """
        Args:
            host: the value of the header Host.
            path: the path with its query.
            headers: further headers.
        """
        from wsproto import ConnectionType, WSConnection
        from wsproto.events import Request

        named = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self._connection = WSConnection(ConnectionType.CLIENT)
        self.opening = self._connection.send(Request(host=host, target=path, extra_headers=named))
        self.accepted = self.closed = False
        self.code = 1011  # for a connection that breaks
        self._status = 0
        self._body = bytearray()
        self._text = ""

    def take(self, data: bytes) -> tuple[list[bytes | str], bytes]:
        """Returns the messages in received data, and the bytes to send in answer; `data` is empty at the end.

        Raises:
            TvsnapError, OSError: the server refuses the terminal.
            ConnectionError: the connection was closed before the server has sent anything.
        """
        from wsproto import events
        from wsproto.utilities import RemoteProtocolError

        if not data:
            if not self.accepted:
                raise ConnectionError("the connection was closed")
            self.closed = True
            return [], b""
        messages: list[bytes | str] = []
        reply = b""
        try:
            self._connection.receive_data(data)
            for event in self._connection.events():
                if isinstance(event, events.AcceptConnection):
                    self.accepted = True
                elif isinstance(event, events.RejectConnection):
                    self._status = event.status_code
                    if not event.has_body:
                        self._refused()
                elif isinstance(event, events.RejectData):
                    self._body += event.data
                    if len(self._body) > LONGEST_HEAD or event.body_finished:
                        self._refused()
                elif isinstance(event, events.BytesMessage):
                    messages.append(bytes(event.data))
                elif isinstance(event, events.TextMessage):
                    self._text += event.data
                    if event.message_finished:
                        messages.append(self._text)
                        self._text = ""
                elif isinstance(event, events.Ping):
                    reply += self._connection.send(event.response())
                elif isinstance(event, events.CloseConnection):
                    reply += self._connection.send(event.response())
                    self.closed, self.code = True, event.code
        except RemoteProtocolError:
            if self.accepted:
                raise ConnectionError("the answer is no message of a WebSocket") from None
            raise Unreachable("there are no terminals; is this the server's address?") from None
        return messages, reply

    def message(self, data: bytes | str) -> bytes:
        """Returns a message as bytes to send."""
        from wsproto.events import Message

        event: Any = Message(data=data)
        return bytes(self._connection.send(event))

    def goodbye(self) -> bytes:
        """Returns the bytes to send before the client closes the connection."""
        from wsproto.events import CloseConnection

        if self.closed or not self.accepted:
            return b""
        self.closed = True
        return bytes(self._connection.send(CloseConnection(code=1000)))

    def _refused(self) -> None:
        read_answer(self._status, bytes(self._body))
        raise Unreachable("there are no terminals; is this the server's address?")
