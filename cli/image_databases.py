"""`--database` of `tvsnap image build`: an image that is another one with databases in it."""

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
    given: Sequence[str],
    dialect: str | None,
    allow: Sequence[Path] = (),
) -> ImageSpec:
    """Returns what is to be built.

    Args:
        store: where images are.
        source: an image's name, or a folder that describes one.
        name: for the image.
        given: as `[NAME=]FILE`, in the order of loading.
        dialect: of the scripts; None to tell by their looks.
        allow: see `load_source`.
    """
    files = [split(text) for text in given]
    shipped = source in shipped_images()
    if not shipped and _is_folder(source):
        spec = load_source(find_source(source), allow)
        return replace(spec, data=_loader(spec.environment).given(files, dialect, spec.data))
    environment = load_source(find_source(source)).environment if shipped else store.get(source).environment
    data = _loader(environment).given(files, dialect, {})
    if name is None:
        raise UsageError(f"an image with these databases needs a name other than {source}: add --name NAME")
    try:
        check_data(environment, data)  # before what it starts from is built, which takes minutes
    except UsageError as error:
        raise ImageSpecError(f"image {name}: {error}") from None
    return ImageSpec(files[0][1], name, "", ImageBase(source), hostname="", data=data)


def _loader(environment: str) -> ImageLoader:
    """Returns the loader of an environment, or any where it has none or is not known yet: `check_data` sees to that."""
    found = loader(environment) or next(iter(loaders().values()), None)
    if found is None:
        raise UsageError("--database: no package is installed that loads databases into images")
    return found


def _is_folder(source: str) -> bool:
    """Whether a source is one by its looks: then what is wrong with it as a folder is what to complain of."""
    return "/" in source or Path(source).exists()


def split(text: str) -> tuple[str | None, Path]:
    """Returns the name, if there is one, and the file of `[NAME=]FILE`.

    Raises:
        UsageError: there is no such file.
    """
    path, name = Path(text).expanduser(), None
    if "=" in text and not path.exists():
        name, _, rest = text.partition("=")
        path = Path(rest).expanduser()
    if not path.is_file():
        raise UsageError(f"--database: {path} {'is no file' if path.exists() else 'does not exist'}")
    return name, path.absolute()
