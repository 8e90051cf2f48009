"""Connections to a server, for threads, with or without TLS."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Union

from tvsnap.model.errors import UsageError
from tvsnap.plugins.client.http import LONGEST_HEAD, Address, Head, parse_head
from tvsnap.plugins.client.liveness import CALL_S, LOOK_S, Life
from tvsnap.plugins.client.wire.errors import Unreachable
from tvsnap.plugins.client.wire.tcp import notice_loss

if TYPE_CHECKING:
    import ssl  # which takes long to be imported, and few need

File = Union[str, "os.PathLike[str]"]
CONNECT_TIMEOUT = 10.0
"""Seconds for a connection."""


class Connection:
    """One connection. It is used by one thread at a time.

    Attributes:
        limit: seconds without a sign of life of the server after which it is given up.
    """

    def __init__(
        self,
        address: Address,
        tls: ssl.SSLContext | None = None,
        life: Life | None = None,
        timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        """
        Args:
            address: that of the server.
            tls: the encryption; None for none.
            life: the server's signs of life, for answers without a time limit; None to wait for `timeout` only.
            timeout: seconds for each step of connecting.
        """
        self.limit, self._life = CALL_S, life
        try:
            if address.path:
                self._socket = socket.socket(socket.AF_UNIX)
                self._socket.settimeout(timeout)
                self._socket.connect(address.path)
            else:
                self._socket = socket.create_connection((address.host, address.port), timeout)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                notice_loss(self._socket)
                if tls is not None:
                    self._socket = tls.wrap_socket(self._socket, server_hostname=address.host)
        except OSError as error:
            raise unreachable(address, error) from None
        if life is not None:
            self._socket.settimeout(LOOK_S)
        self._file = io.BufferedReader(_Received(self._socket, self._patiently), 1 << 16)

    def send(self, data: bytes, more: Iterable[bytes] = ()) -> None:
        """Sends a request."""
        self._write(data)
        for piece in more:
            self._write(piece)

    def exchange(self, data: bytes, more: Iterable[bytes] = ()) -> Head:
        """Sends a request, and returns the head of its answer, which may come before the end of the request."""
        try:
            self.send(data, more)
        except ConnectionError as error:
            try:
                return self.head()
            except ConnectionError:
                raise error from None
        return self.head()

    def head(self) -> Head:
        """Returns the head of the next answer."""
        lines: list[bytes] = []
        size = 0
        while True:
            line = self._line()
            size += len(line)
            if not line.endswith(b"\r\n") or size > LONGEST_HEAD:
                raise ConnectionError("the connection was closed")
            if line == b"\r\n":
                return parse_head(b"".join(lines).removesuffix(b"\r\n"))
            lines.append(line)

    def pieces(self, head: Head) -> Iterator[bytes]:
        """Yields the body that follows a head."""
        if head.length is not None:
            remaining = head.length
            while remaining:
                piece = self._read(min(remaining, 1 << 20))
                if not piece:
                    raise ConnectionError("the connection was closed")
                remaining -= len(piece)
                yield piece
            return
        while size := self._size_of_chunk():
            piece = self._read(size + 2)
            if len(piece) < size + 2:
                raise ConnectionError("the connection was closed")
            yield piece[:-2]
        self._line()

    def _size_of_chunk(self) -> int:
        try:
            return int(self._line().split(b";")[0], 16)
        except ValueError:  # for example if nothing comes any more
            raise ConnectionError("the connection was closed") from None

    def some(self) -> bytes:
        """Returns the next bytes, once any have come; none at the end."""
        with _breaking():
            return self._file.read1(1 << 16)

    def fileno(self) -> int:
        """Returns its descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes the connection."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._socket.close()

    def _write(self, data: bytes) -> None:
        remaining = memoryview(data)
        with _breaking():
            while remaining:
                remaining = remaining[self._patiently(self._socket.send, remaining) :]

    def _patiently(self, move: Callable[[Any], int], data: Any) -> int:
        """Sends or receives data, for as long as the server lives."""
        began: float | None = None
        while True:
            try:
                return move(data)
            except TimeoutError:  # noqa: PERF203
                if self._life is None:
                    raise
                began = began or time.monotonic() - LOOK_S
                self._life.check(began, self.limit)

    def _line(self) -> bytes:
        with _breaking():
            return self._file.readline(LONGEST_HEAD)

    def _read(self, size: int) -> bytes:
        with _breaking():
            return self._file.read(size)


class _Received(io.RawIOBase):
    """The data of a socket as a file that can be read on after a timeout, unlike that of `socket.makefile`."""

    def __init__(self, source: socket.socket, patiently: Callable[[Callable[[Any], int], Any], int]) -> None:
        self._source, self._patiently = source, patiently

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._patiently(self._source.recv_into, buffer)


class _breaking:
    """A block whose errors become ConnectionError: TLS and TCP have other classes for them."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):
            raise ConnectionError(str(error)) from None


def unreachable(address: Address, error: OSError) -> Unreachable:
    """Returns the error for a connection that could not be made."""
    way_out = "does it run (tvsnap serve)?"
    if address.tls:
        import ssl

        if isinstance(error, ssl.SSLError):
            way_out = "see --tls-certificate of tvsnap serve, and ca="
    return Unreachable(f"the server at {address} cannot be reached: {error}; {way_out}")


def tls_context(ca: File | None, certificate: File | tuple[File, File] | None) -> ssl.SSLContext:
    """Returns the context of connections by TLS; see `connect`.

    Raises:
        UsageError: a file cannot be read, or has the wrong contents.
    """
    import ssl

    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise UsageError(f"the authority's certificate {ca} cannot be used: {error}") from None
    if certificate is not None:
        pair = certificate if isinstance(certificate, tuple) else (certificate, None)
        try:
            context.load_cert_chain(*pair)
        except OSError as error:
            raise UsageError(f"the certificate {pair[0]} cannot be used with its key: {error}") from None
    return context
