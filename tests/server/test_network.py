"""A server and a client on two machines, as far as the network goes: what is cut, late or lost is never done twice."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tvsnap
import tvsnap.aio
from tests.conformance.helpers import eventually
from tests.faults.consistency import assert_in_order
from tests.server.conftest import Server, start
from tests.server.relay import Relay
from tests.server.test_limits import home as home
from tvsnap.plugins.client import async_transport, connection, liveness, transport
from tvsnap.plugins.client.connection import Connection
from tvsnap.plugins.client.http import Address
from tvsnap.plugins.client.wire.errors import Unreachable

TOKEN = "n" * 32
LOOKS = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
OUTPUT = "echo {} >> /tmp/log; sleep {}; tr '\\n' ' ' < /tmp/log"
CLIENT = """
import sys, tvsnap
url, token, salt, calls, seconds = sys.argv[1:]
with tvsnap.connect(url, token, patience=60) as client, client.rollout("terminal", salt=salt) as rollout:
    rollout.call("bash", {"command": "true"})
    for number in range(1, int(calls) + 1):
        print("call", flush=True)
        command = COMMAND.format(number, seconds)
        print(rollout.call("bash", {"command": command}, timeout=120).output, flush=True)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@dataclass
class Link:
    """Two network namespaces, joined by a cable.

    Attributes:
        server, client: the names of the namespaces.
        address: of the server's end.
    """

    server: str = field(default_factory=lambda: f"tvsnap-{os.getpid()}-s")
    client: str = field(default_factory=lambda: f"tvsnap-{os.getpid()}-c")
    address: str = "10.231.7.1"

    def lay(self) -> None:
        """Makes both."""
        for name in (self.server, self.client):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.server, "link", "add", "end", "type", "veth", "peer", "name", "end", "netns", self.client)
        for name, address in ((self.server, self.address), (self.client, "10.231.7.2")):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "end")
        self.set("up")

    def set(self, state: str) -> None:
        """Plugs the cable in (up), or pulls it (down), at the client."""
        ip("-n", self.server, "link", "set", "end", "up")
        ip("-n", self.client, "link", "set", "end", state)

    def remove(self) -> None:
        """Removes what there is of both; the cable goes with them."""
        for name in (self.server, self.client):
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)

    @staticmethod
    def inside(name: str) -> list[str]:
        """Returns what runs a command in a namespace, with the same control groups (unlike ip netns exec)."""
        return ["nsenter", f"--net=/run/netns/{name}"]

    @contextlib.contextmanager
    def losing_answers(self, port: int) -> Iterator[None]:
        """A block in which no answer arrives at the client, and the server's end of the connection breaks."""
        rule = ["INPUT", "-p", "tcp", "--sport", str(port), "-j", "REJECT", "--reject-with", "tcp-reset"]
        command = [*self.inside(self.client), "iptables", "-w"]
        subprocess.run([*command, "-A", *rule], check=True)
        try:
            yield
        finally:
            subprocess.run([*command, "-D", *rule], check=True)


@pytest.fixture
def link() -> Iterator[Link]:
    made = Link()
    try:
        made.lay()
        yield made
    finally:
        made.remove()
        listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
        assert made.server not in listed
        assert made.client not in listed


@pytest.fixture
def distant(link: Link, home: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server in the namespace of its own; the parameter is its --ttl."""
    ttl = getattr(request, "param", "120")
    (tmp_path / "tokens").write_text(TOKEN)
    (tmp_path / "tokens").chmod(0o600)
    options = ("--host", link.address, "--token-file", str(tmp_path / "tokens"), "--ttl", ttl)
    server = start(home, *options, within=link.inside(link.server))
    try:
        yield server
    finally:
        assert server.stop() == 0
    with tvsnap.Cache(home, policy="never", prefork=0) as cache:
        assert cache.graph.rollouts()
        assert_in_order(cache)


class Calls:
    """A client process that makes calls, one after another, each of which tells how often each was executed."""

    def __init__(self, link: Link, server: Server, calls: int, seconds: float) -> None:
        self._link = link
        code = CLIENT.replace("COMMAND", repr(OUTPUT))
        words = [server.url, TOKEN, secrets.token_hex(4), str(calls), str(seconds)]
        self.process = subprocess.Popen(
            [*link.inside(link.client), sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        """Returns the next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        """Waits until it has ended well."""
        assert self.process.stdout is not None
        with self.process.stdout:
            assert self.process.stdout.read() == ""
        assert self.process.wait(60) == 0


def seen_by_server(server: Server, path: str) -> dict[str, object]:
    """Asks the server by its Unix socket, which no network concerns."""
    connection = http.client.HTTPConnection("server")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(server.socket))
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"authorization": f"Bearer {TOKEN}"})
        found: dict[str, object] = json.load(connection.getresponse())
        return found


def nothing_is_held(server: Server) -> bool:
    return seen_by_server(server, "/v1/rollouts")["rollouts"] == []


def test_a_cable_that_is_pulled_amid_calls_costs_time_only(link: Link, distant: Server) -> None:
    calls = Calls(link, distant, 3, 2)
    for number in range(1, 4):
        assert calls.line() == "call"
        time.sleep(0.7)
        link.set("down")
        time.sleep(3)  # the call ends meanwhile, and its answer is lost
        link.set("up")
        assert calls.line() == " ".join(map(str, range(1, number + 1)))
    calls.end()
    eventually(lambda: nothing_is_held(distant), timeout=60)


def test_answers_that_are_lost_with_their_connections_are_given_again(link: Link, distant: Server) -> None:
    """The server has lost the connection, and the client has not been told: it finds out, and asks again."""
    calls = Calls(link, distant, 2, 1)
    for number in range(1, 3):
        assert calls.line() == "call"
        with link.losing_answers(int(distant.url.rpartition(":")[2])):
            time.sleep(2.5)
        began = time.monotonic()
        assert calls.line() == " ".join(map(str, range(1, number + 1)))
        assert time.monotonic() - began < 60
    calls.end()
    eventually(lambda: nothing_is_held(distant), timeout=60)


@pytest.mark.parametrize("distant", ["6"], indirect=True)
def test_what_a_client_held_that_vanished_with_its_cable_ends(link: Link, distant: Server) -> None:
    calls = Calls(link, distant, 2, 5)
    assert calls.line() == "call"
    time.sleep(0.5)
    link.set("down")
    calls.process.kill()
    calls.process.wait()
    calls.line()
    assert not nothing_is_held(distant)
    eventually(lambda: nothing_is_held(distant), timeout=60)


def test_pieces_that_are_late_change_nothing(server: Server) -> None:
    relay = Relay(server, late=0.03)
    try:
        with tvsnap.connect(relay.url) as client, client.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
            for number in range(1, 4):
                result = rollout.call("bash", {"command": OUTPUT.format(number, 0)})
                assert result.output.split() == [str(one) for one in range(1, number + 1)]
    finally:
        relay.close()


def test_both_ends_look_for_the_other(server: Server) -> None:
    """A connection over which nothing comes is given up within a minute, not within two hours."""
    connection = Connection(Address.parse(server.url))
    try:
        options = {name: connection._socket.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in LOOKS}
        assert options["TCP_KEEPIDLE"] + options["TCP_KEEPINTVL"] * options["TCP_KEEPCNT"] <= 60
        listed = subprocess.run(
            ["ss", "-tnoH", "state", "established"], capture_output=True, text=True, check=True
        ).stdout
        (here,) = {connection._socket.getsockname()[1]}
        (accepted,) = [line for line in listed.splitlines() if line.split()[3].endswith(f":{here}")]
        assert "timer:(keepalive," in accepted
    finally:
        connection.close()


@contextlib.contextmanager
def frozen(server: Server) -> Iterator[None]:
    """A block in which a server's process is stopped: the kernel takes what it is sent, and nothing is answered."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has clients give up a server after a few seconds."""
    for name, seconds in (("LOOK_S", 0.5), ("CALL_S", 4.0), ("SHORT_S", 2.0), ("ANSWER_S", 1.0), ("LOST_S", 0.5)):
        for module in (liveness, connection, transport, async_transport):
            monkeypatch.setattr(module, name, seconds, raising=False)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_frozen_is_given_up(server: Server) -> None:
    salt = secrets.token_hex(4)
    with tvsnap.connect(server.url) as client, client.rollout("terminal", salt=salt) as rollout:
        # Longer than a server without a sign of life is waited for: silence alone says nothing.
        assert rollout.call("bash", {"command": "sleep 6; echo there"}).output == "there\n"
        with ThreadPoolExecutor(8) as threads, frozen(server):
            for ask in (
                lambda: rollout.call("bash", {"command": "echo 1 >> /tmp/log"}),
                lambda: rollout.put(b"x" * (32 << 20), "/tmp/large"),
                client.stats,
                lambda: client.rollout("terminal", salt=salt),
                lambda: client.graph.tasks(),
            ):
                with pytest.raises(Unreachable, match=r"has shown no life for \d s"):
                    threads.submit(ask).result(60)
            threads.submit(client.close).result(60)
        with tvsnap.connect(server.url) as again, again.rollout("terminal", salt=salt) as later:
            assert later.call("bash", {"command": "echo on"}).output == "on\n"


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_frozen_for_a_moment_costs_time_only(server: Server) -> None:
    with (
        tvsnap.connect(server.url) as client,
        client.rollout("terminal", salt=secrets.token_hex(4)) as rollout,
        ThreadPoolExecutor(1) as thread,
    ):
        with frozen(server):
            waiting = thread.submit(rollout.call, "bash", {"command": "echo 1 >> /tmp/log; cat /tmp/log"})
            time.sleep(2.5)
        assert waiting.result(60).output == "1\n"


@pytest.mark.usefixtures("impatient")
def test_an_awaited_client_gives_up_a_server_that_is_frozen(server: Server) -> None:
    async def work() -> None:
        async with await tvsnap.aio.connect(server.url) as client:
            rollout = client.rollout("terminal", salt=secrets.token_hex(4))
            result = await rollout.call("bash", {"command": "sleep 6; echo there"})
            assert result.output == "there\n"
            with frozen(server):
                for ask in (
                    lambda: rollout.call("bash", {"command": "true"}),
                    lambda: client.rollout("terminal").call("bash", {"command": "true"}),
                    lambda: client.warm("terminal"),
                ):
                    with pytest.raises(Unreachable, match=r"has shown no life for \d s"):
                        await asyncio.wait_for(ask(), 20)
                await asyncio.wait_for(rollout.close(), 20)
            later = client.rollout("terminal", salt=secrets.token_hex(4))
            assert (await later.call("bash", {"command": "echo on"})).output == "on\n"

    asyncio.run(work())
