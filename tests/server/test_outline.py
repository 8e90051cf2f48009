"""Calls of a server's graph are told in parts, and questions for them that make no sense are refused."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

import tvsnap
from tests.conformance.helpers import eventually
from tests.server.conftest import Server
from tests.server.test_server import ask
from tvsnap.plugins.client.images_and_graph import RemoteGraph
from tvsnap.plugins.client.transport import Transport


class TwoAtOnce:
    """A connection whose server answers at most two calls at once."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.asked = 0

    def get(self, path: str) -> Any:
        self.asked += 1
        return self._transport.get(f"{path}&limit=2")


def test_parts_are_put_together(server: Server) -> None:
    task = secrets.token_hex(4)
    with tvsnap.connect(server.url) as client:
        with client.rollout("terminal", task=task, salt=task) as rollout:
            for number in range(5):
                rollout.call("bash", {"command": f"echo {number} > /tmp/number"})
        parts = TwoAtOnce(client.transport)
        graph = RemoteGraph(parts)  # type: ignore[arg-type]
        whole = client.graph
        # The last state may be kept between two questions.
        eventually(lambda: whole.outline() == graph.outline())
        eventually(
            lambda: whole.outline(task=task) == whole.outline(root=rollout.root) == graph.outline(task=task),
        )
        outlined, own = graph.outline(), graph.outline(task=task)
        assert len(own) == 5
        assert parts.asked >= len(outlined) / 2
        parts.asked = 0
        found = graph.matching(task=task)
        assert (len(found), parts.asked) == (5, 3)
        assert found == client.graph.matching(task=task)
        many = [*sorted(found), *range(10**9, 10**9 + 2000)]
        assert {edge.id for edge in client.graph.listed(many)} == found


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/v1/outline?after=-1", "after must be a whole number"),
        (f"/v1/outline?limit={2**63}", "limit must be a whole number"),
        ("/v1/search?after=x", "after must be a whole number"),
        ("/v1/calls", "ids must be at most 1000 whole numbers"),
        ("/v1/calls?ids=1,,2", "ids must be"),
        (f"/v1/calls?ids={2**63}", "ids must be"),
        ("/v1/calls?ids=" + ",".join(["1"] * 1001), "ids must be"),
        (f"/v1/calls/{2**63}", "named by its number"),
        ("/v1/calls/" + "1" * 5000, "named by its number"),
        (f"/v1/tree?depth={2**63}", "depth must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_refused(server: Server, path: str, named: str) -> None:
    status, answer = ask(server, "GET", path)
    assert status == 400
    assert named in answer["error"]["message"]
