"""An image that starts from another one: the settings that it inherits, and the copy of the other's files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tvsnap.images.build.containers import Fraction, Output
from tvsnap.images.build.runner import run_beside
from tvsnap.images.descriptions.config import BaseConfig
from tvsnap.images.descriptions.spec import ImageSpec
from tvsnap.images.layers import in_merged
from tvsnap.model.images import Image, ImageLimits, Timeouts, has_nothing_to_gain
from tvsnap.model.services import Program

COPY = ("cp", "--archive", "--reflink=auto", "--one-file-system", "--no-target-directory")


@dataclass(frozen=True, slots=True)
class BuiltBase:
    """An `ImageBase` that is built.

    Attributes:
        image: the image to start from.
        contents: see `Manifest`.
        program: its program as a container.
    """

    image: Image
    contents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    program: Program = field(default_factory=Program)

    def signature(self) -> str:
        """Returns a hash of everything that the base's files depend on."""
        return self.image.digest

    def unpack(self, root: Path, output: Output, fraction: Fraction) -> BaseConfig:
        """Copies the files, with owners that are shifted already, into the empty directory `root`.

        Raises BuildStepFailed if the copy fails.
        """
        if not self.image.below:
            run_beside([*COPY, str(self.image.rootfs), str(root)], os.environ, output)
        else:
            with tempfile.TemporaryDirectory(prefix="tvsnap-base-") as place:
                joined = in_merged(self.image.layers, Path(place), [*COPY, place, str(root)])
                run_beside(joined, os.environ, output)
        return BaseConfig(dict(self.image.env), self.image.workdir, self.image.user, program=self.program)

    def completed(self, spec: ImageSpec) -> ImageSpec:
        """Returns a spec completed with the settings of its base."""
        # A setting that the base has because of its user does not apply to another user.
        own = self.image.no_new_privileges
        inherited = None if own == has_nothing_to_gain(self.image.user) else own
        return replace(
            spec,
            environment=spec.environment or self.image.environment,
            hostname=spec.hostname or self.image.hostname,
            limits=ImageLimits(**{**self.image.limits.said(), **spec.limits.said()}),
            timeouts=Timeouts(**{**self.image.timeouts.said(), **spec.timeouts.said()}),
            no_new_privileges=inherited if spec.no_new_privileges is None else spec.no_new_privileges,
            clock=self.image.clock if spec.clock is None else spec.clock,
            random_seed=self.image.random_seed if spec.random_seed is None else spec.random_seed,
            reseed=spec.reseed or self.image.reseed,
            network=self.image.network if spec.network is None else spec.network,
        )
