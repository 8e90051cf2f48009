"""Requests to a server by threads; a request whose connection breaks is sent again with its key."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from tvsnap.host.home import FORKED
from tvsnap.model.errors import InfrastructureError, UsageError
from tvsnap.plugins.client.connection import Connection, File, tls_context
from tvsnap.plugins.client.http import Address, Ask, json_bytes, read_answer, request_bytes
from tvsnap.plugins.client.liveness import CALL_S, SHORT_S, Life
from tvsnap.plugins.client.retrying import Retrying, Waiting
from tvsnap.plugins.client.wire.errors import Busy, Unreachable

if TYPE_CHECKING:
    import ssl  # which takes long to be imported, and few need

T = TypeVar("T")
CA_VARIABLE, CERTIFICATE_VARIABLE = "TVSNAP_CA", "TVSNAP_CERTIFICATE"
MOST_RECEIVED = 100
"""Keys of received answers that one request acknowledges at most."""
PATIENCE = 600.0
"""Seconds for which a client waits for a server that is busy, as a cache waits for room."""
HEALTH = "/healthz"
IDLE_CONNECTIONS = 64
_IN_MEMORY = 16 << 20


def _owner(path: str) -> str | None:
    """Returns the path of the rollout or sandbox in a path; None if there is none."""
    parts = path.partition("?")[0].split("/")[:4]
    return "/".join(parts) if len(parts) == 4 and parts[2] in ("rollouts", "sandboxes") else None


def limit_of(ask: Ask) -> float:
    """Returns the seconds without a sign of life of the server after which a request is given up."""
    return SHORT_S if ask.short or ask.method in ("GET", "DELETE") else CALL_S


class Answering:
    """A block in which a request is made; see `Transport.answering`. A generator would take longer, with each call."""

    def __init__(self, transport: Transport, ask: Ask) -> None:
        self._transport, self._ask = transport, ask
        self._owner = _owner(ask.path) if ask.method in ("POST", "PUT", "DELETE") else None
        self._acknowledged = () if self._owner is None else transport.told(self._owner)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._owner is not None:  # after an error, the request may not have arrived
            self._transport.note_answer(self._ask, self._owner, self._acknowledged if error is None else ())


class Transport:
    """Requests to a server. Thread-safe.

    Attributes:
        life: the server's signs of life.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        patience: float = PATIENCE,
        *,
        ca: File | None = None,
        certificate: File | tuple[File, File] | None = None,
    ) -> None:
        """
        Args:
            url: the server's address.
            token: its token; None for none.
            patience: seconds to wait for a server that is busy.
            ca: see `connect`.
            certificate: see `connect`.
        """
        self._address = Address.parse(url)
        if token is not None and not (token.isascii() and token.isprintable()):
            raise UsageError("a token is one line of printable ASCII, which the given one (token, TVSNAP_TOKEN) is not")
        if not self._address.tls and (ca is not None or certificate is not None):
            raise UsageError(f"certificates are for a server that is asked by https://, not for {self._address}")
        if self._address.tls:
            ca = ca or os.environ.get(CA_VARIABLE) or None
            certificate = certificate or os.environ.get(CERTIFICATE_VARIABLE) or None
        self._tls = tls_context(ca, certificate) if self._address.tls else None
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._patience = patience
        self.life = Life(str(self._address), self.health)
        self._idle: list[Connection] = []
        self._received: dict[str, tuple[str, ...]] = {}  # keys of received answers, by rollout and sandbox
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def address(self) -> Address:
        """The server's address."""
        return self._address

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The encryption of connections; None for none."""
        return self._tls

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of each request."""
        return self._headers

    @property
    def patience(self) -> float:
        """Seconds to wait for a server that is busy."""
        return self._patience

    @property
    def forked_off(self) -> bool:
        """Whether this process was forked off by the one that connected: it must not use that one's connections."""
        return os.getpid() != self._process

    def check(self) -> None:
        """Raises InfrastructureError in a process that was forked off by the one that connected."""
        if self.forked_off:
            raise InfrastructureError(f"the client of {self._address} {FORKED}")

    def request(self, ask: Ask) -> bytes:
        """Returns a request as bytes."""
        headers, body = dict(self._headers), ask.body
        if ask.method in ("POST", "PUT"):
            headers["idempotency-key"] = ask.key
            if (owner := _owner(ask.path)) is not None:
                headers["tvsnap-received"] = ",".join(self.told(owner))
        if body is not None and not isinstance(body, bytes):
            headers["content-type"] = "application/json"
            body = json_bytes(body)
        return request_bytes(ask.method, ask.path, self._address, headers, body)

    def ask(self, ask: Ask) -> Any:
        """Returns the JSON answer to a request; it is executed once, even if it is sent several times.

        Raises:
            TvsnapError, OSError: the server's error.
            Unreachable: there is no server.
        """
        with self.answering(ask):
            data, waiting = self.request(ask), Waiting(self._patience)
            while True:
                try:
                    return read_answer(*self._exchange(data, limit_of(ask)))
                except (Busy, Unreachable) as error:  # noqa: PERF203
                    time.sleep(waiting.pause_after(error))

    def answering(self, ask: Ask) -> Answering:
        """Returns a block in which a request is made, and sent again if its connection breaks.

        The server keeps the answer until the next request about the same rollout or sandbox acknowledges it.
        """
        return Answering(self, ask)

    def note_answer(self, ask: Ask, owner: str, acknowledged: tuple[str, ...]) -> None:
        """Notes that a request about a rollout or sandbox was answered, and the answers that it has acknowledged."""
        with self._lock:
            others = [key for key in self._received.pop(owner, ()) if key not in acknowledged]
            if ask.method != "DELETE":
                self._received[owner] = (*others, ask.key)

    def told(self, owner: str) -> tuple[str, ...]:
        """Returns the keys of received answers that the next request about a rollout or sandbox acknowledges."""
        return self._received.get(owner, ())[:MOST_RECEIVED]

    def get(self, path: str) -> Any:
        """Returns the JSON at a path; see `ask`."""
        return self.ask(Ask("GET", path))

    def do(self, work: Callable[[Transport], T]) -> T:
        """Returns the result of `work`, which blocks."""
        return work(self)

    def fetch(self, path: str) -> bytes:
        """Returns the bytes at a path."""
        status, body = self._exchange(request_bytes("GET", path, self._address, self._headers, None), SHORT_S)
        if status >= 400:
            read_answer(status, body)
        return body

    def health(self, timeout: float) -> Any:
        """Returns the server's report on itself, on a connection of its own.

        Args:
            timeout: seconds for each step.

        Raises:
            OSError, Unreachable: it does not answer.
        """
        connection = Connection(self._address, self._tls, timeout=timeout)
        try:
            head = connection.exchange(request_bytes("GET", HEALTH, self._address, self._headers, None))
            return read_answer(head.status, b"".join(connection.pieces(head)))
        finally:
            connection.close()

    def exists(self, path: str) -> bool:
        """Returns whether something is at a path."""
        try:
            with self._connection(SHORT_S) as connection:
                head = connection.exchange(request_bytes("HEAD", path, self._address, self._headers, None))
        except ConnectionError:
            return False
        return head.status < 400

    @contextlib.contextmanager
    def stream(self, method: str, path: str, body: Any = None) -> Iterator[Iterator[bytes]]:
        """A block with the body of an answer, in pieces, on a connection of its own."""
        data = None if body is None else json_bytes(body)
        connection = self.connect()
        connection.limit = SHORT_S if method == "GET" else CALL_S
        try:
            head = connection.exchange(request_bytes(method, path, self._address, self._headers, data))
            if head.status >= 400:
                read_answer(head.status, b"".join(connection.pieces(head)))
            yield connection.pieces(head)
        finally:
            connection.close()

    @contextlib.contextmanager
    def download(self, path: str) -> Iterator[IO[bytes]]:
        """A block with the complete bytes at a path as a file; fetched again if a connection breaks."""
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
        """Sends bytes to a path, as a stream, again if a connection breaks.

        Args:
            path: the path.
            length: the number of bytes.
            pieces: returns the bytes, from the beginning each time.
        """

        def send() -> None:
            connection = self.connect()
            try:
                head = connection.exchange(
                    request_bytes("PUT", path, self._address, self._headers, None, length), pieces()
                )
                read_answer(head.status, b"".join(connection.pieces(head)))
            finally:
                connection.close()

        self._until_whole(send)

    def close(self) -> None:
        """Closes the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def connect(self) -> Connection:
        """Returns a new connection."""
        self.check()
        return Connection(self._address, self._tls, self.life)

    def _exchange(self, data: bytes, limit: float) -> tuple[int, bytes]:
        def exchange() -> tuple[int, bytes]:
            with self._connection(limit) as connection:
                head = connection.exchange(data)
                return head.status, b"".join(connection.pieces(head))

        return self._until_whole(exchange)

    def _until_whole(self, work: Callable[[], T]) -> T:
        """Returns the result of `work`, which is done again if a connection breaks."""
        self.check()
        self.life.check_lost()
        retrying = Retrying(self._address, self.life)
        while True:
            try:
                return work()
            except (ConnectionError, TimeoutError, Unreachable) as error:  # noqa: PERF203
                time.sleep(retrying.pause_after(error))

    @contextlib.contextmanager
    def _connection(self, limit: float) -> Iterator[Connection]:
        self.check()
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self.connect()
        connection.limit = limit
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
