"""The Docker Engine that tests use: one that is started for them, or the one at `TVSNAP_TEST_ENGINE`.

The latter spares its start, and keeps what it holds. For engines that a test may kill, see `TestEngine`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from scripts.docker_engine import PrivateEngine, pointing_at, private_engine

GIVEN = "TVSNAP_TEST_ENGINE"


class TestEngine(PrivateEngine):
    """An engine of a test's own."""

    __test__ = False


@contextlib.contextmanager
def docker_engine() -> Iterator[str]:
    """A block with an engine, to which DOCKER_HOST points; yields its address."""
    given = os.environ.get(GIVEN)
    if given:
        with pointing_at(given):
            yield given
    else:
        with private_engine() as engine:
            yield engine.address
