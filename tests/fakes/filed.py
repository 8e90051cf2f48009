"""The backend in memory, with its snapshots in files: several processes share them, as they do those of a real one."""

from __future__ import annotations

import contextlib
import os
import pickle
from pathlib import Path
from typing import Any

from tests.fakes.backend import FakeBackend
from tests.fakes.shell import Machine
from tvsnap.images import Image


class FiledBackend(FakeBackend):
    """A `FakeBackend` whose snapshots outlive it.

    Attributes:
        owner: the id of the process's `Owner`; names its snapshots, so that others do not sweep what they do not know.
    """

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(**options)
        self.owner = "nobody"
        directory.mkdir(parents=True, exist_ok=True)
        self._snapshots: Any = _Files(directory)

    def keep(self, machine: Machine, image: Image) -> str:
        """Stores a snapshot; returns its id."""
        snapshot = f"{self.owner}.{self.number()}"
        self._snapshots[snapshot] = (machine, image.digest)
        return snapshot


class _Files:
    """As much of a dictionary as the backend uses."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __setitem__(self, name: str, value: tuple[Machine, str]) -> None:
        new = self._directory / f".{name}"
        new.write_bytes(pickle.dumps(value))
        new.rename(self._directory / name)

    def __getitem__(self, name: str) -> tuple[Machine, str]:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def get(self, name: str) -> tuple[Machine, str] | None:
        with contextlib.suppress(FileNotFoundError):
            value: tuple[Machine, str] = pickle.loads((self._directory / name).read_bytes())
            return value
        return None

    def pop(self, name: str, default: object = None) -> None:
        (self._directory / name).unlink(missing_ok=True)

    def __iter__(self) -> Any:
        return iter(sorted(name for name in os.listdir(self._directory) if not name.startswith(".")))

    def values(self) -> list[tuple[Machine, str]]:
        return [value for name in self if (value := self.get(name)) is not None]
