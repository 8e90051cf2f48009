"""The protocol of tools that build from a Dockerfile and provide the files of container images."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from tvsnap.images.descriptions.config import BaseConfig
from tvsnap.images.descriptions.dockerfile import Dockerfile
from tvsnap.images.descriptions.spec import DockerfileBase

Output = Callable[[str], None]
Fraction = Callable[[float | None], None]

LABEL_PURPOSE = "tvsnap.purpose"  # `sandbox`, `snapshot`, `image`, `build`, `export`
LABEL_STAND_IN = "tvsnap.stand-in"  # describes an image that has the name of a public one


class ContainerTool(Protocol):
    """A store of container images that can build.

    Temporary objects are removed when the block or call that made them ends, however that happens.

    Attributes:
        place: the place of its images, in words, for messages.
    """

    place: str

    def image_id(self, reference: str) -> str | None:
        """Returns the id of an image; None if it does not exist."""

    def pull(self, reference: str, output: Output) -> None:
        """Fetches an image from its registry.

        Raises:
            BuildStepFailed: fetching failed.
        """

    def built(
        self, base: DockerfileBase, dockerfile: Dockerfile, keep_layers: bool, output: Output, fraction: Fraction
    ) -> AbstractContextManager[str]:
        """Returns a context manager that builds an image; it yields the image's id, and the image exists in the block.

        Args:
            base: the base to build.
            dockerfile: the requirements of its Dockerfile.
            keep_layers: keep the layers, which makes the next build faster.
            output: gets printed lines.
            fraction: gets the progress.

        Raises:
            BuildStepFailed: a step failed.
            MachineLacks: the Dockerfile requires a feature that this tool lacks.
        """

    def unpack(self, image: str, root: Path, fraction: Fraction) -> BaseConfig:
        """Puts an image's files into the empty directory `root`, with the owners that they have in the image.

        Raises:
            BuildStepFailed: that failed.
        """

    def load(self, tree: Path, reference: str, output: Output, stand_in: str = "") -> None:
        """Makes an image from a root filesystem with unshifted owners, replacing one that has the name.

        Args:
            tree: the root filesystem.
            reference: the name.
            output: gets printed lines.
            stand_in: describes the image if it has the name of a public one; see `stand_in`.
        """

    def stand_in(self, reference: str) -> str:
        """Returns the description of an image that replaces the public one of its name; "" for others."""

    def close(self) -> None:
        """Closes the connection."""
