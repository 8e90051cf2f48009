"""A database on the Docker backend: seen as with the local one, whether its server can be captured there or not."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from tests.fakes.caches import settle
from tests.sql_images import SqlImages, ask, seen
from tvsnap import Cache

CALLS = (
    "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1)",
    "BEGIN; INSERT INTO t SELECT COUNT(*) + 1 FROM t",
    "CREATE TEMPORARY TABLE w (n INTEGER); INSERT INTO w VALUES (7); SELECT COUNT(*) FROM items, t, w",
)


@pytest.mark.parametrize("system", ["sqlite", "postgres"])
@pytest.mark.usefixtures("docker_engine")
def test_rollouts_see_the_same(tvsnap_home: Any, sql_images: SqlImages, system: str) -> None:
    image = sql_images.get(system)
    salt = secrets.token_hex(4)
    looks = ("SELECT t.n, w.n FROM t, w ORDER BY t.n", "SELECT COUNT(*) FROM items")
    with Cache(tvsnap_home, images=sql_images.store, backend="docker", policy="eager") as cache:
        kept = False
        for number, look in enumerate(looks):
            with cache.rollout(image, salt=salt) as rollout:
                sources = [ask(rollout, query, 60).source for query in CALLS]
                # A system that may not checkpoint another user's processes keeps only what a replay leads to for sure.
                again = ["hit"] * 3 if kept else ["hit", "executed", "executed"]
                assert sources == (again if number else ["executed"] * 3)
                settle(rollout)
                refusal = cache.refusal(rollout.state)
                kept = cache.graph.snapshot(rollout.state, "docker") is not None
                assert kept or (system != "sqlite" and "Operation not permitted" in str(refusal)), refusal
                before = rollout.state
                rows = seen(rollout, look)
                assert rows == ([[1, 7], [2, 7]] if number == 0 else [[3]])
                assert rollout.state == before, "a read changed the state"
                change = ask(rollout, f"ROLLBACK; INSERT INTO t VALUES ({number + 10})")
                assert change.exit_code == 0, (change, rollout.private)
                assert seen(rollout, "SELECT n FROM t ORDER BY n") == [[1], [number + 10]]
                assert not rollout.private
