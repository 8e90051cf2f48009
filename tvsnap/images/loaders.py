"""What fills images with data when they are built, as databases: loaders, found by their entry points.

A loader is for the images of one environment, whose name its entry point in the group `tvsnap.image_loaders` has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tvsnap.host import plugins
from tvsnap.model.errors import UsageError

Data = Mapping[str, Any]
"""What the keys of an image.yaml say that loaders read: a value for each key that is not empty."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an image has after loading.

    Attributes:
        contents: names of what there is now, by what they are names of: {"databases": ("shop", "stock")}.
        env: variables that sandboxes have beside those that the description gives.
    """

    contents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


class ImageLoader(Protocol):
    """Loads what a description of an image says, and what the environment needs, as the last step of each build."""

    @property
    def keys(self) -> Mapping[str, Any]:
        """The keys of image.yaml that it reads, each with the type of its value as pydantic checks it."""

    def check(self, data: Data) -> None:
        """Checks what was read, before anything is built.

        Raises:
            UsageError: an image of the environment cannot have that.
        """

    def given(self, files: Sequence[tuple[str | None, Path]], dialect: str | None, data: Data) -> Data:
        """Adds what the options `--database` and `--dialect` of `tvsnap image build` name.

        Args:
            files: names, None where none is given, and files that are there.
            dialect: of the files; None where nothing is said.
            data: what image.yaml says.

        Returns:
            All of it.

        Raises:
            UsageError: it cannot be loaded. The message names the option.
        """

    def title(self, data: Data) -> str:
        """What the step is called: "databases: shop"."""

    def signature(self, data: Data) -> Mapping[str, object]:
        """Returns all that loading depends on, as JSON by names of its own; part of what tells if an image has changed.

        Raises:
            OSError: a file cannot be read.
        """

    def load(
        self, data: Data, root: Path, work: Path, shell: Callable[[str], None], note: Callable[[str], None]
    ) -> Loaded:
        """Loads.

        Args:
            data: what was read and checked; may be empty.
            root: the image's tree, its owners shifted. Take `tvsnap.images.rootfs` to write into it.
            work: a directory for temporary files; it is there.
            shell: runs a script of the shell inside.
            note: told what was changed or left out, a line each.

        Raises:
            BuildStepFailed: it did not work.
        """


def loader(environment: str) -> ImageLoader | None:
    """Returns the loader of an environment's images; None if it has none."""
    if environment not in plugins.names("image loader"):
        return None
    found: ImageLoader = plugins.find("image loader", environment)
    return found


def loaders() -> dict[str, ImageLoader]:
    """Returns all loaders by their environments."""
    return {name: plugins.find("image loader", name) for name in plugins.names("image loader")}


def check_data(environment: str, data: Data) -> None:
    """Checks that an image of this environment can have this data.

    Raises:
        UsageError: it cannot.
    """
    own = loader(environment)
    for key in data:
        if own is None or key not in own.keys:
            names = ", ".join(name for name, one in loaders().items() if key in one.keys)
            raise UsageError(f'{key}: the environment "{environment}" has none; it must be {names}')
    if own is not None:
        own.check(data)
