"""Fixtures of checks that the Python of the harnesses runs, with the harnesses themselves; see test_harnesses.py."""

from __future__ import annotations

import os
import uuid

import pytest


@pytest.fixture(scope="session")
def home() -> str:
    """The data directory, with the image `terminal`."""
    return os.environ["TVSNAP_HOME"]


@pytest.fixture
def salt() -> str:
    """A salt of the test's own, so that nothing was ever called before."""
    return uuid.uuid4().hex
