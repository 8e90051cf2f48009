"""A fleet on a Ray cluster of three nodes on this machine, of which one is killed and one comes later."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.helpers import eventually
from tests.docs.pages import blocks
from tests.homes import with_images_of
from tests.server.conftest import server_home
from tvsnap import UsageError
from tvsnap.cache import Cache
from tvsnap.plugins.fleet import ranking
from tvsnap.plugins.fleet.ray import Fleet

ray = pytest.importorskip("ray")
__all__ = ["server_home"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")  # it reports to its makers otherwise
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    small = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=small)
    del small["include_dashboard"]
    try:
        made.others = [made.add_node(**small) for _ in range(2)]
        made.wait_for_nodes()
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def preferring(url: str, urls: list[str]) -> Iterator[str]:
    """Yields tasks that are at a server first."""
    names = (f"task {number}" for number in itertools.count())
    return (name for name in names if ranking("terminal", name, urls)[0] == url)


def servers() -> list[str]:
    """The command lines of servers that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "serve" in words and any("/tvsnap-ray-" in word for word in words):
            found.append(" ".join(words))
    return found


def test_nodes_come_and_go(cluster: Any, server_home: Path, tmp_path: Path) -> None:
    homes = [tmp_path / node["NodeID"] for node in ray.nodes()]
    for home in homes:
        with_images_of(server_home, home)
    with pytest.raises(UsageError, match="no node of the cluster"):
        Fleet(home=f"{tmp_path}/{{node}}", resources={"nothing has this": 1})
    with Fleet(home=f"{tmp_path}/{{node}}", host="127.0.0.1", options=["--policy", "default"]) as fleet:
        assert len(fleet.nodes) == 3
        assert len(servers()) >= 3
        urls = [node.url for node in fleet.nodes]
        tasks = [name for url in urls for name in itertools.islice(preferring(url, urls), 3)]
        rollouts = [fleet.rollout("terminal", name) for name in tasks]

        def first(number: int) -> str:
            return rollouts[number].call("bash", {"command": f"cd /tmp; A={number}; echo {number} > f"}).output

        def second(number: int) -> str:
            return rollouts[number].call("bash", {"command": "cat f; echo $A"}, timeout=120).output

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(first, range(9))) == [""] * 9
            places = {rollout.url for rollout in rollouts}
            assert len(places) == 3
            before = {node.url for node in fleet.nodes}
            cluster.remove_node(cluster.others[-1], allow_graceful=False)
            eventually(lambda: len(servers()) == 2, timeout=60)  # it ends with its node
            assert list(pool.map(second, range(9))) == [f"{number}\n{number}\n" for number in range(9)]
        (block,) = (each for each in blocks("python") if each.mark == "ray")
        compile(block.text, "the guide", "exec")  # what it does is done here
        assert any(rollout.moves for rollout in rollouts)
        eventually(lambda: len(fleet.nodes) == 2, timeout=60)
        (lost,) = before - {node.url for node in fleet.nodes}
        assert all(rollout.url != lost for rollout in rollouts)
        for rollout in rollouts:
            rollout.close()
    eventually(lambda: servers() == [], timeout=60)
    for home in homes:  # a server that is killed leaves something behind until its data directory is opened again
        Cache(home).close()
    assert not list(Path(tempfile.gettempdir()).glob("tvsnap-ray-*"))


def test_ray_must_be_connected() -> None:
    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(UsageError, match=r"call ray.init"):
        Fleet()
