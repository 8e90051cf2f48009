"""Finds the image that a harness names: an existing one, or a folder from which it is built."""

from __future__ import annotations

from pathlib import Path

from tvsnap.images import Image, ImageNotFound, ImageStore, shipped_images
from tvsnap.images.descriptions.detect import descriptions
from tvsnap.plugins.client.images_and_graph import RemoteImages


def find_image(store: ImageStore | RemoteImages, name: str) -> Image:
    """Returns an image, after building it if a folder describes it, or if it comes with tvsnap.

    `name` is an image's name or digest; or the path of a folder with an image.yaml, a Dockerfile or a task, which must
    contain a slash, or of such a file.

    Raises:
        ImageNotFound: there is no such image.
        TvsnapError: it cannot be built; see `ImageStore.build`.
    """
    path = Path(name)
    if ("/" in name or path.name in descriptions()) and path.exists():
        return store.build(path)
    try:
        return store.get(name)
    except ImageNotFound:
        if name not in shipped_images():
            raise
        return store.build(name)
