"""One data directory, two backends: one answers what the other recorded only where that is proven to be the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tvsnap import Cache
from tvsnap.graph import PROOF_APART
from tvsnap.images import Image
from tvsnap.model.calls import ToolCall, ToolResult

# Calls whose outcome is compared, calls whose outcome is not: processes live, and the state is one execution's own.
COMPARED = "cd /tmp; echo one > f; x=1"
CALLS = (COMPARED, "sleep 1000 & echo two >> f", "cat f; echo $x; jobs -r | wc -l; pwd")
SEEN = ["", "", "one\ntwo\n1\n1\n/tmp\n"]


class OneImage:
    """The images of a data directory that has none of its own."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def get(self, name: str) -> Image:
        return self._image


def roll(cache: Cache, *commands: str) -> tuple[list[ToolResult], list[str]]:
    """Makes a rollout; returns its results, and the states after its calls."""
    with cache.rollout("terminal") as rollout:
        results, states = [], []
        for command in commands:
            results.append(rollout.call("bash", {"command": command}))
            states.append(rollout.state)
        return results, states


@pytest.mark.usefixtures("docker_engine")
@pytest.mark.parametrize(("first", "second"), [("local", "docker"), ("docker", "local")])
def test_moving(terminal_image: Image, tmp_path: Path, first: str, second: str) -> None:
    images = OneImage(terminal_image)
    with Cache(tmp_path, backend=first, policy="eager", images=images) as cache:
        recorded, states = roll(cache, *CALLS)
        assert roll(cache, COMPARED)[0][0].source == "hit", "the first has a snapshot of what it leads to"
    with Cache(tmp_path, backend=second, policy="never", images=images) as cache:
        made, others = roll(cache, *CALLS)
        assert [result.source for result in made] == ["executed"] * len(CALLS)
        assert [result.output for result in made] == [result.output for result in recorded] == SEEN
        assert others[0] == states[0], "it left the same behind, and so has the same name"
        assert others[1] != states[1]
        time.sleep(PROOF_APART)
        roll(cache, COMPARED)
        (root,) = (edge.state for edge in [cache.graph.edge_to(states[0])] if edge)
        proven = cache.graph.recorded(root, ToolCall("bash", {"command": COMPARED}))
        assert proven is not None
        assert proven.proven
        # Now it is answered here as well, and the second backend goes on from there: it makes the call again.
        results, (state, _) = roll(cache, COMPARED, "cat f; echo $x; pwd")
        assert [result.source for result in results] == ["hit", "executed"]
        assert results[1].output == "one\n1\n/tmp\n"
        assert state == states[0]
        assert {snapshot.backend for snapshot in cache.graph.snapshots()} == {first}
    with Cache(tmp_path, backend=first, policy="never", images=images) as cache:
        results, (state,) = roll(cache, COMPARED)
        assert (results[0].source, state) == ("hit", states[0])
