"""Several processes that serve one data directory together, and what becomes of them when they are killed."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import tvsnap
from tests.conformance.helpers import eventually, is_running
from tests.control_groups import control_groups
from tests.faults.consistency import assert_graph_is_sound
from tests.server.conftest import Server, start
from tests.server.test_server import ask
from tvsnap.graph import Graph
from tvsnap.host import owners
from tvsnap.plugins.client.wire.errors import WorkerDied
from tvsnap.protocols import AnyCache

SEED = 32
CLIENTS = 4
KILLS = 4


def workers_of(server: Server) -> list[int]:
    """Returns the process ids of the workers."""
    task = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    return [int(number) for number in task.read_text().split()]


def processes_that_name(text: str) -> list[int]:
    """Returns the ids of processes in whose command line or environment a text is."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text.encode() in (process / "cmdline").read_bytes() + (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


@pytest.fixture
def home(server_home: Path, tmp_path: Path) -> Path:
    """A data directory of its own, with the images of the session."""
    made = tmp_path / "home"
    made.mkdir()
    (made / "images").symlink_to((server_home / "images").resolve())
    return made


@pytest.fixture
def several(home: Path) -> Iterator[Server]:
    """A server of two processes."""
    server = start(home, "--workers", "2")
    yield server
    assert server.stop() == 0


def test_a_key_belongs_to_one_worker_whoever_is_asked(several: Server) -> None:
    # Each request has a connection of its own, which either process may accept.
    begun = [
        ask(several, "POST", "/v1/rollouts", {"image": "terminal", "salt": key}, idempotency_key=key)[1]["id"]
        for key in ("a", "b", "c", "d")
        for _ in range(4)
    ]
    assert len(set(begun)) == 4
    assert {id.split("-")[0] for id in begun} == {"w0", "w1"}
    assert {one["id"] for one in ask(several, "GET", "/v1/rollouts")[1]["rollouts"]} == set(begun)
    for id in begun[::4]:
        call = {"name": "bash", "arguments": {"command": "echo x >> /tmp/log; cat /tmp/log"}}
        answers = [ask(several, "POST", f"/v1/rollouts/{id}/calls", call, idempotency_key="k") for _ in range(4)]
        assert [answer["result"]["parts"][0]["text"] for _, answer in answers] == ["x\n"] * 4
    assert ask(several, "GET", "/v1/stats")[1]["stats"]["executed"] == 4
    with urllib.request.urlopen(f"{several.url}/metrics") as answer:
        text = answer.read().decode()
    assert 'tvsnap_held{what="rollout",worker="0"}' in text
    assert 'tvsnap_held{what="rollout",worker="1"}' in text


def test_only_workers_may_speak_as_workers(several: Server) -> None:
    status, data = ask(several, "GET", "/v1/rollouts", None, tvsnap_worker="guessed")
    assert (status, data["error"]["type"]) == (401, "Unauthorized")


def test_a_call_whose_worker_dies_says_so_and_is_not_made_again(several: Server) -> None:
    with tvsnap.connect(several.url) as client:
        rollout = client.rollout("terminal", salt=secrets.token_hex(4))
        rollout.call("bash", {"command": "true"})
        errors: list[Exception] = []
        sleep = f"sleep 30.{secrets.randbelow(10**9)}"

        def call() -> None:
            try:
                rollout.call("bash", {"command": sleep}, timeout=60)
            except tvsnap.TvsnapError as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        eventually(lambda: is_running(sleep))
        for pid in workers_of(several):
            os.kill(pid, signal.SIGKILL)
        thread.join(60)
        assert [type(error) for error in errors] == [WorkerDied]
        with pytest.raises(WorkerDied, match="rollout"):
            rollout.call("bash", {"command": "true"})
        with client.rollout("terminal") as other:
            assert other.call("bash", {"command": "echo on"}).output == "on\n"


def test_a_worker_that_is_frozen_is_started_again(home: Path, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        server = start(home, "--workers", "2", "--worker-patience", "3", log=log)
    try:
        begun = {
            ask(server, "POST", "/v1/rollouts", {"image": "terminal", "salt": key}, idempotency_key=key)[1]["id"]: key
            for key in ("a", "b", "c", "d")
        }
        frozen, lives = workers_of(server)
        os.kill(frozen, signal.SIGSTOP)
        eventually(lambda: frozen not in workers_of(server))
        eventually(lambda: len(workers_of(server)) == 2)
        assert lives in workers_of(server)
        call = {"name": "bash", "arguments": {"command": "echo on"}}
        said = {id: ask(server, "POST", f"/v1/rollouts/{id}/calls", call) for id in begun}
        assert {id.split("-")[0] for id, (status, _) in said.items() if status == 200} == {"w1"}
        assert {answer["error"]["type"] for status, answer in said.values() if status != 200} == {"WorkerDied"}
        for key in begun.values():  # the one that was started again serves
            assert ask(server, "POST", "/v1/rollouts", {"image": "terminal"}, idempotency_key=f"{key} again")[0] == 201
        assert "has done nothing for" in (tmp_path / "log").read_text()
    finally:
        assert server.stop() == 0


CLIENT = """
import secrets, sys, tvsnap
with tvsnap.connect(sys.argv[1]) as client:
    print("begun", flush=True)
    while True:
        with client.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
            for _ in range(5):
                rollout.call("bash", {"command": "echo x >> /tmp/x"})
"""


def test_workers_and_clients_killed_at_random(home: Path) -> None:
    chance = random.Random(SEED)
    server = start(home, "--workers", "2", "--ttl", "10")
    stop, died, made, failures = threading.Event(), [0], [0], list[BaseException]()

    def work() -> None:
        try:
            with tvsnap.connect(server.url) as client:
                while not stop.is_set():
                    with contextlib.suppress(WorkerDied):
                        write(client)
                        continue
                    died[0] += 1
        except BaseException as error:
            failures.append(error)

    def write(client: AnyCache) -> None:
        """Has a file in a rollout's sandbox grow by a line a call: one that was made twice would be seen."""
        with client.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
            for number in range(1, 7):
                result = rollout.call("bash", {"command": f"echo {number} >> /tmp/log; cat /tmp/log"}, timeout=60)
                assert result.output == "".join(f"{line}\n" for line in range(1, number + 1))
                made[0] += 1

    def client_process() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", CLIENT, server.url], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for _ in range(KILLS):
        process = client_process()
        time.sleep(chance.uniform(0.2, 0.8))
        process.kill()
        process.wait()
        os.kill(chance.choice(workers_of(server)), signal.SIGKILL)
        eventually(lambda: len(workers_of(server)) == 2)
    enough = made[0] + 12
    eventually(lambda: made[0] >= enough)  # they go on
    stop.set()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert died[0] >= 1
    eventually(lambda: ask(server, "GET", "/v1/rollouts")[1]["rollouts"] == [])  # also those of killed clients
    known = [owner.name for owner in (home / "run" / "owners").iterdir()]
    assert server.stop() == 0
    assert not owners.dead_owners(home)
    assert processes_that_name(str(home)) == []
    assert [group for owner in known for group in control_groups(f"*{owner}*")] == []
    with Graph(home / "tvsnap.db"):
        assert_graph_is_sound(home)


def test_workers_end_with_the_process_that_has_started_them(home: Path) -> None:
    server = start(home, "--workers", "2")
    before = workers_of(server)
    with tvsnap.connect(server.url) as client:
        client.rollout("terminal").call("bash", {"command": "true"})
        server.process.kill()
        server.process.wait()
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in before))
    assert not owners.dead_owners(home)
    assert start(home, "--workers", "2").stop() == 0  # the Unix socket that was left is no hindrance
