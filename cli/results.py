"""Files for the results of a verb."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import typer

from tvsnap.model.errors import UsageError

from . import context
from .text import one_line, size


@contextlib.contextmanager
def result_file(path: Path | None) -> Iterator[TextIO | None]:
    """Opens a file for results, or yields None without a path.

    It is opened at once, so that missing rights are reported before the work. Earlier content is replaced when the
    block writes at its end, and kept if the block raises.

    Raises:
        UsageError: the file cannot be written.
    """
    if path is None:
        yield None
        return
    existed = path.exists()
    try:
        stream = open(path, "a", encoding="utf-8")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    try:
        with stream:
            yield stream
    except BaseException:
        if not existed:
            path.unlink(missing_ok=True)
        raise


def start_over(stream: TextIO) -> None:
    """Empties a result file, unless it is a pipe or a device."""
    with contextlib.suppress(OSError):
        stream.truncate(0)


def write_result(path: Path, text: str, words: str = "") -> None:
    """Writes a file, and notes that on standard error; if the path is `-`, writes to standard output.

    Args:
        path: the file; its earlier content is replaced.
        text: the content.
        words: a description of the content.

    Raises:
        UsageError: the file cannot be written.
    """
    if str(path) == "-":
        typer.echo(text.encode(), nl=False)
        return
    with result_file(path) as stream:
        assert stream is not None
        start_over(stream)
        stream.write(text)
    summary = ", ".join(filter(None, [words, size(len(text.encode()))]))
    context.console(stderr=True, soft_wrap=True).print(
        f"wrote {one_line(str(path))}: {summary}", highlight=False, markup=False
    )
