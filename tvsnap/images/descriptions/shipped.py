"""The images that come with tvsnap, each a folder with an image.yaml."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tvsnap.images.descriptions.detect import SPEC_FILE, describes_image, descriptions
from tvsnap.images.errors import ImageNotFound


def shipped_images() -> dict[str, Path]:
    """Returns the folder of every image that comes with tvsnap, by name."""
    folders: dict[str, Path] = {}
    for place in _places():
        for folder in sorted(place.iterdir()):
            if (folder / SPEC_FILE).is_file():
                folders.setdefault(folder.name, folder)
    return folders


def find_source(source: str | Path) -> Path:
    """Returns the folder that a user means; raises ImageNotFound if there is none.

    `source` is the name of an image that comes with tvsnap, or a folder with a description of an image. A bare name
    that is both means the former; "./name" means the latter.
    """
    if not str(source):
        raise ImageNotFound("the name of the image or folder is empty")
    shipped = shipped_images()
    folder = Path(source).expanduser()
    if str(source) in shipped:
        return shipped[str(source)]
    if folder.name in descriptions() or describes_image(folder):
        return folder
    wanted = ", ".join(descriptions())
    if folder.is_dir():
        raise ImageNotFound(f"the folder {source} has none of {wanted}")
    if folder.name != str(source):
        raise ImageNotFound(f"there is no folder {source}")
    names = ", ".join(shipped) or "none"
    raise ImageNotFound(
        f'"{source}" is neither an image that comes with tvsnap ({names}) nor a folder with one of {wanted}'
    )


def _places() -> list[Path]:
    # The checkout that has this file, otherwise the package that has the images.
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").is_file() and (checkout / "images").is_dir():
        return [checkout / "images"]
    package = importlib.util.find_spec("tvsnap_images")
    locations = package.submodule_search_locations if package else None
    return [Path(location) for location in locations or [] if Path(location).is_dir()]
