"""Traces by OpenTelemetry, received by a small receiver of OTLP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.helpers import eventually
from tests.server.conftest import start
from tests.server.test_limits import home as home
from tests.server.test_server import ask

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Receiver(ThreadingHTTPServer):
    """Takes spans by OTLP.

    Attributes:
        spans: those that have come, with their attributes as a dict.
    """

    def __init__(self) -> None:
        self.spans: list[tuple[Any, dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), _Taking)


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        import gzip

        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        told = ExportTraceServiceRequest.FromString(body)
        assert isinstance(self.server, Receiver)
        for of_resource in told.resource_spans:
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    named = {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
                    self.server.spans.append((span, named))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver, to which the environment has a server send its traces."""
    with Receiver() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{made.server_port}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        yield made
        made.shutdown()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_call_is_a_span_below_its_clients(home: Path, receiver: Receiver, workers: str) -> None:
    server = start(home, "--workers", workers)
    _, opened = ask(server, "POST", "/v1/rollouts", {"image": "terminal"})
    call = {"name": "bash", "arguments": {"command": "cd /tmp"}}
    path = f"/v1/rollouts/{opened['id']}/calls"
    for _ in range(4):  # with two processes, some are passed on
        status, _ = ask(server, "POST", path, call, traceparent=f"00-{TRACE}-{PARENT}-01")
        assert status == 200
    ask(server, "GET", "/v1/nothing")
    assert server.stop() == 0  # which sends what is left
    ours = [(span, told) for span, told in receiver.spans if span.trace_id.hex() == TRACE]
    ids = {span.span_id: told for span, told in ours}
    tops = [told for span, told in ours if span.parent_span_id.hex() == PARENT]
    assert len(tops) == 4
    assert all(span.parent_span_id.hex() == PARENT or span.parent_span_id in ids for span, _ in ours)
    made = [(span, told) for span, told in ours if "tvsnap.source" in told]
    assert len(made) == 4
    for span, told in made:
        assert span.name == "POST /v1/rollouts/{id}/calls"
        assert told["http.response.status_code"] == 200
        assert told["tvsnap.rollout"] == opened["id"]
        assert told["tvsnap.tool"] == "bash"
        assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 120e9
    assert made[0][1]["tvsnap.source"] == "executed"
    assert any(told.get("http.response.status_code") == 404 for _, told in receiver.spans)
    assert eventually(lambda: len(receiver.spans) >= 6, timeout=60)


@pytest.mark.parametrize(
    ("variables", "loaded"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
    ],
)
def test_nothing_is_loaded_unless_asked_for(variables: dict[str, str], loaded: bool) -> None:
    text = (
        "import json, sys, tvsnap.plugins.server.app, tvsnap.plugins.server.tracing as tracing\n"
        "made = tracing.traces(None)\n"
        "print(json.dumps([made is not None, any(name.startswith('opentelemetry') for name in sys.modules)]))"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    words, folder = [sys.executable, "-c", text], Path(__file__).parents[2]
    shown = subprocess.check_output(words, env=clean | variables, text=True, cwd=folder)
    assert json.loads(shown) == [loaded, loaded]
