"""Loaders, found by their entry points, fill images with data, such as databases, when they are built.

A loader is for the images of one environment, which is the name of its entry point in the group
`tvsnap.image_loaders`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tvsnap.host import plugins
from tvsnap.model.errors import UsageError

Data = Mapping[str, Any]
"""The keys of an image.yaml that loaders read, with their values if these are not empty."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of loading.

    Attributes:
        contents: names of the image's contents, by kind: {"databases": ("shop", "stock")}.
        env: variables that sandboxes have besides those in the description.
    """

    contents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


class ImageLoader(Protocol):
    """Loads the data in an image's description, and the environment's own data, in the last step of each build."""

    @property
    def keys(self) -> Mapping[str, Any]:
        """The keys of image.yaml that it reads, each with the type of its value as checked by pydantic."""

    def check(self, data: Data) -> None:
        """Checks the data before anything is built.

        Raises:
            UsageError: an image of the environment cannot have such data.
        """

    def given(self, files: Sequence[tuple[str | None, Path]], dialect: str | None, data: Data) -> Data:
        """Adds the files of the options `--database` and `--dialect` of `tvsnap image build`.

        Args:
            files: existing files with their names, None if no name is given.
            dialect: of the files; None if none is given.
            data: the data in image.yaml.

        Returns:
            All data.

        Raises:
            UsageError: it cannot be loaded. The message names the option.
        """

    def title(self, data: Data) -> str:
        """Returns the title of the step: "databases: shop"."""

    def signature(self, data: Data) -> Mapping[str, object]:
        """Returns everything that loading depends on, as JSON with names of its own; a change of it means a new image.

        Raises:
            OSError: a file cannot be read.
        """

    def load(
        self, data: Data, root: Path, work: Path, shell: Callable[[str], None], note: Callable[[str], None]
    ) -> Loaded:
        """Loads the data.

        Args:
            data: the checked data; may be empty.
            root: the image's tree, with shifted owners. Use `tvsnap.images.rootfs` to write into it.
            work: an existing directory for temporary files.
            shell: runs a shell script inside.
            note: gets lines about changes and omissions.

        Raises:
            BuildStepFailed: loading failed.
        """


def loader(environment: str) -> ImageLoader | None:
    """Returns the loader for an environment's images; None if it has none."""
    if environment not in plugins.names("image loader"):
        return None
    plugin: ImageLoader = plugins.find("image loader", environment)
    return plugin


def loaders() -> dict[str, ImageLoader]:
    """Returns all loaders by environment."""
    return {name: plugins.find("image loader", name) for name in plugins.names("image loader")}


def check_data(environment: str, data: Data) -> None:
    """Raises UsageError if an image of this environment cannot have this data."""
    own = loader(environment)
    for key in data:
        if own is None or key not in own.keys:
            names = ", ".join(name for name, one in loaders().items() if key in one.keys)
            raise UsageError(f'{key}: the environment "{environment}" has none; it must be {names}')
    if own is not None:
        own.check(data)
