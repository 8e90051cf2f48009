"""Files beside CRIU's images, in which a snapshot itself saves properties of processes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

N = TypeVar("N", bound="DataclassInstance")


class NotedFile(Generic[N]):
    """A file in the directory of a checkpoint's images."""

    def __init__(self, name: str, from_json: Callable[[Mapping[str, Any]], N]) -> None:
        self._name = name
        self._from_json = from_json

    def write(self, noted: Sequence[N], images: int) -> bool:
        """Writes notes, unless there are none, to the directory `images`; returns whether there are any."""
        if noted:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(self._name, flags, 0o600, dir_fd=images), "w") as file:
                json.dump([asdict(one) for one in noted], file)
        return bool(noted)

    def read(self, images: int) -> list[N]:
        """Returns the notes of `write`; raises OSError, KeyError, TypeError or ValueError if they cannot be read."""
        with open(os.open(self._name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=images)) as file:
            return [self._from_json(one) for one in json.load(file)]
