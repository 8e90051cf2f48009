"""A base that is a container image: the images it depends on, and how its files get into a tree."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from tvsnap.images.build.containers import ContainerTool, Fraction, Output
from tvsnap.images.build.context import context_signature
from tvsnap.images.descriptions.config import BaseConfig
from tvsnap.images.descriptions.dockerfile import Dockerfile, parse_dockerfile, read_dockerfile
from tvsnap.images.descriptions.spec import DockerfileBase, DockerImageBase
from tvsnap.images.errors import BuildStepFailed, ImageBuildError
from tvsnap.images.progress import BuildProgress


@dataclass
class ContainerBase:
    """A `DockerfileBase` or `DockerImageBase`, and the tool that builds or stores it.

    Attributes:
        base: the base.
        tool: its source.
        keep_layers: leave the layers in the tool, which makes the next build faster.
    """

    base: DockerfileBase | DockerImageBase
    tool: ContainerTool
    keep_layers: bool = False

    def fetch(self, name: str, progress: BuildProgress, instead: str = "") -> None:
        """Fetches the images that the base depends on and that are missing; raises ImageBuildError on failure.

        Args:
            name: of the image that is built.
            progress: receives the reports.
            instead: a command to suggest that builds the image without them; "" if there is none.
        """
        pull = self.base.pull if isinstance(self.base, DockerImageBase) else "missing"
        for reference in self._images:
            there = self.tool.image_id(reference) is not None
            if there and pull != "always":
                continue
            try:
                if pull == "never":
                    raise BuildStepFailed("pull: never")
                progress.step(1, 1, f"fetching {reference}")
                self.tool.pull(reference, progress.output)
            except BuildStepFailed as error:
                reason = str(error).removeprefix("failed: ")
                ways = [f"build it from the task's own Dockerfile: {instead}"] if instead else []
                ways += ["bring it there (docker pull, docker load)"]
                ways += [f"or make a Debian under that name: tvsnap image base {reference}"]
                raise ImageBuildError(
                    f"image {name}: {reference}, which it starts from,",
                    f"is not in {self.tool.place} and could not be fetched ({reason}); {', '.join(ways)}",
                ) from error

    def signature(self) -> str:
        """Returns a hash of all that the base's files depend on; raises OSError if a build's context is unreadable."""
        signature = hashlib.sha256()
        for reference in self._images:
            signature.update(f"{reference} {self.tool.image_id(reference)}\n".encode())
        if isinstance(self.base, DockerfileBase):
            signature.update(context_signature(self.base).encode())
        return signature.hexdigest()

    def unpack(self, root: Path, output: Output, fraction: Fraction) -> BaseConfig:
        """Builds if necessary, and puts the files into the empty directory `root`, with unshifted owners.

        Raises BuildStepFailed if a step fails, and MachineLacks as `ContainerTool.built` does.
        """
        if isinstance(self.base, DockerImageBase):
            config = self.tool.unpack(self.base.image, root, fraction)
        else:
            with self.tool.built(self.base, self._dockerfile, self.keep_layers, output, fraction) as image:
                config = self.tool.unpack(image, root, fraction)
        stand_ins = [(reference, self.tool.stand_in(reference)) for reference in self._images]
        notes = [f"{reference}: not the public image but {what}" for reference, what in stand_ins if what]
        return replace(config, notes=(*config.notes, *notes))

    def below(self) -> str:
        """Returns the id of the files that the base begins with, for images that share them; "" if there are none."""
        image = self._image_below
        return (
            hashlib.sha256(f"{type(self.tool).__name__} {self.tool.image_id(image)}".encode()).hexdigest()
            if image
            else ""
        )

    def unpack_below(self, root: Path, fraction: Fraction) -> None:
        """Puts these files into the empty directory `root`, with unshifted owners; may raise BuildStepFailed."""
        self.tool.unpack(self._image_below, root, fraction)

    @property
    def _image_below(self) -> str:
        return self.base.image if isinstance(self.base, DockerImageBase) else self._dockerfile.base

    @cached_property
    def _dockerfile(self) -> Dockerfile:
        assert isinstance(self.base, DockerfileBase)
        if self.base.text is not None:
            return parse_dockerfile(self.base.text, self.base.args, self.base.target)
        return read_dockerfile(self.base.path, self.base.args, self.base.target)

    @property
    def _images(self) -> tuple[str, ...]:
        """References of the images that it depends on."""
        return (self.base.image,) if isinstance(self.base, DockerImageBase) else self._dockerfile.images
