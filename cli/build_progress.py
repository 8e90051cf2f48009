"""How a build of an image looks while it runs: live on a terminal, a line a step in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from tvsnap.images import BuildProgress

from .text import visible


class Watcher(BuildProgress, Protocol):
    """Progress that is shown between its enter and exit."""

    def __enter__(self) -> BuildProgress: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def watcher(console: Console, verbose: bool) -> Watcher:
    """The progress that fits where standard error goes."""
    return _LiveProgress(console, verbose) if console.is_terminal else _PlainProgress(verbose)


class _PlainProgress:
    """A line a step, for logs; with `verbose` the steps' output as well."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose

    def __enter__(self) -> BuildProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Has nothing to put away."""

    def step(self, index: int, total: int, text: str) -> None:
        print(f"step {index} of {total}: {text}", file=sys.stderr, flush=True)

    def output(self, line: str) -> None:
        if self._verbose:
            print(f"  {line}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        print(f"note: {visible(text)}", file=sys.stderr, flush=True)

    def fraction(self, done: float | None) -> None:
        """Not shown."""


class _LiveProgress:
    """The step under way with a spinner, a bar where there is a measure, its time, and the last line it printed."""

    def __init__(self, console: Console, verbose: bool) -> None:
        self._console = console
        self._verbose = verbose
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            console=console,
        )
        self._step = self._bars.add_task("starting", total=None)
        self._title = ""
        self._started = time.monotonic()
        self._line = ""
        self._live = Live(console=console, transient=True, refresh_per_second=10, get_renderable=self._render)

    def __enter__(self) -> BuildProgress:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_step(done=kind is None)
        self._live.stop()

    def step(self, index: int, total: int, text: str) -> None:
        self._leave_step(done=True)
        self._title = f"{index}/{total} {text}"
        self._started = time.monotonic()
        self._line = ""
        room = max(self._console.width - 36, 20)
        shown = self._title if len(self._title) <= room else f"{self._title[: room - 3]}..."
        self._bars.reset(self._step, total=None, description=shown)

    def output(self, line: str) -> None:
        if line.strip():
            self._line = line.strip()
        if self._verbose:
            self._console.print(Text(f"  {line}", "dim"), soft_wrap=True)

    def note(self, text: str) -> None:
        self._console.print(Text.assemble(("note: ", "yellow"), visible(text)), soft_wrap=True)

    def fraction(self, done: float | None) -> None:
        if done is None:
            self._bars.update(self._step, total=None)
        else:
            self._bars.update(self._step, total=1.0, completed=done)

    def _render(self) -> RenderableType:
        return Group(self._bars, Text(f"  {self._line}", "dim", no_wrap=True, overflow="ellipsis"))

    def _leave_step(self, done: bool) -> None:
        """Leaves the step's line on the screen."""
        if self._title:
            mark = Text("✓ ", "green") if done else Text("✗ ", "red")
            seconds = f" {time.monotonic() - self._started:.1f} s"
            self._console.print(Text.assemble(mark, self._title, (seconds, "dim")))
        self._title = ""
