"""The backends that the suite runs against, one entry each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tvsnap.host.owners import Owner
from tvsnap.images import Image
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.protocol import Backend


@dataclass(frozen=True)
class Target:
    """One backend under test.

    Attributes:
        name: as it appears in test ids.
        make: returns the backend, given a data directory; called again it acts as another process's would.
        image: returns the image to start, given the test request (for session fixtures).
        construction: Python source of an expression that makes the backend in another process from `home`, a Path.
        engine: it needs a Docker Engine.
    """

    name: str
    make: Callable[[Path], Backend]
    image: Callable[[pytest.FixtureRequest], Image]
    construction: str
    engine: bool = False


def make_local(home: Path) -> Backend:
    return LocalBackend(home, claim(home).id)


def make_docker(home: Path) -> Backend:
    from tvsnap.plugins.docker import DockerBackend

    return DockerBackend(home, claim(home).id)


def claim(home: Path) -> Owner:
    """Returns a new owner, which lives as long as this process."""
    _owners.append(Owner(home))
    return _owners[-1]


_owners: list[Owner] = []


def built_terminal_image(request: pytest.FixtureRequest) -> Image:
    image: Image = request.getfixturevalue("terminal_image")
    return image


TARGETS = {
    target.name: target
    for target in (
        Target(
            "local",
            make_local,
            built_terminal_image,
            construction="__import__('tests.conformance.targets').conformance.targets.make_local(home)",
        ),
        Target(
            "docker",
            make_docker,
            built_terminal_image,
            construction="__import__('tests.conformance.targets').conformance.targets.make_docker(home)",
            engine=True,
        ),
    )
}
