"""OpenHands' SDK on tvsnap: its workspace, and its agent with a scripted model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openhands.sdk import Agent, Conversation
from openhands.sdk.event import ObservationEvent
from openhands.sdk.git.exceptions import GitPathError, GitRepositoryError
from openhands.sdk.llm import Message, MessageToolCall, TextContent
from openhands.sdk.testing import TestLLM
from openhands.sdk.workspace import LocalWorkspace
from openhands.sdk.workspace.base import BaseWorkspace

import tvsnap
from tvsnap.plugins.harnesses.openhands import TvsnapWorkspace

COMMANDS = [
    "mkdir -p /srv/repo && cd /srv/repo && X=kept",
    "cat > add.py <<'EOF'\ndef add(a, b):\n    return a + b\nEOF\npython3 -c 'from add import add; print(add(40, 2))'",
    "pwd; echo $X; false",
    "sleep 60",
    "ls",
]
Made = Callable[..., TvsnapWorkspace]


@pytest.fixture
def made(place: dict[str, Any], salt: str) -> Iterator[Made]:
    """Makes workspaces, which keep all states however busy the machine is, and ends them after the test."""
    workspaces = []
    if "home" in place:  # as the server does
        place = {**place, "policy": "eager"}

    def make(**told: Any) -> TvsnapWorkspace:
        workspaces.append(TvsnapWorkspace(image="terminal", salt=salt, **place, **told))
        return workspaces[-1]

    yield make
    for workspace in workspaces:
        workspace.close()


def model(commands: list[str]) -> TestLLM:
    """Returns a model that makes these commands, and then ends."""
    messages = []
    for number, command in enumerate(commands):
        arguments = {"command": command} | ({"timeout": 1} if "sleep" in command else {})
        call = MessageToolCall(id=f"{number}", name="terminal", arguments=json.dumps(arguments), origin="completion")
        messages.append(Message(role="assistant", content=[TextContent(text="")], tool_calls=[call]))
    messages.append(Message(role="assistant", content=[TextContent(text="It is done.")]))
    return TestLLM.from_messages(messages)


def run(workspace: TvsnapWorkspace, folder: Path, commands: list[str]) -> list[str]:
    """Returns what an agent that makes these commands is shown."""
    agent = Agent(llm=model(commands), tools=[workspace.terminal()])
    conversation = Conversation(agent=agent, workspace=str(folder), visualizer=None)
    conversation.send_message("Add the numbers.")
    conversation.run()
    shown = [event.observation.text for event in conversation.state.events if isinstance(event, ObservationEvent)]
    conversation.close()
    return shown


def test_an_agent_comes_to_the_same_without_the_cache_and_is_answered_the_second_time(
    made: Made, place: dict[str, Any], tmp_path: Path
) -> None:
    first, second = made(), made()
    shown = run(first, tmp_path, COMMANDS)
    assert shown == [
        "[The command completed with exit code 0.]",
        "42\n[The command completed with exit code 0.]",
        "/srv/repo\nkept\n[The command completed with exit code 1.]",
        "[interrupted after 1 s]\n",
        "__pycache__\nadd.py\n[The command completed with exit code 0.]",
    ]
    assert first.sources == {"hit": 0, "coalesced": 0, "executed": len(COMMANDS)}
    assert run(second, tmp_path, COMMANDS) == shown
    assert second.sources["executed"] == 0
    if "home" in place:
        assert run(made(use_cache=False), tmp_path, COMMANDS) == shown
    assert list(tmp_path.iterdir()) == []


def test_what_an_agent_does_after_a_failure_of_tvsnap_is_not_taken_for_its_work(made: Made, tmp_path: Path) -> None:
    broken = made()
    broken.rollout.close()
    with pytest.raises(tvsnap.UsageError, match="closed"), broken:
        assert run(broken, tmp_path, ["true"]) == []
    assert isinstance(broken.failure, tvsnap.UsageError)
    with pytest.raises(tvsnap.errors.NotFound, match="no-such-image"):
        TvsnapWorkspace(**broken.model_dump(exclude={"image", "kind"}), image="no-such-image")


def test_it_says_what_openhands_own_workspace_says(made: Made, tmp_path: Path) -> None:
    def outcomes(workspace: BaseWorkspace, folder: str) -> list[Any]:
        done = []
        for command in ["echo out; echo err >&2; exit 3", "pwd", "sleep 60", "printf 'a\\n\\nb'"]:
            result = workspace.execute_command(command, cwd=folder, timeout=1)
            done.append(result.model_dump())
        up = workspace.file_upload(tmp_path / "in", f"{folder}/deep/out")
        done.append((up.success, up.file_size, up.destination_path))
        done.append(workspace.execute_command("cat out", cwd=f"{folder}/deep").stdout)
        for source in ("deep/out", "nowhere"):
            down = workspace.file_download(f"{folder}/{source}", tmp_path / "back/in")
            done.append((down.success, down.file_size, bool(down.error)))
        done.append((tmp_path / "back/in").read_text())
        done.append(workspace.file_upload(tmp_path / "nowhere", f"{folder}/x").success)
        return done

    (tmp_path / "in").write_text("zwölf\n")
    folder = str(tmp_path / "work")
    Path(folder).mkdir()
    ours = made()
    assert ours.execute_command(f"mkdir -p {folder}", cwd="/").exit_code == 0
    mine = outcomes(ours, folder)
    (tmp_path / "back/in").unlink()
    assert mine == outcomes(LocalWorkspace(working_dir=folder), folder)
    again = made()
    again.execute_command(f"mkdir -p {folder}", cwd="/")
    assert outcomes(again, folder) == mine
    assert again.sources["executed"] == 0


def test_git_in_the_sandbox_is_what_openhands_finds_here(made: Made, tmp_path: Path) -> None:
    script = """
    git init -q . && git config user.email a@b.c && git config user.name a
    mkdir sub && echo 1 > kept && echo 1 > changed && echo 1 > gone && echo 1 > sub/changed
    git add . && git -c commit.gpgsign=false commit -q -m first
    echo 2 >> changed; rm gone; echo new > 'a zwölf'; echo 2 > sub/changed; echo staged > staged; git add staged
    """
    ours, theirs = made(working_dir="/srv/repo"), LocalWorkspace(working_dir=str(tmp_path))
    ours.execute_command("mkdir -p /srv/repo", cwd="/")
    for each in (ours, theirs):
        done = each.execute_command(script)
        assert done.exit_code == 0, done.stderr
    mine = {(change.path.as_posix(), change.status) for change in ours.git_changes(".")}
    its = {(change.path.as_posix(), change.status) for change in theirs.git_changes(".")}
    assert {name for name, _ in mine} == {"a zwölf", "changed", "gone", "staged", "sub/changed"}
    plain = {(name, status) for name, status in its if "zw" not in name}
    assert {(name, status) for name, status in mine if "zw" not in name} == plain
    assert [change.path.as_posix() for change in ours.git_changes("sub")] == ["changed"]
    for path in ("changed", "staged", "gone", "sub/changed"):
        assert ours.git_diff(path) == theirs.git_diff(tmp_path / path)
    with pytest.raises(GitPathError, match="/srv/repo/nowhere"):
        ours.git_diff("nowhere")
    with pytest.raises(GitRepositoryError, match="/usr"):
        ours.git_changes("/usr")
    assert ours.execute_command("git init -q /srv/new && echo 1 > /srv/new/file").exit_code == 0
    assert [change.path.as_posix() for change in ours.git_changes("/srv/new")] == ["file"]
    assert ours.git_diff("/srv/new/file").modified == "1"


def test_a_workspace_is_plain_data_without_its_token(made: Made) -> None:
    with made() as ours:
        ours.token = "secret"
        ours.pause()
        ours.resume()
        assert ours.working_dir == "/app"
        assert "secret" not in ours.model_dump_json() + repr(ours)
    with pytest.raises(tvsnap.UsageError, match="closed"):
        ours.execute_command("true")


def test_a_program_that_closes_nothing_leaves_nothing(place: dict[str, Any], salt: str) -> None:
    home = place.get("home")
    if home is None:
        pytest.skip("what is left is looked for in a data directory")
    script = f"""
import os
from tvsnap.plugins.harnesses.openhands import TvsnapWorkspace
dropped = TvsnapWorkspace(image="terminal", salt={salt!r}, home={home!r})
dropped.execute_command("echo dropped")
dropped = None
left = TvsnapWorkspace(image="terminal", salt={salt!r}, home={home!r})
print(os.getpid(), left.execute_command("echo here").stdout)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    pid, said = done.stdout.split()[-2:]
    assert said == "here"
    assert not list(Path(home).glob(f"run/owners/{pid}-*"))
