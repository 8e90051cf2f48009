"""HTTP/1.1 without input or output: requests as bytes, and the heads of answers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tvsnap.model.errors import UsageError
from tvsnap.plugins.client.wire.errors import Unreachable, error_of

LONGEST_HEAD = 65_536
_QUICK = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server.

    Attributes:
        host: a name or an address; empty for a Unix socket.
        port: the port of TCP.
        path: the path of a Unix socket; empty for TCP.
        tls: whether its connections use TLS.
    """

    host: str
    port: int
    path: str
    tls: bool = False

    @classmethod
    def parse(cls, url: str) -> Address:
        """Returns the address from its text.

        Args:
            url: `http://HOST:PORT`, `https://HOST:PORT`, or `unix:PATH`.

        Raises:
            UsageError: it is none of these.
        """
        if url.startswith("unix:"):
            path = url.removeprefix("unix:")
            if path.startswith("//"):
                path = path.removeprefix("//")
            if path:
                return cls("", 0, path)
        try:
            parts = urlsplit(url)
            default = {"http": 80, "https": 443}.get(parts.scheme)
            if default and parts.hostname and parts.path in ("", "/") and not parts.query:
                return cls(parts.hostname, parts.port or default, "", parts.scheme == "https")
        except ValueError:
            pass
        raise UsageError(
            f'{url!r} is no address of a server: give "http://host:port", "https://host:port" or "unix:/path/of/socket"'
        )

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        if self.path:
            return "localhost"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"http{'s' if self.tls else ''}://{self.authority}"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that is answered with JSON.

    Attributes:
        method: the method of HTTP.
        path: the path with its query.
        body: JSON, or bytes; None for nothing.
        key: identifies the request, so that the server recognises it if it is sent again.
        short: whether it executes nothing, although it changes something.
    """

    method: str
    path: str
    body: Any = None
    key: str = field(default_factory=lambda: secrets.token_hex(12))
    short: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an answer.

    Attributes:
        status: the status of HTTP.
        length: bytes of the body; None if it comes in chunks.
        closes: whether the connection ends with it.
    """

    status: int
    length: int | None
    closes: bool


def target(*parts: str, **query: Any) -> str:
    """Returns a path of the server below /v1.

    Args:
        parts: its segments, which are quoted.
        query: parameters; those that are None are left out.
    """
    path = "/v1/" + "/".join(quote(part, safe="~") for part in parts)
    parameters = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(parameters, errors='surrogateescape')}" if parameters else path


def request_bytes(
    method: str, path: str, address: Address, headers: Mapping[str, str], body: bytes | None, length: int | None = None
) -> bytes:
    """Returns a request as bytes.

    Args:
        method: the method.
        path: the path with its query.
        address: that of the server.
        headers: further headers.
        body: its body; None for none, or for one that follows.
        length: bytes of a body that follows.
    """
    lines = [f"{method} {path} HTTP/1.1", f"host: {address.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    size = length if length is not None else len(body or b"")
    if size or method != "GET":
        lines.append(f"content-length: {size}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def parse_head(data: bytes) -> Head:
    """Returns the head of an answer.

    Args:
        data: the head up to the empty line.

    Raises:
        Unreachable: it is no answer of HTTP/1.1.
    """
    first, *lines = data.split(b"\r\n")
    words = first.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise Unreachable("the answer is not HTTP; is this the server's address?")
    length: int | None = 0
    closes = False
    for line in lines:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip().lower()
        if name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding" and value == b"chunked":
            length = None
        elif name == b"connection" and value == b"close":
            closes = True
    return Head(int(words[1]), length, closes)


def read_answer(status: int, body: bytes) -> Any:
    """Returns the JSON of an answer.

    Args:
        status: the status of HTTP.
        body: the body.

    Raises:
        TvsnapError, OSError: the server's error, of the class that it raised there.
    """
    try:
        data = json.loads(body) if body else None
    except ValueError:
        data = None
    if status >= 400:
        raise error_of(data.get("error") if isinstance(data, dict) else None, status)
    return data


def json_bytes(body: Any) -> bytes:
    """Returns the body of a request as JSON.

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
    """Returns the place of the first text that cannot be sent, as names and numbers with dots; None if all can."""
    if isinstance(body, str):
        return "" if any("\ud800" <= character <= "\udfff" for character in body) else None
    parts = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, (list, tuple)) else ()
    for name, part in parts:
        place = "" if _no_text_in(str(name)) is not None else _no_text_in(part)
        if place is not None:
            return f"{name}.{place}".encode("ascii", "backslashreplace").decode().rstrip(".")
    return None
