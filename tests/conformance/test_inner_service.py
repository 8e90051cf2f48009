"""A service that can be looked at, as the guide shows it: what reads it leaves the state as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks
from tvsnap import Cache, Image, ToolEnvironment
from tvsnap.environments.service import InnerService
from tvsnap.model.errors import InfrastructureError
from tvsnap.testing import EnvironmentConformance


def of_guide() -> dict[str, Any]:
    """Returns what the guide's program defines."""
    (block,) = (block for block in blocks("python") if "look={}" in block.text)
    defined: dict[str, Any] = {}
    exec(block.text, defined)
    return defined


DEFINED = of_guide()
COUNTING: ToolEnvironment = DEFINED["counting"]


class TestCounting(EnvironmentConformance):
    environment = COUNTING
    histories = ((("add", {"n": 2}), ("show", {}), ("add", {"n": 0}), ("add", {"n": 3}), ("show", {})),)

    @pytest.fixture(scope="class")
    @classmethod
    def home(cls, tvsnap_home: Path) -> Path:
        return tvsnap_home

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls, terminal_image: Image) -> Image:
        return replace(terminal_image, environment="counting")

    def test_what_reads_leaves_the_state_as_it_was(self, home: Path, image: Image) -> None:
        with Cache(home, environments=[COUNTING], policy="eager") as cache:
            for source in ("executed", "hit"):
                with cache.rollout(image, salt="looked at") as rollout:
                    states = []
                    for call in self.histories[0]:
                        result = rollout.call(*call)
                        assert result.source == source
                        states.append(rollout.state)
                    assert states[0] == states[1] == states[2] != states[3] == states[4]
                    assert states[0] != rollout.root

    def test_without_a_way_to_look_it_counts_as_changed(self, home: Path, image: Image) -> None:
        blind = ToolEnvironment(
            "counting", "blind", COUNTING.tools.values(), [InnerService("counter", lambda: DEFINED["PROGRAM"])]
        )
        with Cache(home, environments=[blind]) as cache, cache.rollout(image, salt="blind") as rollout:
            rollout.call("add", {"n": 2})
            before = rollout.state
            assert rollout.call("show", {}).output == "2"
            assert rollout.state != before

    def test_a_service_that_does_not_tell_its_processes(self, home: Path, image: Image) -> None:
        program = DEFINED["PROGRAM"].replace(b'"processes"', b'"others"')
        wrong = ToolEnvironment(
            "counting", "wrong", COUNTING.tools.values(), [InnerService("counter", lambda: program, look={})]
        )
        with (
            Cache(home, environments=[wrong]) as cache,
            cache.rollout(image, salt="wrong") as rollout,
            pytest.raises(InfrastructureError, match='"processes", a list of their ids'),
        ):
            rollout.call("add", {"n": 2})
