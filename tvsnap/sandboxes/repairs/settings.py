"""Saves and restores settings of processes in /proc that CRIU resets to their defaults.

These are the core dump filter, which every Java virtual machine sets, and the timer slack, which QEMU sets.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tvsnap.host.attempts import AttemptFailed
from tvsnap.sandboxes.kernel.procfs import head, inner_pid, insiders
from tvsnap.sandboxes.repairs.repair import Fork, Frozen

_BASES = {"coredump_filter": 16, "timerslack_ns": 10}
"""The files, each with the base of its number; the second one is per thread."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a thread, or of the process of which it is the main thread.

    Attributes:
        file: the file's name in /proc/PID.
        thread: the thread's id in the sandbox.
        value: the number in the file.
    """

    file: str
    thread: int
    value: int

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Setting:
        """Raises KeyError, TypeError or ValueError if `entry` is no setting."""
        if entry["file"] not in _BASES:
            raise ValueError(f"no setting: {entry['file']!r}")
        return cls(entry["file"], int(entry["thread"]), int(entry["value"]))


def note(pids: Iterable[int], init: int) -> list[Setting]:
    """Returns the settings of a sandbox's processes, none of which runs, that differ from those of its PID 1."""
    usual = {file: head(f"/proc/{init}/{file}") for file in _BASES}
    return [
        Setting(file, inner_pid(thread), int(value, _BASES[file]))
        for pid in pids
        for thread, file in _files(pid)
        # The file of a process that has ended is empty.
        if (value := head(f"/proc/{thread}/{file}")) not in ("", usual[file])
    ]


def set_again(settings: Iterable[Setting], init: int, pids: Iterable[int]) -> None:
    """Sets the settings of a fork's threads, none of which runs yet; `pids` may include other sandboxes' processes.

    Raises AttemptFailed if that is impossible.
    """
    inside = {inner_pid(thread): thread for pid in insiders(init, pids).values() for thread, _ in _files(pid)}
    try:
        for one in settings:
            Path(f"/proc/{inside[one.thread]}/{one.file}").write_text(str(one.value))
    except (OSError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a thread is not there"
        raise AttemptFailed(f"what processes have set of themselves could not be set in a fork: {reason}") from None


@dataclass(frozen=True, slots=True)
class Settings:
    """See `Repair`: settings of processes."""

    settings: tuple[Setting, ...] = ()

    @classmethod
    def note(cls, frozen: Frozen) -> Settings | None:
        """See `Repair.note`."""
        settings = note(frozen.pids, frozen.init)
        return cls(tuple(settings)) if settings else None

    @classmethod
    def from_json(cls, manifest: Mapping[str, Any]) -> Settings | None:
        """See `Repair.from_json`."""
        settings = tuple(map(Setting.from_json, manifest.get("settings", ())))
        return cls(settings) if settings else None

    def to_json(self) -> dict[str, Any]:
        """See `Repair.to_json`."""
        return {"settings": [asdict(one) for one in self.settings]}

    def bring_back(self, fork: Fork) -> None:
        """See `Repair.bring_back`."""
        set_again(self.settings, fork.init, fork.pids())


def _files(pid: int) -> Iterator[tuple[int, str]]:
    """Yields the threads of a process, each with the name of its setting; the first one is the process itself."""
    yield pid, "coredump_filter"
    with contextlib.suppress(FileNotFoundError):  # it has ended, with all its threads
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield int(thread), "timerslack_ns"
