"""What only a server does: keys of requests, tokens, limits, time to live, its end."""

from __future__ import annotations

import http.client
import json
import secrets
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import tvsnap
from tests.conformance.helpers import eventually, is_running
from tests.server.conftest import Server, start
from tests.server.test_verbs import verb
from tvsnap.plugins.client.http import json_bytes
from tvsnap.plugins.client.wire.errors import Busy, Unauthorized
from tvsnap.plugins.server.settings import ServerSettings
from tvsnap.plugins.server.tenants import read_tokens


def ask(server: Server, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Returns the status and the JSON of an answer."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(server.url + path, data, named, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def open_rollout(server: Server) -> str:
    """Begins a rollout that shares nothing; returns the path of its calls."""
    _, begun = ask(server, "POST", "/v1/rollouts", {"image": "terminal", "salt": secrets.token_hex(4)})
    return f"/v1/rollouts/{begun['id']}/calls"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"name": "bash", "arguments": {"command": "echo \ud83d"}}, "arguments.command"),
        ({"tasks": ["one", "tw\udcff"]}, "tasks.1"),
        ({"\ud83d": 1}, "\\\\ud83d"),
    ],
)
def test_what_is_no_text_is_named_before_it_is_sent(body: dict[str, Any], where: str) -> None:
    with pytest.raises(tvsnap.UsageError, match=f'argument "{where}" is no text'):
        json_bytes(body)


def test_a_socket_takes_no_other_file_s_place_and_leaves_none(server_home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for words, said in (
        (("--socket", str(tmp_path / "file")), "that is no socket"),
        (("--socket", str(tmp_path / "s"), "--socket-group", "no-such-group"), "no-such-group"),
    ):
        status, text = verb("serve", "--home", str(server_home), *words)
        assert (status, said in text) == (2, True), text
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_request_sent_again_is_not_executed_again(server: Server) -> None:
    calls = open_rollout(server)
    call = {"name": "bash", "arguments": {"command": "sleep 0.5; echo x >> /tmp/log; cat /tmp/log"}}
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask(server, "POST", calls, call, idempotency_key="one")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.append(ask(server, "POST", calls, call, idempotency_key="one"))
    assert [answer[1]["result"]["parts"][0]["text"] for answer in answers] == ["x\n"] * 5
    other = {"name": "bash", "arguments": {"command": "true"}}
    status, error = ask(server, "POST", calls, other, idempotency_key="one")
    assert (status, error["error"]["type"]) == (422, "KeyReused")


def test_a_call_whose_connection_was_cut_is_made_once(server: Server) -> None:
    import socket

    calls = open_rollout(server)
    body = json.dumps({"name": "bash", "arguments": {"command": "sleep 0.4; echo y >> /tmp/l; cat /tmp/l"}}).encode()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as cut:
        head = f"POST {calls} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nidempotency-key: k\r\n"
        cut.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        time.sleep(0.1)
    _, answer = ask(server, "POST", calls, body, idempotency_key="k")
    assert answer["result"]["parts"][0]["text"] == "y\n"


def test_errors_say_what_is_wrong_and_what_to_do(server: Server) -> None:
    calls = open_rollout(server)
    for body, words in (
        (b"{", "no JSON"),
        ({"name": "bash"}, "arguments"),
        ({"name": "bash", "arguments": {}, "timeuot": 3}, "timeuot"),
        (b'{"name": "bash", "arguments": {"a": ' + b"[" * 100_000, "JSON"),
    ):
        status, data = ask(server, "POST", calls, body)
        assert status == 400
        assert words in data["error"]["message"]
        assert data["error"]["type"] == "UsageError"
        assert data["error"]["way_out"]
    assert ask(server, "GET", "/v1/nothing")[0] == 404
    assert ask(server, "PUT", "/v1/rollouts")[0] == 405
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    connection.putrequest("POST", calls)
    connection.putheader("content-length", str(17 << 20))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_page_in_a_browser_is_refused(server: Server) -> None:
    for headers in (
        {"origin": "http://127.0.0.1"},
        {"host": "evil.example:80"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        status, data = ask(server, "GET", "/v1/rollouts", None, **headers)
        assert (status, data["error"]["type"]) == (401, "Unauthorized")


def test_the_document_lists_every_operation(server: Server) -> None:
    _, document = ask(server, "GET", "/v1/openapi.json")
    assert document["openapi"].startswith("3.1")
    call = document["paths"]["/v1/rollouts/{id}/calls"]["post"]
    assert call["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Call"}
    assert "arguments" in document["components"]["schemas"]["Call"]["required"]


def test_metrics_and_health(server: Server) -> None:
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        text = answer.read().decode()
    assert "tvsnap_call_seconds_bucket" in text
    assert 'tvsnap_held{what="rollout"}' in text
    assert ask(server, "GET", "/healthz")[1]["status"] == "ok"
    assert len({ask(server, "GET", "/healthz")[1]["id"] for _ in range(8)}) == 1
    assert ask(server, "GET", "/readyz")[1]["status"] == "ready"


def test_tokens_limits_and_time_to_live(server_home: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("# of tests\n" + "t" * 32 + "\n")
    tokens.chmod(0o600)
    home = tmp_path / "home"
    home.mkdir()
    (home / "images").symlink_to((server_home / "images").resolve())
    server = start(home, "--token-file", str(tokens), "--ttl", "4", "--max-sandboxes", "1", "--max-rollouts", "2")
    try:
        assert ask(server, "GET", "/v1/rollouts")[0] == 401
        assert ask(server, "GET", "/healthz")[0] == 200
        with pytest.raises(Unauthorized):
            tvsnap.connect(server.url, token="wrong")
        with tvsnap.connect(server.url, token="t" * 32, patience=0) as client:
            first, second = client.rollout("terminal"), client.rollout("terminal")
            with pytest.raises(Busy, match="at most 2"):
                client.rollout("terminal")
            sleep = f"sleep 9.{secrets.randbelow(10**9)}"
            slow = threading.Thread(target=lambda: first.call("bash", {"command": sleep}))
            slow.start()
            eventually(lambda: is_running(sleep))
            with pytest.raises(Busy, match="sandboxes are used"):
                second.call("bash", {"command": "echo no room"})
            slow.join()  # the call outlasts the time to live, and its rollout stays
            assert first.call("bash", {"command": "echo still"}).output == "still\n"
            with pytest.raises(tvsnap.errors.NotFound, match="--ttl"):
                second.call("bash", {"command": "true"})
    finally:
        assert server.stop() == 0
    assert not server.socket.exists()


def test_listening_elsewhere_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(tvsnap.UsageError, match="without authentication"):
        ServerSettings(host="0.0.0.0")
    loose = tmp_path / "tokens"
    loose.write_text("t" * 32)
    loose.chmod(0o644)
    with pytest.raises(tvsnap.UsageError, match="chmod 600"):
        read_tokens(loose)


def test_idle_rollouts_cost_no_thread(server: Server) -> None:
    def threads() -> int:
        return len(list(Path(f"/proc/{server.process.pid}/task").iterdir()))

    with tvsnap.connect(server.url) as client:
        client.rollout("terminal").call("bash", {"command": "true"})
        before = threads()
        for _ in range(200):
            client.rollout("terminal")
        assert threads() < before + 20


def test_the_client_needs_no_compiled_code() -> None:
    program = (
        "import sys, tvsnap; tvsnap.connect; import tvsnap.plugins.client.wire.errors;"
        "heavy = ('pydantic', 'google', 'starlette', 'msgspec', 'tvsnap.sandboxes');"
        "print(*[name for name in heavy if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""
