"""What the server has for the page: tokens at WebSockets, rollouts in time, and `tvsnap web`."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import tvsnap
from tests.page.conftest import TOKEN, Site
from tests.server.test_server import ask
from tvsnap.graph import Graph
from tvsnap.host.home import GRAPH_FILE

ROOT = Path(__file__).parents[2]


def test_rollouts_in_time(site: Site) -> None:
    status, told = ask(site.server, "GET", "/v1/timeline?task=notes&limit=14", authorization=f"Bearer {TOKEN}")
    assert status == 200
    assert len(told["rollouts"]) == 14
    first = told["rollouts"][-1]
    places = [step["state"] for step in first["steps"]]
    assert [place for place, before in zip(places, [None, *places], strict=False) if place != before][-1] == (
        site.states[-1]
    )
    assert [step["exit_code"] for step in first["steps"]] == [0, 0, 0, 0, 0, 1]
    assert first["started"] <= first["steps"][0]["ended"] <= first["finished"]
    assert ask(site.server, "GET", "/v1/timeline")[0] == 401


def test_figures_say_why_calls_are_not_shared(site: Site) -> None:
    with tvsnap.connect(site.server.url, token=TOKEN) as client, client.rollout("terminal", task="times") as rollout:
        rollout.call("bash", {"command": "sleep 5"}, timeout=0.2)
    told = ask(site.server, "GET", "/v1/stats", authorization=f"Bearer {TOKEN}")[1]["figures"]
    assert sum(one["count"] for one in told["unshared"]) == told["not_shared"] + told["not_deterministic"]
    assert all(one["reason"] for one in told["unshared"] + told["without_snapshot"])


def shake_hands(site: Site, *protocols: str) -> str:
    """Asks for a terminal as a page does; returns the head of the answer."""
    address = urlsplit(site.server.url)
    lines = [
        f"GET /v1/states/{site.states[0]}/terminal HTTP/1.1",
        f"host: {address.netloc}",
        f"origin: {site.server.url}",
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        f"sec-websocket-key: {base64.b64encode(bytes(16)).decode()}",
        f"sec-websocket-protocol: {', '.join(protocols)}",
    ]
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while b"\r\n\r\n" not in answer and (data := connection.recv(4096)):
            answer += data
    return answer.partition(b"\r\n\r\n")[0].decode().lower()


def named(token: str) -> str:
    return "tvsnap.token." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def test_a_page_shows_its_token_by_a_subprotocol(site: Site) -> None:
    head = shake_hands(site, "tvsnap", named(TOKEN))
    assert " 101 " in head
    assert "sec-websocket-protocol: tvsnap" in head.splitlines()


@pytest.mark.parametrize(
    "protocols",
    [("tvsnap",), ("tvsnap", named("a-wrong-token-of-these-tests")), (named(TOKEN),), ("tvsnap", "tvsnap.token.%%%")],
)
def test_without_the_right_token_there_is_no_terminal(site: Site, protocols: tuple[str, ...]) -> None:
    assert " 401 " in shake_hands(site, *protocols)


def test_web_serves_a_data_directory(tmp_path: Path) -> None:
    Graph(tmp_path / GRAPH_FILE).close()  # `web` begins none
    command = [sys.executable, "-m", "tests.server.main", "--home", str(tmp_path), "web"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().split(" at ")[1].strip())
        assert address.hostname == "127.0.0.1"
        url, token = f"http://{address.netloc}", address.fragment.removeprefix("token=")
        with tvsnap.connect(url, token=token) as client:
            assert client.graph.tasks() == []
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{url}/v1/tasks")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
