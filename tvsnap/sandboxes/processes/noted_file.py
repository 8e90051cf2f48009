"""Files beside CRIU's images with what a snapshot saves of a sandbox's processes itself."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def write(name: str, noted: Sequence[DataclassInstance], images: int) -> bool:
    """Writes what was noted, unless it is empty, to a file in the directory `images`; returns whether there is any."""
    if noted:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(name, flags, 0o600, dir_fd=images), "w") as file:
            json.dump([asdict(one) for one in noted], file)
    return bool(noted)


def read(name: str, images: int) -> list[dict[str, Any]]:
    """Returns what `write` wrote; raises OSError or ValueError if that cannot be read."""
    with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=images)) as file:
        found: list[dict[str, Any]] = json.load(file)
        return found
