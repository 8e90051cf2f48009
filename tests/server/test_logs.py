"""The server's log as lines of JSON."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tvsnap
from tests.server.conftest import start
from tests.server.test_server import ask
from tvsnap.plugins.server.settings import ServerSettings

TOKEN, TEAM = "t" * 32, "s" * 32


@pytest.mark.parametrize("workers", ["1", "2"])
def test_each_request_is_a_line(server_home: Path, tmp_path: Path, workers: str) -> None:
    home, tokens, log = tmp_path / "home", tmp_path / "tokens", tmp_path / "log"
    home.mkdir()
    (home / "images").symlink_to((server_home / "images").resolve())
    tokens.write_text(f"{TOKEN}\n{TEAM} team-a\n")
    tokens.chmod(0o600)
    salt, hostile = secrets.token_hex(4), "x" * 3000
    with log.open("wb") as file:
        server = start(*(home, "--workers", workers, "--log-format", "json", "--token-file", str(tokens)), log=file)
    ids: list[str] = []

    def asked(method: str, path: str, body: Any = None, token: str = TEAM) -> Any:
        return ask(server, method, path, body, authorization=f"Bearer {token}")[1]

    for _ in range(2):
        ids.append(asked("POST", "/v1/rollouts", {"image": "terminal", "salt": salt})["id"])
        asked("POST", f"/v1/rollouts/{ids[-1]}/calls", {"name": "bash", "arguments": {"command": "echo on"}})
        asked("DELETE", f"/v1/rollouts/{ids[-1]}")
    asked("GET", "/v1/stats", token=TOKEN)
    asked("GET", "/v1/stats", token="wrong")
    asked("GET", "/nothing")
    asked("GET", f"/v1/rollouts/{hostile}")
    assert server.stop() == 0
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    requests = [line for line in lines if line["message"] == "request"]
    assert all(line["time"].endswith("Z") and line["level"] == "info" and line["seconds"] >= 0 for line in requests)
    call = "/v1/rollouts/{id}/calls"
    calls = [line for line in requests if line.get("route") == call]
    assert [(line["rollout"], line["source"]) for line in calls] == [(ids[0], "executed"), (ids[1], "hit")]
    assert all((line["method"], line["status"], line["tenant"]) == ("POST", 200, "team-a") for line in calls)
    opened = [line for line in requests if (line.get("route"), line["method"]) == ("/v1/rollouts", "POST")]
    assert [(line["rollout"], line["status"]) for line in opened] == [(id, 201) for id in ids]
    closed = [line for line in requests if line["method"] == "DELETE"]
    assert [line["rollout"] for line in closed] == ids
    others = [line for line in requests if line["method"] == "GET"]
    assert Counter((line.get("route"), line["status"]) for line in others) == {
        ("/v1/stats", 200): 1,
        (None, 401): 1,
        (None, 404): 1,
        ("/v1/rollouts/{id}", 404): 1,
    }
    assert [len(line["rollout"]) for line in others if "rollout" in line] == [64]


def test_another_format_is_none() -> None:
    with pytest.raises(tvsnap.UsageError, match="--log-format"):
        ServerSettings(log_format="xml")
