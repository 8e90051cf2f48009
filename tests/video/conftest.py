"""What tests of videos share: the image `video`, and two videos with questions whose answers are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tvsnap import Cache, Image, ImageStore
from tvsnap.plugins.video import VideoEnvironment, egoschema, samples

STORIES = tuple(samples.story(seed, scenes=4, seconds=4) for seed in (1, 2))


@dataclass(frozen=True)
class Videos:
    """Questions, and an image in which their videos are."""

    home: Path
    image: Image
    questions: tuple[egoschema.Question, ...]


@pytest.fixture(scope="session")
def video_image(tvsnap_home: Path, terminal_image: Image) -> Image:
    """The image `video`, in the session's data directory."""
    return ImageStore(tvsnap_home).build(Path(__file__).parents[2] / "images" / "video")


@pytest.fixture(scope="session")
def videos(tvsnap_home: Path, video_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Videos:
    """Two videos, made by FFmpeg, in one image."""
    folder = tmp_path_factory.mktemp("videos")
    with Cache(tvsnap_home, environments=[VideoEnvironment()]) as cache:
        questions = samples.make(cache, folder, STORIES, video_image)
        image = egoschema.image_of(ImageStore(tvsnap_home), questions, base=video_image.name)
    return Videos(tvsnap_home, image, tuple(questions))
