"""The model's server behind the proxy."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

import httpx2

from tvsnap.model.errors import UsageError
from tvsnap.plugins.client.wire.errors import Unreachable
from tvsnap.plugins.server.settings import is_loopback

CONNECT_S = 10.0
"""Seconds in which a connection to the server must be made."""
OF_CONNECTION = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers that concern one connection, and are not passed on."""
OF_REQUEST = OF_CONNECTION | {"host", "content-length", "accept-encoding", "expect"}
"""Headers of requests that the proxy makes anew, or that are not for the server."""


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer.

    Attributes:
        status: the status of HTTP.
        headers: names in small letters, with values, without those of the connection.
    """

    status: int
    headers: tuple[tuple[str, str], ...]

    @property
    def content_type(self) -> str:
        """The media type with its parameters; empty if none is said."""
        return next((value for name, value in self.headers if name == "content-type"), "")

    def words(self, header: str) -> set[str]:
        """Returns the words that a header lists, in small letters."""
        parts = (part.strip().lower() for name, value in self.headers if name == header for part in value.split(","))
        return {part for part in parts if part}

    @property
    def is_encoded(self) -> bool:
        """Whether the body is compressed."""
        return any(name == "content-encoding" and value.lower() != "identity" for name, value in self.headers)


class Upstream:
    """A server, and the connections to it. It is used on one event loop.

    Attributes:
        url: its address, without a slash at the end, and without a name and password.
    """

    def __init__(self, url: str, *, key: str | None = None, timeout: float = 600.0) -> None:
        """
        Args:
            url: as in `http://127.0.0.1:8000`; `/v1` at its end may be left out. A name and password in it
                (`http://name:password@host`) are shown to the server in place of what clients show, and nowhere else.
            key: the key that the server is shown in place of the clients'; None to pass on theirs.
            timeout: seconds that the server may be silent.

        Raises:
            UsageError: it is no address of HTTP, or has a password beside the key.
        """
        try:
            parsed = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError):
            parsed = httpx2.URL("")
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
            shown = f"...@{url.rpartition('@')[2]}" if "@" in str(url) else url
            raise UsageError(
                f"the model's server must be an address as http://127.0.0.1:8000, not {shown!r} (--upstream)"
            )
        if parsed.userinfo and key is not None:
            raise UsageError("give the model's server one of a key and a name with a password in its address")
        self._authorization = None if key is None else f"Bearer {key}"
        if parsed.userinfo:
            name, _, password = parsed.userinfo.partition(b":")
            shown_to_it = b":".join(unquote_to_bytes(part) for part in (name, password))
            self._authorization = f"Basic {base64.b64encode(shown_to_it).decode()}"
            parsed = parsed.copy_with(userinfo=b"")
        self.url = str(parsed).rstrip("/")
        self._base = parsed.path.rstrip("/")
        self._origin = self.url[: len(self.url) - len(self._base)] if self._base else self.url
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(timeout, connect=CONNECT_S, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
            follow_redirects=False,
            trust_env=not is_loopback(parsed.host),  # a proxy of the environment does not reach this machine's servers
        )

    def headers(self, of_client: Iterable[tuple[str, str]], *, ours: bool) -> dict[str, str]:
        """Returns the headers that are passed on.

        Args:
            of_client: those of the client's request, names in small letters.
            ours: whether what the client shows is a token of the proxy, which is not for the server.
        """
        passed: dict[str, str] = {}
        for name, value in of_client:
            if name in OF_REQUEST or name.startswith("x-tvsnap-"):
                continue
            if name == "authorization" and (ours or self._authorization is not None):
                continue
            passed[name] = f"{passed[name]}, {value}" if name in passed else value
        if self._authorization is not None:
            passed["authorization"] = self._authorization
        passed["accept-encoding"] = "identity"
        return passed

    @contextlib.asynccontextmanager
    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[tuple[Head, AsyncIterator[bytes]]]:
        """A block with the head of the answer to a request, and what yields its body's pieces.

        Args:
            method: the method of HTTP.
            target: path and query, as the client gave them.
            headers: as `headers` returned them.
            body: the request's body.

        Raises:
            Unreachable: the server cannot be reached, was silent for too long, or broke off.
        """
        base = "" if target.startswith(f"{self._base}/") else self._base
        try:
            async with self._client.stream(
                method, f"{self._origin}{base}{target}", headers=dict(headers), content=body
            ) as answer:
                pairs = [(name.lower(), value) for name, value in answer.headers.multi_items()]
                head = Head(
                    answer.status_code,
                    tuple((name, value) for name, value in pairs if name not in OF_CONNECTION),
                )
                yield head, answer.aiter_raw()
        except httpx2.TimeoutException as error:
            raise Unreachable(
                f"the model's server {self.url} was silent for too long ({type(error).__name__}; --timeout)"
            ) from error
        except httpx2.HTTPError as error:
            raise Unreachable(
                f"the model's server {self.url} cannot be reached: {error or type(error).__name__}"
            ) from error

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()
