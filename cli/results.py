"""Files for the results of a verb."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from tvsnap.model.errors import UsageError


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
