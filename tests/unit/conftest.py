"""What the tests of parts have in common."""

from __future__ import annotations

import pytest

from tvsnap.engine.claiming import patience


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets calls wait for others for long, so that who executes them does not depend on how busy the machine is."""
    monkeypatch.setattr(patience, "FREE", 60.0)
