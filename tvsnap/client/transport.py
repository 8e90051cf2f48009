"""Persistent connections to a server, for threads; a request that is cut off is sent again with its key."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, TypeVar, Union, cast

from tvsnap.client.life import CALL_S, LOOK_S, SHORT_S, Life, Silent
from tvsnap.client.wire import LONGEST_HEAD, Address, Ask, Head, parse_head, read_answer, request_bytes
from tvsnap.host.home import FORKED
from tvsnap.model.errors import InfrastructureError, UsageError
from tvsnap.wire.errors import Busy, Stopping, Unreachable
from tvsnap.wire.tcp import notice_loss

if TYPE_CHECKING:
    import ssl  # which takes long to be imported, and few need

T = TypeVar("T")
File = Union[str, "os.PathLike[str]"]
CA_VARIABLE, CERTIFICATE_VARIABLE = "TVSNAP_CA", "TVSNAP_CERTIFICATE"
MOST_RECEIVED = 100
"""Keys of answers that have come which one request tells."""
TRIES = 5
"""How often a request is sent whose connection breaks."""
PATIENCE = 600.0
"""Seconds for which a client waits for a server that is busy, as a cache waits for room."""
RESTART_PATIENCE = 60.0
"""Seconds for which it waits, at most, for a server that has said that it is being stopped."""
CONNECT_TIMEOUT = 10.0
"""Seconds for a connection; and for how long it is tried again where there is none or it breaks."""
HEALTH = "/healthz"
IDLE_CONNECTIONS = 64
_IN_MEMORY = 16 << 20
_QUICK = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


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
            address: the server's.
            tls: what it is encrypted with; None where it is not.
            life: whether the server lives, while an answer takes as long as it takes; None to wait for `timeout` only.
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
        """Sends a request, and returns the head of its answer, which may come before the request was taken whole."""
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
            left = head.length
            while left:
                piece = self._read(min(left, 1 << 20))
                if not piece:
                    raise ConnectionError("the connection was closed")
                left -= len(piece)
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
        except ValueError:  # as where nothing comes any more
            raise ConnectionError("the connection was closed") from None

    def some(self) -> bytes:
        """Returns what comes next, once anything has; nothing at the end."""
        with _breaking():
            return self._file.read1(1 << 16)

    def fileno(self) -> int:
        """Returns its descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Ends it."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._socket.close()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        with _breaking():
            while left:
                left = left[self._patiently(self._socket.send, left) :]

    def _patiently(self, move: Callable[[Any], int], data: Any) -> int:
        """Sends or receives something, for as long as the server lives."""
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
    """What a socket receives, as a file that can be read on after a timeout, unlike what `socket.makefile` returns."""

    def __init__(self, source: socket.socket, patiently: Callable[[Callable[[Any], int], Any], int]) -> None:
        self._source, self._patiently = source, patiently

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._patiently(self._source.recv_into, buffer)


class _breaking:
    """A block in which any error is one of the connection: TLS and TCP have other classes for it."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):
            raise ConnectionError(str(error)) from None


def unreachable(address: Address, error: OSError) -> Unreachable:
    """Returns the error that tells why a connection could not be made."""
    way_out = "does it run (tvsnap serve)?"
    if address.tls:
        import ssl

        if isinstance(error, ssl.SSLError):
            way_out = "see --tls-certificate of tvsnap serve, and ca="
    return Unreachable(f"the server at {address} cannot be reached: {error}; {way_out}")


def broken(address: Address, error: OSError) -> Unreachable:
    """Returns the error that tells that a connection was closed again and again."""
    hint = (
        "where the server asks for certificates (--tls-client-ca), it takes none without (certificate=, "
        "TVSNAP_CERTIFICATE)"
        if address.tls
        else "where it speaks TLS (--tls-certificate), its address begins with https://"
    )
    return Unreachable(f"the connection to {address} broke {TRIES} times: {error}; {hint}")


def tls_context(ca: File | None, certificate: File | tuple[File, File] | None) -> ssl.SSLContext:
    """Returns what connections by TLS are made with; see `connect`.

    Raises:
        UsageError: a file cannot be read, or does not hold what it should.
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


def json_bytes(body: Any) -> bytes:
    """Returns what a request holds as JSON.

    Raises:
        UsageError: it is no plain JSON, or has a text that is none.
    """
    try:
        return _QUICK(body).encode()
    except UnicodeEncodeError:
        where = f'argument "{_no_text_in(body)}"'
        raise UsageError(f"{where} is no text: it has bytes that are no UTF-8, or half of a surrogate pair") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"an argument is no plain JSON: {error}") from None


def _no_text_in(body: Any) -> str | None:
    """Returns where the first text is that cannot be sent, as names and numbers with dots; None if there is none."""
    if isinstance(body, str):
        return "" if any("\ud800" <= character <= "\udfff" for character in body) else None
    parts = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, (list, tuple)) else ()
    for name, part in parts:
        found = "" if _no_text_in(str(name)) is not None else _no_text_in(part)
        if found is not None:
            return f"{name}.{found}".encode("ascii", "backslashreplace").decode().rstrip(".")
    return None


def _owner(path: str) -> str | None:
    """Returns the path of the rollout or sandbox that a path is about; None if it is about none."""
    parts = path.partition("?")[0].split("/")[:4]
    return "/".join(parts) if len(parts) == 4 and parts[2] in ("rollouts", "sandboxes") else None


def limit_of(ask: Ask) -> float:
    """Returns the seconds without a sign of life of the server after which a request is given up."""
    return SHORT_S if ask.short or ask.method in ("GET", "DELETE") else CALL_S


class Retrying:
    """How often a request is sent again whose connection could not be made, or broke: `TRIES`, for a while at most."""

    def __init__(self, address: Address, life: Life) -> None:
        self._address, self._life = address, life
        self._attempt = 0
        self._began = time.monotonic()
        self._failing: float | None = None  # since when

    def pause_after(self, error: OSError | Unreachable) -> float:
        """Returns the seconds to wait before the request is sent again; raises the error where it is not to be.

        Raises:
            Unreachable: the server is lost.
        """
        self._attempt += 1
        now = time.monotonic()
        if self._failing is None:
            self._failing = self._began if isinstance(error, Unreachable) else now
        if self._attempt < TRIES and now - self._failing < CONNECT_TIMEOUT and not isinstance(error, Silent):
            return 0.0 if self._attempt == 1 else float(0.1 * 2**self._attempt) * random.uniform(0.5, 1.0)
        lost = error if isinstance(error, Unreachable) else broken(self._address, error)
        self._life.lose(lost)
        raise lost from None


class Waiting:
    """For how long a request waits for a server that is busy, or that is being stopped and is started again."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._until = time.monotonic() + patience
        self._stopping = False

    def pause_after(self, error: Busy | Unreachable) -> float:
        """Returns the seconds to wait before the request is sent again; raises the error where it is not to be."""
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


class Answering:
    """A block in which a request is made; see `Transport.answering`. A generator would take longer, with each call."""

    def __init__(self, transport: Transport, ask: Ask) -> None:
        self._transport, self._ask = transport, ask
        self._owner = _owner(ask.path) if ask.method in ("POST", "PUT", "DELETE") else None
        self._told = () if self._owner is None else transport.told(self._owner)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._owner is not None:  # after an error, the request may not have come
            self._transport.note_answer(self._ask, self._owner, self._told if error is None else ())


class Transport:
    """A server, as threads ask it. Thread-safe.

    Attributes:
        life: whether the server lives.
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
            token: what it lets in with; None for none.
            patience: seconds to wait for a server that is busy.
            ca: see `connect`.
            certificate: see `connect`.
        """
        self._address = Address.parse(url)
        if token is not None and not (token.isascii() and token.isprintable()):
            raise UsageError("a token is one line of printable ASCII: what was given (token, TVSNAP_TOKEN) is not")
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
        self._received: dict[str, tuple[str, ...]] = {}  # keys of answers that have come, by rollout and sandbox
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def address(self) -> Address:
        """The server's."""
        return self._address

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What connections are encrypted with; None where they are not."""
        return self._tls

    @property
    def headers(self) -> Mapping[str, str]:
        """What each request shows."""
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
        """Returns the JSON that a request is answered with; it is done once, however often it has to be sent.

        Raises:
            TvsnapError, OSError: what the server says.
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
        """Returns a block in which a request is made, and sent again where its connection breaks.

        The server keeps the answer until the next request about the same rollout or sandbox tells that it has come.
        """
        return Answering(self, ask)

    def note_answer(self, ask: Ask, owner: str, told: tuple[str, ...]) -> None:
        """Notes that a request about a rollout or sandbox was answered, and which other answers it has told of."""
        with self._lock:
            left = [key for key in self._received.pop(owner, ()) if key not in told]
            if ask.method != "DELETE":
                self._received[owner] = (*left, ask.key)

    def told(self, owner: str) -> tuple[str, ...]:
        """Returns the keys of answers that have come, which the next request about a rollout or sandbox tells."""
        return self._received.get(owner, ())[:MOST_RECEIVED]

    def get(self, path: str) -> Any:
        """Returns the JSON that is at a path; see `ask`."""
        return self.ask(Ask("GET", path))

    def do(self, work: Callable[[Transport], T]) -> T:
        """Returns what `work` returns, which blocks."""
        return work(self)

    def fetch(self, path: str) -> bytes:
        """Returns the bytes that are at a path."""
        status, body = self._exchange(request_bytes("GET", path, self._address, self._headers, None), SHORT_S)
        if status >= 400:
            read_answer(status, body)
        return body

    def health(self, timeout: float) -> Any:
        """Returns what the server says of itself, on a connection of its own.

        Args:
            timeout: seconds for each step.

        Raises:
            OSError, Unreachable: it says nothing.
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
        """Ends the connections that nobody uses."""
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
        """Returns what `work` returns, which is done again where a connection breaks."""
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
