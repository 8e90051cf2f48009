"""Data directories that share what another one has built."""

from __future__ import annotations

from pathlib import Path


def with_images_of(other: Path, home: Path) -> Path:
    """Returns a data directory, made if it is not there, with the images of another one."""
    home.mkdir(exist_ok=True)
    for name in ("images", "cache"):
        (home / name).symlink_to((other / name).resolve())
    return home
