"""One trial's rollout: its calls, and their report."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tvsnap.images import Image
from tvsnap.model.arguments import outcome_of
from tvsnap.model.calls import ToolResult
from tvsnap.model.limits import MIB
from tvsnap.plugins.client.protocols import AnyAsyncRollout
from tvsnap.plugins.harnesses.caches import shared_cache
from tvsnap.plugins.harnesses.clues import Numbered, lacking_network
from tvsnap.plugins.harnesses.harbor.host import BaseEnvironment, ExecResult, NetworkMode
from tvsnap.plugins.harnesses.harbor.options import TvsnapOptions, cache_options

OUTPUT = 16 * MIB
"""Bytes that one command may print, at most; more is cut in the middle."""


class Trial(BaseEnvironment):
    """The rollout of a trial, whose commands are counted.

    Attributes:
        options: the options of this environment.
    """

    options: TvsnapOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See `TvsnapEnvironment`."""
        self.options = TvsnapOptions.of(kwargs)
        self._options = cache_options(self.options)
        self._numbered = Numbered()
        self._rollout: AnyAsyncRollout | None = None
        self._image: Image | None = None
        self._sources = {"hit": 0, "coalesced": 0, "executed": 0}
        self._tool_time = 0.0
        self._strained: list[str] = []
        self._outcome: str | None = None  # what ended the trial, in words; None if it goes on
        self._warned = False
        self._lacks = ""  # why it did not start; empty if it did
        ours = TvsnapOptions.__annotations__.keys()
        super().__init__(*args, **{name: value for name, value in kwargs.items() if name not in ours})

    async def _exec(
        self, arguments: Mapping[str, Any], timeout_sec: int | None, grade: tuple[str, ...] | None = None
    ) -> ExecResult:
        rollout = self._running()
        if grade is None and "service" not in arguments:
            pending = rollout.exec(**arguments, timeout=timeout_sec)
        else:
            pending = rollout.call("exec", arguments, timeout_sec, grade=grade)
        try:
            result = self._counted(await pending)
        except BaseException as error:
            self._outcome = outcome_of(error)
            raise
        self._outcome = None  # a trial may go on after its agent was cancelled
        if grade is not None and result.strain:
            self._strained.append(result.strain)
            self.logger.warning(
                f"{self.session_id}: the verifier {result.strain}: its reward may be the machine's doing"
            )
        if result.truncated:
            self.logger.warning(f"{self.session_id}: what a command printed was cut in the middle ({OUTPUT} bytes)")
        if result.exit_code != 0:
            self._look_for_lacking_network(result.output)
        if result.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        if result.output and (emit := self._output_callback()):
            await emit(result.output, "stdout")
        return ExecResult(stdout=result.output, return_code=result.exit_code if result.exit_code is not None else 1)

    def _counted(self, result: ToolResult) -> ToolResult:
        self._sources[result.source] += 1
        self._tool_time += result.duration
        return result

    def _running(self) -> AnyAsyncRollout:
        if self._rollout is None:
            raise RuntimeError(self._lacks or f"{self.session_id}: the environment is not running")
        return self._rollout

    def _look_for_lacking_network(self, output: str) -> None:
        """Warns once if a command seems to have failed for lack of a network."""
        line = lacking_network(output)
        if line is None or self._warned:
            return
        self._warned = True
        policy = self.network_policy.network_mode.value
        way_out = (
            "see that this machine reaches it, or through which proxy it does (TVSNAP_NETWORK_PROXY)"
            if policy != NetworkMode.NO_NETWORK.value
            else "the task's network_mode allows none; if it needs one, its reward means nothing"
        )
        self.logger.warning(
            f"{self.session_id}: something failed for want of a network, which is {policy} here: {line!r}; {way_out}"
        )

    async def _write_report(self, rollout: AnyAsyncRollout) -> None:
        if self._image is None or not any(self._sources.values()):
            return
        await rollout.settled()
        role = self.session_id.partition("__")[2].partition("__")[2] or self.session_id
        report = {
            "home": self._options.place,
            "image": self._image.name,
            "rollout": rollout.id,
            "root": rollout.root,
            "state": rollout.state,
            "private": rollout.private,
            "calls": sum(self._sources.values()),
            **self._sources,
            "missed": await self._missed(rollout.id),
            "tool_time_s": round(self._tool_time, 3),
            "strained_grades": self._strained,
        }
        path = self.trial_paths.trial_dir / f"tvsnap-{role}.json"
        path.write_text(json.dumps(report, indent=2) + "\n")
        self.logger.debug(f"tvsnap: {report}")

    async def _missed(self, rollout: str | None) -> dict[str, int]:
        """Returns why calls of the rollout were executed, with the number of calls of each reason, the most first."""
        if rollout is None:
            return {}
        graph = (await shared_cache(self._options)).cache.graph
        steps = await asyncio.to_thread(graph.steps, rollout)
        return dict(Counter(step.note for step in steps if step.note and step.source != "failed").most_common())
