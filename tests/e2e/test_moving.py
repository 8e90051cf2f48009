"""One data directory, two backends: what was recorded with one is answered with the other, which goes on from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvsnap import Cache
from tvsnap.images import Image

CALLS = ("cd /tmp; echo one > f; x=1", "sleep 1000 & echo two >> f", "cat f; echo $x")
REST = "cat f; echo $x; jobs -r | wc -l; pwd"


class OneImage:
    """The images of a data directory that has none of its own."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def get(self, name: str) -> Image:
        return self._image


@pytest.mark.usefixtures("docker_engine")
@pytest.mark.parametrize(("first", "second"), [("local", "docker"), ("docker", "local")])
def test_moving(terminal_image: Image, tmp_path: Path, first: str, second: str) -> None:
    images = OneImage(terminal_image)
    with Cache(tmp_path, backend=first, policy="eager", images=images) as cache, cache.rollout("terminal") as rollout:
        recorded = [rollout.call("bash", {"command": command}) for command in CALLS]
        state = rollout.state
    with Cache(tmp_path, backend=second, policy="eager", images=images) as cache, cache.rollout("terminal") as rollout:
        answered = [rollout.call("bash", {"command": command}) for command in CALLS]
        assert [result.source for result in answered] == ["hit"] * len(CALLS)
        assert [result.output for result in answered] == [result.output for result in recorded]
        assert rollout.state == state
        result = rollout.call("bash", {"command": REST})
        assert (result.source, result.output, rollout.private) == ("executed", "one\ntwo\n1\n1\n/tmp\n", "")
        assert {snapshot.backend for snapshot in cache.graph.snapshots(first)} == {first}
