"""verl's tool and agent loop on tvsnap.

verl creates and releases a tool at each call, so a rollout is kept by the request that the calls are of. The agent loop
`tvsnap_tool_agent` does what verl's own `tool_agent` does, grades the state at the end, and ends the rollout:

    actor_rollout_ref.rollout.multi_turn.tool_config_path: tools.yaml
    actor_rollout_ref.rollout.agent.default_agent_loop: tvsnap_tool_agent

tools.yaml names `tvsnap.integrations.verl.BashTool`. A row of the data set says its task in `extra_info`, under the
name `tvsnap`, see `tvsnap.integrations.attempts.Assignment.of`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from tvsnap.aio.threads import in_thread
from tvsnap.model.errors import UsageError
from tvsnap.plugins.harnesses.attempts import COMMAND, THREADS, Assignment, Attempt, Setting

try:
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, register
    from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
    from verl.tools.base_tool import BaseTool
    from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tvsnap.integrations.verl needs verl, of which {error.name} is missing: pip install verl", name=error.name
    ) from error

_SCHEMA = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Runs a bash command, and returns what it printed.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": COMMAND}},
            "required": ["command"],
        },
    },
}


class _Request:
    """The attempt of a request; it begins with the first call of the tool, which knows the cache."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.attempt: Attempt | None = None

    def begun(self, setting: Setting) -> Attempt:
        if self.attempt is None:
            self.attempt = Attempt(setting, self.assignment)
        return self.attempt


_request: ContextVar[_Request | None] = ContextVar("tvsnap_verl_request", default=None)


class BashTool(BaseTool):
    """A shell whose commands run in tvsnap's sandboxes, or are answered from its graph.

    Attributes:
        setting: the cache, and what the model is shown.
    """

    def __init__(self, config: Mapping[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        """
        Args:
            config: see `tvsnap.integrations.attempts.Setting.of`; `type` is verl's own.
            tool_schema: the model's description of the tool; by default tvsnap's own.

        Raises:
            UsageError: the configuration makes no sense.
        """
        super().__init__(dict(config), tool_schema or OpenAIFunctionToolSchema.model_validate(_SCHEMA))
        self.setting = Setting.of({name: value for name, value in config.items() if name != "type"})

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Returns a name for a call; the rollout is that of the request, and begins with its first command.

        Args:
            instance_id: the name; by default one is made up.
            kwargs: ignored.
        """
        return instance_id or uuid.uuid4().hex, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        """Runs a command, or answers it from the graph.

        Args:
            instance_id: the name of the call.
            parameters: the `command`.
            kwargs: ignored.

        Returns:
            What the model is shown, no reward (0), and how many calls of the rollout were answered in which way.

        Raises:
            TvsnapError: tvsnap failed. verl shows the model the text of that; the agent loop raises it once more.
        """
        request = _request.get()
        if request is None:
            raise UsageError("the tool needs the agent loop tvsnap_tool_agent, which says what request a call is of")
        attempt = request.begun(self.setting)
        shown = await attempt.bash_aside(parameters.get("command"))
        return ToolResponse(text=shown), 0.0, dict(attempt.sources)


@register("tvsnap_tool_agent")
class TvsnapToolAgentLoop(ToolAgentLoop):
    """verl's loop with tools, whose rollouts end with a grade of the state that they have reached."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Runs the loop of one row.

        Args:
            sampling_params: the model's parameters.
            kwargs: the columns of the row; `extra_info` says its task.

        Returns:
            What verl's loop returns, with `reward_score` if the task has a verifier. How many
            calls were answered in which way is in `extra_fields["tvsnap"]`.

        Raises:
            UsageError: `extra_info` says no task.
            TvsnapError: tvsnap or the verifier failed: there is nothing to learn from this rollout.
        """
        request = _Request(Assignment.of(dict(kwargs.get("extra_info") or {})))
        token = _request.set(request)
        try:
            output: AgentLoopOutput = await super().run(sampling_params, **kwargs)
            return await self._with_grade(output, request)
        finally:
            _request.reset(token)
            if request.attempt is not None:
                await in_thread(THREADS, request.attempt.close)

    async def _with_grade(self, output: AgentLoopOutput, request: _Request) -> AgentLoopOutput:
        tool = next((tool for tool in self.tools.values() if isinstance(tool, BashTool)), None)
        if request.attempt is None and tool is not None:  # no command was run: what is there is graded
            request.begun(tool.setting)
        attempt = request.attempt
        if attempt is None:
            return output
        if attempt.failure is not None:
            raise attempt.failure
        if request.assignment.verifier is not None:
            output.reward_score = await in_thread(THREADS, attempt.reward)
        output.extra_fields["tvsnap"] = dict(attempt.sources)
        return output
