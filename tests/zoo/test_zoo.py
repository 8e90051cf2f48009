"""The programs that need no image of their own, as `make zoo` runs them; and what the page says of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zoo import page
from tests.zoo.runner import run
from tests.zoo.table import Program, images, programs, rank
from tvsnap.images import Image

TABLE = programs()


@pytest.fixture
def home(tmp_path: Path, terminal_image: Image) -> Path:
    """A fresh data directory with the terminal image."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    return tmp_path


@pytest.mark.parametrize("program", [each for each in TABLE if each.in_suite], ids=lambda program: program.name)
def test_program(program: Program, home: Path, terminal_image: Image) -> None:
    outcome = run(program, terminal_image.name, home)
    assert outcome.result == program.expected, outcome.report


def test_each_program_has_an_image() -> None:
    assert {each.image for each in TABLE} <= {"none", "terminal", *images()}
    assert all(each.image == "terminal" for each in TABLE if each.in_suite)


def test_names_are_told_apart() -> None:
    names = [each.name for each in TABLE]
    assert sorted(set(names)) == sorted(names)


def test_the_page_has_each_program_with_the_result_that_is_expected() -> None:
    told = page.recorded()
    assert list(told) == [each.name for each in TABLE]
    for program in TABLE:
        result = told[program.name][-1]
        assert result.startswith(program.expected) or rank(result) < rank(program.expected), program.name
