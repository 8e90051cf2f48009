"""mini-swe-agent, Inspect and SWE-ReX with tvsnap's server in `TVSNAP_URL`, in a process without root's rights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output
from swerex.runtime.abstract import BashAction, Command, CreateBashSessionRequest, ReadFileRequest, UploadRequest

import tvsnap
from tvsnap.plugins.harnesses.inspect_ai import TvsnapSandboxConfig
from tvsnap.plugins.harnesses.swe_rex import TvsnapDeployment, TvsnapDeploymentConfig

NAME = "tvsnap.integrations.mini_swe_agent.TvsnapEnvironment"
COMMANDS = [
    "mkdir -p /root/job && echo 41 > /root/job/n && ls /root/job",
    "cd /root/job; echo $(($(cat n) + 1)) > /root/answer; pwd",
    "sleep 60",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat /root/answer",
]


def environment(**told: Any) -> Any:
    return get_environment({"environment_class": NAME, "image": "terminal", "timeout": 1, **told})


def test_there_is_neither_root_nor_a_data_directory() -> None:
    assert os.geteuid() != 0
    assert "TVSNAP_HOME" not in os.environ


def test_an_agent_of_mini_swe_agent(salt: str) -> None:
    for source in ("executed", "hit"):
        ours = environment(salt=salt, token="a-token-that-nobody-asks-for")
        model = DeterministicModel(outputs=[make_output("", [{"command": command}]) for command in COMMANDS])
        agent = DefaultAgent(model, ours, system_template="", instance_template="{{task}}", cost_limit=0)
        assert agent.run("add one") == {"exit_status": "Submitted", "submission": "42\n"}
        assert ours.sources[source] == len(COMMANDS)
        assert "a-token" not in json.dumps(ours.serialize())
        ours.cleanup()


def test_an_image_is_built_of_a_folder_of_this_machine(salt: str, tmp_path: Path) -> None:
    folder = tmp_path / "uploaded-one"
    folder.mkdir()
    (folder / "image.yaml").write_text("image: terminal\nfiles: [{source: greeting, dest: /etc/motd}]\n")
    (folder / "greeting").write_text("hello\n")
    for _ in range(2):
        ours = environment(image=f"{folder}/", salt=salt)
        assert ours.execute({"command": "cat /etc/motd"})["output"] == "hello\n"
        ours.cleanup()
    with tvsnap.connect(os.environ["TVSNAP_URL"]) as client:
        assert client.images.get("uploaded-one").name == "uploaded-one"


def test_what_only_the_server_decides_is_refused() -> None:
    with pytest.raises(tvsnap.UsageError, match=r"policy='eager': with url=http.* leave it out"):
        environment(policy="eager")
    with pytest.raises(tvsnap.errors.NotFound, match="no-such-image"):
        environment(image="no-such-image")


def test_a_program_that_cleans_nothing_up_leaves_no_rollout(salt: str) -> None:
    script = f"""
from minisweagent.environments import get_environment
left = get_environment({{"environment_class": {NAME!r}, "image": "terminal", "salt": {salt!r}}})
print(left.execute({{"command": "echo here"}})["output"], left.rollout.id)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said, id = done.stdout.split()
    assert said == "here"
    with tvsnap.connect(os.environ["TVSNAP_URL"]) as client:
        open_ones = client.transport.get("/v1/rollouts")["rollouts"]
    assert id not in [one["name"] for one in open_ones]


async def test_a_sandbox_of_inspect(salt: str) -> None:
    kind: Any = registry_find_sandboxenv("tvsnap")
    config = kind.config_deserialize({"salt": salt, "token": "secret"})
    assert "secret" not in config.model_dump_json() + repr(config)
    assert isinstance(config, TvsnapSandboxConfig)
    await kind.task_init("remote", config)
    environments = await kind.sample_init("remote", config, {})
    one = environments["default"]
    await one.write_file("/tmp/in", b"in\n" * 20_000)
    assert (await one.exec(["wc", "-l"], input=b"line\n" * 20_000)).stdout == "20000\n"
    assert await one.read_file("/tmp/in", text=False) == b"in\n" * 20_000
    connection = await one.connection()
    assert f"--url {os.environ['TVSNAP_URL']}" in connection.command
    await kind.sample_cleanup("remote", config, environments, False)


async def test_a_deployment_of_swe_rex(salt: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("in\n")
    assert "secret" not in str(TvsnapDeploymentConfig(image="terminal", token="secret"))
    for executed in (5, 0):
        ours = TvsnapDeployment(image="terminal", salt=salt, token="a-token-that-nobody-asks-for")
        await ours.start()
        runtime = ours.runtime
        await runtime.create_session(CreateBashSessionRequest())
        await runtime.upload(UploadRequest(source_path=f"{tmp_path}/in", target_path="/srv/in"))
        done = await runtime.run_in_session(BashAction(command="cd /srv && cat in in > out && wc -l out", timeout=20))
        assert (done.output, done.exit_code) == ("2 out\n", 0)
        assert (await runtime.execute(Command(command=["cat", "/srv/out"]))).stdout == "in\nin\n"
        assert (await runtime.read_file(ReadFileRequest(path="/srv/out"))).content == "in\nin\n"
        assert (runtime.sources["executed"], sum(runtime.sources.values())) == (executed, 5)
        assert await ours.is_alive()
        await ours.stop()
        await ours.stop()
