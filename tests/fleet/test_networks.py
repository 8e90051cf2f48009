"""Hosts of a fleet whose network is bad: packets are lost or late, a cable is pulled; rollouts end right."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fleet.test_fleet import bash, servers
from tests.homes import with_images_of
from tests.server.conftest import Server, start
from tests.server.conftest import server_home as server_home
from tests.server.relay import Relay
from tvsnap import Cache
from tvsnap.plugins.fleet import Fleet

LOSS = "0.02"
"""The share of packets that are lost on their way to each host, and back."""
TOKEN = "f" * 32
CALLS = (
    "cd /tmp; A=1; echo begin > f",
    "sleep 0.5; echo $A >> f",
    "A=$((A + NUMBER)); sleep 0.5",
    "echo $A >> f; cat f",
)
CLIENT = """
import json, sys, threading
from concurrent.futures import ThreadPoolExecutor
from tvsnap.plugins.fleet import Fleet
calls, urls, token = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
begun, go = threading.Semaphore(0), threading.Event()
with Fleet(urls, token=token, patience=120) as fleet:
    def attempt(number):
        with fleet.rollout("terminal", f"task {number % 6}") as rollout:
            first = rollout.url
            for place, command in enumerate(calls):
                said = rollout.call("bash", {"command": command.replace("NUMBER", str(number % 3))}, 60).output
                if place == 0:
                    begun.release()
                    go.wait()
            return first, said, rollout.moves
    with ThreadPoolExecutor(12) as pool:
        running = [pool.submit(attempt, number) for number in range(12)]
        for _ in range(12):
            begun.acquire()
        print(json.dumps({node.url: node.rollouts for node in fleet.nodes}), flush=True)
        sys.stdin.readline()
        go.set()
        print(json.dumps([one.result() for one in running]), flush=True)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@dataclass
class Network:
    """Hosts as network namespaces, each with a cable to one in which the client is.

    Attributes:
        hosts: the names of the hosts' namespaces.
        client: that of the client.
    """

    hosts: list[str]
    client: str

    def address(self, number: int) -> str:
        """Returns a host's address."""
        return f"10.232.{number}.1"

    def lay(self) -> None:
        """Makes all of it."""
        for name in (*self.hosts, self.client):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for number, host in enumerate(self.hosts):
            ip("-n", host, "link", "add", "end", "type", "veth", "peer", "name", f"to{number}", "netns", self.client)
            ip("-n", host, "address", "add", f"{self.address(number)}/24", "dev", "end")
            ip("-n", self.client, "address", "add", f"10.232.{number}.2/24", "dev", f"to{number}")
            ip("-n", host, "link", "set", "end", "up")
            ip("-n", self.client, "link", "set", f"to{number}", "up")
        for name in (*self.hosts, self.client):
            chance = ["-m", "statistic", "--mode", "random", "--probability", LOSS]
            subprocess.run([*inside(name), "iptables", "-w", "-A", "INPUT", *chance, "-j", "DROP"], check=True)

    def pull(self, number: int) -> None:
        """Pulls a host's cable."""
        ip("-n", self.client, "link", "set", f"to{number}", "down")

    def remove(self) -> None:
        """Removes what there is of it; the cables go with it."""
        for name in (*self.hosts, self.client):
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def inside(name: str) -> list[str]:
    """Returns what runs a command in a namespace, with the same control groups (unlike ip netns exec)."""
    return ["nsenter", f"--net=/run/netns/{name}"]


def tidied(home: Path) -> None:
    """Removes what a server has left behind in its data directory."""
    Cache(home).close()


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network([f"tvsnap-{os.getpid()}-h{number}" for number in range(3)], f"tvsnap-{os.getpid()}-f")
    try:
        made.lay()
        yield made
    finally:
        made.remove()


@pytest.fixture
def distant(network: Network, server_home: Path, tmp_path: Path) -> Iterator[list[Server]]:
    """A server on each host."""
    (tmp_path / "tokens").write_text(TOKEN)
    (tmp_path / "tokens").chmod(0o600)
    with contextlib.ExitStack() as stack:
        started = []
        for number, host in enumerate(network.hosts):
            home = with_images_of(server_home, tmp_path / f"node-{number}")
            options = ("--host", network.address(number), "--token-file", str(tmp_path / "tokens"))
            server = start(home, *options, within=inside(host))
            stack.callback(tidied, home)
            stack.callback(server.stop)
            started.append(server)
        yield started


def test_a_host_whose_cable_is_pulled_amid_packets_that_are_lost(network: Network, distant: list[Server]) -> None:
    words = [json.dumps(CALLS), json.dumps([server.url for server in distant]), TOKEN]
    client = subprocess.Popen(
        [*inside(network.client), sys.executable, "-c", CLIENT, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with client:
        assert client.stdin is not None
        assert client.stdout is not None
        rollouts = json.loads(client.stdout.readline())
        victim = max(distant, key=lambda server: rollouts[server.url])
        network.pull(distant.index(victim))
        client.stdin.write("\n")
        client.stdin.flush()
        found = json.loads(client.stdout.readline())
    assert client.returncode == 0
    for number, (first, said, moves) in enumerate(found):
        assert said == f"begin\n1\n{1 + number % 3}\n"
        assert moves == (first == victim.url)
    assert sum(first == victim.url for first, _, _ in found) == rollouts[victim.url] > 0


def test_answers_that_are_late_or_cut(server_home: Path, tmp_path: Path) -> None:
    with servers(2, server_home, tmp_path) as started, contextlib.ExitStack() as stack:
        relays = [Relay(server, cuts=[900, 2500, 4000] * 4, late=0.02) for server in started]
        for relay in relays:
            stack.callback(relay.close)
        fleet = stack.enter_context(Fleet(relay.url for relay in relays))

        def attempt(number: int) -> str:
            with fleet.rollout("terminal", f"task {number}") as rollout:
                return [bash(rollout, command.replace("NUMBER", str(number)), 60.0) for command in CALLS][-1]

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(attempt, range(6))) == [f"begin\n1\n{1 + number}\n" for number in range(6)]
        assert sum(relay.connections for relay in relays) > 6
