"""What is noted of a sandbox's processes when a snapshot is taken, in a file beside CRIU's."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def write(name: str, noted: Sequence[DataclassInstance], images: int) -> bool:
    """Writes what was noted to a file in a directory, if there is anything, and returns whether there is.

    Args:
        name: of the file.
        noted: what was noted.
        images: the directory's descriptor.
    """
    if noted:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(name, flags, 0o600, dir_fd=images), "w") as file:
            json.dump([asdict(one) for one in noted], file)
    return bool(noted)


def read(name: str, images: int) -> list[dict[str, Any]]:
    """Returns what `write` wrote.

    Raises:
        OSError, ValueError: it is not there.
    """
    with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=images)) as file:
        found: list[dict[str, Any]] = json.load(file)
        return found
