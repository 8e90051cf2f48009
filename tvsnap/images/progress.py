"""The protocol for reports of a build's progress."""

from __future__ import annotations

from typing import Protocol


class BuildProgress(Protocol):
    """Receives reports of a build, in the thread that builds."""

    def step(self, index: int, total: int, text: str) -> None:
        """Reports that a step begins.

        Args:
            index: the step's number, from 1 on.
            total: the number of steps.
            text: the step's action.
        """

    def output(self, line: str) -> None:
        """Reports that the step printed a line.

        Args:
            line: the line.
        """

    def note(self, text: str) -> None:
        """Reports something in the image's description that a sandbox does not do.

        Args:
            text: its description, in one line.
        """

    def fraction(self, done: float | None) -> None:
        """Reports the progress of the step.

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
