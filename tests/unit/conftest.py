"""What the tests of parts have in common."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tvsnap.engine.claiming import patience
from tvsnap.engine.supply import companions, preforking


@pytest.fixture(autouse=True, scope="module")
def calm() -> Iterator[None]:
    """Lets no test depend on how busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        # Calls wait for others for long, so that it is the same one that executes them.
        patch.setattr(patience, "FREE", 60.0)
        # No sandboxes are made while a model thinks: a call that comes at once may look like a late one.
        patch.setattr(companions, "THINKING", 3600.0)
        # Sandboxes are made ahead whatever else runs.
        patch.setattr(preforking, "running", lambda: 0)
        yield


@pytest.fixture(autouse=True, scope="module")
def collected() -> Iterator[None]:
    """Collects the garbage of a file at its end, and spares the garbage collector looking again at what is left."""
    yield
    gc.collect()
    gc.freeze()
