"""The backend in memory, with its snapshots in files: several processes share them, as they do those of a real one."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from tests.fakes.backend import FakeBackend
from tests.fakes.machine import Machine
from tvsnap.images import Image

Kept = tuple[Machine, str]


class FiledBackend(FakeBackend):
    """A `FakeBackend` whose snapshots outlive it.

    Attributes:
        owner: the id of the process's `Owner`; names its snapshots, so that others do not sweep what they do not know.
    """

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(**options)
        self.owner = "nobody"
        directory.mkdir(parents=True, exist_ok=True)
        self.kept = _Files(directory)

    def keep(self, machine: Machine, image: Image) -> str:
        """Stores a snapshot; returns its id."""
        snapshot = f"{self.owner}.{self.number()}"
        self.kept[snapshot] = (machine, image.digest)
        return snapshot


class _Files(MutableMapping[str, Kept]):
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __setitem__(self, name: str, value: Kept) -> None:
        new = self.directory / f".{name}"
        new.write_bytes(pickle.dumps(value))
        new.rename(self.directory / name)

    def __getitem__(self, name: str) -> Kept:
        try:
            value: Kept = pickle.loads((self.directory / name).read_bytes())
        except FileNotFoundError:
            raise KeyError(name) from None
        return value

    def __delitem__(self, name: str) -> None:
        try:
            (self.directory / name).unlink()
        except FileNotFoundError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(name for name in os.listdir(self.directory) if not name.startswith(".")))

    def __len__(self) -> int:
        return len(list(iter(self)))
