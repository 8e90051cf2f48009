"""How a build reports its progress."""

from __future__ import annotations

from typing import Protocol


class BuildProgress(Protocol):
    """Receives reports of a build, in the thread that builds."""

    def step(self, index: int, total: int, text: str) -> None:
        """Reports that a step begins.

        Args:
            index: the step's number, from 1 on.
            total: how many steps there are.
            text: what the step does.
        """

    def output(self, line: str) -> None:
        """Reports that the step printed a line.

        Args:
            line: the line.
        """

    def note(self, text: str) -> None:
        """Reports something in the image's description that a sandbox does not do.

        Args:
            text: what it is, in one line.
        """

    def fraction(self, done: float | None) -> None:
        """Reports how much of the step is done.

        Args:
            done: the fraction that is done, 0 to 1; None if it is unknown.
        """


class Silent:
    """Ignores all reports."""

    def step(self, index: int, total: int, text: str) -> None:
        """Ignored."""

    def output(self, line: str) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """Ignored."""

    def fraction(self, done: float | None) -> None:
        """Ignored."""
