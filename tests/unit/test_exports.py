"""What the package exports."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import tvsnap


@pytest.mark.parametrize("name", tvsnap.__all__)
def test_what_is_exported_is_there_and_documented(name: str) -> None:
    found = getattr(tvsnap, name)
    assert name in dir(tvsnap)
    assert inspect.getdoc(found)


def test_what_is_not_exported_is_missing_in_words() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = tvsnap.Nothing


def test_it_is_typed() -> None:
    assert Path(tvsnap.__file__).with_name("py.typed").exists()
