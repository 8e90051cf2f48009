"""Leases within one process, and owners."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.graph_helpers import add_root, call, claim, look
from tvsnap.graph import Graph, Lease
from tvsnap.host import owners
from tvsnap.host.owners import Owner
from tvsnap.model.errors import MachineLacks


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph(tmp_path / "tvsnap.db") as graph:
        yield graph


def test_one_holds_it_until_it_is_released(graph: Graph) -> None:
    root, key = add_root(graph), call("make").key
    assert graph.holder(root, key) is None
    assert claim(graph, root, "make", "a")
    assert not claim(graph, root, "make", "b")
    assert claim(graph, root, "make", "a"), "it knows what it executes"
    lease = graph.holder(root, key)
    assert lease is not None
    assert (lease.state, lease.call_key, lease.owner) == (root, key, "a")
    assert claim(graph, root, "other", "b")
    assert not graph.release(root, key, "b")
    assert graph.release(root, key, "a")
    assert not graph.release(root, key, "a")
    assert claim(graph, root, "make", "b")


def test_a_dead_holders_lease_is_taken_over_once(graph: Graph) -> None:
    root, key = add_root(graph), call("make").key
    assert claim(graph, root, "make", "dead")
    assert claim(graph, root, "make", "a", lambda owner: owner != "dead")
    assert not claim(graph, root, "make", "b", lambda owner: owner != "dead")
    assert claim(graph, root, "make", "b", lambda owner: owner != "a")
    lease = graph.holder(root, key)
    assert lease is not None
    assert lease.owner == "b"


def test_what_is_answered_is_claimed_by_nobody(graph: Graph) -> None:
    root = add_root(graph)
    edge = look(graph, root, "ls", "f\n")
    assert graph.claim(root, call("ls"), 30.0, owner="a", is_alive=lambda owner: True) == edge
    slow = graph.claim(root, call("ls"), edge.result.duration / 2, owner="a", is_alive=lambda owner: True)
    assert isinstance(slow, Lease), "whoever gives it less time cannot be answered"
    assert [lease.call_key for lease in graph.leases()] == [call("ls").key]


def test_what_is_shared_with_nobody_needs_no_lease(graph: Graph) -> None:
    root = add_root(graph)
    graph.mark_nondeterministic(look(graph, root, "date"), "printed something else")
    assert graph.claim(root, call("date"), 30.0, owner="a", is_alive=lambda owner: True) is None
    assert graph.leases() == []


def test_sweeping(graph: Graph) -> None:
    root = add_root(graph)
    for number, owner in enumerate(["dead", "alive", "dead", "gone"]):
        claim(graph, root, str(number), owner)
    assert graph.sweep_leases(lambda owner: owner == "alive") == 3
    assert [lease.owner for lease in graph.leases()] == ["alive"]
    assert graph.sweep_leases(lambda owner: True) == 0


def test_threads_that_race_for_leases(graph: Graph) -> None:
    root = add_root(graph)
    won: list[str] = []
    start = threading.Barrier(8)

    def race(owner: str) -> None:
        start.wait()
        won.extend(command for command in map(str, range(40)) if claim(graph, root, command, owner))

    threads = [threading.Thread(target=race, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won, key=int) == list(map(str, range(40)))


def test_an_owner_is_alive_until_closed(tmp_path: Path) -> None:
    first, second = Owner(tmp_path), Owner(tmp_path)
    assert first.id != second.id
    assert owners.is_alive(tmp_path, first.id)
    assert owners.dead_owners(tmp_path) == []
    assert not owners.remove(tmp_path, first.id)
    assert owners.is_alive(tmp_path, first.id)
    first.close()
    first.close()
    assert not owners.is_alive(tmp_path, first.id)
    assert owners.is_alive(tmp_path, second.id)
    second.close()
    assert os.listdir(tmp_path / "run" / "owners") == []


def test_a_dead_owner_is_listed_until_removed(tmp_path: Path) -> None:
    assert owners.dead_owners(tmp_path) == []
    owner = Owner(tmp_path)
    (tmp_path / "run" / "owners" / "123-dead.lock").touch()
    assert owners.dead_owners(tmp_path) == ["123-dead"]
    assert not owners.is_alive(tmp_path, "123-dead")
    assert owners.remove(tmp_path, "123-dead")
    assert owners.remove(tmp_path, "123-dead")
    assert owners.dead_owners(tmp_path) == []
    owner.close()


def test_files_of_owners_that_died_being_born_are_swept(tmp_path: Path) -> None:
    directory = tmp_path / "run" / "owners"
    directory.mkdir(parents=True)
    (directory / "1-dead.new").touch()
    (directory / "2-alive.new").touch()
    with (directory / "2-alive.new").open() as being_born:
        fcntl.flock(being_born, fcntl.LOCK_EX)
        owner = Owner(tmp_path)
    assert sorted(os.listdir(directory)) == sorted(["2-alive.new", f"{owner.id}.lock"])
    assert owners.dead_owners(tmp_path) == []
    owner.close()


def test_an_owner_whose_file_is_swept_while_it_is_born_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[str] = []
    flock = fcntl.flock

    def sweep_first(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not swept:
            swept.extend(path.name for path in (tmp_path / "run" / "owners").iterdir())
            Owner(tmp_path).close()  # sweeps
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    owner = Owner(tmp_path)
    assert len(swept) == 1
    assert owners.is_alive(tmp_path, owner.id)
    owner.close()


def test_an_owner_needs_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MachineLacks, match=r"cannot be written .*TVSNAP_HOME"):
        Owner(tmp_path / "file")


def test_an_owners_id_is_no_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no owner's id"):
        owners.is_alive(tmp_path, "../../x")
