"""A real model's server on this machine, whose answers are scripted, and a real proxy process in front of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

WORDS = ("The", " key", " is", " under", " the", " mat")


@dataclass
class Asked:
    """A request that came to the model's server."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class ModelServer:
    """An HTTP server that answers as models' servers do.

    Attributes:
        asked: the requests that came.
        gate: requests are answered while it is set.
        begun: is set when a request comes.
        failing: what it answers in place of an answer: `status`, `error-event`, `cut` or nothing.
        gone: is set when a client closed its connection before its answer ended.
    """

    url: str
    asked: list[Asked] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)
    failing: str = ""
    more: Mapping[str, str] = field(default_factory=dict)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ModelServer

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self._note(b"")
        self._whole(200, {"object": "list", "data": [{"id": "tiny"}]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        number = self._note(body)
        self.model.begun.set()
        failing = self.model.failing
        if not self.model.gate.wait(30):
            return
        if failing in ("no-store", "vary"):
            self.model.more = {"no-store": {"cache-control": "private, No-Store"}, "vary": {"vary": "*"}}[failing]
        if failing == "nothing":
            self._whole(200, {"choices": [{"message": {"content": None}}, {"message": {"content": "  "}}]})
        elif failing == "status":
            self._whole(429, {"error": {"message": "slow down"}})
        elif failing == "no-json":
            self._answer(200, "application/json", b'{"half": ')
        elif json.loads(body).get("stream"):
            self._stream(number, failing)
        else:
            self._whole(200, {"id": f"answer-{number}", "choices": [{"message": {"content": "".join(WORDS)}}]})

    def _note(self, body: bytes) -> int:
        self.model.asked.append(
            Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        )
        return len(self.model.asked)

    def _whole(self, status: int, answer: Any) -> None:
        self._answer(status, "application/json", json.dumps(answer).encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-request-id", "r-1")
        for name, value in self.model.more.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, number: int, failing: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for count, word in enumerate(WORDS):
                self._event(json.dumps({"id": f"answer-{number}", "choices": [{"delta": {"content": word}}]}))
                if count == 2 and failing == "cut":
                    self.wfile.flush()
                    self.close_connection = True
                    return
                if count == 2 and failing == "error-event":
                    self._event(json.dumps({"error": {"message": "out of memory"}}))
                if count == 2 and failing == "slow":
                    for _ in range(300):
                        self._event(": nothing yet", comment=True)
                        if self.model.gone.wait(0.1):
                            return
            if failing != "no-done":
                self._event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.model.gone.set()
            self.close_connection = True

    def _event(self, data: str, *, comment: bool = False) -> None:
        event = f"{data}\n\n".encode() if comment else f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.flush()


@contextlib.contextmanager
def model_server(port: int = 0) -> Iterator[ModelServer]:
    """A block with a model's server, at a free port by default."""
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {}))
    server.daemon_threads = True
    found = ModelServer(f"http://127.0.0.1:{server.server_address[1]}")
    found.gate.set()
    server.RequestHandlerClass.model = found  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found
    finally:
        found.gate.set()
        found.gone.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """A model's server."""
    with model_server() as found:
        yield found


@dataclass
class Answered:
    """An answer of the proxy."""

    status: int
    cache: str | None
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        """What the body holds."""
        return json.loads(self.body)


@dataclass
class RunningProxy:
    """A proxy process."""

    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answered:
        """Makes a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"content-type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answered(answer.status, named.get("x-tvsnap-cache"), answer.read(), named)

    def complete(self, headers: Mapping[str, str] | None = None, **members: Any) -> Answered:
        """Asks for a completion; by default with temperature 0."""
        request = {"model": "tiny", "temperature": 0, "messages": [{"role": "user", "content": "Where?"}], **members}
        return self.request("POST", "/v1/chat/completions", json.dumps(request).encode(), headers)

    def stop(self) -> int:
        """Stops it as systemd would; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


Start = Callable[..., RunningProxy]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts proxies on one data directory."""
    running: list[RunningProxy] = []

    def begin(upstream: str, *options: str) -> RunningProxy:
        command = [sys.executable, "-m", "tests.server.main", "--home", str(tmp_path / "home"), "proxy"]
        process = subprocess.Popen(
            [*command, "--port", "0", "--json", "--upstream", upstream, *options],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(f"the proxy did not start: status {process.wait(10)}")
        running.append(RunningProxy(process, json.loads(line)["url"]))
        return running[-1]

    yield begin
    for one in running:
        if one.process.poll() is None:
            one.stop()
        assert one.process.stdout is not None
        one.process.stdout.close()


@pytest.fixture
def proxy(start: Start, model: ModelServer) -> RunningProxy:
    """A proxy in front of the model's server."""
    return start(model.url)
