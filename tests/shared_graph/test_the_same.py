"""What holds for a graph of one host holds for one that is shared: the same tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_graph_leases import *  # noqa: F403
from tests.unit.test_graph_lineage import *  # noqa: F403
from tests.unit.test_graph_proofs import *  # noqa: F403
from tvsnap.plugins.shared_graph import SharedGraph


@pytest.fixture(name="graph")
def shared(database: str, tmp_path: Path) -> Iterator[SharedGraph]:
    """A graph that is shared, in place of one that is not."""
    with SharedGraph(tmp_path / "tvsnap.db", "tester", database) as graph:
        yield graph
