"""Chooses the tool that builds from Dockerfiles and provides the files of container images."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from tvsnap.host import plugins
from tvsnap.images.build.buildah_tool import BuildahTool
from tvsnap.images.build.containers import ContainerTool
from tvsnap.model.errors import MachineLacks


@contextlib.contextmanager
def container_tool(home: Path, choice: str = "auto") -> Iterator[ContainerTool]:
    """A context manager for the tool of an entry point in the group `tvsnap.container_tools` that works, else buildah.

    Such an entry point names a class or a function that is called with the data directory, returns a `ContainerTool`,
    and raises MachineLacks if that cannot work. `engine`, a Docker Engine, is one. `choice` is the name of an entry
    point, or `buildah`, to use only that. Raises MachineLacks if there is none.
    """
    tool = _open(home, choice)
    try:
        yield tool
    finally:
        tool.close()


def _open(home: Path, choice: str) -> ContainerTool:
    if choice == "buildah":
        return BuildahTool()
    lacks = []
    for name in plugins.names("container tool") if choice == "auto" else [choice]:
        try:
            tool: ContainerTool = plugins.find("container tool", name, ["buildah"])(home)
            return tool
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
