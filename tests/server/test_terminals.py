"""Terminals of sandboxes elsewhere: what is typed, the size, what happens when a side ends, and who is let in."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tvsnap
import tvsnap.aio
from tests.authority import Authority
from tests.conformance.helpers import eventually
from tests.server.conftest import Server, start, url_of
from tests.server.test_limits import home as home
from tests.server.test_server import ask
from tests.server.test_tenants import ONE, TWO
from tests.server.test_tenants import guarded as guarded
from tests.server.test_tls import authority as authority
from tests.server.test_tls import serving
from tests.server.test_workers import processes_that_name
from tvsnap.model.errors import NotFound, UsageError
from tvsnap.plugins.client.client import Client
from tvsnap.plugins.client.terminals import Terminal, open_terminal
from tvsnap.plugins.client.transport import Transport
from tvsnap.plugins.client.wire.errors import Busy, Stopping, Unauthorized


def screen_until(terminal: Terminal, text: bytes, timeout: float = 60.0) -> bytes:
    """Returns what a terminal has shown, once that holds a text."""
    seen, until = b"", time.monotonic() + timeout
    while text not in seen:
        assert select.select([terminal], [], [], max(0, until - time.monotonic()))[0], seen
        data = terminal.receive()
        assert data is not None, seen
        seen += data
    return seen


@contextlib.contextmanager
def a_state(client: Client) -> Iterator[str]:
    """A block with a state in which something was done."""
    with client.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "cd /tmp; X=kept"})
        yield rollout.state


@pytest.mark.parametrize("where", ["tcp", "unix"])
def test_keys_size_and_interrupts(server: Server, where: str) -> None:
    with (
        tvsnap.connect(server.url if where == "tcp" else f"unix:{server.socket}") as client,
        a_state(client) as state,
        client.terminal(state, 91, 33) as terminal,
    ):
        terminal.send(b"echo $X-$PWD; stty size\n")
        screen_until(terminal, b"kept-/tmp\r\n33 91\r\n")
        terminal.resize(120, 50)
        waiting = f"sleep {10**9 + secrets.randbelow(10**9)}"
        terminal.send(b"stty size; " + waiting.encode() + b"\n")
        screen_until(terminal, b"50 120\r\n")
        eventually(lambda: processes_that_name(waiting.replace(" ", "\0")), timeout=60)
        terminal.send(b"\x03")
        terminal.send(b"echo $((6 * 7))\n")
        screen_until(terminal, b"\r42\r\n")
        assert processes_that_name(waiting.replace(" ", "\0")) == []
        terminal.send(b"exit\n")
        while terminal.receive() is not None:
            pass
        assert terminal.ended == "shell"


def test_what_is_not_taken_does_not_pile_up(server: Server) -> None:
    with tvsnap.connect(server.url) as client, a_state(client) as state, client.terminal(state) as terminal:
        terminal.send(b"stty -echo; seq 100000; seq 100000 | tail -n 1 > /tmp/through\n")
        before = _memory(server.process.pid)
        time.sleep(1)  # the client takes nothing meanwhile
        assert _memory(server.process.pid) < before + (4 << 20)
        # The sandbox does not wait for who reads: of what it prints, any part is left out where the server is late.
        seen, until = b"", time.monotonic() + 60
        while b"\r\n100000 came\r\n" not in seen[-4096:]:
            assert time.monotonic() < until, seen[-4096:]
            if select.select([terminal], [], [], 1.0)[0]:
                seen += terminal.receive() or b""
            else:
                terminal.send(b"echo; echo $(cat /tmp/through) came\n")


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _held(server: Server) -> int:
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return int(float(next(line for line in lines if 'held{what="sandbox"}' in line).split()[1]))


CLIENT = """
import sys, tvsnap
client = tvsnap.connect(sys.argv[1])
terminal = client.terminal(sys.argv[2])
terminal.send(sys.argv[3].encode() + b"\\n")
while terminal.receive() is not None:
    pass
"""


def test_a_fork_ends_with_a_client_that_vanishes(home: Path) -> None:
    server = start(home)
    try:
        with tvsnap.connect(server.url) as client, a_state(client) as state:
            waiting = f"sleep {10**9 + secrets.randbelow(10**9)}"
            words = [sys.executable, "-c", CLIENT, server.url, state, waiting]
            with subprocess.Popen(words, cwd=Path(__file__).parents[2]) as process:
                eventually(lambda: processes_that_name(waiting.replace(" ", "\0")), timeout=60)
                assert _held(server) == 1
                process.send_signal(signal.SIGKILL)
            eventually(lambda: processes_that_name(waiting.replace(" ", "\0")) == [], timeout=60)
            eventually(lambda: _held(server) == 0, timeout=60)
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("place", ["tcp", "workers"])
def test_the_sandbox_of_a_rollout_is_joined_wherever_it_is(request: pytest.FixtureRequest, place: str) -> None:
    request.param = place
    with tvsnap.connect(url_of(request)) as client:
        for _ in range(4):  # with several processes, some arrive at one that has not the sandbox
            with client.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
                sandbox = rollout.sandbox()
                with sandbox.attach(80, 24) as terminal:
                    terminal.send(b"Y=typed; stty size\n")
                    screen_until(terminal, b"24 80\r\n")
                kept = rollout.keep("by hand")
                assert rollout.call("bash", {"command": "echo $Y"}).output == "typed\n"
                assert client.graph.resolve(kept).hash == kept


def test_it_is_awaited(server: Server) -> None:
    async def work() -> bytes:
        async with (
            await tvsnap.aio.connect(server.url) as client,
            client.rollout("terminal", salt=secrets.token_hex(4)) as rollout,
        ):
            await rollout.call("bash", {"command": "Z=awaited"})
            await rollout.settled()
            seen = b""
            async with await client.terminal(rollout.state, 77, 22) as terminal:
                await terminal.resize(88, 23)
                await terminal.send(b"stty size; echo $Z\n")
                while b"23 88\r\nawaited\r\n" not in seen:
                    shown = await asyncio.wait_for(terminal.receive(), 60)
                    assert shown is not None, seen
                    seen += shown
            return seen

    assert asyncio.run(work())


def test_by_tls(home: Path, authority: Authority) -> None:
    certificate = authority.issue("server", "subjectAltName=IP:127.0.0.1")
    with (
        serving(home, "--tls-certificate", certificate) as server,
        tvsnap.connect(server.url, ca=authority.file) as client,
        a_state(client) as state,
        client.terminal(state) as terminal,
    ):
        for number in range(40):  # in parts, as what a client takes too slowly is left out
            terminal.send(b"seq 500; echo $X %d\n" % number)
            screen_until(terminal, b"\r\n500\r\nkept %d\r\n" % number)


def test_who_is_let_in(guarded: Server) -> None:
    with tvsnap.connect(guarded.url, ONE) as one, tvsnap.connect(guarded.url, TWO) as two, a_state(one) as state:
        with one.terminal(state) as terminal:
            terminal.send(b"echo $X\n")
            screen_until(terminal, b"kept\r\n")
        with pytest.raises(NotFound):
            two.terminal(state)
        with one.materialise(state) as sandbox, pytest.raises(NotFound):
            open_terminal(two.transport, f"/v1/sandboxes/{sandbox.id}/attach")
        for token in (None, "d" * 32):
            with pytest.raises(Unauthorized):
                Client(Transport(guarded.url, token)).terminal(state)
    with tvsnap.connect(guarded.url, TWO, patience=0) as two, a_state(two) as state:
        with two.terminal(state) as terminal, pytest.raises(Busy):  # sandboxes=1
            two.terminal(state)
        assert terminal.ended is None


def test_pages_of_the_web_are_refused(server: Server) -> None:
    with tvsnap.connect(server.url) as client, a_state(client) as state:
        path = f"/v1/states/{state}/terminal"
        assert b"401" in _handshake(server, path, "Origin: http://127.0.0.1").split(b"\r\n")[0]
        assert b"401" in _handshake(server, path, host="elsewhere.example").split(b"\r\n")[0]
        assert b"101" in _handshake(server, path).split(b"\r\n")[0]
        assert b"404" in _handshake(server, "/v1/nothing").split(b"\r\n")[0]
        assert b"400" in _handshake(server, f"{path}?columns=0").split(b"\r\n")[0]
        status, told = ask(server, "GET", path)
        assert (status, told["error"]["type"]) == (426, "UsageError")
        with client.terminal(state) as terminal:
            terminal._connection.send(terminal._frames.message('{"columns": "wide"}'))
            while terminal.receive() is not None:
                pass
        assert terminal._frames.code == 1008


def _handshake(server: Server, path: str, *headers: str, host: str = "127.0.0.1") -> bytes:
    address, port = server.url.removeprefix("http://").split(":")
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade", *headers]
    lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13"]
    with socket.create_connection((address, int(port)), 60) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return connection.recv(65536)


def test_terminals_count_as_connections(home: Path) -> None:
    server = start(home, "--max-connections", "3")
    try:
        with (
            tvsnap.connect(server.url, patience=0) as client,
            a_state(client) as state,
            contextlib.ExitStack() as open_,
        ):
            client.transport.close()
            for _ in range(3):
                open_.enter_context(client.terminal(state))
            with pytest.raises(Busy, match="--max-connections"):
                client.terminal(state)
            open_.close()
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_that_stops_tells_it(home: Path, workers: str) -> None:
    server = start(home, "--grace", "5", "--workers", workers)
    with tvsnap.connect(server.url, patience=0) as client:
        rollout = client.rollout("terminal", salt=secrets.token_hex(4))
        rollout.call("bash", {"command": "X=1"})
        terminal = client.terminal(rollout.state)
        terminal.send(b"echo $X$X\n")
        screen_until(terminal, b"11\r\n")
        server.process.send_signal(signal.SIGTERM)
        if workers == "1":
            with pytest.raises(Stopping):
                eventually(lambda: client.terminal(rollout.state).close())
        with contextlib.suppress(ConnectionError):
            while terminal.receive() is not None:
                pass
        assert terminal.ended == "server"
        assert server.process.wait(60) == 0


def test_the_verb_joins_the_terminal(server: Server) -> None:
    with tvsnap.connect(server.url) as client, a_state(client) as state:
        master, slave = pty.openpty()
        words = ["shell", state[:16], "--keep", "--task", "typed", "--url", server.url]
        process: Any = subprocess.Popen(
            [sys.executable, "-m", "tests.server.main", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
        os.close(slave)
        os.write(master, b"W=by-hand; echo $X-$W\n")
        shown = _shown_until(master, b"kept-by-hand\r\n")
        os.write(master, b"\x1d")
        shown = _shown_until(master, None, shown)
        assert process.wait(60) == 0
        os.close(master)
        kept = shown.split()[-1].decode()
        with client.materialise(kept) as sandbox:
            assert sandbox.run("echo $W", timeout=10).output == b"by-hand\n"


def _shown_until(master: int, text: bytes | None, shown: bytes = b"") -> bytes:
    """Returns what was shown at a terminal of this machine up to a text, or its end."""
    until = time.monotonic() + 60
    while text is None or text not in shown:
        assert select.select([master], [], [], max(0, until - time.monotonic()))[0], shown
        try:
            shown += os.read(master, 65536)
        except OSError:
            assert text is None, shown
            break
    return shown


def test_sizes_make_sense(server: Server) -> None:
    with tvsnap.connect(server.url) as client, a_state(client) as state, pytest.raises(UsageError):
        client.terminal(state, 0, 24)
