"""`--database` of `tvsnap image build`: builds an image from another one and databases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tvsnap.images import ImageSpec, ImageSpecError, ImageStore, find_source, shipped_images
from tvsnap.images.descriptions.detect import load_source
from tvsnap.images.descriptions.spec import ImageBase
from tvsnap.images.loaders import ImageLoader, check_data, loader, loaders
from tvsnap.model.errors import UsageError


def with_databases(
    store: ImageStore,
    source: str,
    name: str | None,
    texts: Sequence[str],
    dialect: str | None,
    allow: Sequence[Path],
) -> ImageSpec:
    """Returns the description of the image to build.

    Args:
        store: the image store.
        source: an image's name, or a folder that describes one.
        name: the name of the new image.
        given: `[NAME=]FILE`, in the order of loading.
        dialect: the dialect of the scripts; None detects it from their content.
        allow: see `load_source`.
    """
    files = [split(text) for text in texts]
    shipped = source in shipped_images()
    if not shipped and _is_folder(source):
        spec = load_source(find_source(source), allow)
        return replace(spec, data=_loader(spec.environment).given(files, dialect, spec.data))
    environment = load_source(find_source(source)).environment if shipped else store.get(source).environment
    data = _loader(environment).given(files, dialect, {})
    if name is None:
        raise UsageError(f"an image with these databases needs a name other than {source}: add --name NAME")
    try:
        check_data(environment, data)  # before the base is built, which takes minutes
    except UsageError as error:
        raise ImageSpecError(f"image {name}: {error}") from None
    return ImageSpec(files[0][1], name, "", ImageBase(source), hostname="", data=data)


def _loader(environment: str) -> ImageLoader:
    """Returns an environment's loader, or any loader if it has none or is unknown: `check_data` reports that later."""
    plugin = loader(environment) or next(iter(loaders().values()), None)
    if plugin is None:
        raise UsageError("--database: no package is installed that loads databases into images")
    return plugin


def _is_folder(source: str) -> bool:
    """Returns whether a source looks like a folder, so that errors are reported about the folder and not a name."""
    return "/" in source or Path(source).exists()


def split(text: str) -> tuple[str | None, Path]:
    """Returns the name, if there is one, and the file of `[NAME=]FILE`; raises `UsageError` if the file is missing."""
    path, name = Path(text).expanduser(), None
    if "=" in text and not path.exists():
        name, _, rest = text.partition("=")
        path = Path(rest).expanduser()
    if not path.is_file():
        raise UsageError(f"--database: {path} {'is no file' if path.exists() else 'does not exist'}")
    return name, path.absolute()
