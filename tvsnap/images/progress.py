"""How a build tells what it is doing."""

from __future__ import annotations

from typing import Protocol


class BuildProgress(Protocol):
    """Told by a build, in the thread that builds, what it does."""

    def step(self, index: int, total: int, text: str) -> None:
        """A step begins; `index` counts from 1 to `total`."""

    def output(self, line: str) -> None:
        """The step printed a line."""

    def note(self, text: str) -> None:
        """What of the image's description a sandbox does not do, in one line."""

    def fraction(self, done: float | None) -> None:
        """How much of the step is done, 0 to 1; None where that cannot be told."""


class Silent:
    """Progress that nobody watches."""

    def step(self, index: int, total: int, text: str) -> None:
        """Ignored."""

    def output(self, line: str) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """Ignored."""

    def fraction(self, done: float | None) -> None:
        """Ignored."""
