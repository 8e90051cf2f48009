"""Opening the graph's file, and what can be wrong with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import inside
from tests.unit.graph_helpers import add_root, call, look, step, walk
from tvsnap.graph import Graph, database
from tvsnap.host.database import Database
from tvsnap.model.errors import InfrastructureError, MachineLacks, TvsnapError

NOBODY = 65534


def in_child(action: Callable[[], None], *, unprivileged: bool = False) -> str:
    """Runs `action` in a forked child and returns what it raised, as `Name: message`; empty if nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            if unprivileged and os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            action()
        except TvsnapError as error:
            said = f"{type(error).__name__}: {error}"
        except BaseException:
            said = traceback.format_exc()
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that any user can reach, unlike those that pytest makes."""
    path = Path(tempfile.mkdtemp(prefix="tvsnap-test-"))
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    with Graph(tmp_path / "a" / "b" / "tvsnap.db") as graph:
        add_root(graph)
    with Graph(tmp_path / "a" / "b" / "tvsnap.db") as graph:
        assert len(graph.roots()) == 1


def modes(directory: Path) -> dict[str, int]:
    """Returns the modes of the files in a directory, by name."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


@pytest.mark.parametrize("mask", [0, 0o022, 0o277])
def test_files_are_their_owners_only(open_directory: Path, monkeypatch: pytest.MonkeyPatch, mask: int) -> None:
    connect, seen = sqlite3.connect, []

    def look_and_connect(path: Path, **options: Any) -> sqlite3.Connection:
        seen.append(modes(open_directory))
        connection: sqlite3.Connection = connect(path, **options)
        return connection

    monkeypatch.setattr(sqlite3, "connect", look_and_connect)
    before = os.umask(mask)
    try:
        with Graph(open_directory / "tvsnap.db") as graph:
            add_root(graph)
            seen.append(modes(open_directory))
    finally:
        os.umask(before)
    assert seen[0] == {"tvsnap.db.new": 0o600}
    assert seen[-1] == dict.fromkeys(("tvsnap.db", "tvsnap.db-wal", "tvsnap.db-shm"), 0o600)
    assert {mode for found in seen for mode in found.values()} == {0o600}


def test_files_of_an_older_version_become_their_owners_only(open_directory: Path) -> None:
    path = open_directory / "tvsnap.db"
    with Graph(path) as graph:
        add_root(graph)
        for file in open_directory.iterdir():
            file.chmod(0o644)
        with Graph(path) as other:
            assert set(modes(open_directory).values()) == {0o600}
            add_root(other, salt="other")
        assert len(graph.roots()) == 2


@pytest.mark.skipif(os.getuid() != 0, reason="needs a file of another user")
def test_files_of_another_user_are_let_be(open_directory: Path) -> None:
    path = open_directory / "tvsnap.db"
    Graph(path).close()
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o640)
    Graph(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    newer = database.VERSION + 1
    path = tmp_path / "tvsnap.db"
    Graph(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {newer}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(TvsnapError, match=rf"tvsnap.db: made by a newer tvsnap \(format {newer}, .*use that one"):
        Graph(path)
    assert path.read_bytes() == before


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "tvsnap.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(TvsnapError, match=r"not a tool-call graph.*; move it away"):
        Graph(path)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "tvsnap.db"
    path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(InfrastructureError, match=r"tvsnap.db: damaged .*; move it away"):
        Graph(path)


def test_a_file_damaged_inside(tmp_path: Path) -> None:
    path = tmp_path / "tvsnap.db"
    with Graph(path) as graph:
        root = add_root(graph)
        for number in range(300):
            look(graph, root, f"echo {number}", "x" * 500)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096 * 4)
        file.write(os.urandom(size - 4096 * 4))
    with pytest.raises(InfrastructureError, match=r"tvsnap.db: damaged .*; move it away"), Graph(path) as graph:
        graph.out_edges(root)


def test_a_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "tvsnap.db"
    with Graph(path) as graph:
        walk(graph, add_root(graph), *map(str, range(200)))
    os.truncate(path, 4096 * 3 + 100)
    with pytest.raises(InfrastructureError, match=r"tvsnap.db: damaged"), Graph(path) as graph:
        graph.tree()


def test_a_file_that_another_program_keeps_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvsnap.host.database.BUSY_SECONDS", 0.2)
    path = tmp_path / "tvsnap.db"
    graph = Graph(path)
    root = add_root(graph)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(InfrastructureError, match=r"tvsnap.db: another process has kept it locked"):
        step(graph, root, "a")
    other.execute("COMMIT")
    step(graph, root, "a")
    graph.close()
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(InfrastructureError, match=r"tvsnap.db: another process has kept it locked"):
        Graph(path)
    other.close()
    Graph(path).close()


def test_a_lookup_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "tvsnap.db"
    with Graph(path) as graph:
        root = add_root(graph)
        step(graph, root, "a")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE edges SET hits = 7")
        found = graph.lookup(root, call("a"), 30.0)
        other.execute("ROLLBACK")
        other.close()
        assert found is not None
        assert found.hits == 0


def test_a_full_disk(tmp_path: Path) -> None:
    with Graph(tmp_path / "tvsnap.db") as graph:
        root = add_root(graph)
        writer = inside.writer(graph)
        writer.execute(f"PRAGMA max_page_count = {writer.execute('PRAGMA page_count').fetchone()[0]}")
        with pytest.raises(InfrastructureError, match=r"tvsnap.db: no room left on its disk; free some: tvsnap gc"):
            walk(graph, root, *map(str, range(1000)))
        recorded = len(graph.tree())
        writer.execute("PRAGMA max_page_count = 1000000")
        step(graph, root, "there is room again")
        assert len(graph.tree()) == recorded + 1


def test_what_sqlite_calls_an_error_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    with contextlib.closing(Database(tmp_path / "tvsnap.db", database.FORMAT)) as opened:
        assert str(opened.explained(error)).endswith("disk I/O error")
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4096))
        assert "no room left on its disk" in str(opened.explained(error))


def test_a_directory_without_rights(open_directory: Path) -> None:
    open_directory.chmod(0o555)
    for path in (open_directory / "tvsnap.db", open_directory / "below" / "tvsnap.db"):
        said = in_child(lambda path=path: Graph(path).close(), unprivileged=True)  # type: ignore[misc]
        assert said.startswith(f"MachineLacks: {open_directory}"), said
        assert said.endswith("rights or set TVSNAP_HOME elsewhere"), said


def test_a_file_without_rights(open_directory: Path) -> None:
    path = open_directory / "tvsnap.db"
    Graph(path).close()
    open_directory.chmod(0o777)
    path.chmod(0o444)
    said = in_child(lambda: Graph(path).close(), unprivileged=True)
    if os.getuid() == 0:
        assert said.startswith(f"MachineLacks: {path}: cannot be written"), said


def test_a_directory_that_cannot_be_reached(open_directory: Path) -> None:
    (open_directory / "closed").mkdir(mode=0o700)
    (open_directory / "closed").chmod(0)
    said = in_child(lambda: Graph(open_directory / "closed" / "tvsnap.db").close(), unprivileged=True)
    (open_directory / "closed").chmod(0o700)
    assert said.startswith("MachineLacks: "), said


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MachineLacks, match="cannot be made"):
        Graph(tmp_path / "file" / "tvsnap.db")


def test_a_forked_child_must_not_use_its_parents_graph(tmp_path: Path) -> None:
    path = tmp_path / "tvsnap.db"
    with Graph(path) as graph:
        root = add_root(graph)
        for action in (
            lambda: graph.lookup(root, call("a"), 30.0),
            lambda: step(graph, root, "a"),
            lambda: Graph(path),
        ):
            said = in_child(action)  # type: ignore[arg-type]
            assert said.startswith("InfrastructureError: "), said
            assert "forked off" in said
        assert in_child(lambda: Graph(tmp_path / "another.db").close()) == ""
        step(graph, root, "a")
    assert in_child(lambda: Graph(path).close()) == "", "a closed graph can be opened in a child"


def test_threads_that_open_a_new_file_at_once(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(6)

    def work(number: int) -> None:
        start.wait()
        try:
            with Graph(tmp_path / "tvsnap.db") as graph:
                step(graph, add_root(graph), str(number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with Graph(tmp_path / "tvsnap.db") as graph:
        assert len(graph.tree()) == 7


def test_a_path_below_ones_own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with contextlib.closing(Database(Path("~/folder/its.db"), database.FORMAT)) as opened:
        assert opened.path == tmp_path / "folder/its.db"
    assert (tmp_path / "folder/its.db").exists()
