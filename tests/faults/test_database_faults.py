"""The graph's file damaged, locked, or of another age: no wrong answer, and no error that does not name the file."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend
from tests.fakes.caches import bash, eventually, open_cache, run, settle, sources, threads
from tests.unit.graph_helpers import add_root, call, disorder, look, result, snapshot_of, step
from tests.unit.test_graph_migration import downgrade
from tvsnap.graph import Graph, NewEdge
from tvsnap.graph.rows import DamagedRecord
from tvsnap.host.database import BUSY_SECONDS
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import InfrastructureError, TvsnapError

PAGE = 4096
TIMEOUT = 30.0
FLIPS = 250

Recorded = list[tuple[str, ToolCall, ToolResult, str]]
"""State, call, what it returned, and where it led."""


def fill(graph: Graph) -> Recorded:
    """Records calls of all kinds; returns those that are to be answered."""
    answered = []
    state = add_root(graph)
    for number in range(40):
        output = f"line of output {number}\n" * (number if number % 4 else 400)
        for edge in (look(graph, state, f"look {number}", output), step(graph, state, f"step {number}", output)):
            answered.append((state, edge.call, edge.result, edge.next_state))
        graph.record(NewEdge(state, call("other"), result("private"), next_state=state, shared=False, reason="chance"))
        odd = step(graph, state, "odd", "once")
        graph.mark_nondeterministic(odd, "differs")
        state = edge.next_state
    graph.add_snapshot(snapshot_of(state))
    return answered


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recorded]:
    """A graph's file that nobody has open, and what it should answer."""
    path = tmp_path_factory.mktemp("filled") / "tvsnap.db"
    with Graph(path) as graph:
        answered = fill(graph)
    return path, answered


@pytest.fixture
def copied(filled: tuple[Path, Recorded], tmp_path: Path) -> tuple[Path, Recorded]:
    """A copy of it."""
    path = tmp_path / "tvsnap.db"
    shutil.copyfile(filled[0], path)
    return path, filled[1]


def flip(path: Path, position: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def named(path: Path, error: TvsnapError, kind: str) -> str:
    """Returns `kind` for an error that names the file."""
    assert str(path) in str(error)
    return kind


def answers(graph: Graph, recorded: Recorded) -> Iterator[str]:
    """Looks everything up; yields `right`, `none` or `error` for each, and fails if an answer is wrong."""
    for state, made, returned, led in recorded:
        try:
            edge = graph.lookup(state, made, TIMEOUT)
        except TvsnapError as error:
            yield named(graph.path, error, "error")
            continue
        if edge is None:
            yield "none"
            continue
        assert edge.result.same_value(returned), (made, edge)
        assert (edge.next_state, edge.result.duration) == (led, returned.duration)
        yield "right"
    for state in {state for state, *_ in recorded}:
        for kept in ("other", "odd"):
            with contextlib.suppress(TvsnapError):
                assert graph.lookup(state, call(kept), TIMEOUT) is None


def test_bits_flipped_anywhere(filled: tuple[Path, Recorded], tmp_path: Path) -> None:
    path, recorded = filled
    chance = random.Random(5)
    seen = dict.fromkeys(("right", "none", "error", "refused"), 0)
    for number in range(FLIPS):
        copy = tmp_path / f"{number}.db"
        shutil.copyfile(path, copy)
        for _ in range(8):
            flip(copy, chance.randrange(path.stat().st_size), chance.randrange(8))
        try:
            with Graph(copy) as graph:
                for kind in answers(graph, recorded):
                    seen[kind] += 1
        except TvsnapError as error:
            seen[named(copy, error, "refused")] += 1
        copy.unlink()
    assert min(seen.values()) > 0, seen
    assert seen["none"] > FLIPS / 10, "checksums found next to nothing"


def test_bits_flipped_in_the_log(tmp_path: Path) -> None:
    """What is in the log only is gone with the first page of it that is damaged, and all after it."""
    path = tmp_path / "tvsnap.db"
    chance = random.Random(6)
    with Graph(path) as graph:
        recorded = fill(graph)
        for number in range(20):
            copy = tmp_path / str(number) / "tvsnap.db"
            copy.parent.mkdir()
            subprocess.run(["cp", path, copy], check=True)  # see `tvsnap.host.database` for why not by this process
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
            log = Path(f"{copy}-wal")
            flip(log, chance.randrange(log.stat().st_size), chance.randrange(8))
            with Graph(copy) as damaged:
                kinds = list(answers(damaged, recorded))
            assert "error" not in kinds
            assert kinds == sorted(kinds, reverse=True), "some are right, and after the first that is not, none"
            assert disorder(copy) == []


def change_text(path: Path, old: bytes, new: bytes) -> None:
    """Changes text in a file that nobody has open; SQLite itself would not notice."""
    data = path.read_bytes()
    assert data.count(old) >= 1
    path.write_bytes(data.replace(old, new))


@pytest.mark.parametrize("new", [b"seven", b"s\xffv\xfen"])
def test_a_damaged_record_is_made_again_and_mended(tmp_path: Path, new: bytes) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache:
        assert run(cache, "echo eight; x=1", "echo $x")[0].output == "eight\n"
    change_text(tmp_path / "tvsnap.db", b"eight\n", new + b"\n")
    for expected in (["executed", "hit"], ["hit", "hit"]):
        with open_cache(tmp_path, backend) as cache:
            results = run(cache, "echo eight; x=1", "echo $x")
            assert [each.output for each in results] == ["eight\n", "1\n"]
            assert sources(results) == expected
            assert cache.stats().hits == expected.count("hit")
    assert disorder(tmp_path / "tvsnap.db") == []


def test_a_damaged_call_is_not_replayed(tmp_path: Path) -> None:
    with open_cache(tmp_path, policy="never") as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo right > f")
        settle(rollout)
        state = rollout.state
    change_text(tmp_path / "tvsnap.db", b"echo right > f", b"echo wrong > f")
    with open_cache(tmp_path, policy="never") as cache:
        with pytest.raises(DamagedRecord, match="damaged; make it again from a rollout"), cache.materialise(state):
            pass
        # A rollout that comes from the root makes the call itself, and so mends the record.
        assert run(cache, "echo right > f", "cat f")[1].output == "right\n"


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("states", "parent", "randomblob(32)"),
        ("states", "parent", "NULL"),
        ("states", "edge", "1"),
        ("states", "edge", "77"),
        ("edges", "next_state", "randomblob(32)"),
        ("edges", "next_state", "NULL"),
        ("edges", "state", "(SELECT state FROM roots)"),
        ("snapshots", "id", "'snapshot-77'"),
    ],
)
def test_a_way_that_leads_elsewhere(tmp_path: Path, table: str, column: str, value: str) -> None:
    """A state is not taken for another, be its rows as they may."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend, policy="never") as cache, cache.rollout("terminal") as rollout:
        for command in ("echo 1 > f", "echo 2 >> f", "echo 3 >> f"):
            bash(rollout, command)
            settle(rollout)
        state = rollout.state
        if table == "snapshots":
            assert cache.graph.add_snapshot(snapshot_of(state))
    name = "hash" if table == "states" else "state" if table == "snapshots" else "next_state"
    connection = sqlite3.connect(tmp_path / "tvsnap.db")
    connection.execute(f"UPDATE {table} SET {column} = {value} WHERE {name} = ?", (bytes.fromhex(state),))
    connection.commit()
    connection.close()
    with open_cache(tmp_path, backend, policy="never") as cache:
        with contextlib.suppress(TvsnapError), cache.materialise(state) as sandbox:
            assert sandbox.run("cat f", timeout=10).output == b"1\n2\n3\n"
        with contextlib.suppress(InfrastructureError):
            results = run(cache, "echo 1 > f", "echo 2 >> f", "echo 3 >> f", "cat f")
            assert results[-1].output == "1\n2\n3\n"


def old_copy(filled: Path, path: Path) -> None:
    """Makes the file that an older tvsnap, without checksums, would have written."""
    shutil.copyfile(filled, path)
    downgrade(path, 1)


def test_a_file_of_the_version_before(filled: tuple[Path, Recorded], tmp_path: Path) -> None:
    path = tmp_path / "tvsnap.db"
    old_copy(filled[0], path)
    with Graph(path) as graph, Graph(path) as beside:
        for one in (graph, beside):
            found = list(answers(one, filled[1]))
            assert set(found[::2]) == {"right"}, "what changed nothing"
            assert set(found[1::2]) == {"none"}, "nothing was proven then"
        state = filled[1][0][0]
        edge = step(graph, state, "new", "value")
        assert beside.lookup(state, edge.call, TIMEOUT) == edge
    assert disorder(path) == []
    change_text(path, b"value", b"VALUE")
    with Graph(path) as graph:
        assert graph.lookup(state, edge.call, TIMEOUT) is None


DAMAGES: dict[str, Callable[[Path], object]] = {
    "overwritten at its beginning": lambda path: path.write_bytes(b"\0" * 100 + path.read_bytes()[100:]),
    "cut short": lambda path: os.truncate(path, PAGE * 7 + 100),
    "cut within its first page": lambda path: os.truncate(path, 50),
    "empty": lambda path: os.truncate(path, 0),
    "overwritten in the middle": lambda path: path.write_bytes(
        path.read_bytes()[: PAGE * 2] + os.urandom(PAGE * 60) + path.read_bytes()[PAGE * 62 :]
    ),
}


def read_all(path: Path, recorded: Recorded) -> None:
    with Graph(path) as graph:
        list(answers(graph, recorded))
        graph.tree()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_beyond_repair(copied: tuple[Path, Recorded], damage: str) -> None:
    """The error says which file and what to do; and what it says helps."""
    path, recorded = copied
    DAMAGES[damage](path)
    with pytest.raises(InfrastructureError, match=r"tvsnap.db: damaged .*; move it away to start with an empty graph"):
        read_all(path, recorded)
    path.rename(path.with_name("away.db"))
    with Graph(path) as graph:
        assert set(answers(graph, recorded)) == {"none"}
        fill(graph)
        assert set(answers(graph, recorded)) == {"right"}


def test_a_cache_on_a_damaged_file_touches_no_snapshot(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache:
        run(cache, "echo 1 > f")
    kept = backend.snapshots()
    assert kept
    copy = (tmp_path / "tvsnap.db").read_bytes()
    os.truncate(tmp_path / "tvsnap.db", 0)
    with pytest.raises(InfrastructureError, match="damaged"):
        open_cache(tmp_path, backend)
    assert backend.snapshots() == kept
    (tmp_path / "tvsnap.db").write_bytes(copy)
    with open_cache(tmp_path, backend) as cache:
        assert sources(run(cache, "echo 1 > f", "cat f")) == ["hit", "executed"]
        assert set(kept) <= set(backend.snapshots())


def test_the_log_of_a_file_that_was_moved_away_is_not_taken_for_a_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "tvsnap.db"
    with Graph(path) as graph:
        recorded = fill(graph)
        shutil.copyfile(f"{path}-wal", tmp_path / "log")
    path.unlink()
    (tmp_path / "log").rename(f"{path}-wal")
    with Graph(path) as graph:
        assert set(answers(graph, recorded)) == {"none"}
        assert graph.roots() == []
    assert disorder(path) == []


def test_rollouts_go_on_while_another_process_keeps_the_file_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvsnap.host.database.BUSY_SECONDS", 0.3)
    with open_cache(tmp_path) as cache:
        run(cache, "echo 1 > f")
        other = sqlite3.connect(tmp_path / "tvsnap.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with cache.rollout("terminal") as rollout:
            # What is recorded is not told from what is not: a rollout that cannot be recorded asks for nothing.
            assert bash(rollout, "echo 1 > f; cat f").output == "1\n"
            assert "another process has kept it locked for 0.3 s" in str(rollout.private)
            assert bash(rollout, "echo 2 >> f; cat f").output == "1\n2\n"
        other.execute("ROLLBACK")
        other.close()
        assert sources(run(cache, "echo 1 > f", "cat f")) == ["hit", "executed"]
        eventually(lambda: cache.graph.leases() == [])


def test_a_lock_that_is_given_back_in_time_is_waited_for(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache, cache.rollout("terminal") as rollout, threads(1) as pool:
        bash(rollout, "echo 1 > f")
        settle(rollout)
        other = sqlite3.connect(tmp_path / "tvsnap.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        answer = pool.submit(bash, rollout, "cat f")
        with pytest.raises(TimeoutError):
            answer.result(0.3)  # it waits for its lease
        other.execute("ROLLBACK")
        other.close()
        assert answer.result(BUSY_SECONDS).output == "1\n"
        assert rollout.private is None
        assert bash(rollout, "cat f").source == "hit"
