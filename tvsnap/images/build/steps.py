"""The steps of one build: reports the beginning of each, and the last lines of output of one that fails."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TextIO

from tvsnap.images.errors import BuildStepFailed, ImageBuildError
from tvsnap.images.progress import BuildProgress

_TAIL = 40
"""Lines of a failed step's output that are shown."""
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_=>]|[()][0-9A-B])")
"""Codes for terminals (ECMA-48): colours, movements of the cursor, titles."""


@dataclass(slots=True)
class Steps:
    """The steps of one build.

    Attributes:
        image: its name, for error messages.
        count: how many steps there are.
        progress: receives the reports.
        log: gets all output; None for no log.
        done: how many steps have begun.
    """

    image: str
    count: int
    progress: BuildProgress
    log: TextIO | None = None
    done: int = 0
    _tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL))

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A context manager for the next step; raises ImageBuildError if it fails."""
        self.done += 1
        self._tail.clear()
        where = f"step {self.done} of {self.count}: {title}"
        self._write(f"== {where}")
        self.progress.step(self.done, self.count, title)
        try:
            yield
        except (BuildStepFailed, OSError, shutil.Error) as error:
            reason = str(error) if isinstance(error, BuildStepFailed) else f"failed: {error}"
            raise ImageBuildError(f"image {self.image}: {where}", reason, "\n".join(self._tail)) from error

    def output(self, line: str) -> None:
        """Reports a line that the step printed, without codes for colours and the cursor."""
        line = _TERMINAL.sub("", line)
        self._tail.append(line)
        self._write(line)
        self.progress.output(line)

    def note(self, text: str) -> None:
        """Reports something that users of the image should know."""
        self._write(f"note: {text}")
        self.progress.note(text)

    def _write(self, line: str) -> None:
        if self.log is not None:
            self.log.write(f"{line}\n")
