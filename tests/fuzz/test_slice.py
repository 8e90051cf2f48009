"""A slice of what `make fuzz` does: the same cases each time, on all backends, and nothing may be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.campaign import run_cases
from tests.fuzz.execute import Outcome
from tests.fuzz.worlds import World, fake_world
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


def test_in_memory(tmp_path: Path) -> None:
    outcome = run_cases(fake_world(), SEED, range(40), tmp_path)
    assert outcome.counts["hits"] > 200
    assert told(outcome) == []


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_local(world: World, tmp_path: Path, first: int) -> None:
    outcome = run_cases(world, SEED, range(first, first + 4), tmp_path, only=QUIET)
    assert outcome.counts["hits"] > 20
    assert told(outcome) == []


def test_without_criu(world: World, tmp_path: Path) -> None:
    bare = World("no-criu/terminal", world.images, world.image)
    assert told(run_cases(bare, SEED, range(3), tmp_path, only=QUIET)) == []


def test_a_database(sql_images: SqlImages, tmp_path: Path) -> None:
    world = World("local/sqlite", sql_images.store, sql_images.get("sqlite"))
    assert told(run_cases(world, SEED, range(2), tmp_path)) == []


def test_docker(docker_engine: str, world: World, tmp_path: Path) -> None:
    other = World("docker/terminal", world.images, world.image)
    assert told(run_cases(other, SEED, range(1), tmp_path, only=QUIET, slow=True)) == []
