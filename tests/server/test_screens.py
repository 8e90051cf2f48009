"""`tvsnap browse` and `tvsnap watch` of a server."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import tvsnap
from cli import notebooks
from cli.main import make_app
from tests.server.conftest import Server
from tests.unit.test_browse import drive, screen_of


def test_the_tree_of_a_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVSNAP_URL", server.url)
    with tvsnap.connect(server.url) as client:
        ends = []
        for command in ("echo one > f", "echo two > f"):
            with client.rollout("terminal", "browsed", salt="screens") as rollout:
                rollout.call("bash", {"command": "cd /tmp && A=5"})
                rollout.call("bash", {"command": command})
                rollout.call("bash", {"command": f"false {command[5:8]}"})
                ends.append(rollout.state)
                rollout.call("bash", {"command": "echo r-$(whoami)"})
                assert f"rollout {rollout.id}" in notebooks.html(rollout)
        picture = notebooks.html(client.graph.tree(task="browsed"))
        assert "echo one" in picture

        async def see() -> None:
            async with screen_of(client.graph, at=ends[0], task="browsed") as screen:
                await screen.until("echo one > f", "echo two > f", "2 rollouts")
                await screen.press("f", "2")
                assert screen.chosen == ends[1]
                await screen.press("escape", "b")
                await screen.press("x")
                await screen.until("run in a fork")
                await screen.type("cat f")
                await screen.press("enter")
                await screen.until("exit 0", "one")
                await screen.press("escape", "3", "l")
                await screen.until("bash", gone="looking at")
                await screen.press("k", "D")
                await screen.until("shell", "+ var A")
                await screen.press("escape", "t")
                await screen.until("rollouts that came to", "browsed")
                await screen.press("escape", "slash")
                await screen.type("r-roo")  # nothing but the output of the last calls has it
                await screen.until("2 fit", "whoami")

        drive(see)
        with client.rollout("terminal", "folders", salt="screens") as rollout:
            rollout.call("bash", {"command": "mkdir -p /a/deep; mkfifo /a/deep/$'line\\nbreak'"})

            async def list_it() -> None:
                async with screen_of(client.graph, at=rollout.state, task="folders") as screen:
                    await screen.until("mkdir -p")
                    await screen.press("5", "l")
                    await screen.until("/a/deep", gone="looking at")
                    await screen.press("5", "enter")
                    await screen.until("deep", "0755", "0:0")

            drive(list_it)
    data = json.loads(CliRunner().invoke(make_app(), ["watch", "--json", "--interval", "0.1"]).stdout)
    assert data["executed"] >= 5
    assert data["rollouts"]["waiting"] == 0
