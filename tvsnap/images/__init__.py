"""Environment images: building them from an image.yaml, and finding those that are built."""

from tvsnap.images.descriptions.detect import load_source
from tvsnap.images.descriptions.shipped import find_source, shipped_images
from tvsnap.images.descriptions.spec import ImageSpec
from tvsnap.images.errors import ImageBuildError, ImageNotFound, ImageSpecError
from tvsnap.images.progress import BuildProgress
from tvsnap.images.store import ImageStore
from tvsnap.model.images import UID_BASE, UID_COUNT, Image

__all__ = [
    "UID_BASE",
    "UID_COUNT",
    "BuildProgress",
    "Image",
    "ImageBuildError",
    "ImageNotFound",
    "ImageSpec",
    "ImageSpecError",
    "ImageStore",
    "find_source",
    "load_source",
    "shipped_images",
]
