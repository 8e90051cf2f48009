"""Inspect's own checks of what a sandbox must do, for root and for a user without rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

pytestmark = pytest.mark.asyncio

ROOT_MAY = {
    "test_read_file_not_allowed",
    "test_write_text_file_without_permissions",
    "test_write_binary_file_without_permissions",
}
"""What Inspect's checks take away by a file's mode, and what root may do in spite of it, as in Docker."""


@pytest.fixture(params=[{}, {"user": "nobody", "cwd": "/tmp"}], ids=["root", "nobody"])
async def sandbox_env(request: pytest.FixtureRequest, place: dict[str, str]) -> AsyncIterator[Any]:
    name = request.node.originalname
    if not request.param and name in ROOT_MAY:
        request.applymarker(pytest.mark.xfail(reason="root may read and write in spite of modes", strict=True))
    kind: Any = registry_find_sandboxenv("tvsnap")
    config = kind.config_deserialize({"image": "terminal", **place, **request.param})
    environments = await kind.sample_init("self-check", config, {})
    yield environments["default"]
    await kind.sample_cleanup("self-check", config, environments, False)
