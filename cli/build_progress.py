"""Progress of an image build: live on a terminal, one line per step in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from tvsnap.images import BuildProgress, ImageBuildError

from . import context
from .text import visible


@contextlib.contextmanager
def watched(verbose: bool) -> Iterator[BuildProgress]:
    """Shows a build on standard error while the block runs, and the output of a step that failed."""
    console = context.console(stderr=True, soft_wrap=True)
    try:
        if not console.is_terminal:
            yield _PlainProgress(verbose)
            return
        shown = _LiveProgress(console, verbose)
        with Live(console=console, transient=True, refresh_per_second=10, get_renderable=shown.render):
            try:
                yield shown
            except BaseException:
                shown.leave_step(done=False)
                raise
            shown.leave_step(done=True)
    except ImageBuildError as error:
        if error.output and not verbose:
            console.print(Text(error.output, "dim"))
        raise


class _PlainProgress:
    """Prints one line per step, for logs, and with `verbose` also the output of the steps."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose

    def step(self, index: int, total: int, text: str) -> None:
        print(f"step {index} of {total}: {text}", file=sys.stderr, flush=True)

    def output(self, line: str) -> None:
        if self._verbose:
            print(f"  {line}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        print(f"note: {visible(text)}", file=sys.stderr, flush=True)

    def fraction(self, done: float | None) -> None:
        """Does nothing: a log shows no measure of progress."""


class _LiveProgress:
    """Shows the current step with a spinner, a bar if its progress is known, its time, and its last output line."""

    def __init__(self, console: Console, verbose: bool) -> None:
        self._console = console
        self._verbose = verbose
        words = TextColumn("{task.description}", markup=False)
        self._bars = Progress(SpinnerColumn(), words, BarColumn(bar_width=20), TimeElapsedColumn(), console=console)
        self._step = self._bars.add_task("starting", total=None)
        self._title = self._line = ""
        self._started = time.monotonic()

    def step(self, index: int, total: int, text: str) -> None:
        self.leave_step(done=True)
        self._title, self._line = f"{index}/{total} {text}", ""
        self._started = time.monotonic()
        room = max(self._console.width - 36, 20)
        shown = self._title if len(self._title) <= room else f"{self._title[: room - 3]}..."
        self._bars.reset(self._step, total=None, description=shown)

    def output(self, line: str) -> None:
        self._line = line.strip() or self._line
        if self._verbose:
            self._console.print(Text(f"  {line}", "dim"))

    def note(self, text: str) -> None:
        self._console.print(Text.assemble(("note: ", "yellow"), visible(text)))

    def fraction(self, done: float | None) -> None:
        if done is None:
            self._bars.update(self._step, total=None)
        else:
            self._bars.update(self._step, total=1.0, completed=done)

    def render(self) -> RenderableType:
        return Group(self._bars, Text(f"  {self._line}", "dim", no_wrap=True, overflow="ellipsis"))

    def leave_step(self, done: bool) -> None:
        """Leaves the step's line on the screen."""
        if self._title:
            mark = ("✓ ", "green") if done else ("✗ ", "red")
            seconds = f" {time.monotonic() - self._started:.1f} s"
            self._console.print(Text.assemble(mark, self._title, (seconds, "dim")), soft_wrap=False)
        self._title = ""
