"""A dump of MySQL 8 in each database system: its own client loads what becomes of it, and the session sees the rows."""

from __future__ import annotations

from pathlib import Path

from tests.mysql_dump import SHOP
from tests.sql_images import Client
from tvsnap.sql.databases.dumps import read_mysql
from tvsnap.sql.inside.lexemes import SystemName

LOADS = {
    "sqlite": "sqlite3 -batch -bail /srv/sqlite/spare.db < {}",
    "postgres": "psql -X -q -v ON_ERROR_STOP=1 -o /dev/null -d spare -f {}",
    "mariadb": "mariadb --binary-mode --default-character-set=utf8mb4 < {}",
}


def test_a_dump_of_mysql(client: Client, sql_system: SystemName, tmp_path: Path) -> None:
    source = tmp_path / "dump.sql"
    source.write_text(SHOP.replace("`Shop`", "`spare`"))
    ((_, script),) = read_mysql(source, tmp_path / "read", sql_system).scripts
    client.sandbox.write_file("/tmp/dump.sql", script.read_bytes())
    done = client.sandbox.exec(LOADS[sql_system].format("/tmp/dump.sql"), timeout=60)
    assert done.exit_code == 0, done.output

    def rows(query: str) -> list[list[object]]:
        return client.rows(query, database="spare")

    assert rows("SELECT id, name FROM kinds ORDER BY id") == [
        [1, "plain"],
        [2, "it's"],
        [7, "semi;colon -- no /* comment */"],
    ]
    assert rows("SELECT id, kind, flag, note FROM items ORDER BY id") == [
        [1, 1, 1, "tab\t line\r\nend é"],
        [2, 99, 0, None],
        [3, None, 0, "5%\\% \\_"],
    ]
    assert rows("SELECT hash FROM items ORDER BY id") == [[{"base64": "AAH/AA=="}], [{"base64": "AA=="}], [None]]
    assert rows("SELECT name FROM above WHERE id = 2") == [["it's"]]
    # A row more gets a number of its own, and what refers to nothing is refused.
    client.sql("INSERT INTO items (born, note) VALUES ('2020-01-01', 'new')", database="spare")
    assert rows("SELECT count(*) FROM items WHERE id > 3 AND flag = 1") == [[1]]
    if sql_system != "sqlite":  # which refuses nothing of the kind unless it is told to
        assert "items_kind" in client.error("INSERT INTO items (kind) VALUES (1000)", database="spare")
