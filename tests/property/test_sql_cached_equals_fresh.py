"""The property that everything serves, for databases: a hit may change how long a rollout takes, never what it sees."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.property.histories import Call
from tests.property.sql_histories import sql_histories
from tests.property.test_cached_equals_fresh import TIMEOUT, Seen, roll, same
from tests.sql_images import SYSTEMS, Client, SqlImages
from tvsnap import Budget, Cache

POLICIES = ("eager", "default")

# `TVSNAP_TEST_EXAMPLES=20` looks at 20 times as many, other ones each time.
SCALE = int(os.environ.get("TVSNAP_TEST_EXAMPLES", "0"))
REAL = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=SCALE == 0,
    max_examples=3 * max(SCALE, 1),
    phases=[Phase.explicit, Phase.generate],  # shrinking real rollouts takes longer than reading one
)


class Worlds:
    """One database system without the cache, and with it under each policy."""

    def __init__(self, system: str, home: Path, images: SqlImages) -> None:
        self.system = system
        self.image = images.get(system)
        self.fresh = Cache(home, images=images.store, use_cache=False, same_ids=True)
        # Nothing is parked, so that states are had from snapshots and replays.
        self.cached = {
            policy: Cache(home, images=images.store, policy=policy, budget=Budget(parked=0)) for policy in POLICIES
        }
        self.salt = secrets.token_hex(4)
        self.made = self.succeeded = 0
        started = self.fresh.backend.start(self.image, self.fresh.limits_for(self.image))
        Client.of(started).environment.prepare(started)
        self.warm = started.checkpoint()
        started.close()

    def close(self) -> None:
        self.fresh.backend.delete_snapshot(self.warm.id)
        for cache in (self.fresh, *self.cached.values()):
            cache.close()

    def roll_by_hand(self, calls: list[Call]) -> list[Seen]:
        """Makes a rollout of the calls with nothing of the cache; its server was started before, as that takes long."""
        limits = self.fresh.limits_for(self.image)
        sandbox = self.fresh.backend.fork(self.warm.id, self.image, limits)
        try:
            client = Client.of(sandbox, limits)
            results = [client.call(call.name, TIMEOUT, **call.arguments) for call in calls]
        finally:
            sandbox.close()
        return [
            Seen(call, result.output, result.exit_code, result.timed_out, result.truncated)
            for call, result in zip(calls, results, strict=True)
        ]

    def check(self, group: list[list[Call]]) -> None:
        """Asserts that rollouts see the same as without the cache: first time, again, and all at once."""
        expected = [*map(self.roll_by_hand, group)]
        if not self.made:
            same("by hand", expected[0], roll(self.fresh, self.image, group[0], ""))
        self.made += sum(map(len, expected))
        self.succeeded += sum(one.exit_code == 0 for seen in expected for one in seen)
        for policy, cache in self.cached.items():
            salt = f"{self.salt}-{policy}"  # shared by all examples: what one recorded, others meet
            for attempt, order in (("first", 1), ("again, in another order", -1)):
                for calls, wanted in list(zip(group, expected, strict=True))[::order]:
                    same(f"{policy}, {attempt}", roll(cache, self.image, calls, salt), wanted)
        cache = self.cached["eager"]
        salt = f"{self.salt}-at-once"

        def at_once(calls: list[Call]) -> list[Seen]:
            return roll(cache, self.image, calls, salt)

        with ThreadPoolExecutor(len(group)) as threads:
            for found, wanted in zip(threads.map(at_once, group), expected, strict=True):
                same("at once", found, wanted)


@pytest.fixture(scope="module", params=SYSTEMS)
def worlds(request: pytest.FixtureRequest, tvsnap_home: Path, sql_images: SqlImages) -> Iterator[Worlds]:
    made = Worlds(request.param, tvsnap_home, sql_images)
    yield made
    made.close()


def test_databases(worlds: Worlds) -> None:
    @REAL
    @given(group=sql_histories(worlds.system, longest=8))
    def property(group: list[list[Call]]) -> None:
        worlds.check(group)

    property()
    # PostgreSQL refuses all that follows an error in a transaction, and there are some 80 calls in all.
    assert worlds.succeeded > worlds.made / 3, "where most calls fail, the property says little"
