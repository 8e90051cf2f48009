"""A slice of what `make fuzz` does, for half a minute: the same few cases each time, and nothing may be found."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.campaign import run_cases
from tests.fuzz.execute import Outcome
from tests.fuzz.worlds import World, memory_world
from tests.sql_images import SqlImages
from tvsnap.images import Image, ImageStore

SEED = 10
QUIET = ("A ", "C1", "C2", "C3", "C4", "C5")
"""Topics that need no waiting; those of time, whose pauses take seconds, are for `make fuzz`."""


def told(outcome: Outcome) -> list[str]:
    """Returns what is wrong, in words."""
    found = [f"{each.kind}: {each}" for each in outcome.violations]
    return [*found, outcome.broken] if outcome.broken else found


@pytest.fixture
def world(terminal_image: Image, tvsnap_home: Path) -> World:
    return World("local/terminal", ImageStore(tvsnap_home), terminal_image)


def run(world: World, numbers: Iterable[int], home: Path, **taste: Any) -> Outcome:
    """Executes cases; asserts that nothing is wrong."""
    outcome = run_cases(world, SEED, numbers, home, **taste)
    assert told(outcome) == []
    return outcome


def test_in_memory(tmp_path: Path) -> None:
    assert run(memory_world(), range(20), tmp_path).counts["hits"] > 60


def test_local(world: World, tmp_path: Path) -> None:
    assert run(world, (1, 5, 9), tmp_path, only=QUIET).counts["hits"] > 20


def test_without_criu(world: World, tmp_path: Path) -> None:
    run(World("no-criu/terminal", world.images, world.image), (0, 1), tmp_path, only=QUIET)


def test_a_database(sql_images: SqlImages, tmp_path: Path) -> None:
    run(World("local/sqlite", sql_images.store, sql_images.get("sqlite")), (0,), tmp_path)
