"""Clients that do not go on, or send what nobody should."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tvsnap
from tests.conformance.helpers import eventually
from tests.server.conftest import Server, start
from tests.server.test_limits import home as home
from tests.server.test_server import ask, open_rollout
from tvsnap.host.trees import MAGIC

PATIENCE = "2"
MOST = 12


@pytest.fixture
def impatient(home: Path) -> Iterator[Server]:
    """A server that waits two seconds for a client, and takes few connections."""
    server = start(home, "--patience", PATIENCE, "--max-connections", str(MOST))
    yield server
    assert server.stop() == 0


def connect(server: Server) -> socket.socket:
    """Returns a connection on which nothing was sent yet."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(60)
    return connection


def drip(connection: socket.socket, data: bytes) -> bytes:
    """Sends some bytes a second until the server closes; returns what it says."""
    with contextlib.suppress(ConnectionError):
        for at in range(len(data)):
            connection.sendall(data[at : at + 1])
            connection.settimeout(0.3)
            with contextlib.suppress(TimeoutError):
                return connection.recv(1000)
    raise AssertionError("the server has waited to the end")


def healthy(connection: socket.socket) -> bool:
    """Returns whether a server says on a connection that it is well, once it was asked."""
    said = b""
    while b"}" not in said and (more := connection.recv(1000)):
        said += more
    head, _, body = said.partition(b"\r\n\r\n")
    return head.startswith(b"HTTP/1.1 200 ") and json.loads(body)["status"] == "ok"


HEAD = b"POST /v1/rollouts HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n"


def test_who_does_not_go_on_is_not_waited_for(impatient: Server) -> None:
    with contextlib.ExitStack() as held:
        silent, head, body = (held.enter_context(connect(impatient)) for _ in range(3))
        body.sendall(HEAD + b"\r\n")
        said: dict[str, bytes] = {}
        threads = [
            threading.Thread(target=lambda: said.update(head=drip(head, HEAD + b"x-more: " + b"x" * 100))),
            threading.Thread(target=lambda: said.update(body=drip(body, b" " * 1000))),
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert ask(impatient, "GET", "/healthz")[0] == 200  # others are answered meanwhile
            time.sleep(0.1)
        assert said["head"].startswith(b"HTTP/1.1 408 ")
        assert said["body"].startswith(b"HTTP/1.1 408 ")
        assert silent.recv(100) == b""
        again = held.enter_context(connect(impatient))
        again.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert healthy(again)
        time.sleep(2 * float(PATIENCE))  # between requests, a connection may rest
        again.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert healthy(again)
        again.sendall(b"\r\n")  # which is no request
        assert again.recv(100) == b""


def test_a_slow_upload_that_goes_on_is_taken(impatient: Server) -> None:
    content = secrets.token_bytes(3 << 20)
    line = json.dumps({"kind": "file", "mode": 420, "name": "", "size": len(content)}, sort_keys=True)
    data = MAGIC + line.replace(" ", "").encode() + b"\n" + content
    digest = hashlib.sha256(data).hexdigest()
    with connect(impatient) as connection:
        head = f"PUT /v1/contents/{digest} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode())
        for at in range(0, len(data), 1 << 19):
            connection.sendall(data[at : at + (1 << 19)])
            time.sleep(0.8)
        assert connection.recv(1000).startswith(b"HTTP/1.1 201 ")


def test_who_takes_no_answer_holds_no_sandbox(impatient: Server) -> None:
    with tvsnap.connect(impatient.url) as client, client.rollout("terminal") as rollout:
        state = rollout.state
    with connect(impatient) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(f"GET /v1/states/{state}/archive HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        assert connection.recv(10) == b"HTTP/1.1 2"

        def used() -> int:
            return int(ask(impatient, "GET", "/v1/stats")[1]["stats"]["sandboxes"])

        assert used() >= 1
        eventually(lambda: used() == 0)


def test_connections_without_a_request_make_room(impatient: Server) -> None:
    with contextlib.ExitStack() as held:
        for number in range(3 * MOST):
            connection = held.enter_context(connect(impatient))
            if number % 2:
                connection.sendall(HEAD[: number % 50])
            if number % 5 == 0:
                assert ask(impatient, "GET", "/healthz")[0] == 200


def test_heads_of_any_length_are_refused(impatient: Server) -> None:
    with connect(impatient) as connection:
        said = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(HEAD)
            for number in range(1000):
                connection.sendall(f"x-{number}: {'x' * 2000}\r\n".encode())
        with contextlib.suppress(ConnectionError):
            said = connection.recv(1000)
        assert not said or said.startswith(b"HTTP/1.1 431 ")
    assert ask(impatient, "GET", "/healthz")[0] == 200


def test_json_of_any_depth(server: Server) -> None:
    calls = open_rollout(server)
    for depth in (50, 100, 200, 500, 900, 1000, 5000, 100_000):
        for opened, closed in ((b"[", b"]"), (b'{"a":', b"}")):
            inner = opened * depth + b"1" + closed * depth
            for body in (
                b'{"name": "bash", "arguments": {"command": ' + inner + b"}}",
                b'{"name": "bash", "arguments": ' + inner + b"}",
                inner,
            ):
                status, data = ask(server, "POST", calls, body)
                assert status == 400, (depth, data)
                assert data["error"]["type"] == "UsageError"
    for number in (b"1e999", b"-1e999", b"9" * 5000, b"NaN", b'"\\ud800"', b"\xff", b'"\\u0000"'):
        body = b'{"name": "bash", "arguments": {"command": "true", "n": ' + number + b"}}"
        assert ask(server, "POST", calls, body)[0] == 400, number
        body = b'{"name": "bash", "arguments": {"command": "true"}, "timeout": ' + number + b"}"
        assert ask(server, "POST", calls, body)[0] == 400, number
    assert ask(server, "POST", calls, {"name": "bash", "arguments": {"command": "true"}})[0] == 200


def items(*facts: dict[str, Any], top: str = "directory") -> bytes:
    """Returns a content of a folder that holds items."""
    first = {"kind": top, "mode": 493, "name": "", "size": 0}
    lines = (json.dumps(one, sort_keys=True, separators=(",", ":")) for one in (first, *facts))
    return MAGIC + b"".join(line.encode() + b"\n" for line in lines)


FILE = {"kind": "file", "mode": 420, "size": 0}
BAD = [
    b"",
    b"no tree\n",
    MAGIC + b"[" * 60_000 + b"\n",
    MAGIC + b'{"kind": "file"}\n',
    MAGIC + b"[]\n",
    MAGIC + b"x" * 200_000,
    items({**FILE, "name": "a", "size": -5}),
    items({**FILE, "name": "a", "size": 1 << 70}),
    items({**FILE, "name": "a", "size": 1e3}),
    items({**FILE, "name": "a", "size": True}),
    items({**FILE, "name": "a", "size": 100}),
    items({**FILE, "name": 7}),
    items({**FILE, "name": "a", "mode": "x"}),
    items({**FILE, "name": "a", "kind": "door"}),
    items({**FILE, "name": "a", "kind": ["file"]}),
    items({**FILE, "name": "../a"}),
    items({**FILE, "name": "a/../../b"}),
    items({**FILE, "name": "/etc/passwd"}),
    items({**FILE, "name": "a//b"}),
    items({**FILE, "name": "a\0b"}),
    items({**FILE, "name": "\ud800"}),
    items({**FILE, "name": "/".join("a" * 2000)}),
    items({**FILE, "name": "a", "kind": "hardlink", "target": "../../etc/shadow"}),
    items({**FILE, "name": "a", "kind": "symlink", "target": 5}),
]


def upload(server: Server, data: bytes) -> tuple[int, str]:
    """Sends a content by its digest; returns the status and the digest."""
    digest = hashlib.sha256(data).hexdigest()
    return ask(server, "PUT", f"/v1/contents/{digest}", data)[0], digest


def build(server: Server, **body: str) -> int:
    """Asks for an image; returns the status, once all was told."""
    asked = urllib.request.Request(f"{server.url}/v1/images", json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert b"event: error" in answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_archives_are_refused(server: Server, number: int) -> None:
    status, digest = upload(server, BAD[number])
    assert status == 400
    assert ask(server, "GET", f"/v1/contents/{digest}")[0] == 404


def test_archives_that_are_odd_hurt_nobody(server: Server, tmp_path: Path) -> None:
    """What leads out of a folder leads out of it in the sandbox, whose it is; of the host nothing is touched."""
    outside = tmp_path / "outside"
    outside.mkdir()
    link = {"kind": "symlink", "mode": 511, "size": 0, "name": "out", "target": str(outside)}
    odd = [
        items(link, {**FILE, "name": "out/written"}),
        items({**FILE, "name": "a"}, {**FILE, "name": "a/b"}),
        items({"kind": "other", "mode": 420, "size": 0, "name": "device"}),
        items({**FILE, "name": "a", "kind": "hardlink", "target": "nothing"}),
        items({**FILE, "name": "late"}, {"kind": "directory", "mode": 0, "size": 0, "name": ""}),
        items(top="symlink"),
        items({**FILE, "name": "x" * 300}),
    ]
    calls = open_rollout(server)
    assert upload(server, items({**FILE, "name": "a"}))[0] == 201
    for data in odd:
        status, digest = upload(server, data)
        assert status in (201, 400)
        put = {"name": "put", "arguments": {"digest": digest, "path": "/tmp/put"}}
        assert ask(server, "POST", calls, put)[0] in (200, 400, 422)
        assert build(server, digest=digest, name="odd") in (200, 400, 422)
    assert list(outside.iterdir()) == []
    assert ask(server, "POST", calls, {"name": "bash", "arguments": {"command": "true"}})[0] == 200


NAMES = ("..", "../..", "../../etc/passwd", "/etc/passwd", "a/../b", "\0", "\n", "a" * 5000, "%2e%2e", "\ud800", "💥")


def test_names_of_any_kind(server: Server) -> None:
    before = set(os.listdir("/tmp"))
    for name in NAMES:
        quoted = urllib.parse.quote(name, safe="", errors="surrogatepass")
        for path in (
            f"/v1/images/{quoted}",
            f"/v1/states/{quoted}",
            f"/v1/states/{quoted}/archive",
            f"/v1/states/{quoted}/diff/{quoted}",
            f"/v1/contents/{quoted}",
            f"/v1/rollouts/{quoted}",
            f"/v1/sandboxes/{quoted}/files?path={quoted}",
            f"/v1/tree?task={quoted}&image={quoted}&root={quoted}",
            f"/v1/history?task={quoted}",
            f"/v1/search?task={quoted}&tool={quoted}&text={quoted}",
            f"/v1/outline?after={quoted}&limit={quoted}",
            f"/v1/calls?ids={quoted}",
            f"/v1/calls/{quoted}",
        ):
            assert ask(server, "GET", path)[0] in (200, 400, 404), path
        for body in ({"image": name}, {"image": "terminal", "network": name}):
            assert ask(server, "POST", "/v1/rollouts", body)[0] in (400, 404), body
        assert build(server, source=name) in (200, 400)
        made = {"image": "terminal", "task": name, "salt": name, "label": name}
        status, opened = ask(server, "POST", "/v1/rollouts", made)
        assert status in (201, 400)
        if status == 201:
            calls = f"/v1/rollouts/{opened['id']}/calls"
            for tool, arguments in (
                ("read_file", {"path": name}),
                ("write_file", {"path": f"/tmp/{name}", "content": "x"}),
                (name, {}),
                ("bash", {name: name}),
            ):
                assert ask(server, "POST", calls, {"name": tool, "arguments": arguments})[0] in (200, 400, 404, 422)
    new = {one for one in set(os.listdir("/tmp")) - before if not one.startswith(("tvsnap", "pytest", "tmp"))}
    assert not [one for one in new if one in NAMES]


def test_times_of_any_length(server: Server) -> None:
    root = ask(server, "POST", "/v1/rollouts", {"image": "terminal"})[1]["root"]
    held = ask(server, "POST", f"/v1/states/{root}/sandboxes", {})[1]["sandboxes"][0]["id"]
    _, digest = upload(server, items({**FILE, "name": "a"}))
    for timeout in (1e10, 1e300, 1.7e308):
        for path, body in (
            ("fetches", {"path": "/etc"}),
            ("puts", {"path": "/tmp/put", "digest": digest}),
            ("run", {"command": "true"}),
            ("exec", {"command": "true"}),
        ):
            status, data = ask(server, "POST", f"/v1/sandboxes/{held}/{path}", {**body, "timeout": timeout})
            assert (status, data["error"]["type"]) == (400, "UsageError"), (path, timeout)
    assert ask(server, "POST", f"/v1/sandboxes/{held}/fetches", {"path": "/etc", "timeout": 60})[0] == 200
    ask(server, "DELETE", f"/v1/sandboxes/{held}")
