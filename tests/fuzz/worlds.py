"""Where the fuzzer's histories run: environments and backends, and what a machine has of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.backend import FakeBackend, fake_image
from tests.fakes.caches import FakeImages
from tests.sql_images import DATABASES, ROOT
from tvsnap import Budget, Cache
from tvsnap.engine.supply.recipes import ImageSource
from tvsnap.images import Image, ImageStore
from tvsnap.images.descriptions.shipped import find_source
from tvsnap.model.errors import TvsnapError
from tvsnap.sandboxes.protocol import Backend

WITHOUT_CRIU = "TVSNAP_WITHOUT_CRIU"
NAMES = (
    "local/terminal",
    "local/sqlite",
    "local/postgres",
    "local/mariadb",
    "local/video",
    "no-criu/terminal",
    "docker/terminal",
    "docker/sqlite",
    "memory/terminal",
)
"""All worlds, by `BACKEND/ENVIRONMENT`."""


@dataclass(frozen=True)
class World:
    """A backend and an image.

    Attributes:
        name: `BACKEND/ENVIRONMENT`.
        images: where the image is.
        image: what rollouts start from.
        make: returns a backend that lives in one process only; None where the name of one is enough.
    """

    name: str
    images: ImageSource
    image: Image
    make: Callable[[], Backend] | None = None

    @property
    def backend(self) -> str:
        return self.name.partition("/")[0]

    @property
    def environment(self) -> str:
        return self.name.partition("/")[2]

    @property
    def programs(self) -> bool:
        """Whether sandboxes run real programs."""
        return self.make is None

    def open(
        self, home: Path, options: Mapping[str, Any], backend: Backend | None = None, *, use_cache: bool = True
    ) -> Cache:
        """Opens a cache.

        Args:
            home: the data directory.
            options: `policy`, `prefork`, `park` (how many), `snapshots` (of the budget), `sandboxes` (likewise).
            backend: the one to use again, where it lives in this process only.
            use_cache: see `Cache`.
        """
        given = {name: options[known] for known, name in BUDGET.items() if options.get(known) is not None}
        named = backend or (self.make() if self.make else "docker" if self.backend == "docker" else "local")
        with without_criu(self.backend == "no-criu"):
            return Cache(
                home,
                backend=named,
                images=self.images,
                policy=options.get("policy", "default"),
                prefork=options.get("prefork"),
                budget=Budget(**given),
                use_cache=use_cache,
                same_ids=True,
            )


BUDGET = {"snapshots": "snapshots", "sandboxes": "sandboxes", "park": "parked"}
"""Options of `World.open` that are parts of the budget, and how they are named there."""


@contextlib.contextmanager
def without_criu(wanted: bool) -> Iterator[None]:
    """A block in which backends that are opened do without CRIU."""
    before = os.environ.pop(WITHOUT_CRIU, None)
    if wanted:
        os.environ[WITHOUT_CRIU] = "1"
    try:
        yield
    finally:
        os.environ.pop(WITHOUT_CRIU, None)
        if before is not None:
            os.environ[WITHOUT_CRIU] = before


def memory_world(make: Callable[[], Backend] = FakeBackend) -> World:
    """Returns the world in memory, whose few commands are scripted.

    Args:
        make: returns its backend.
    """
    image = replace(fake_image(), workdir="/app")
    return World("memory/terminal", FakeImages(image), image, make)


def image_home() -> Path:
    """Returns where images are: `TVSNAP_TEST_IMAGES`, or else the usual data directory."""
    from tvsnap.host.home import resolve_home

    shared = os.environ.get("TVSNAP_TEST_IMAGES")
    return Path(shared).absolute() if shared else resolve_home(None)


def open_world(name: str, image: str = "") -> World:
    """Returns a world; its image is built where there is none yet.

    Args:
        name: see `NAMES`.
        image: the name of another image that is there already.

    Raises:
        TvsnapError: the machine lacks what is needed for it.
    """
    backend, _, environment = name.partition("/")
    if backend == "memory":
        return memory_world()
    images = ImageStore(image_home())
    if image:
        return World(name, images, images.get(image))
    if environment in ("terminal", "video"):
        return World(name, images, images.build(find_source(environment)))
    with tempfile.TemporaryDirectory() as scratch:
        return World(name, images, images.build(_sql_folder(environment, Path(scratch))))


def _sql_folder(system: str, folder: Path) -> Path:
    """Writes what the image of a database system is built from: the same as that of the other tests."""
    spec = yaml.safe_load((ROOT / "images" / system / "image.yaml").read_text())
    spec |= {"name": f"test-{system}", "databases": {name: f"{name}.sql" for name in DATABASES}}
    (folder / "image.yaml").write_text(yaml.safe_dump(spec))
    for name, script in DATABASES.items():
        (folder / f"{name}.sql").write_text(script)
    return folder


@contextlib.contextmanager
def data_directory() -> Iterator[Path]:
    """A block with a data directory, of which nothing is left afterwards."""
    # /tmp may be in memory, and layers are kept on disks.
    home = Path(tempfile.mkdtemp(prefix="tvsnap-fuzz-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    try:
        yield home
    finally:
        with contextlib.suppress(TvsnapError, OSError):
            Cache(home, policy="never", prefork=0).close()  # what a killed process left
        shutil.rmtree(home, ignore_errors=True)
