"""Detects the kind of a folder: one with an image.yaml, one that a plug-in reads, or one with only a Dockerfile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tvsnap.host import plugins
from tvsnap.images.descriptions.spec import DockerfileBase, ImageSpec, name_from
from tvsnap.images.errors import ImageSpecError

SPEC_FILE = "image.yaml"
DOCKERFILE = "Dockerfile"


def descriptions() -> tuple[str, ...]:
    """Returns the names of the files that describe an image; if a folder has several, the first counts.

    An entry point in the group `tvsnap.image_descriptions` has the name of a file, and is a function that is given its
    path and returns an `ImageSpec`.
    """
    return (SPEC_FILE, *plugins.names("image description"), DOCKERFILE)


def describes_image(folder: Path) -> bool:
    """Whether a folder describes an image."""
    return any((folder / name).is_file() for name in descriptions())


def load_source(folder: Path, allow: Sequence[Path] = ()) -> ImageSpec:
    """Reads a folder's description of an image; raises ImageSpecError if there is none, or if it is wrong.

    Args:
        folder: with one of the files of `descriptions`, such as an image.yaml, a task of terminal-bench (task.yaml) or
            Harbor (task.toml), or a Dockerfile; or one of these files itself.
        allow: directories outside it with files that an image.yaml may start from (`directory`, `tar`, `oci`).
    """
    folder, known = folder.absolute(), descriptions()
    paths = [folder] if folder.name in known else []
    paths += [folder / name for name in known]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise ImageSpecError(f"{folder}: has none of {', '.join(known)}, which would say how an image is made")
    # Imported late: pydantic takes longer to import than most commands take, which read no description.
    if path.name == SPEC_FILE:
        from tvsnap.images.descriptions.image_yaml import load_image_yaml

        return load_image_yaml(path, allow)
    if path.name == DOCKERFILE:
        return ImageSpec(path.parent, name_from(path.parent), "terminal", DockerfileBase(path, path.parent))
    read: Callable[[Path], ImageSpec] = plugins.find("image description", path.name)
    return read(path)
