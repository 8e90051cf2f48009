"""Fixtures of checks that the Python of the harnesses runs, with the harnesses themselves; see test_harnesses.py."""

from __future__ import annotations

import os
import uuid

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out what Inspect checks by waiting for five seconds, for a second user."""
    items[:] = [item for item in items if not ("_timeout_kills_" in item.name and item.name.endswith("[nobody]"))]


@pytest.fixture(scope="session")
def home() -> str:
    """The data directory, with the image `terminal`."""
    return os.environ["TVSNAP_HOME"]


@pytest.fixture(scope="session")
def place() -> dict[str, str]:
    """Where sandboxes are: the options for the server in `TVSNAP_URL`, or for the data directory."""
    url = os.environ.get("TVSNAP_URL")
    return {"url": url} if url else {"home": os.environ["TVSNAP_HOME"]}


@pytest.fixture
def salt() -> str:
    """A salt of the test's own, so that nothing was ever called before."""
    return uuid.uuid4().hex
