"""Environment images: building them from an image.yaml, and finding those that are built."""

from tvsnap.images.errors import ImageBuildError, ImageNotFound, ImageSpecError
from tvsnap.images.image import Image
from tvsnap.images.progress import BuildProgress
from tvsnap.images.rootfs import UID_BASE, UID_COUNT
from tvsnap.images.shipped import find_source, shipped_images
from tvsnap.images.spec import ImageSpec, load_spec
from tvsnap.images.store import ImageStore

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
    "load_spec",
    "shipped_images",
]
