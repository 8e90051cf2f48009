"""What can build from a Dockerfile and hand out the files of container images: a Docker Engine, or buildah."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from tvsnap.host import plugins
from tvsnap.images.descriptions.config import BaseConfig
from tvsnap.images.descriptions.dockerfile import Dockerfile
from tvsnap.images.descriptions.spec import DockerfileBase
from tvsnap.model.errors import MachineLacks

Output = Callable[[str], None]
Fraction = Callable[[float | None], None]

LABEL_PURPOSE = "tvsnap.purpose"  # why it is there: `sandbox`, `snapshot`, `image`, `build`, `export`
LABEL_STAND_IN = "tvsnap.stand-in"  # what an image is that has the name of a public one


class ContainerTool(Protocol):
    """A store of container images that can build.

    What it makes on the way is gone when the block or call that made it ends, however that happens.

    Attributes:
        place: where it keeps images, in words, for messages.
    """

    place: str

    def image_id(self, reference: str) -> str | None:
        """The id of an image; None if it is not there."""

    def pull(self, reference: str, output: Output) -> None:
        """Fetches an image from its registry.

        Raises:
            BuildStepFailed: that did not work.
        """

    def built(
        self, base: DockerfileBase, dockerfile: Dockerfile, keep_layers: bool, output: Output, fraction: Fraction
    ) -> AbstractContextManager[str]:
        """Builds; a block in which the image is there, by the id that it yields.

        Args:
            base: what.
            dockerfile: what is in its Dockerfile.
            keep_layers: leave there what makes the next build quicker.
            output: gets what is printed.
            fraction: told how far it is.

        Raises:
            BuildStepFailed: a step failed.
            MachineLacks: the Dockerfile needs what this tool cannot do.
        """

    def unpack(self, image: str, root: Path, fraction: Fraction) -> BaseConfig:
        """Puts an image's files into the empty directory `root`, with owners as they are in the image.

        Raises:
            BuildStepFailed: they cannot be had.
        """

    def load(self, tree: Path, reference: str, output: Output, stand_in: str = "") -> None:
        """Makes an image under a name from a root filesystem with unshifted owners, in place of one that has it.

        Args:
            tree: the root filesystem.
            reference: the name.
            output: gets what is printed.
            stand_in: what it is, if it has the name of a public image; see `stand_in`.
        """

    def stand_in(self, reference: str) -> str:
        """What an image is that stands in for the public one of its name; "" for one that does not."""

    def close(self) -> None:
        """Ends the connection."""


@contextlib.contextmanager
def container_tool(home: Path, choice: str = "auto") -> Iterator[ContainerTool]:
    """A block with one that an entry point in the group `tvsnap.container_tools` names, if it works, or else buildah.

    Such an entry point names a class, or a function, that is called with the data directory, returns a `ContainerTool`,
    and raises MachineLacks where that cannot work. `engine`, a Docker Engine, is one.

    Args:
        home: the data directory that builds.
        choice: the name of an entry point, or `buildah`, for that and no other.

    Raises:
        MachineLacks: there is none.
    """
    tool = _open(home, choice)
    try:
        yield tool
    finally:
        tool.close()


def _open(home: Path, choice: str) -> ContainerTool:
    from tvsnap.images.build.buildah_tool import BuildahTool

    if choice == "buildah":
        return BuildahTool()
    lacks = []
    for name in plugins.names("container tool") if choice == "auto" else [choice]:
        try:
            found: ContainerTool = plugins.find("container tool", name, ["buildah"])(home)
            return found
        except MachineLacks as lack:  # noqa: PERF203
            if choice != "auto":
                raise
            lacks.append(f"{lack}; ")
    if shutil.which("buildah"):
        return BuildahTool()
    raise MachineLacks(
        f"Dockerfiles and Docker images need a Docker Engine or buildah: {''.join(lacks)}or: apt-get install buildah; "
        "or start the image from debian, tar, directory or oci instead (tvsnap image build --help)"
    )
