"""What a folder is: one with an image.yaml, a task of a benchmark, or one with no more than a Dockerfile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tvsnap.images.descriptions.harbor import TASK_TOML, load_harbor
from tvsnap.images.descriptions.spec import SPEC_FILE, DockerfileBase, ImageSpec, load_spec, name_from
from tvsnap.images.descriptions.terminal_bench import TASK_YAML, load_terminal_bench
from tvsnap.images.errors import ImageSpecError

DOCKERFILE = "Dockerfile"


def _load_dockerfile(folder: Path) -> ImageSpec:
    return ImageSpec(folder, name_from(folder), "terminal", DockerfileBase(folder / DOCKERFILE, folder))


_READERS: dict[str, Callable[[Path], ImageSpec]] = {
    SPEC_FILE: load_spec,
    TASK_TOML: load_harbor,
    TASK_YAML: load_terminal_bench,
    DOCKERFILE: _load_dockerfile,
}
"""The file that makes a folder what it is, and who reads it; in this order."""

DESCRIPTIONS = tuple(_READERS)


def describes_image(folder: Path) -> bool:
    """Whether a folder says how an image is made."""
    return any((folder / name).is_file() for name in _READERS)


def load_source(folder: Path, allow: Sequence[Path] = ()) -> ImageSpec:
    """Reads what a folder says of an image.

    Args:
        folder: with an image.yaml, a task of terminal-bench (task.yaml) or Harbor (task.toml), or with a Dockerfile;
            or one of these files itself.
        allow: see `load_spec`.

    Raises:
        ImageSpecError: there is no such file in it, or the file is wrong.
    """
    folder = folder.absolute()
    if folder.name in _READERS and folder.is_file():
        return _read(folder.name, folder.parent, allow)
    for name in _READERS:
        if (folder / name).is_file():
            return _read(name, folder, allow)
    raise ImageSpecError(f"{folder}: has none of {', '.join(_READERS)}, which would say how an image is made")


def _read(name: str, folder: Path, allow: Sequence[Path]) -> ImageSpec:
    return load_spec(folder, allow) if name == SPEC_FILE else _READERS[name](folder)
