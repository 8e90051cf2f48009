"""mini-swe-agent itself on tvsnap: its agent, with its deterministic model."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.test_models import DeterministicModel, make_output

import tvsnap

NAME = "tvsnap.integrations.mini_swe_agent.TvsnapEnvironment"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat /root/answer"
COMMANDS = [
    "mkdir -p /root/job && echo 41 > /root/job/n && ls /root/job",
    "cat /nowhere",
    "cd /root/job; echo $(($(cat n) + 1)) > /root/answer; pwd",
    "pwd; echo $TOLD",
    "sleep 60",
    "(sleep 300 &) ; echo left behind",
    SUBMIT,
]
GUIDE = Path(__file__).parents[3] / "docs/guides/mini-swe-agent.md"


def environment(home: str, **told: Any) -> Any:
    return get_environment({"environment_class": NAME, "image": "terminal", "home": home, **told})


@pytest.mark.parametrize("command", ["echo a\0b", "echo \ud83d x", "echo \ud83c\udf78 x"])
def test_a_command_that_is_no_text_is_an_observation(home: str, command: str) -> None:
    ours, theirs = environment(home), LocalEnvironment()
    seen, right = (one.execute({"command": command}) for one in (ours, theirs))
    assert (seen["output"], seen["returncode"]) == (right["output"], right["returncode"]) == ("", -1)
    assert seen["exception_info"].startswith("An error occurred while executing the command: ")
    assert ours.execute({"command": "echo on"})["output"] == "on\n"
    ours.cleanup()


def test_the_configuration_of_the_guide_is_one(home: str) -> None:
    (printed,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    ours = get_environment({**yaml.safe_load(printed)["environment"], "home": home})
    assert ours.execute({"command": "echo on"})["output"] == "on\n"
    ours.cleanup()


def run(environment: Any, commands: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns what an agent that makes these commands comes to, and all that was said."""
    model = DeterministicModel(outputs=[make_output("", [{"command": command}]) for command in commands])
    agent = DefaultAgent(model, environment, system_template="{{system}}", instance_template="{{task}}", cost_limit=0)
    return agent.run("add one"), [message["content"] for message in agent.messages]


def test_an_agent_comes_to_the_same_with_and_without_the_cache_and_is_answered_the_second_time(
    home: str, salt: str
) -> None:
    told = {"timeout": 1, "env": {"TOLD": "this"}, "salt": salt}
    without = run(environment(home, use_cache=False, **told), COMMANDS)
    first, second = environment(home, **told), environment(home, **told)
    assert run(first, COMMANDS) == without
    assert run(second, COMMANDS) == without
    assert without[0] == {"exit_status": "Submitted", "submission": "42\n"}
    assert first.sources["executed"] == len(COMMANDS)
    assert (second.sources["hit"] + second.sources["coalesced"], second.sources["executed"]) == (len(COMMANDS), 0)
    about = second.serialize()["info"]
    assert about["config"]["environment_type"] == NAME
    assert about["tvsnap"]["state"] == first.serialize()["info"]["tvsnap"]["state"]
    for one in (first, second):
        one.cleanup()


def test_it_says_what_mini_swe_agents_own_environment_says(home: str, salt: str, tmp_path: Path) -> None:
    ours, theirs = environment(home, salt=salt), LocalEnvironment(cwd=str(tmp_path))
    commands = ["echo out; echo err >&2; exit 3", "nonsense-of-a-command", "printf 'a\\n\\nb\\0c'", "sleep 60", ""]
    for command in commands:
        (mine, its) = (each.execute({"command": command}, timeout=1) for each in (ours, theirs))
        assert mine.keys() == its.keys(), command
        assert (mine["returncode"], bool(mine["exception_info"])) == (its["returncode"], bool(its["exception_info"]))
        assert mine["output"].replace("/bin/bash: line 1", "/bin/sh: 1") == its["output"] or "nonsense" in command
    assert "timed out after 1 seconds" in ours.execute({"command": "sleep 60"}, timeout=1)["exception_info"]
    ours.cleanup()


def test_a_failure_of_tvsnap_is_not_shown_as_a_commands_output(home: str, salt: str) -> None:
    broken = environment(home, salt=salt)
    broken.cleanup()
    with pytest.raises(tvsnap.UsageError, match="closed"):
        broken.execute({"command": "true"})
    with pytest.raises(tvsnap.errors.NotFound, match="no-such-image"):
        environment(home, image="no-such-image")


def test_a_command_that_another_thread_makes_is_ended(home: str, salt: str) -> None:
    ours = environment(home, salt=salt, timeout=600)
    outputs: list[dict[str, Any]] = []

    def execute() -> None:
        with contextlib.suppress(tvsnap.errors.CallCancelled):  # cancelled before it was executed
            outputs.append(ours.execute({"command": "exec sleep 600"}))

    thread = threading.Thread(target=execute)
    thread.start()
    while not ours.rollout.cancel():
        thread.join(0.05)
    thread.join()
    assert [output["returncode"] for output in outputs] in ([], [-1])
    assert ours.execute({"command": "echo after"})["output"] == "after\n"
    ours.cleanup()


def test_a_program_that_cleans_nothing_up_leaves_nothing(home: str, salt: str) -> None:
    told = {"environment_class": NAME, "image": "terminal", "home": home, "salt": salt}
    script = f"""
import os
from minisweagent.environments import get_environment
dropped = get_environment({told!r})
dropped.execute({{"command": "echo dropped"}})
dropped = None
left = get_environment({told!r})
print(os.getpid(), left.execute({{"command": "(sleep 300 &) ; echo here"}})["output"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pid, said = done.stdout.split()
    assert said == "here"
    assert not list(Path(home).glob(f"run/owners/{pid}-*"))


def test_an_interpreter_of_its_own(home: str, salt: str) -> None:
    ours = environment(home, salt=salt, interpreter=["sh", "-c"], cwd="/tmp")
    assert ours.execute({"command": "echo $0 $PWD"})["output"] == "sh /tmp\n"
    ours.cleanup()
