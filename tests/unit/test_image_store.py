"""What is said of images that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvsnap.images import ImageNotFound, ImageStore


def test_an_image_that_comes_with_tvsnap_but_was_not_built(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    with pytest.raises(ImageNotFound, match='"postgres" not found; have: none; build it: tvsnap image build postgres'):
        store.get("postgres")
    with pytest.raises(ImageNotFound, match='"mine" not found; have: none; build one: tvsnap image build terminal'):
        store.get("mine")
