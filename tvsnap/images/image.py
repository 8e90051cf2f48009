"""A built image, as others use it, and its manifest on disk."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tvsnap.errors import TvsnapError

MANIFEST = "image.json"
ROOTFS = "rootfs"
BUILD_LOG = "build.log"
FORMAT = 1
"""Version of the manifest and of the tree beside it."""


@dataclass(frozen=True, slots=True)
class Image:
    """A root filesystem to start sandboxes from, and how to start them.

    Attributes:
        name: by which it was found, or "" for one that has none (a newer build took it over).
        digest: 64 hexadecimal digits; equal for two images only if what a sandbox sees of them is equal, but for
            the modification times of files.
        environment: what kind of tools it is for, as "terminal".
        rootfs: the tree; read-only by convention, its owners shifted by `UID_BASE`.
        env: environment variables of every process.
        workdir: where shells start; absolute, inside.
        user: who shells run as, name or number, inside; may have ":group" after it.
        size: bytes on disk.
        created: seconds since the epoch.
        hostname: of its sandboxes.
    """

    name: str
    digest: str
    environment: str
    rootfs: Path
    env: dict[str, str]
    workdir: str
    user: str
    size: int
    created: float
    hostname: str = "sandbox"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What image.json holds.

    Attributes:
        format: see `FORMAT`.
        name: what it was built as.
        digest, environment, env, workdir, user, hostname, size, created: see `Image`.
        recipe: hash of what the build was told to do, by which an unchanged image is found without building it.
        source: the folder that its image.yaml was in.
        build_seconds: how long the build took.
    """

    format: int
    name: str
    digest: str
    recipe: str
    environment: str
    env: dict[str, str]
    workdir: str
    user: str
    hostname: str
    size: int
    created: float
    source: str
    build_seconds: float

    def write(self, directory: Path) -> None:
        """Writes it into the image's directory."""
        (directory / MANIFEST).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """Reads that of the image in `directory`.

        Raises:
            TvsnapError: it is missing, damaged, or of another version of tvsnap.
        """
        try:
            values = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
            if values["format"] != FORMAT:
                raise TvsnapError(
                    f"image {directory.name[:12]} has format {values['format']} and this tvsnap reads {FORMAT}; "
                    f"remove it (tvsnap image rm {directory.name[:12]}) and build it again"
                )
            return cls(**{field.name: values[field.name] for field in fields(cls)})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TvsnapError(
                f"image {directory.name[:12]} is damaged ({MANIFEST}: {error!r}); remove the directory {directory} "
                "and build it again"
            ) from error

    def image(self, directory: Path, name: str) -> Image:
        """The image in `directory` under this name."""
        return Image(
            name=name,
            digest=self.digest,
            environment=self.environment,
            rootfs=directory / ROOTFS,
            env=self.env,
            workdir=self.workdir,
            user=self.user,
            size=self.size,
            created=self.created,
            hostname=self.hostname,
        )
