"""Operations that tell: the tree, states, differences, figures, images, health."""

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
from tvsnap.graph import RolloutRecord, RootInfo
from tvsnap.host.trees import extract
from tvsnap.images import BuildProgress, Image
from tvsnap.images.descriptions.detect import DESCRIPTIONS
from tvsnap.images.descriptions.spec import name_from
from tvsnap.model.arguments import check_reward
from tvsnap.model.errors import UsageError
from tvsnap.model.operations.caches import Expect
from tvsnap.model.operations.rollouts import Record
from tvsnap.plugins.server import bodies
from tvsnap.plugins.server.bodies import Reader, decode, encode
from tvsnap.plugins.server.events import event_bytes
from tvsnap.plugins.server.http import Operation, end_of_server, flag_of, json_response, number_of, read_body
from tvsnap.plugins.server.metrics import MEDIA_TYPE
from tvsnap.plugins.server.sandbox_routes import TAR, archived
from tvsnap.plugins.server.service import Service
from tvsnap.plugins.server.tenants import Tenant, own_salt, tenant_of
from tvsnap.upkeep.diff import compare_states
from tvsnap.upkeep.figures import figures
from tvsnap.wire.errors import error_data
from tvsnap.wire.values import to_data

_BUILD = bodies.decoder(bodies.BuildImage)
_EXPECT = Reader(Expect)
_REWARD = Reader(Record)
EVENTS = "text/event-stream"
SAMPLES = 1000
"""Of each kind of latency, the latest are told."""

LATEST = 50
"""Of so many rollouts a timeline tells where no number is given."""


class ReportRoutes:
    """What tells about the data directory and the server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._graph = service.cache.cache.graph
        self._contents = service.contents
        self._building: set[asyncio.Future[Image]] = set()

    @property
    def operations(self) -> list[Operation]:
        """All of them."""
        state, task = "/v1/states/{state}", {"task": "only of this task"}
        tree = {"root": "only below this root", **task, "image": "only of this image", "depth": "only so many steps"}
        patch = {"patch": "true for the lines of text files"}
        chosen = {
            **task,
            "label": "only of this label",
            "image": "only of this image",
            "since": "only those that began then or later, seconds since the epoch",
            "failed": "true for those that an error ended, whose process died, or whose reward is 0 or less",
            "limit": "only the latest so many",
            "id": "only this one",
        }
        return [
            Operation("GET", "/v1/tree", "tree", "Lists the states, with calls and snapshots.", self.tree, query=tree),
            Operation("GET", state, "showState", "Tells of a state: how it came about, calls, snapshots.", self.show),
            Operation(
                *("GET", f"{state}/diff/{{other}}", "diff", "Tells how two states differ.", self.diff), query=patch
            ),
            Operation("GET", "/v1/roots", "roots", "Lists the roots.", self.roots),
            Operation("GET", "/v1/tasks", "tasks", "Lists the tasks.", self.tasks),
            Operation("GET", "/v1/history", "history", "Lists the rollouts there ever were.", self.history, query=task),
            Operation(
                *("GET", "/v1/timeline", "timeline", "Tells when the latest rollouts made their calls.", self.timeline),
                *(None, bodies.TimelineAnswer),
                {**task, "limit": f"of the latest so many rollouts; {LATEST} where it is not given"},
            ),
            Operation(
                *("GET", "/v1/transcripts", "summaries", "Lists rollouts, newest first, with figures.", self.summaries),
                query=chosen,
            ),
            Operation(
                *("GET", "/v1/transcripts/{name}", "transcript", "Tells a rollout's calls.", self.transcript),
                query={"steps": "false for the rollout alone"},
            ),
            Operation(
                *("POST", "/v1/transcripts/{name}/reward", "recordReward", "Records a reward.", self.reward),
                *(_REWARD.body, bodies.Answered),
            ),
            Operation(
                *(
                    "GET",
                    "/v1/tallies",
                    "tallies",
                    "Tells what rollouts came to, by epoch, task or label.",
                    self.tallies,
                ),
                query={"by": "epoch, task or label", **task, "label": "only of this label"},
                of_all=True,
            ),
            Operation(
                *("GET", "/v1/values", "values", "Tells what states and calls of a task were worth.", self.values),
                query={
                    "task": "the task",
                    "epoch": "only rollouts of this epoch",
                    "rollouts": "only these, by their ids, between commas",
                },
                of_all=True,
            ),
            Operation("GET", "/v1/stats", "stats", "Tells what was done and what is used.", self.stats, of_all=True),
            Operation("GET", "/v1/images", "listImages", "Lists the images.", self.images),
            Operation(
                *("POST", "/v1/images", "buildImage", "Builds an image, and tells how it goes.", self.build),
                *(bodies.BuildImage, EVENTS),
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
            Operation(
                *("GET", f"{state}/archive", "exportState", "Returns the files of a state as tar.", self.archive, None),
                TAR,
            ),
            Operation("GET", "/v1/events", "events", "Tells what happens.", self.events, None, EVENTS),
            Operation("GET", "/healthz", "health", "Tells that the server runs.", self.health),
            Operation("GET", "/readyz", "ready", "Tells whether the server takes requests.", self.ready),
            Operation(
                *("GET", "/metrics", "metrics", "Returns figures for Prometheus.", self.metrics, None, "text/plain"),
                of_all=True,
            ),
        ]

    def _roots(self, tenant: Tenant | None) -> list[RootInfo]:
        """Returns the roots that a tenant may see."""
        return [root for root in self._graph.roots() if tenant is None or tenant.owns(root.salt)]

    def _rollouts(self, tenant: Tenant | None, task: str | None) -> list[RolloutRecord]:
        """Returns the rollouts that a tenant may see."""
        rollouts = self._graph.rollouts(task)
        if tenant is None:
            return rollouts
        roots = {root.hash for root in self._roots(tenant)}
        return [one for one in rollouts if one.root in roots]

    async def tree(self, request: Request) -> Response:
        """Lists states."""
        query, tenant = request.query_params, tenant_of(request)
        depth = number_of(request, "depth")

        def read() -> bytes:
            root, task, image = query.get("root"), query.get("task"), query.get("image")
            roots = [root] if tenant is None else [own.hash for own in self._roots(tenant) if root in (None, own.hash)]
            trees = (self._graph.tree(root=one, task=task, image=image, depth=depth) for one in roots)
            return encode({"nodes": to_data([node for nodes in trees for node in nodes])})

        return json_response(await self._service.in_thread(read))

    async def show(self, request: Request) -> Response:
        """Tells all of one state, named by its hash or a prefix."""
        name = await self._service.owned(request)

        def read() -> bytes:
            info = self._graph.resolve(name)
            parts = {
                "state": info,
                "root": self._graph.root_of(info.hash),
                "lineage": self._graph.lineage(info.hash),
                "calls": self._graph.out_edges(info.hash),
                "snapshots": self._graph.snapshots_of(info.hash),
                "refusal": self._service.cache.refusal(info.hash),
            }
            return encode(to_data(parts))

        return json_response(await self._service.in_thread(read))

    async def diff(self, request: Request) -> Response:
        """Tells how two states differ."""
        a, b = await self._service.owned(request), await self._service.owned(request, "other")
        patch = flag_of(request, "patch")
        with self._service.executing(tenant_of(request)):
            cache = self._service.cache.cache
            difference = await self._service.in_thread(lambda: compare_states(cache, a, b, patch=patch))
        return json_response({"difference": to_data(difference)})

    async def roots(self, request: Request) -> Response:
        """Lists the roots."""
        tenant = tenant_of(request)
        return json_response({"roots": to_data(await self._service.in_thread(lambda: self._roots(tenant)))})

    async def tasks(self, request: Request) -> Response:
        """Lists the tasks of which there were rollouts."""
        tenant = tenant_of(request)
        if tenant is None:
            return json_response({"tasks": await self._service.in_thread(self._graph.tasks)})
        rollouts = await self._service.in_thread(lambda: self._rollouts(tenant, None))
        return json_response({"tasks": sorted({one.task for one in rollouts if one.task})})

    async def history(self, request: Request) -> Response:
        """Lists rollouts, also those that have ended."""
        task, tenant = request.query_params.get("task"), tenant_of(request)
        rollouts = await self._service.in_thread(lambda: self._rollouts(tenant, task))
        return json_response({"rollouts": to_data(rollouts)})

    async def timeline(self, request: Request) -> Response:
        """Tells when the latest rollouts made their calls, and how these were answered."""
        task, tenant = request.query_params.get("task"), tenant_of(request)
        limit = number_of(request, "limit")

        def read() -> bytes:
            rollouts = sorted(self._rollouts(tenant, task), key=lambda one: one.started, reverse=True)
            return encode(bodies.TimelineAnswer([self._in_time(one) for one in rollouts[: limit or LATEST]]))

        return json_response(await self._service.in_thread(read))

    def _in_time(self, one: RolloutRecord) -> bodies.TimelineRollout:
        steps = [
            bodies.TimelineStep(
                *(step.source, step.ended, step.seconds, step.duration, step.exit_code, step.timed_out),
                "" if step.call is None else step.call.brief,
                None if step.edge is None else step.edge.next_state,
            )
            for step in self._graph.steps(one.id)
        ]
        return bodies.TimelineRollout(
            *(one.id, one.label, one.started, one.finished, one.state, one.epoch, one.reward, steps)
        )

    async def summaries(self, request: Request) -> Response:
        """Lists rollouts, newest first, with what their calls came to."""
        query, tenant = request.query_params, tenant_of(request)
        limit, failed = number_of(request, "limit"), flag_of(request, "failed")
        try:
            since = None if query.get("since") is None else float(query["since"])
        except ValueError:
            raise UsageError(f"since must be seconds since the epoch, not {query['since']!r}") from None
        chosen: dict[str, Any] = {name: query.get(name) for name in ("task", "label", "image", "id")}

        def read() -> bytes:
            most = limit if tenant is None else None
            summaries = self._graph.summaries(**chosen, since=since, failed=failed, limit=most)
            if tenant is not None:
                summaries = [one for one in summaries if tenant.owns(one.salt)][:limit]
            return encode({"rollouts": to_data(summaries)})

        return json_response(await self._service.in_thread(read))

    async def tallies(self, request: Request) -> Response:
        """Tells what rollouts came to, by epoch, task or label."""
        query = request.query_params
        by, chosen = query.get("by"), {name: query.get(name) for name in ("task", "label")}

        def read() -> bytes:
            return encode({"tallies": to_data(self._graph.tallies(by, **chosen))})

        return json_response(await self._service.in_thread(read))

    async def values(self, request: Request) -> Response:
        """Tells what the states and calls of a task were worth."""
        task, epoch = request.query_params.get("task", ""), number_of(request, "epoch")
        named = request.query_params.get("rollouts")
        ids = None if named is None else named.split(",")

        def read() -> bytes:
            return encode({"values": to_data(self._graph.values(task, epoch=epoch, rollouts=ids))})

        return json_response(await self._service.in_thread(read))

    async def transcript(self, request: Request) -> Response:
        """Tells a rollout that was named by its id, a prefix of it or its label, and its calls in order."""
        name, tenant = request.path_params["name"], tenant_of(request)
        alone = request.query_params.get("steps") == "false"

        def read() -> bytes:
            rollout = self._named(name, tenant)
            steps = [] if rollout is None or alone else self._graph.steps(rollout.id)
            return encode({"rollout": to_data(rollout), "steps": to_data(steps)})

        return json_response(await self._service.in_thread(read))

    async def reward(self, request: Request) -> Response:
        """Records the reward of a rollout, which may have ended."""
        name, tenant = request.path_params["name"], tenant_of(request)

        async def work(body: bytes) -> bytes:
            update = _REWARD.read(body)

            def write() -> bytes:
                rollout = self._named(name, tenant)
                reward = check_reward(update.reward)
                return encode(bodies.Answered(rollout is not None and self._graph.record_reward(rollout.id, reward)))

            return await self._service.in_thread(write)

        return json_response(await self._service.once(request, work))

    def _named(self, name: str, tenant: Tenant | None) -> RolloutRecord | None:
        """Returns the rollout that a tenant names; None if it has no such one."""
        if tenant is None:
            return self._graph.find_rollout(name)
        theirs = [one for one in self._rollouts(tenant, None) if one.id.startswith(name) or one.label == name]
        return max(theirs, key=lambda one: (one.id == name, one.label == name, one.started), default=None)

    async def stats(self, request: Request) -> Response:
        """Tells the figures of this server and of the data directory."""

        def read() -> bytes:
            stats = self._service.cache.stats()
            latest = {kind: samples[-SAMPLES:] for kind, samples in stats.latency_s.items()}
            figured = figures(self._service.cache.cache.home, self._graph)
            return encode({"stats": to_data(replace(stats, latency_s=latest)), "figures": to_data(figured)})

        return json_response(await self._service.in_thread(read))

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
        """Tells what sandboxes of an image may use, where a rollout asks for nothing else."""
        image = await self._service.cache.images.get(request.path_params["name"])
        return json_response({"limits": to_data(self._service.cache.cache.limits_for(image))})

    async def warm(self, request: Request) -> Response:
        """Starts an image once and takes a snapshot of its root, where sandboxes of it run a service."""
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
        if body.file not in (None, *DESCRIPTIONS):
            raise UsageError(f"file must be one of {', '.join(DESCRIPTIONS)}, not {body.file!r}")
        if body.digest is not None and not await self._service.in_thread(lambda: self._contents.has(body.digest)):
            raise UnknownContent(f"the content {body.digest[:12]} is not there: upload the folder first")
        return StreamingResponse(self._events(body), media_type=EVENTS, headers={"cache-control": "no-cache"})

    async def _events(self, body: bodies.BuildImage) -> AsyncIterator[bytes]:
        what = body.name or body.source or body.folder
        events = self._service.events
        events.tell("build_started", {"image": what})
        progress = _Progress(lambda step: events.tell("build_step", {"image": what, **step}), self._check_open)
        building = asyncio.ensure_future(self._built(body, progress))
        self._building.add(building)  # it goes on where the client has gone
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

    async def archive(self, request: Request) -> Response:
        """Returns the root filesystem of a state as a stream of tar."""
        state, tenant = await self._service.owned(request), tenant_of(request)
        self._service.check_room(1, tenant)
        block = self._service.using_sandbox(tenant)
        block.enter_context(self._service.sandboxes.room_for(1))
        try:
            sandbox = await block.enter_async_context(self._service.cache.materialise(state))
        except BaseException:
            await block.aclose()
            raise
        return await archived(self._service, sandbox, block)

    async def events(self, request: Request) -> Response:
        """Tells what happens from now on, as it happens, until the server is stopped."""
        self._service.check_going(held=False)
        listener = self._service.events.listen(tenant_of(request))
        return StreamingResponse(listener, media_type=EVENTS, headers={"cache-control": "no-cache"})

    async def health(self, request: Request) -> Response:
        """Tells that the server runs, and its id, which is another one after each start."""
        return json_response({"status": "ok", "id": self._service.id})

    async def ready(self, request: Request) -> Response:
        """Tells whether the server takes requests."""
        if self._service.stopping:
            return json_response({"status": "stopping"}, 503)
        return json_response({"status": "ready", "trouble": self._service.cache.trouble})

    async def metrics(self, request: Request) -> Response:
        """Returns figures for Prometheus."""
        text = await self._service.in_thread(self._service.metrics.text)
        return Response(text, headers={"content-type": MEDIA_TYPE})


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
