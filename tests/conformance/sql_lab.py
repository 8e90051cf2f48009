"""Sandboxes with a database: each database system is started once a session, and every test has a fork of that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import Lab
from tests.conformance.targets import make_local
from tests.sql_images import Client, SqlImages
from tvsnap import Cache
from tvsnap.images import Image
from tvsnap.model.errors import MachineLacks
from tvsnap.model.observations import SnapshotInfo
from tvsnap.sandboxes.protocol import Backend


@pytest.fixture(scope="session")
def sql_backend(tvsnap_home: Path) -> Iterator[Backend]:
    """The local backend."""
    try:
        backend = make_local(tvsnap_home)
    except MachineLacks as lack:
        pytest.skip(str(lack))
    if not backend.captures.processes:
        pytest.skip("a running server cannot be captured on this machine (tvsnap doctor)")
    yield backend
    backend.close()


class SqlLab(Lab):
    """Forks of one database system that is warm."""

    def __init__(self, backend: Backend, image: Image, warm: SnapshotInfo) -> None:
        super().__init__(backend, image)
        self._warm = warm

    def client(self) -> Client:
        """Returns the tools of another sandbox that nothing was done in yet."""
        return Client.of(self.fork(self._warm))

    def forks(self, client: Client, count: int) -> list[Client]:
        """Returns the tools of forks of a sandbox as it stands, all of one checkpoint."""
        snapshot = self.checkpoint(client.sandbox)
        return [Client.of(self.fork(snapshot)) for _ in range(count)]


@pytest.fixture(scope="session")
def sql_warm(sql_backend: Backend, sql_image: Image) -> Iterator[SnapshotInfo]:
    """A snapshot of a database system that has just been started."""
    laboratory = Lab(sql_backend, sql_image)
    client = Client.of(laboratory.start())
    client.environment.prepare(client.sandbox)
    yield laboratory.checkpoint(client.sandbox)
    laboratory.close()


@pytest.fixture
def sql_lab(sql_backend: Backend, sql_image: Image, sql_warm: SnapshotInfo) -> Iterator[SqlLab]:
    """Forks of each database system, which are removed at the end of the test."""
    laboratory = SqlLab(sql_backend, sql_image, sql_warm)
    yield laboratory
    laboratory.close()


@pytest.fixture
def client(sql_lab: SqlLab) -> Client:
    """The tools of a sandbox that nothing was done in yet."""
    return sql_lab.client()


@pytest.fixture(scope="session")
def sql_cache(tvsnap_home: Path, sql_images: SqlImages) -> Iterator[Cache]:
    """A cache in which every database system's root is snapshotted when it is first needed."""
    with Cache(tvsnap_home, images=sql_images.store) as cache:
        yield cache
