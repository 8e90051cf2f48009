"""How a build tells what it is doing."""

from __future__ import annotations

from typing import Protocol


class BuildProgress(Protocol):
    """Told by a build, in the thread that builds, what it does."""

    def step(self, index: int, total: int, text: str) -> None:
        """Says that a step begins.

        Args:
            index: the step's number, from 1 on.
            total: how many steps there are.
            text: what the step does.
        """

    def output(self, line: str) -> None:
        """Says that the step printed a line.

        Args:
            line: the line.
        """

    def note(self, text: str) -> None:
        """Says what of the image's description a sandbox does not do.

        Args:
            text: what it is, in one line.
        """

    def fraction(self, done: float | None) -> None:
        """Says how much of the step is done.

        Args:
            done: the part that is done, 0 to 1; None where that cannot be told.
        """


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
