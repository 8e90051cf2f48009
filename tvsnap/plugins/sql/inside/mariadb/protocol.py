"""MariaDB's client protocol, as far as a session needs it: raw values, deadlines, the server's own words.

A driver would keep 7 MB more resident, in every snapshot, and none reports the SQLSTATE, skips rows without decoding
them, or stops waiting at a deadline and goes on later. Implemented after
https://mariadb.com/kb/en/clientserver-protocol/ (text protocol, Unix socket, a user without a password). All queries to
the server raise `Refused` or `Lost`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Callable, Iterator, List, Optional, Tuple

_UTF8MB4 = 45

# The client's capabilities: long passwords and flags, protocol 4.1 with transactions and the modern handshake, several
# statements and results, authentication plugins, and reports of a change of the database.
_CAPABILITIES = 0x1 | 0x4 | 0x200 | 0x2000 | 0x8000 | 0x10000 | 0x20000 | 0x80000 | 0x800000
_MORE_RESULTS, _SESSION_CHANGED = 0x8, 0x4000
_SCHEMA_CHANGED = 1
_QUIT, _INIT_DB, _QUERY = 1, 2, 3
_LONGEST_PART = 0xFFFFFF
_CHUNK = 1 << 18
_CANCELLED_WITHIN = 5.0
_CANCEL_AGAIN = 0.1

Row = List[Optional[bytes]]
"""The raw values of a row; None for NULL."""


class Refused(Exception):
    """An error that the server reports: its number of the error, the SQLSTATE and the message."""

    def __init__(self, number: int, state: str, text: str) -> None:
        super().__init__(f"ERROR {number} ({state}): {text}")
        self.number, self.state, self.text = number, state, text


class Lost(Exception):
    """The connection has ended."""


@dataclass(frozen=True)
class Field:
    """A column of a result: its name, its type, character set and flags by the protocol's numbers."""

    name: str
    kind: int
    charset: int
    flags: int = 0


@dataclass
class Reply:
    """The server's reply to one statement; see `Result`.

    Attributes:
        warnings: the number of warnings.
        database: the one that was selected by it; None if that did not change.
    """

    fields: Optional[List[Field]] = None
    rows: List[Row] = field(default_factory=list)
    more: bool = False
    affected: int = 0
    warnings: int = 0
    database: Optional[str] = None


class Connection:
    """One connection to a server, as `root`. `Lost` ends it, `Refused` does not."""

    def __init__(self, path: str, timeout: float) -> None:
        """Connects to the server that listens at `path`; `timeout` is the default number of seconds for each answer."""
        self._timeout = timeout
        self._data = bytearray()
        self._at = 0
        self._sequence = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
            self._log_in()
        except BaseException:
            self._socket.close()
            raise

    def _log_in(self) -> None:
        patience = Patience(self._timeout)
        greeting = self._answer(patience)
        at = greeting.index(b"\0", 1) + 1
        (self.id,) = struct.unpack_from("<I", greeting, at)
        hello = struct.pack("<IIB23x", _CAPABILITIES, _LONGEST_PART, _UTF8MB4)
        self._send(hello + b"root\0" + b"\0" + b"mysql_native_password\0", self._sequence)
        while self._answer(patience)[0]:
            self._send(b"", self._sequence)  # it wants another method: the empty password is the same in each

    def close(self) -> None:
        with contextlib.suppress(Lost):
            self._send(bytes([_QUIT]), 0)
        self._socket.close()

    def use(self, database: str) -> Reply:
        self._send(bytes([_INIT_DB]) + database.encode("utf-8", "surrogateescape"), 0)
        return self._reply(Patience(self._timeout), 0, 0)[0]

    def rows(self, query: str, timeout: float = 0.0) -> List[Row]:
        """Runs statements, and returns the rows of all their results.

        0 seconds stand for the connection's own timeout.
        """
        patience = Patience(timeout or self._timeout)
        return [row for reply in self.run(query, patience) for row in reply.rows]

    def run(
        self,
        query: str,
        patience: Optional[Callable[[], float]] = None,
        max_rows: int = 1 << 62,
        max_bytes: int = 1 << 62,
    ) -> Iterator[Reply]:
        """Runs one or more statements, and yields the reply to each as it ends.

        Args:
            query: the text.
            patience: called whenever the server has sent nothing; returns for how many seconds to wait until the next
                call, or raises to give up. By default `Lost` after the connection's own timeout.
            max_rows: the most rows to keep of each result.
            max_bytes: the most bytes to keep of all of them.
        """
        patience = patience or Patience(self._timeout)
        self._send(bytes([_QUERY]) + query.encode("utf-8", "surrogatepass"), 0)
        going_on = True
        while going_on:
            reply, going_on = self._reply(patience, max_rows, max_bytes)
            max_bytes -= sum(len(value) for row in reply.rows for value in row if value)
            yield reply

    def _reply(self, patience: Callable[[], float], max_rows: int, max_bytes: int) -> Tuple[Reply, bool]:
        """Returns the reply to one statement, and whether another follows."""
        first = self._answer(patience)
        if first[0] == 0:
            return _end_of_reply(first)
        if first[0] == 0xFB:
            raise Lost("the server asked for a file of the client's")
        count, _ = _number(first, 0)
        fields = [_field(self._packet(patience)) for _ in range(count)]
        self._packet(patience)
        reply = Reply(fields)
        while True:
            packet = self._answer(patience)
            if packet[0] == 0xFE and len(packet) < 9:
                reply.warnings, status = struct.unpack_from("<HH", packet, 1)
                return reply, bool(status & _MORE_RESULTS)
            if len(reply.rows) >= max_rows or max_bytes <= 0:
                reply.more = True
            else:
                reply.rows.append(_row(packet, count))
                max_bytes -= len(packet)

    def _answer(self, patience: Callable[[], float]) -> bytes:
        """Returns a packet; raises an error that it reports."""
        packet = self._packet(patience)
        if packet[0] != 0xFF:
            return packet
        (number,) = struct.unpack_from("<H", packet, 1)
        state, text = (packet[4:9], packet[9:]) if packet[3:4] == b"#" else (b"HY000", packet[3:])
        raise Refused(number, state.decode("ascii", "replace"), text.decode("utf-8", "replace"))

    def _send(self, payload: bytes, sequence: int) -> None:
        parts = []
        for at in range(0, len(payload) + 1, _LONGEST_PART):
            part = payload[at : at + _LONGEST_PART]
            parts.append(struct.pack("<I", len(part) | sequence << 24) + part)
            sequence = sequence + 1 & 0xFF
        try:
            self._socket.sendall(b"".join(parts))
        except OSError as error:
            self._socket.close()
            raise Lost(str(error)) from error

    def _packet(self, patience: Callable[[], float]) -> bytes:
        parts: List[bytes] = []
        while True:
            data, at = self._data, self._at
            size = int.from_bytes(data[at : at + 3], "little") if len(data) >= at + 4 else 0
            end = at + 4 + size
            if len(data) < end:
                self._receive(patience)
                continue
            self._at = end
            self._sequence = data[at + 3] + 1 & 0xFF
            parts.append(bytes(data[at + 4 : end]))
            if size < _LONGEST_PART:
                return b"".join(parts)  # a single part is not copied

    def _receive(self, patience: Callable[[], float]) -> None:
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            while not poll.poll(patience() * 1000):
                pass
            more = self._socket.recv(_CHUNK)
            if not more:
                raise Lost("the server closed it")
        except (OSError, Lost) as error:
            self._socket.close()  # later data would be taken for the answer to something else
            raise Lost(str(error)) from error
        del self._data[: self._at]
        self._at = 0
        self._data += more


class Patience:
    """Waits for some seconds, then cancels the statement if it can, and finally gives the connection up as lost."""

    def __init__(self, timeout: float, cancel: Optional[Callable[[], None]] = None) -> None:
        self.timeout = timeout
        self.passed = False
        self._cancel = cancel
        self._end = time.monotonic() + timeout

    def __call__(self) -> float:
        seconds = self._end - time.monotonic()
        if seconds > 0:
            return seconds
        if self._cancel is None or seconds < -_CANCELLED_WITHIN:
            raise Lost("the server did not answer")
        self.passed = True
        self._cancel()
        return _CANCEL_AGAIN


def _number(data: bytes, at: int) -> Tuple[int, int]:
    """Returns an integer of the protocol's variable length, and where it ends."""
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _text(data: bytes, at: int) -> Tuple[bytes, int]:
    size, at = _number(data, at)
    return data[at : at + size], at + size


def _row(packet: bytes, count: int) -> Row:
    row: Row = []
    at = 0
    for _ in range(count):
        if packet[at] == 0xFB:
            row.append(None)
            at += 1
        else:  # mostly short: a call for each would take a third more time
            size, at = (packet[at], at + 1) if packet[at] < 0xFB else _number(packet, at)
            row.append(packet[at : at + size])
            at += size
    return row


def _field(packet: bytes) -> Field:
    at, texts = 0, []
    for _ in range(6):  # catalogue, schema, alias of the table, the table, alias of the column, the column
        text, at = _text(packet, at)
        texts.append(text)
    charset, _length, kind, flags = struct.unpack_from("<HIBH", packet, at + 1)
    return Field(texts[4].decode("utf-8", "replace"), kind, charset, flags)


def _end_of_reply(packet: bytes) -> Tuple[Reply, bool]:
    affected, at = _number(packet, 1)
    _, at = _number(packet, at)
    status, warnings = struct.unpack_from("<HH", packet, at)
    reply = Reply(affected=affected, warnings=warnings)
    if status & _SESSION_CHANGED:
        _, at = _text(packet, at + 4)
        changes, _ = _text(packet, at)
        at = 0
        while at < len(changes):
            kind = changes[at]
            change, at = _text(changes, at + 1)
            if kind == _SCHEMA_CHANGED:
                reply.database = _text(change, 0)[0].decode("utf-8", "replace")
    return reply, bool(status & _MORE_RESULTS)
