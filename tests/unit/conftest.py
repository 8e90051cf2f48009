"""What the tests of parts have in common."""

from __future__ import annotations

import pytest

from tvsnap.engine.claiming import patience
from tvsnap.engine.supply import companions, preforking


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets calls wait for others for long, so that who executes them does not depend on how busy the machine is."""
    monkeypatch.setattr(patience, "FREE", 60.0)


@pytest.fixture(autouse=True)
def none_made_while_models_think(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes no sandboxes ahead: on a busy machine, a call that comes at once may look like a late one."""
    monkeypatch.setattr(companions, "THINKING", 3600.0)


@pytest.fixture(autouse=True)
def processors_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets sandboxes be made ahead however busy the machine is with other tests."""
    monkeypatch.setattr(preforking, "running", lambda: 0)
