"""Persistent connections to a server, for threads; a request that is cut off is sent again with its key."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, TypeVar, cast

from tvsnap.client.wire import LONGEST_HEAD, Address, Ask, Head, parse_head, read_answer, request_bytes
from tvsnap.model.errors import UsageError
from tvsnap.wire.errors import Busy, Unreachable

T = TypeVar("T")
TRIES = 5
"""How often a request is sent whose connection breaks."""
PATIENCE = 600.0
"""Seconds for which a client waits for a server that is busy, as a cache waits for room."""
CONNECT_TIMEOUT = 10.0
IDLE_CONNECTIONS = 64
_IN_MEMORY = 16 << 20
_QUICK = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Connection:
    """One connection. It is used by one thread at a time."""

    def __init__(self, address: Address) -> None:
        try:
            if address.path:
                self._socket = socket.socket(socket.AF_UNIX)
                self._socket.settimeout(CONNECT_TIMEOUT)
                self._socket.connect(address.path)
            else:
                self._socket = socket.create_connection((address.host, address.port), CONNECT_TIMEOUT)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            raise Unreachable(
                f"the server at {address} cannot be reached: {error}; does it run (tvsnap serve)?"
            ) from None
        self._socket.settimeout(None)  # a call takes as long as it takes
        self._file = self._socket.makefile("rb", buffering=1 << 16)

    def send(self, data: bytes, more: Iterable[bytes] = ()) -> None:
        """Sends a request."""
        self._socket.sendall(data)
        for piece in more:
            self._socket.sendall(piece)

    def exchange(self, data: bytes, more: Iterable[bytes] = ()) -> Head:
        """Sends a request, and returns the head of its answer, which may come before the request was taken whole."""
        try:
            self.send(data, more)
        except (BrokenPipeError, ConnectionResetError) as error:
            try:
                return self.head()
            except (ConnectionError, OSError):
                raise error from None
        return self.head()

    def head(self) -> Head:
        """Returns the head of the next answer."""
        lines: list[bytes] = []
        size = 0
        while True:
            line = self._file.readline(LONGEST_HEAD)
            size += len(line)
            if not line.endswith(b"\r\n") or size > LONGEST_HEAD:
                raise ConnectionError("the connection was closed")
            if line == b"\r\n":
                return parse_head(b"".join(lines).removesuffix(b"\r\n"))
            lines.append(line)

    def pieces(self, head: Head) -> Iterator[bytes]:
        """Yields the body that follows a head."""
        if head.length is not None:
            left = head.length
            while left:
                piece = self._file.read(min(left, 1 << 20))
                if not piece:
                    raise ConnectionError("the connection was closed")
                left -= len(piece)
                yield piece
            return
        while size := int(self._file.readline(LONGEST_HEAD).split(b";")[0] or b"!", 16):
            piece = self._file.read(size + 2)
            if len(piece) < size + 2:
                raise ConnectionError("the connection was closed")
            yield piece[:-2]
        self._file.readline(LONGEST_HEAD)

    def close(self) -> None:
        """Ends it."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._socket.close()


def json_bytes(body: Any) -> bytes:
    """Returns what a request holds as JSON.

    Raises:
        UsageError: it is no plain JSON.
    """
    try:
        return _QUICK(body).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"an argument is no plain JSON: {error}") from None


def pause_after(attempt: int) -> float:
    """Returns the seconds to wait before a request is sent once more whose connection has broken."""
    return float(0.1 * 2**attempt) * random.uniform(0.5, 1.0)


class Transport:
    """A server, as threads ask it. Thread-safe."""

    def __init__(self, url: str, token: str | None, patience: float = PATIENCE) -> None:
        """
        Args:
            url: the server's address.
            token: what it lets in with; None for none.
            patience: seconds to wait for a server that is busy.
        """
        self._address = Address.parse(url)
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._patience = patience
        self._idle: list[Connection] = []
        self._lock = threading.Lock()

    @property
    def address(self) -> Address:
        """The server's."""
        return self._address

    @property
    def patience(self) -> float:
        """Seconds to wait for a server that is busy."""
        return self._patience

    def request(self, ask: Ask) -> bytes:
        """Returns a request as bytes."""
        headers, body = dict(self._headers), ask.body
        if ask.method in ("POST", "PUT"):
            headers["idempotency-key"] = ask.key
        if body is not None and not isinstance(body, bytes):
            headers["content-type"] = "application/json"
            body = json_bytes(body)
        return request_bytes(ask.method, ask.path, self._address, headers, body)

    def ask(self, ask: Ask) -> Any:
        """Returns the JSON that a request is answered with; it is done once, however often it has to be sent.

        Raises:
            TvsnapError, OSError: what the server says.
            Unreachable: there is no server.
        """
        data = self.request(ask)
        until = time.monotonic() + self._patience
        while True:
            status, answer = self._exchange(data)
            try:
                return read_answer(status, answer)
            except Busy as busy:
                if time.monotonic() + busy.retry_after > until:
                    raise
                time.sleep(busy.retry_after * random.uniform(0.5, 1.0))

    def get(self, path: str) -> Any:
        """Returns the JSON that is at a path; see `ask`."""
        return self.ask(Ask("GET", path))

    def do(self, work: Callable[[Transport], T]) -> T:
        """Returns what `work` returns, which blocks."""
        return work(self)

    def fetch(self, path: str) -> bytes:
        """Returns the bytes that are at a path."""
        status, body = self._exchange(request_bytes("GET", path, self._address, self._headers, None))
        if status >= 400:
            read_answer(status, body)
        return body

    def exists(self, path: str) -> bool:
        """Returns whether something is at a path."""
        try:
            with self._connection() as connection:
                head = connection.exchange(request_bytes("HEAD", path, self._address, self._headers, None))
        except ConnectionError:
            return False
        return head.status < 400

    @contextlib.contextmanager
    def stream(self, method: str, path: str, body: Any = None) -> Iterator[Iterator[bytes]]:
        """A block with the body of an answer, in pieces, on a connection of its own."""
        data = None if body is None else json_bytes(body)
        connection = Connection(self._address)
        try:
            head = connection.exchange(request_bytes(method, path, self._address, self._headers, data))
            if head.status >= 400:
                read_answer(head.status, b"".join(connection.pieces(head)))
            yield connection.pieces(head)
        finally:
            connection.close()

    @contextlib.contextmanager
    def download(self, path: str) -> Iterator[IO[bytes]]:
        """A block with what is at a path, as a file that is whole; fetched again where a connection breaks."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:

            def fetch() -> None:
                file.seek(0)
                file.truncate()
                with self.stream("GET", path) as pieces:
                    for piece in pieces:
                        file.write(piece)

            self._until_whole(fetch)
            file.seek(0)
            yield cast("IO[bytes]", file)

    def upload(self, path: str, length: int, pieces: Callable[[], Iterable[bytes]]) -> None:
        """Sends bytes to a path, as a stream, again where a connection breaks.

        Args:
            path: the path.
            length: how many bytes.
            pieces: returns the bytes, from the beginning each time.
        """

        def send() -> None:
            connection = Connection(self._address)
            try:
                head = connection.exchange(
                    request_bytes("PUT", path, self._address, self._headers, None, length), pieces()
                )
                read_answer(head.status, b"".join(connection.pieces(head)))
            finally:
                connection.close()

        self._until_whole(send)

    def close(self) -> None:
        """Ends the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _exchange(self, data: bytes) -> tuple[int, bytes]:
        def exchange() -> tuple[int, bytes]:
            with self._connection() as connection:
                head = connection.exchange(data)
                return head.status, b"".join(connection.pieces(head))

        return self._until_whole(exchange)

    def _until_whole(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns, which is done again where a connection breaks."""
        for attempt in range(1, TRIES + 1):
            try:
                return work()
            except (ConnectionError, TimeoutError, Unreachable) as error:  # noqa: PERF203
                if attempt == TRIES:
                    if isinstance(error, Unreachable):
                        raise
                    raise Unreachable(f"the connection to {self._address} broke {TRIES} times: {error}") from None
                if attempt > 1:
                    time.sleep(pause_after(attempt))
        raise AssertionError("not reached")

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or Connection(self._address)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()
