"""Detects the kind of a folder: one with an image.yaml, a task of a benchmark, or one with only a Dockerfile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tvsnap.images.descriptions.spec import DockerfileBase, ImageSpec, name_from
from tvsnap.images.errors import ImageSpecError

SPEC_FILE = "image.yaml"
TASK_TOML = "task.toml"
TASK_YAML = "task.yaml"
DESCRIPTIONS = (SPEC_FILE, TASK_TOML, TASK_YAML, "Dockerfile")
"""The files that describe an image; if a folder has several, the first counts."""


def describes_image(folder: Path) -> bool:
    """Whether a folder describes an image."""
    return any((folder / name).is_file() for name in DESCRIPTIONS)


def load_source(folder: Path, allow: Sequence[Path] = ()) -> ImageSpec:
    """Reads a folder's description of an image; raises ImageSpecError if there is none, or if it is wrong.

    Args:
        folder: with an image.yaml, a task of terminal-bench (task.yaml) or Harbor (task.toml), or with a Dockerfile;
            or one of these files itself.
        allow: directories outside it with files that an image.yaml may start from (`directory`, `tar`, `oci`).
    """
    folder = folder.absolute()
    paths = [folder] if folder.name in DESCRIPTIONS else []
    paths += [folder / name for name in DESCRIPTIONS]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise ImageSpecError(f"{folder}: has none of {', '.join(DESCRIPTIONS)}, which would say how an image is made")
    # Imported late: pydantic takes longer to import than most commands take, which read no description.
    if path.name == SPEC_FILE:
        from tvsnap.images.descriptions.image_yaml import load_image_yaml

        return load_image_yaml(path, allow)
    if path.name == TASK_TOML:
        from tvsnap.images.descriptions.harbor import load_harbor

        return load_harbor(path)
    if path.name == TASK_YAML:
        from tvsnap.images.descriptions.terminal_bench import load_terminal_bench

        return load_terminal_bench(path)
    return ImageSpec(path.parent, name_from(path.parent), "terminal", DockerfileBase(path, path.parent))
