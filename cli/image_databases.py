"""`--database` of `tvsnap image build`: an image that is another one with databases in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tvsnap.images import ImageSpec, ImageSpecError, ImageStore, find_source, shipped_images
from tvsnap.images.build.databases import DIALECTS, Database, DataFile, check_database_name, check_databases, data_file
from tvsnap.images.descriptions.detect import load_source
from tvsnap.images.descriptions.spec import ImageBase
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
    if dialect is not None and dialect not in DIALECTS:
        raise UsageError(f'--dialect: must be {", ".join(DIALECTS)}, not "{dialect}"')
    databases = read_given(given, dialect)
    shipped = source in shipped_images()
    if not shipped and _is_folder(source):
        spec = load_source(find_source(source), allow)
        return replace(spec, databases=(*spec.databases, *databases))
    environment = load_source(find_source(source)).environment if shipped else store.get(source).environment
    if name is None:
        raise UsageError(f"an image with these databases needs a name other than {source}: add --name NAME")
    try:
        check_databases(environment, databases, None)  # before what it starts from is built, which takes minutes
    except UsageError as error:
        raise ImageSpecError(f"image {name}: {error}") from None
    return ImageSpec(databases[0].files[0].path, name, "", ImageBase(source), hostname="", databases=databases)


def _is_folder(source: str) -> bool:
    """Whether a source is one by its looks: then what is wrong with it as a folder is what to complain of."""
    return "/" in source or Path(source).exists()


def read_given(given: Sequence[str], dialect: str | None) -> tuple[Database, ...]:
    """Reads `[NAME=]FILE`s; those of one name go into one database.

    Raises:
        UsageError: naming what is wrong with which.
    """
    found: list[Database] = []
    for text in given:
        try:
            name, file = _read_one(text, dialect)
        except UsageError as error:
            raise UsageError(f"--database: {error}") from None
        if name and found and found[-1].name == name:
            found[-1] = Database(name, (*found[-1].files, file))
        else:
            found.append(Database(name, (file,)))
    return tuple(found)


def _read_one(text: str, dialect: str | None) -> tuple[str, DataFile]:
    path, name = Path(text).expanduser(), ""
    if "=" in text and not path.exists():
        name, _, rest = text.partition("=")
        path = Path(rest).expanduser()
        check_database_name(name)
    if not path.is_file():
        raise UsageError(f"{path} is no file" if path.exists() else f"{path} does not exist")
    file = data_file(path.absolute())
    return name, replace(file, dialect=dialect) if file.format == "sql" else file
