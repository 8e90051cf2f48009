"""Operations on contents: files and folders that are uploaded and fetched, named by their digests."""

from __future__ import annotations

import contextlib
import re
import tempfile
from typing import IO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tvsnap.host.trees import serialised, stored
from tvsnap.model.errors import NotFound, UsageError
from tvsnap.plugins.client.wire.errors import TooLarge
from tvsnap.plugins.server.bodies import Answered
from tvsnap.plugins.server.http import Operation, check_length, json_response, next_piece
from tvsnap.plugins.server.service import Service

TREE = "application/vnd.tvsnap.tree"
_DIGEST = re.compile("[0-9a-f]{64}")
_AT_ONCE = 1 << 20


class ContentRoutes:
    """Operations on contents."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def operations(self) -> list[Operation]:
        """All of them."""
        one = "/v1/contents/{digest}"
        return [
            Operation(
                "GET", one, "download", "Returns a content; HEAD tells whether it is there.", self.get, None, TREE
            ),
            Operation("PUT", one, "upload", "Keeps a content.", self.put, TREE, Answered),
        ]

    async def get(self, request: Request) -> Response:
        """Returns a content as a stream."""
        digest = _digest(request)
        if not await self._service.in_thread(lambda: self._service.contents.has(digest)):
            raise NotFound(f"the content {digest[:12]} is not there; fetch or upload it again")
        if request.method == "HEAD":
            return Response(status_code=200)
        return StreamingResponse(serialised(self._service.contents.read(digest)), media_type=TREE)

    async def put(self, request: Request) -> Response:
        """Keeps a content, once it was seen to be what its digest says."""
        self._service.check_going(held=False)
        digest, limit = _digest(request), self._service.settings.max_upload
        check_length(request, limit)
        with tempfile.TemporaryFile(dir=self._service.cache.cache.home) as file:
            waiting, size, more = bytearray(), 0, True
            while more:
                piece, more = await next_piece(request)
                waiting += piece
                size += len(piece)
                if size > limit:
                    raise TooLarge(f"the content has more than {limit} bytes (--max-upload)")
                if len(waiting) >= _AT_ONCE or not more:
                    data, waiting = bytes(waiting), bytearray()
                    await self._service.in_thread(lambda data=data: file.write(data))  # type: ignore[misc]
            await self._service.in_thread(lambda: self._keep(file, digest))
        return json_response(Answered(True), 201)

    def _keep(self, file: IO[bytes], digest: str) -> None:
        from tvsnap.host.trees import Damaged

        file.seek(0)
        with contextlib.suppress(Damaged):
            if self._service.contents.write(stored(file, digest)) == digest:
                return
        raise UsageError(f"what was uploaded is not the content {digest[:12]}: it was changed meanwhile, or is no tree")


def _digest(request: Request) -> str:
    digest: str = request.path_params["digest"]
    if not _DIGEST.fullmatch(digest):
        raise UsageError(f"a content is named by 64 hexadecimal digits, not {digest!r}")
    return digest
