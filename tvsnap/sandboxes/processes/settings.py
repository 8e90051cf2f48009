"""What processes have set of themselves in /proc, in forks, where CRIU brings back the usual.

That is what core dumps are to have of a process' memory, which every Java virtual machine sets, and how much later than
asked for a thread may be woken, which QEMU sets.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvsnap.host.attempts import AttemptFailed
from tvsnap.sandboxes.processes.procfs import head, inner_pid, insiders

_BASES = {"coredump_filter": 16, "timerslack_ns": 10}
"""The files, each with the base of its number; the second is a thread's own."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of one thread, or of the process of which it is the first.

    Attributes:
        file: its name in /proc/PID.
        thread: as the sandbox numbers it.
        value: the number in it.
    """

    file: str
    thread: int
    value: int

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Setting:
        """Raises KeyError, TypeError or ValueError if it says nothing of the kind."""
        if said["file"] not in _BASES:
            raise ValueError(f"no setting: {said['file']!r}")
        return cls(said["file"], int(said["thread"]), int(said["value"]))


def note(pids: Iterable[int], init: int) -> list[Setting]:
    """Returns the settings of a sandbox's processes that are not as those of its PID 1.

    Args:
        pids: its processes, none of which runs meanwhile.
        init: its PID 1, as the host sees it.
    """
    usual = {file: head(f"/proc/{init}/{file}") for file in _BASES}
    return [
        Setting(file, inner_pid(thread), int(found, _BASES[file]))
        for pid in pids
        for thread, file in _files(pid)
        # Of a process that has ended there is none.
        if (found := head(f"/proc/{thread}/{file}")) not in ("", usual[file])
    ]


def set_again(settings: Iterable[Setting], init: int, pids: Iterable[int]) -> None:
    """Gives the threads of a fork, none of which runs yet, the settings that they had.

    Args:
        settings: what was noted.
        init: PID 1 of the fork, as the host sees it.
        pids: processes, of which those of the fork are looked at.

    Raises:
        AttemptFailed: they cannot be set.
    """
    inside = {inner_pid(thread): thread for pid in insiders(init, pids).values() for thread, _ in _files(pid)}
    try:
        for one in settings:
            Path(f"/proc/{inside[one.thread]}/{one.file}").write_text(str(one.value))
    except (OSError, KeyError) as error:
        told = error.strerror if isinstance(error, OSError) else "a thread is not there"
        raise AttemptFailed(f"what processes have set of themselves could not be set in a fork: {told}") from None


def _files(pid: int) -> Iterator[tuple[int, str]]:
    """Yields the threads of a process, each with the files that tell of it; the first is the process."""
    yield pid, "coredump_filter"
    with contextlib.suppress(FileNotFoundError):  # it has ended, in as many threads as it had
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield int(thread), "timerslack_ns"
