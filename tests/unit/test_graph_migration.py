"""Graph files of earlier versions: all that can be relied on still answers, and nothing else does."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend
from tests.fakes.caches import bash, open_cache, run, settle, sources
from tests.unit.graph_helpers import disorder
from tvsnap import Budget
from tvsnap.graph import database
from tvsnap.model.errors import StateLost

SCHEMA = Path(__file__).with_name("graph_schema_2.sql")
NOT_PARKED = Budget(parked=0)


def downgrade(path: Path, version: int) -> None:
    """Makes a graph file, which nobody has open, one that an earlier tvsnap might have written."""
    new = path.with_suffix(".old")
    with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as old:
        old.executescript(SCHEMA.read_text())
        if version == 1:
            old.execute("ALTER TABLE edges DROP COLUMN checksum")
        old.execute("ATTACH ? AS later", (str(path),))
        for (table,) in old.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'").fetchall():
            columns = [row[1] for row in old.execute(f"PRAGMA main.table_info({table})") if row[1] != "extra"]
            names = ", ".join(columns)
            old.execute(f"DELETE FROM main.{table}")
            old.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM later.{table}")
        old.execute("DETACH later")
        old.execute(f"PRAGMA application_id = {database.APPLICATION_ID}")
        old.execute(f"PRAGMA user_version = {version}")
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    new.rename(path)


@pytest.mark.parametrize("version", [1, 2])
def test_a_graph_of_an_earlier_version(tmp_path: Path, version: int) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        token = run(cache, "echo $RANDOM > f", "cat f", "sleep 5; echo 1 > g")[1].output
        with cache.rollout("terminal") as rollout:
            rollout.sandbox().run("echo 2 > h", timeout=5)
            kept = rollout.keep("by hand")
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo $RANDOM > lost")
            settle(rollout)
            lost = rollout.state
            (gone,) = (row for row in cache.graph.snapshots() if row.state == lost)
        cache.graph.drop_snapshots([gone])
        before = {node.state.hash for node in cache.graph.tree()}
        rollouts = [(one.id, one.root, one.state, one.finished) for one in cache.graph.rollouts()]
    backend.delete_snapshot(gone.id)
    downgrade(tmp_path / "tvsnap.db", version)

    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        assert {node.state.hash for node in cache.graph.tree()} == before
        assert [(one.id, one.root, one.state, one.finished) for one in cache.graph.rollouts()] == rollouts
        assert [one.rollout.id for one in cache.graph.summaries()] == [id for id, *_ in reversed(rollouts)]
        assert cache.graph.steps(rollouts[0][0]) == []  # nothing was known of their order
        assert not any(edge.proven for hash in before for edge in cache.graph.out_edges(hash))
        assert [row.state for row in cache.graph.snapshots() if row.pinned] == [kept]
        # What has a snapshot goes on answering.
        results = run(cache, "echo $RANDOM > f", "cat f", "sleep 5; echo 1 > g", "cat f; :")
        assert sources(results) == ["hit", "hit", "hit", "executed"]
        assert results[1].output == results[3].output == token
        # What has none is executed anew, and is reached by nothing, as nobody knows what it was.
        with pytest.raises(StateLost, match="cannot be told"):
            cache.resume(lost)
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, "echo $RANDOM > lost").source == "executed"
            assert rollout.state != lost
            settle(rollout)
        assert sources(run(cache, "echo $RANDOM > lost")) == ["hit"]
        assert cache.graph.edge_to(lost) is not None
    assert disorder(tmp_path / "tvsnap.db") == []
    with contextlib.closing(sqlite3.connect(tmp_path / "tvsnap.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (database.VERSION,)


def test_an_earlier_version_has_the_indexes_and_columns_of_a_new_one(tmp_path: Path) -> None:
    for version in (1, 2, database.VERSION):
        with open_cache(tmp_path / str(version)):
            pass
        if version != database.VERSION:
            downgrade(tmp_path / str(version) / "tvsnap.db", version)
            with open_cache(tmp_path / str(version)):
                pass

    def shape(version: int) -> dict[str, object]:
        with contextlib.closing(sqlite3.connect(tmp_path / str(version) / "tvsnap.db")) as connection:
            names = connection.execute("SELECT type, name, tbl_name FROM sqlite_schema ORDER BY name").fetchall()
            found: dict[str, object] = {"names": names}
            for kind, name, _ in names:
                pragma = "table_info" if kind == "table" else "index_info"
                found[name] = {
                    row[1:] if kind == "index" else row[1:4] for row in connection.execute(f"PRAGMA {pragma}({name})")
                }
            return found

    assert {name: columns for name, columns in shape(2).items() if name != "edges_by_call"} == {
        name: columns for name, columns in shape(database.VERSION).items() if name != "edges_by_call"
    }
    assert shape(1)["edges"] == shape(2)["edges"]
