"""How a server ends: what is under way, what comes meanwhile, and what clients make of it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import secrets
import signal
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tvsnap
import tvsnap.aio
from tests.conformance.helpers import eventually
from tests.faults.consistency import assert_in_order
from tests.server.conftest import Server, start
from tests.server.test_limits import home as home
from tests.server.test_server import open_rollout
from tests.server.test_workers import processes_that_name
from tvsnap.host import owners
from tvsnap.plugins.client.wire.errors import ServerStopped, Stopping

WORKERS = pytest.mark.parametrize("workers", ["1", "2"])


class UnderWay:
    """A call that a thread makes, and whose command has begun: it waits until it is let go."""

    def __init__(self, server: Server) -> None:
        self.answer: tuple[int, Any, Any] = (0, {}, None)
        waiting = f"sleep {10**9 + secrets.randbelow(10**9)}"  # which no other process does
        call = {"name": "bash", "arguments": {"command": f"{waiting}; echo done"}, "timeout": 1200}
        self._thread = threading.Thread(target=self._make, args=(server, open_rollout(server), call))
        self._thread.start()
        self._waiting = eventually(lambda: processes_that_name(waiting.replace(" ", "\0")), timeout=60)

    def _make(self, server: Server, path: str, call: Any) -> None:
        self.answer = answer_of(server, "POST", path, call)

    def let_go(self) -> None:
        """Has the command go on."""
        for pid in self._waiting:
            os.kill(pid, signal.SIGTERM)

    def done(self) -> tuple[int, Any, Any]:
        """Returns status, headers and JSON of the answer."""
        self._thread.join(120)
        return self.answer


def answer_of(server: Server, method: str, path: str, body: Any = None) -> tuple[int, Any, Any]:
    """Returns status, headers and JSON of an answer."""
    with contextlib.closing(_connection(server)) as connection:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.headers, json.load(answer)


def _connection(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=120)


def _assert_nothing_is_left(server: Server, home: Path) -> None:
    assert processes_that_name(str(home)) == []
    assert not owners.dead_owners(home)
    assert not server.socket.exists()
    with tvsnap.Cache(home, policy="never", prefork=0) as cache:
        assert_in_order(cache)


@WORKERS
def test_what_is_under_way_ends_and_nothing_begins(home: Path, workers: str) -> None:
    server = start(home, "--workers", workers, "--grace", "300")
    idle, under_way, kept = open_rollout(server), UnderWay(server), _connection(server)
    kept.request("GET", "/readyz")
    assert json.load(kept.getresponse())["status"] == "ready"
    server.process.send_signal(signal.SIGTERM)
    try:
        eventually(lambda: answer_of(server, "GET", "/readyz")[0] == 503, timeout=60)
        if workers == "1":  # else it may be that of the process that has nothing to do, and has ended
            kept.request("GET", "/readyz")
            answer = kept.getresponse()
            assert (answer.status, json.load(answer)) == (503, {"status": "stopping"})
        for path, body, kind in (
            ("/v1/rollouts", {"image": "terminal"}, "Stopping"),
            ("/v1/images", {"source": "terminal"}, "Stopping"),
            (idle, {"name": "bash", "arguments": {"command": "echo another"}}, "ServerStopped"),
        ):
            status, headers, data = answer_of(server, "POST", path, body)
            assert (status, data["error"]["type"]) == (503, kind)
            assert int(headers["retry-after"]) >= 1
    finally:
        under_way.let_go()
    status, _, data = under_way.done()
    assert (status, data["result"]["parts"][0]["text"].splitlines()[-1]) == (200, "done")
    assert server.process.wait(60) == 0
    _assert_nothing_is_left(server, home)


@WORKERS
def test_what_does_not_end_in_time_is_told_so(home: Path, workers: str) -> None:
    server = start(home, "--workers", workers, "--grace", "1")
    under_way = [UnderWay(server) for _ in range(3)]
    with (
        tvsnap.connect(server.url) as client,
        client.rollout("terminal", salt=secrets.token_hex(4)) as rollout,
        ThreadPoolExecutor() as threads,
    ):
        call = threads.submit(rollout.call, "bash", {"command": "sleep 1000"}, 1200)
        eventually(lambda: any(one["running"] for one in _rollouts(server, rollout)), timeout=60)
        assert server.stop() == 0
        with pytest.raises(ServerStopped, match="was not finished"):
            call.result(60)
    for one in under_way:
        status, headers, data = one.done()
        assert (status, data["error"]["type"]) == (503, "ServerStopped")
        assert int(headers["retry-after"]) >= 1
    _assert_nothing_is_left(server, home)


def _rollouts(server: Server, rollout: Any) -> list[Any]:
    _, _, data = answer_of(server, "GET", "/v1/rollouts")
    return [one for one in data["rollouts"] if one["name"] == rollout.id]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_was_not_begun_is_begun_when_the_server_runs_again(home: Path, kind: str) -> None:
    server = start(home, "--grace", "300")
    under_way, url = UnderWay(server), f"unix:{server.socket}"

    def begin() -> str:
        with tvsnap.connect(url) as client:
            connected.set()
            told.wait(60)
            with client.rollout("terminal") as rollout:
                return rollout.call("bash", {"command": "echo on"}).output

    async def begin_async() -> str:
        async with await tvsnap.aio.connect(url) as client:
            connected.set()
            await asyncio.to_thread(told.wait, 60)
            async with client.rollout("terminal") as rollout:
                return (await rollout.call("bash", {"command": "echo on"})).output

    connected, told = threading.Event(), threading.Event()
    with ThreadPoolExecutor() as threads:
        begun = threads.submit(begin if kind == "sync" else lambda: asyncio.run(begin_async()))
        assert connected.wait(60)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: answer_of(server, "GET", "/readyz")[0] == 503, timeout=60)
        told.set()
        eventually(lambda: "Stopping" in _refusals(server), timeout=60)
        under_way.let_go()
        assert server.process.wait(60) == 0
        assert not begun.done()
        again = start(home)
        assert begun.result(60) == "on\n"
        assert again.stop() == 0


@WORKERS
def test_a_build_does_not_hold_up_the_end(home: Path, tmp_path: Path, workers: str) -> None:
    waiting = f"sleep {10**9 + secrets.randbelow(10**9)}"
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "image.yaml").write_text(f"image: terminal\nrun: ['{waiting}']\n")
    server = start(home, "--grace", "1", "--workers", workers)
    with tvsnap.connect(server.url) as client, ThreadPoolExecutor() as threads:
        building = threads.submit(client.images.build, folder)
        eventually(lambda: processes_that_name(waiting) or building.done(), timeout=60)
        assert not building.done(), building.exception()
        assert server.stop() == 0  # within half a minute
        with pytest.raises((Stopping, ConnectionError)):
            building.result(60)
    assert processes_that_name(waiting) == []
    _assert_nothing_is_left(server, home)


def test_uploads_and_tvcaches_clients_are_refused(home: Path) -> None:
    server = start(home, "--grace", "300", "--tvcache")
    under_way = UnderWay(server)
    server.process.send_signal(signal.SIGTERM)
    try:
        eventually(lambda: answer_of(server, "GET", "/readyz")[0] == 503, timeout=60)
        for method, path, body in (
            ("PUT", "/put", {"task_name": "t", "history": ["a"], "values": ["b"]}),
            ("GET", "/get?task_name=t&tool_calls=a", None),
            ("POST", "/should_fork", {"task_name": "t", "history": []}),
            ("PUT", f"/v1/contents/{'0' * 64}", "x"),
        ):
            status, headers, data = answer_of(server, method, path, body)
            assert status == 503, (path, data)
            assert int(headers["retry-after"]) >= 1
    finally:
        under_way.let_go()
    assert under_way.done()[0] == 200
    assert server.process.wait(60) == 0


def _refusals(server: Server) -> str:
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        return str(answer.read())
