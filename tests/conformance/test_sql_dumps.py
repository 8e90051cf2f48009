"""A dump of MySQL 8 in each database system: its own client loads what becomes of it, and the session sees the rows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.mysql_dump import SHOP
from tests.sql_images import Client, SqlImages
from tvsnap import Cache
from tvsnap.images import ImageBuildError
from tvsnap.plugins.sql.databases.dumps import read_mysql
from tvsnap.plugins.sql.inside.lexemes import SystemName

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


FOREIGN = r"""--
-- PostgreSQL database dump
--
\restrict aBc

SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
CREATE EXTENSION IF NOT EXISTS surely_not_there WITH SCHEMA public;
COMMENT ON EXTENSION surely_not_there IS 'nothing';
CREATE TABLE public.t (n integer NOT NULL, said text);
ALTER TABLE public.t OWNER TO somebody;
COPY public.t (n, said) FROM stdin;
1	one\ttab
2	\N
\.
SELECT pg_catalog.lo_create('4711');
BEGIN;
SELECT pg_catalog.lo_open('4711', 131072);
SELECT pg_catalog.lowrite(0, '\x6c61726765');
SELECT pg_catalog.lo_close(0);
COMMIT;
GRANT SELECT ON TABLE public.t TO readers;
\unrestrict aBc
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root's rights")
def test_what_pg_dump_writes(client: Client, sql_images: SqlImages, sql_system: SystemName, tmp_path: Path) -> None:
    """Scripts of another server, and archives: all rows are there, and notes say what was passed over."""
    if sql_system != "postgres":
        return
    for form in ("c", "t"):
        done = client.sandbox.exec(f"pg_dump -F{form} -d shop -f /tmp/shop.{form}", timeout=60)
        assert done.exit_code == 0, done.output
        (tmp_path / f"{form}.dump").write_bytes(client.sandbox.read_file(f"/tmp/shop.{form}"))
    (tmp_path / "foreign.sql").write_text(FOREIGN)
    lines = "image: test-postgres\nname: dumps\ndatabases: {foreign: foreign.sql, c: c.dump, t: t.dump}\n"
    (tmp_path / "image.yaml").write_text(lines)
    image = sql_images.store.build(tmp_path)
    notes = sql_images.store.manifest(image).notes
    assert any("roles that are not there were passed over: readers, somebody" in note for note in notes), notes
    assert any("transaction_timeout" in note for note in notes)
    assert any("surely_not_there" in note for note in notes)

    with Cache(tmp_path / "home", images=sql_images.store) as cache, cache.rollout(image) as rollout:

        def rows(query: str, database: str) -> object:
            return json.loads(rollout.call("sql", {"query": query, "database": database}, 60).output)["rows"]

        assert rows("SELECT * FROM t ORDER BY n", "foreign") == [[1, "one\ttab"], [2, None]]
        assert rows("SELECT lo_get(4711)", "foreign") == [[{"base64": "bGFyZ2U="}]]
        assert rows("SELECT name FROM items ORDER BY id", "c") == [["apple"], ["pear"], ["plum"]]
        assert rows("SELECT count(*) FROM orders", "t") == [[3]]

    lost = FOREIGN.replace("2\t\\N", "two\t\\N")
    (tmp_path / "foreign.sql").write_text(lost)
    with pytest.raises(ImageBuildError) as failed:
        sql_images.store.build(tmp_path)
    assert "invalid input syntax for type integer" in failed.value.output
