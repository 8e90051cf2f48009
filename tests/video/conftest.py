"""The image of videos, and a data directory that has it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.homes import with_images_of
from tvsnap.images import Image, ImageStore
from tvsnap.model.errors import MachineLacks

SOURCE = Path(__file__).parents[2] / "images" / "video"


@pytest.fixture(scope="session")
def video_images(tvsnap_home: Path) -> Path:
    """A data directory with the image; `TVSNAP_TEST_IMAGES` names one in which several sessions build it once."""
    shared = os.environ.get("TVSNAP_TEST_IMAGES")
    return Path(shared) if shared else tvsnap_home


@pytest.fixture(scope="session")
def video_image(video_images: Path) -> Image:
    """The image `video`, as tvsnap ships it."""
    try:
        return ImageStore(video_images).build(SOURCE)
    except MachineLacks as lack:
        pytest.skip(str(lack))


@pytest.fixture
def video_home(video_images: Path, video_image: Image, tmp_path: Path) -> Path:
    """A data directory of the test's own, with the image."""
    return with_images_of(video_images, tmp_path / "home")
