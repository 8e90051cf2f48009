"""The graph under several processes at once, and under kill -9.

The processes are real: this file run as a script is a worker.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.graph_helpers import add_root, call, claim, disorder, look, step, walk
from tvsnap.graph import Graph
from tvsnap.host import owners
from tvsnap.host.owners import Owner

PROJECT = Path(__file__).parents[2]
DATABASE = "tvsnap.db"
TOPS = 150  # to be forgotten


class Worker:
    """This file, run by another process; speaks in lines."""

    def __init__(self, role: str, home: Path, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, role, str(home), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
        )

    def hear(self) -> str:
        """Returns the next line that it says; empty once it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def hear_all(self) -> list[str]:
        """Returns all lines until it ends."""
        assert self.process.stdout is not None
        lines = self.process.stdout.read().split("\n")
        self.process.wait()
        # The last line may have been cut short by a kill.
        return lines[:-1]

    def tell(self) -> None:
        """Lets it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kills it as nothing can be caught."""
        self.process.kill()
        self.process.wait()


Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    workers: list[Worker] = []

    def start(role: str, *arguments: object) -> Worker:
        workers.append(Worker(role, tmp_path, *arguments))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()
    if (tmp_path / DATABASE).exists():
        assert disorder(tmp_path / DATABASE) == []


def process_of(owner: str) -> str:
    """Returns the id of the process in a lease owner's name."""
    return owner.split("/")[0]


def test_of_two_processes_that_want_a_lease_one_gets_it(tmp_path: Path, start: Start) -> None:
    with Graph(tmp_path / DATABASE) as graph:
        add_root(graph)
    workers = [start("race for leases", 100) for _ in range(3)]
    for worker in workers:
        assert worker.hear() == "ready"
    for worker in workers:
        worker.tell()
    won = [worker.hear_all() for worker in workers]
    assert sorted(int(key) for keys in won for key in keys) == list(range(100))


def test_the_lease_of_a_killed_process_is_taken_over_by_one(tmp_path: Path, start: Start) -> None:
    with Graph(tmp_path / DATABASE) as graph:
        root, key = add_root(graph), call("make").key
        holder = start("hold a lease")
        dead_owner = holder.hear()

        def is_alive(owner: str) -> bool:
            return owners.is_alive(tmp_path, process_of(owner))

        holder.process.send_signal(signal.SIGSTOP)
        assert not claim(graph, root, "make", "me", is_alive), "a stopped process is alive"
        holder.kill()
        assert owners.dead_owners(tmp_path) == [process_of(dead_owner)]
        workers = [start("take over", dead_owner) for _ in range(3)]
        for worker in workers:
            assert worker.hear() == "ready"
        for worker in workers:
            worker.tell()
        assert sorted(worker.hear() for worker in workers) == ["lost", "lost", "taken"]
        lease = graph.holder(root, key)
        assert lease is not None
        assert lease.owner != dead_owner
        for worker in workers:
            worker.kill()
        assert claim(graph, root, "make", "me", is_alive)
        assert owners.remove(tmp_path, process_of(dead_owner))
        assert process_of(dead_owner) not in owners.dead_owners(tmp_path)


def test_a_killed_owner_is_dead_though_its_children_live(tmp_path: Path, start: Start) -> None:
    worker = start("leave children")
    owner, *children = worker.hear().split()
    try:
        assert owners.is_alive(tmp_path, owner)
        worker.kill()
        # The forked child may not have run yet, and so not have closed what it inherited.
        deadline = time.monotonic() + 60
        while owners.is_alive(tmp_path, owner) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not owners.is_alive(tmp_path, owner)
        for child in children:
            os.kill(int(child), 0)
    finally:
        for child in children:
            os.kill(int(child), signal.SIGKILL)


def test_processes_that_open_a_new_directory_at_once(tmp_path: Path, start: Start) -> None:
    workers = [start("open") for _ in range(4)]
    for worker in workers:
        assert worker.hear() == "ready"
    for worker in workers:
        worker.tell()
    assert [worker.hear() for worker in workers] == ["opened"] * 4


def test_several_processes_write_at_once(tmp_path: Path, start: Start) -> None:
    workers = [start("write", number, 150) for number in range(3)]
    for worker in workers:
        assert worker.hear() == "ready"
    for worker in workers:
        worker.tell()
    said = [worker.hear_all() for worker in workers]
    assert all(worker.process.returncode == 0 for worker in workers)
    assert said[0] == said[1] == said[2], "all saw the same first writer of each shared call"
    with Graph(tmp_path / DATABASE) as graph:
        nodes = graph.tree()
        assert len(nodes) == 151
        assert sum(len(node.unchanging) for node in nodes) == 3 * 150
        assert graph.counters() == {"calls": 3 * 2 * 150}
        assert sum(node.made_by.hits for node in nodes if node.made_by) == 3 * 150


def test_what_one_process_marks_another_no_longer_serves(tmp_path: Path, start: Start) -> None:
    with Graph(tmp_path / DATABASE) as graph:
        root = add_root(graph)
        step(graph, root, "ps")
        assert graph.lookup(root, call("ps"), 30.0) is not None
        worker = start("mark")
        assert worker.hear() == "marked"
        assert graph.lookup(root, call("ps"), 30.0) is None


def test_a_process_killed_while_writing_leaves_whole_calls_only(tmp_path: Path, start: Start) -> None:
    rng = random.Random(9)
    acknowledged: set[str] = set()
    for number in range(8):
        worker = start("write until killed", number)
        assert worker.hear() == "ready"
        acknowledged |= {worker.hear() for _ in range(20)}
        time.sleep(rng.uniform(0.0, 0.3))
        worker.kill()
        acknowledged |= set(worker.hear_all())
        assert disorder(tmp_path / DATABASE) == []
    assert len(acknowledged) > 100
    with Graph(tmp_path / DATABASE) as graph:
        for line in acknowledged:
            state, command = line.split(" ", 1)
            assert graph.lookup(state, call(command), 30.0) is not None
        walk(graph, add_root(graph), "life", "goes", "on")


def test_a_process_killed_while_others_write(tmp_path: Path, start: Start) -> None:
    survivors = [start("write", number, 100) for number in range(2)]
    victim = start("write until killed", 7)
    for worker in (*survivors, victim):
        assert worker.hear() == "ready"
    for worker in survivors:
        worker.tell()
    time.sleep(0.05)
    victim.kill()
    for worker in survivors:
        worker.hear_all()
        assert worker.process.returncode == 0


def test_a_process_killed_while_forgetting_has_forgotten_all_or_nothing(tmp_path: Path, start: Start) -> None:
    with Graph(tmp_path / DATABASE) as graph:
        root = add_root(graph)
        for number in range(TOPS):
            top = walk(graph, root, f"top {number}", *map(str, range(20)))
            look(graph, top[-1], "ls")
    worker = start("forget until killed")
    for _ in range(10):
        assert worker.hear() != ""
    worker.kill()
    with Graph(tmp_path / DATABASE) as graph:
        left = len(graph.children(root))
        assert 0 < left < TOPS
        assert len(graph.tree()) == 1 + 21 * left


# What the workers do: each is given the data directory and its own arguments.


def say(line: str) -> None:
    """Says one line, at once."""
    print(line, flush=True)


def wait() -> None:
    """Waits for `Worker.tell`."""
    say("ready")
    sys.stdin.readline()


def open_it(home: Path) -> None:
    wait()
    Graph(home / DATABASE).close()
    say("opened")


def race_for_leases(home: Path, count: str) -> None:
    graph = Graph(home / DATABASE)
    root = add_root(graph)
    numbers = list(range(int(count)))
    random.shuffle(numbers)
    wait()
    for number in numbers:
        if claim(graph, root, str(number), f"{os.getpid()}/race"):
            say(str(number))


def hold_a_lease(home: Path) -> None:
    graph, owner = Graph(home / DATABASE), Owner(home)
    assert claim(graph, add_root(graph), "make", f"{owner.id}/token")
    say(f"{owner.id}/token")
    time.sleep(600)


def take_over(home: Path, dead_owner: str) -> None:
    graph, owner = Graph(home / DATABASE), Owner(home)
    wait()
    taken = claim(graph, add_root(graph), "make", f"{owner.id}/token", lambda other: other != dead_owner)
    say("taken" if taken else "lost")
    time.sleep(600)


def leave_children(home: Path) -> None:
    owner = Owner(home)
    with subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL) as started:
        forked = os.fork()
        if forked == 0:
            time.sleep(600)
            os._exit(0)
        say(f"{owner.id} {started.pid} {forked}")
        time.sleep(600)


def write(home: Path, name: str, calls: str) -> None:
    with Graph(home / DATABASE) as graph:
        state = add_root(graph)
        counted: list[float] = []
        graph.count_by(lambda: {"calls": sum(counted.pop() for _ in range(len(counted)))})
        wait()
        for number in range(int(calls)):
            shared = step(graph, state, f"shared {number}", output=name, task=name)
            look(graph, state, f"own {name} {number}", task=name)
            graph.touch_hit(shared, name)
            counted.append(2)
            say(f"{shared.id} {shared.result.output}")
            state = shared.next_state


def write_until_killed(home: Path, name: str) -> None:
    graph = Graph(home / DATABASE)
    state = root = add_root(graph)
    say("ready")
    for number in range(1_000_000):
        command = f"{name} {number}"
        edge = step(graph, state, command, output="x" * (number % 50 * 200), task=name)
        say(f"{state} {command}")
        claim(graph, state, f"{command} again", "me")
        graph.touch_hit(edge)
        state = edge.next_state if number % 20 else root
        if number % 50 == 0:
            graph.flush()


def forget_until_killed(home: Path) -> None:
    graph = Graph(home / DATABASE)
    for number, state in enumerate(graph.children(add_root(graph))):
        if number == TOPS // 2:  # whoever listens is late
            sys.stdin.readline()
        graph.forget(state.hash)
        say(state.hash)


def mark(home: Path) -> None:
    graph = Graph(home / DATABASE)
    (edge,) = graph.out_edges(add_root(graph))
    graph.mark_nondeterministic(edge, "differs")
    say("marked")


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {
        "open": open_it,
        "race for leases": race_for_leases,
        "hold a lease": hold_a_lease,
        "take over": take_over,
        "leave children": leave_children,
        "write": write,
        "write until killed": write_until_killed,
        "forget until killed": forget_until_killed,
        "mark": mark,
    }
    roles[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
