"""The page: files that a browser loads without a token, and which then ask as any client does, with one."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tvsnap.plugins.server.http import PAGE

FILES = Path(__file__).with_name("page")
"""The files that `make page` builds."""
KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""The page's rights: to ask the server that it came from, and nothing else. No script or style of its markup counts,
and no text can become markup."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


def page_routes() -> list[BaseRoute]:
    """Returns what answers with the page's files: `/` with its HTML, and `/page/NAME` with each."""
    paths = {f"{PAGE}{file.name}": file for file in sorted(FILES.iterdir())}
    return [Route(path, _answer(file)) for path, file in {"/": FILES / "index.html", **paths}.items()]


def _answer(file: Path) -> Callable[[Request], Awaitable[Response]]:
    """Returns what answers with one file, which is read once."""
    data = file.read_bytes()
    headers = {**HEADERS, "etag": f'"{hashlib.sha256(data).hexdigest()[:32]}"', "content-type": KINDS[file.suffix]}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(data, headers=headers)

    return answer
