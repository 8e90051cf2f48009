"""Operations that read the graph: the tree, states, differences, rollouts, and figures of them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tvsnap.graph import RolloutRecord, RootInfo
from tvsnap.model.arguments import check_reward
from tvsnap.model.errors import UsageError
from tvsnap.model.operations.rollouts import Record
from tvsnap.plugins.client.wire.values import to_data
from tvsnap.plugins.server import bodies
from tvsnap.plugins.server.bodies import Reader, encode
from tvsnap.plugins.server.http import Operation, flag_of, json_response, number_of
from tvsnap.plugins.server.sandbox_routes import TAR, archived
from tvsnap.plugins.server.service import Service
from tvsnap.plugins.server.tenants import Tenant, tenant_of
from tvsnap.upkeep.diff import compare_states

_REWARD = Reader(Record)
LATEST = 50
"""Rollouts of a timeline, if the request has no number."""
TASK = {"task": "only of this task"}
SELECTION = {
    **TASK,
    "label": "only of this label",
    "image": "only of this image",
    "since": "only those that began then or later, seconds since the epoch",
    "failed": "true for those that an error ended, whose process died, or whose reward is 0 or less",
    "limit": "only the latest so many",
    "id": "only this one",
}
"""Parameters that select rollouts."""


class ReportRoutes:
    """Operations that read the graph, and one that records a reward."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._graph = service.cache.cache.graph

    @property
    def operations(self) -> list[Operation]:
        """All of them."""
        return [*self._of_states(), *self._of_rollouts(), *self._of_figures()]

    def _of_states(self) -> list[Operation]:
        state = "/v1/states/{state}"
        tree = {"root": "only below this root", **TASK, "image": "only of this image", "depth": "only so many steps"}
        return [
            Operation("GET", "/v1/tree", "tree", "Lists the states, with calls and snapshots.", self.tree, query=tree),
            Operation("GET", state, "showState", "Tells of a state: how it came about, calls, snapshots.", self.show),
            Operation(
                *("GET", f"{state}/diff/{{other}}", "diff", "Tells how two states differ.", self.diff),
                query={"patch": "true for the lines of text files"},
            ),
            Operation("GET", "/v1/roots", "roots", "Lists the roots.", self.roots),
            Operation("GET", "/v1/tasks", "tasks", "Lists the tasks.", self.tasks),
            Operation(
                *("GET", f"{state}/archive", "exportState", "Returns the files of a state as tar.", self.archive, None),
                TAR,
            ),
        ]

    def _of_rollouts(self) -> list[Operation]:
        return [
            Operation("GET", "/v1/history", "history", "Lists the rollouts there ever were.", self.history, query=TASK),
            Operation(
                *("GET", "/v1/timeline", "timeline", "Tells when the latest rollouts made their calls.", self.timeline),
                *(None, bodies.TimelineAnswer),
                {**TASK, "limit": f"of the latest so many rollouts; {LATEST} if it is not given"},
            ),
            Operation(
                *("GET", "/v1/transcripts", "summaries", "Lists rollouts, newest first, with figures.", self.summaries),
                query=SELECTION,
            ),
            Operation(
                *("GET", "/v1/transcripts/{name}", "transcript", "Tells a rollout's calls.", self.transcript),
                query={"steps": "false for the rollout alone"},
            ),
            Operation(
                *("POST", "/v1/transcripts/{name}/reward", "recordReward", "Records a reward.", self.reward),
                *(_REWARD.body, bodies.Answered),
            ),
        ]

    def _of_figures(self) -> list[Operation]:
        return [
            Operation(
                *(
                    "GET",
                    "/v1/tallies",
                    "tallies",
                    "Tells what rollouts came to, by epoch, task or label.",
                    self.tallies,
                ),
                query={"by": "epoch, task or label", **TASK, "label": "only of this label"},
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
