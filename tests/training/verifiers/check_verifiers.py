"""The tools of verifiers, launched by verifiers itself, and its reward; the channel of the state is a small server."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import types
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import verifiers.v1 as vf
from mcp import Client
from verifiers.v1.mcp.launch import serve

import tvsnap
from tvsnap.plugins.harnesses.attempts import as_row
from tvsnap.plugins.harnesses.verifiers import (
    TerminalConfig,
    TerminalData,
    TerminalState,
    TerminalTask,
    TerminalTasksetConfig,
)
from tvsnap.plugins.training.tasks import tasks

(TASK,) = tasks("train", 1, seed=7, kinds=["count"])
CONFIG = TerminalConfig(settings={"home": os.environ["TVSNAP_HOME"], "policy": "eager"})


def task_of(**more: Any) -> TerminalTask:
    row = as_row(TASK)
    said = {**json.loads(row["tvsnap"]), **more}
    return TerminalTask(TerminalData(prompt=row["instruction"], tvsnap=json.dumps(said)), CONFIG)


class Rows(vf.Taskset[TerminalTask, TerminalTasksetConfig]):  # type: ignore[misc]  # verifiers has no types here
    def load(self) -> Iterator[TerminalTask]:
        yield TerminalTask(task_of().data, self.config.task)


def test_verifiers_finds_the_tools_of_a_set_without_a_task() -> None:
    """As it does before an episode, to learn where they run."""
    rows = Rows(TerminalTasksetConfig(task=CONFIG))
    (tools,) = type(rows).task_type().toolsets(rows.config.task)
    assert tools.config.settings == CONFIG.settings
    assert [task.config.settings for task in rows] == [CONFIG.settings]


async def rollout(task: TerminalTask, commands: list[str], *, at_once: bool = False) -> tuple[list[str], TerminalState]:
    """Returns what commands printed, and the state that is handed over."""
    held = [TerminalState().model_dump_json().encode()]
    said = {"cls": "tvsnap.integrations.verifiers:TerminalData", "task": task.data.model_dump_json()}

    class Channel(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(json.dumps(said).encode() if self.path.endswith("/task") else held[0])

        def do_PUT(self) -> None:
            held[0] = self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(b"{}")

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    (tools,) = task.toolsets(task.config)
    with ThreadingHTTPServer(("127.0.0.1", 0), Channel) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        async with serve(tools, None, True, state_secret="secret", state_base=base) as url, Client(url) as client:
            calls = [client.call_tool("bash", {"command": command}) for command in commands]
            results = await asyncio.gather(*calls) if at_once else [await call for call in calls]
        server.shutdown()
    return [getattr(each.content[0], "text", "") for each in results], TerminalState.model_validate_json(held[0])


def reward(task: TerminalTask, state: TerminalState) -> float:
    return float(asyncio.run(task.solved(types.SimpleNamespace(state=state))))


@pytest.mark.parametrize("at_once", [False, True])
def test_a_rollout_is_answered_the_second_time_and_graded_in_this_process(at_once: bool) -> None:
    task = task_of(salt=uuid.uuid4().hex)
    commands = [*TASK.solutions[0], "echo done; false"]
    first, second = (asyncio.run(rollout(task, commands, at_once=at_once)) for _ in range(2))
    assert (first[0], first[1].node, first[1].failure) == (second[0], second[1].node, None)
    assert first[0][-1] == "done\n[exit status 1]"
    assert [reward(task, first[1]), reward(task, second[1])] == [1.0, 1.0]


def test_what_a_command_has_left_running_goes_on_until_the_grade() -> None:
    task = task_of(salt=uuid.uuid4().hex)
    later = "; ".join(TASK.solutions[0])
    _, state = asyncio.run(rollout(task, [f"(sleep 1; {later}) > /tmp/said 2>&1 & sleep 0.1"]))
    time.sleep(5)
    assert reward(task, state) == 1.0


def test_no_command_is_graded_too_and_a_failure_is_no_reward() -> None:
    assert reward(task_of(), TerminalState()) == 0.0
    shown, state = asyncio.run(rollout(task_of(image="none-such"), ["true"]))
    assert shown == ["[the sandbox failed]"]
    with pytest.raises(tvsnap.InfrastructureError, match="none-such"):
        reward(task_of(image="none-such"), state)
