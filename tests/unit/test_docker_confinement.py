"""How a container is confined, by what the engine says about itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.fakes.backend import fake_image
from tvsnap.backends.base import Limits
from tvsnap.backends.docker.containers import Containers, Whose
from tvsnap.engine import Engine


class RecordingEngine:
    """An engine that makes nothing and remembers what it was asked for."""

    def __init__(self) -> None:
        self.api = self
        self.asked: dict[str, Any] = {}

    def create_host_config(self, **options: Any) -> dict[str, Any]:
        self.asked = options
        return options

    def create_container(self, *_: Any, **__: Any) -> dict[str, str]:
        return {"Id": "made"}

    def do(self, _: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return call(*arguments, **options)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (["name=apparmor", "name=seccomp,profile=builtin"], []),
        (["name=seccomp,profile=/etc/docker/profile.json"], []),
        (["name=seccomp,profile=unconfined"], ["no-new-privileges"]),
        (["name=apparmor"], ["no-new-privileges"]),
        (None, ["no-new-privileges"]),
    ],
)
def test_without_a_filter_of_the_engine_PID_1_sets_its_own(said: list[str] | None, expected: list[str]) -> None:
    """Which the kernel lets it do only where nobody can gain rights any more."""
    engine = RecordingEngine()
    containers = Containers(cast("Engine", engine), Whose("home", "owner"), {"SecurityOptions": said})
    containers.create("name", fake_image(), "tag", Limits(), bare=False)
    assert engine.asked["security_opt"] == expected
    assert engine.asked["cap_drop"] == ["ALL"]
    assert "SYS_ADMIN" not in engine.asked["cap_add"]
    assert not engine.asked.keys() & {"privileged", "devices", "binds", "pid_mode", "network_mode"}
