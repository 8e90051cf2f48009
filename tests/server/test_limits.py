"""What a server does at its limits, and what a client does where connections break."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tvsnap
from tests.conformance.helpers import eventually, is_running
from tests.server.conftest import Server, start
from tests.server.relay import Relay
from tests.server.test_server import ask
from tvsnap.plugins.client.connection import Connection
from tvsnap.plugins.client.http import Address
from tvsnap.plugins.client.wire.errors import Busy, TooLarge

IDLE = 1000


@pytest.fixture
def home(server_home: Path, tmp_path: Path) -> Path:
    """A data directory of its own, with the images of the session."""
    made = tmp_path / "home"
    made.mkdir()
    (made / "images").symlink_to((server_home / "images").resolve())
    return made


@contextlib.contextmanager
def serving(home: Path, *options: str) -> Iterator[Server]:
    """A block with a server."""
    server = start(home, *options)
    try:
        yield server
    finally:
        assert server.stop() == 0


def test_a_client_sees_why_its_body_was_refused(server: Server, home: Path) -> None:
    large = b"x" * (17 << 20)
    with tvsnap.connect(server.url) as client, client.rollout("terminal") as rollout:
        rollout.call("bash", {"command": "true"})
        with client.materialise(rollout.state) as sandbox:
            for _ in range(3):
                with pytest.raises(TooLarge, match="--max-body"):
                    sandbox.write_file("/tmp/large", large)
            sandbox.put(large, "/tmp/large")  # goes as an upload
            assert sandbox.exec("stat -c %s /tmp/large", timeout=10).output == b"17825792\n"
    with serving(home, "--max-upload", "1M") as limited, tvsnap.connect(limited.url) as client:
        rollout = client.rollout("terminal")
        with pytest.raises(TooLarge, match="--max-upload"):
            rollout.put(large, "/tmp/large")


def test_too_many_connections_are_refused_as_busy(home: Path) -> None:
    with serving(home, "--max-connections", "3") as server, contextlib.ExitStack() as held:
        host, port = server.url.removeprefix("http://").split(":")
        connections = [held.enter_context(socket.create_connection((host, int(port)))) for _ in range(3)]
        for one in connections:  # of those without a request, one would make room
            head = b"POST /v1/rollouts HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n"
            one.sendall(head)
            assert b" 100 " in one.recv(100)
        status, data = ask(server, "GET", "/healthz")
        assert (status, data["error"]["type"]) == (429, "Busy")
        with pytest.raises(Busy, match="--max-connections"):
            tvsnap.connect(server.url, patience=0)
        connections.pop().close()
        with tvsnap.connect(server.url, patience=30) as client:
            assert client.graph.roots() == []


def test_sandboxes_that_cannot_be_given_up_count(home: Path) -> None:
    options = ("--max-sandboxes", "1", "--policy", "never")
    with serving(home, *options) as server, tvsnap.connect(server.url, patience=0) as client:
        first, second = (client.rollout("terminal", salt=salt) for salt in ("a", "b"))
        first.call("bash", {"command": "sleep 1000 & echo $RANDOM"})
        assert first.state  # it stands somewhere by now, and nothing else leads there
        with pytest.raises(Busy, match="1 cannot be given up"):
            second.call("bash", {"command": "true"})
        with pytest.raises(Busy, match="1 cannot be given up"):
            client.fork(second.root)
        assert first.call("bash", {"command": "echo on"}).output == "on\n"  # it has its own
        first.close()
        assert second.call("bash", {"command": "echo on"}).output == "on\n"


def test_materialise_counts_calls_that_are_being_executed(home: Path) -> None:
    with serving(home, "--max-sandboxes", "1") as server, tvsnap.connect(server.url, patience=0) as client:
        rollout = client.rollout("terminal")
        sleep = f"sleep 5.{secrets.randbelow(10**9)}"
        thread = threading.Thread(target=lambda: rollout.call("bash", {"command": sleep}))
        thread.start()
        eventually(lambda: is_running(sleep))
        with pytest.raises(Busy, match="1 calls are being executed"):
            client.fork(rollout.root)
        thread.join()


def test_idle_rollouts_cost_neither_thread_nor_sandbox(home: Path) -> None:
    with serving(home) as server, tvsnap.connect(server.url) as client:
        tasks = Path(f"/proc/{server.process.pid}/task")
        client.rollout("terminal").call("bash", {"command": "true"})
        threads, sandboxes = len(list(tasks.iterdir())), client.stats().sandboxes
        opened = [client.rollout("terminal", task="idle") for _ in range(IDLE)]
        assert len(ask(server, "GET", "/v1/rollouts")[1]["rollouts"]) == IDLE + 1
        assert len(list(tasks.iterdir())) < threads + 20
        assert client.stats().sandboxes <= sandboxes
        for rollout in opened[:20]:
            assert rollout.call("bash", {"command": "true"}).source == "hit"
        files = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        assert files < 200


def test_what_is_cut_off_is_sent_again(server: Server, tmp_path: Path) -> None:
    data = secrets.token_bytes(3_000_000)
    # The connection is cut within the first answers, within the answer to an upload, and within a download.
    relay = Relay(server, cuts=[200, 900, 40, 10, 5_000])
    try:
        with tvsnap.connect(relay.url) as client, client.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
            for number in range(1, 5):
                result = rollout.call("bash", {"command": f"echo {number} >> /tmp/log; wc -l < /tmp/log"})
                assert result.output == f"{number}\n"
            rollout.put(data, "/tmp/data")
            rollout.get("/tmp/data", tmp_path / "data")
            assert (tmp_path / "data").read_bytes() == data
        assert relay.connections > 5
    finally:
        relay.close()


def test_a_client_sends_at_once(server: Server) -> None:
    """Without TCP_NODELAY, a call waits for what the server acknowledges late."""
    connection = Connection(Address.parse(server.url))
    try:
        assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        connection.close()
