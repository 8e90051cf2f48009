"""Operations on images: lists, builds, and preparations for rollouts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tvsnap.environments.files import UnknownContent
from tvsnap.host.trees import extract
from tvsnap.images import BuildProgress, Image
from tvsnap.images.descriptions.detect import descriptions
from tvsnap.images.descriptions.spec import name_from
from tvsnap.model.errors import UsageError
from tvsnap.model.operations.caches import Expect
from tvsnap.plugins.client.wire.errors import error_data
from tvsnap.plugins.client.wire.values import to_data
from tvsnap.plugins.server import bodies
from tvsnap.plugins.server.bodies import Reader, decode, encode
from tvsnap.plugins.server.events import MEDIA_TYPE, event_bytes
from tvsnap.plugins.server.http import Operation, end_of_server, json_response, read_body
from tvsnap.plugins.server.service import Service
from tvsnap.plugins.server.tenants import own_salt, tenant_of

_BUILD = bodies.decoder(bodies.BuildImage)
_EXPECT = Reader(Expect)


class ImageRoutes:
    """Operations on images."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._contents = service.contents
        self._building: set[asyncio.Future[Image]] = set()

    @property
    def operations(self) -> list[Operation]:
        """All of them."""
        return [
            Operation("GET", "/v1/images", "listImages", "Lists the images.", self.images),
            Operation(
                *("POST", "/v1/images", "buildImage", "Builds an image, and tells how it goes.", self.build),
                *(bodies.BuildImage, MEDIA_TYPE),
                of_all=True,
            ),
            Operation("GET", "/v1/images/{name}", "showImage", "Tells of an image.", self.image),
            Operation(
                "GET", "/v1/images/{name}/limits", "imageLimits", "Tells what its sandboxes may use.", self.limits
            ),
            Operation(
                *("POST", "/v1/images/{name}/warm", "warm", "Keeps an image's root by a snapshot.", self.warm),
                of_all=True,
            ),
            Operation(
                *("POST", "/v1/images/{name}/expect", "expect", "Announces rollouts of an image.", self.expect),
                _EXPECT.body,
            ),
        ]

    async def images(self, request: Request) -> Response:
        """Lists the images."""
        return json_response({"images": to_data(await self._service.cache.images.list())})

    async def image(self, request: Request) -> Response:
        """Tells of one image."""
        images = self._service.cache.images
        image = await images.get(request.path_params["name"])
        manifest = await self._service.in_thread(lambda: images.store.manifest(image))
        return json_response({"image": to_data(image), "manifest": to_data(manifest)})

    async def limits(self, request: Request) -> Response:
        """Tells what sandboxes of an image may use, if a rollout asks for nothing else."""
        image = await self._service.cache.images.get(request.path_params["name"])
        return json_response({"limits": to_data(self._service.cache.cache.limits_for(image))})

    async def warm(self, request: Request) -> Response:
        """Starts an image once and takes a snapshot of its root, if sandboxes of it run a service."""
        name = request.path_params["name"]

        async def work(_: bytes) -> bytes:
            with self._service.executing(None):
                return encode({"root": await self._service.cache.warm(name)})

        return json_response(await self._service.once(request, work))

    async def expect(self, request: Request) -> Response:
        """Announces rollouts, whose sandboxes are made ahead of time."""
        body, tenant = await read_body(request, self._service.settings.max_body), tenant_of(request)
        announced = _EXPECT.read(body, image=request.path_params["name"])
        await self._service.cache.perform(replace(announced, salt=own_salt(announced.salt, tenant)))
        return json_response({})

    async def build(self, request: Request) -> Response:
        """Builds an image: from a name, or from a folder that was uploaded."""
        self._service.check_going(held=False)
        body = decode(_BUILD, await read_body(request, self._service.settings.max_body))
        if (body.source is None) == (body.digest is None):
            raise UsageError("give source, the name of an image that comes with tvsnap, or digest, of a folder")
        if body.source is not None and not body.source.replace("-", "").replace("_", "").isalnum():
            raise UsageError(f"source must be the name of an image that comes with tvsnap, not {body.source!r}")
        if body.file not in (None, *descriptions()):
            raise UsageError(f"file must be one of {', '.join(descriptions())}, not {body.file!r}")
        if body.digest is not None and not await self._service.in_thread(lambda: self._contents.has(body.digest)):
            raise UnknownContent(f"the content {body.digest[:12]} is not there: upload the folder first")
        return StreamingResponse(self._events(body), media_type=MEDIA_TYPE, headers={"cache-control": "no-cache"})

    async def _events(self, body: bodies.BuildImage) -> AsyncIterator[bytes]:
        what = body.name or body.source or body.folder
        events = self._service.events
        events.tell("build_started", {"image": what})
        progress = _Progress(lambda step: events.tell("build_step", {"image": what, **step}), self._check_open)
        building = asyncio.ensure_future(self._built(body, progress))
        self._building.add(building)  # it goes on if the client has gone
        building.add_done_callback(self._building.discard)
        building.add_done_callback(lambda _: progress.events.put_nowait(None))
        building.add_done_callback(lambda future: events.tell("build_ended", {"image": what, **_outcome(future)}))
        while (event := await progress.events.get()) is not None:
            yield event
        error = building.exception()
        yield (
            event_bytes("image", to_data(building.result()))
            if error is None
            else event_bytes("error", error_data(error))
        )

    def _check_open(self) -> None:
        """Ends a build, in its thread, once the server ends what is under way."""
        if self._service.closing:
            raise end_of_server(held=False)

    async def _built(self, body: bodies.BuildImage, progress: BuildProgress) -> Image:
        with contextlib.ExitStack() as files:
            source: Path | str = body.source or ""
            if body.digest is not None:
                place = Path(files.enter_context(TemporaryDirectory(prefix="tvsnap-build-")))
                folder, uploaded = place / name_from(Path("/", body.folder)), self._contents.read(body.digest)
                await self._service.in_thread(lambda: extract(uploaded, folder))
                source = folder / body.file if body.file else folder
            return await self._service.cache.images.build(
                source,
                name=body.name,
                progress=progress,
                force=body.force,
                keep_layers=body.keep_layers,
                from_dockerfile=body.from_dockerfile,
                docker_image=body.docker_image,
                task_user=body.task_user,
            )


class _Progress:
    """Turns what a build tells, in its thread, into events."""

    def __init__(self, step_begins: Callable[[dict[str, Any]], None], check: Callable[[], None]) -> None:
        self._check = check
        self._step_begins = step_begins
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    def step(self, index: int, total: int, text: str) -> None:
        data = {"index": index, "total": total, "text": text}
        self._tell("step", data)
        self._loop.call_soon_threadsafe(self._step_begins, data)

    def output(self, line: str) -> None:
        self._tell("output", {"line": line})

    def note(self, text: str) -> None:
        self._tell("note", {"text": text})

    def fraction(self, done: float | None) -> None:
        self._tell("fraction", {"done": done})

    def _tell(self, name: str, data: Any) -> None:
        self._check()
        self._loop.call_soon_threadsafe(self.events.put_nowait, event_bytes(name, data))


def _outcome(future: asyncio.Future[Image]) -> dict[str, Any]:
    if future.cancelled():
        return {"digest": None, "error": "the server is being stopped"}
    error = future.exception()
    return {"digest": future.result().digest if error is None else None, "error": None if error is None else str(error)}
