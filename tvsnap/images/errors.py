"""Errors of images."""

from __future__ import annotations

from tvsnap.model.errors import NotFound, TvsnapError, UsageError


class ImageNotFound(NotFound):
    """No image has this name or digest, or the digest's prefix fits several."""


class ImageSpecError(UsageError):
    """An image.yaml is invalid. The message names the file, the key and the reason."""


class ImageBuildError(TvsnapError):
    """A step of a build failed; nothing of the build remains.

    Attributes:
        step: the step and its action.
        output: the end of its output; may be empty.
    """

    def __init__(self, step: str, reason: str, output: str = "") -> None:
        super().__init__(f"{step} {reason}")
        self.step = step
        self.output = output


class BuildStepFailed(Exception):
    """Why a step failed, in words that follow the step's name ("failed with exit status 2")."""
