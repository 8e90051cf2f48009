"""Files that a verb writes its results to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from tvsnap.model.errors import UsageError


@contextlib.contextmanager
def result_file(path: Path | None) -> Iterator[TextIO | None]:
    """A block with a file to write results to, None without a path.

    It is opened at once, so that a lack of rights shows before the work and not after it; what it held before is
    replaced when the block's end writes to it, and left alone if the block raises.

    Raises:
        UsageError: it cannot be written.
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
