"""The protocol of a repair: it notes something that CRIU does not restore, and brings it back in forks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tvsnap.sandboxes.repairs.socket_options import Options
from tvsnap.sandboxes.repairs.time_wait import TimeWaits

Find = Callable[[Collection[int], Collection[int]], Mapping[int, str]]
"""Returns paths in a sandbox, by inode number, for the inodes that it finds.

The second argument, the processes that watch them, may serve as a hint.
"""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A sandbox in which no process runs.

    Attributes:
        init: its PID 1, as the host sees it.
        pids: its processes.
        images: a descriptor of the directory for CRIU's images.
        time_waits: its connections that end by themselves.
        options: the options of its sockets that differ from their defaults.
        find: finds the paths of its files; None if CRIU keeps watches of inotify, which are then not noted.
    """

    init: int
    pids: Sequence[int]
    images: int
    time_waits: TimeWaits
    options: Sequence[Options] = ()
    find: Find | None = None


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork in which no process runs yet.

    Attributes:
        init: its PID 1, as the host sees it.
        pids: returns its processes; other sandboxes' may be among them.
        images: a descriptor of the directory with CRIU's images; not used if nothing is beside them.
        time_waits: gets the connections that end by themselves.
        watched: gets the paths of the watched files, by inode.
    """

    init: int
    pids: Callable[[], Iterable[int]]
    images: int
    time_waits: TimeWaits
    watched: dict[int, str] = field(default_factory=dict)


class Repair(Protocol):
    """A snapshot's notes of one thing that CRIU does not restore; empty if made without arguments."""

    @classmethod
    def note(cls, frozen: Frozen) -> Repair | None:
        """Notes it; returns None if there is nothing to note.

        Raises NotCheckpointable if no fork could have it, and AttemptFailed if it cannot be inspected.
        """

    @classmethod
    def from_json(cls, manifest: Mapping[str, Any]) -> Repair | None:
        """Reads it from a manifest; returns None if nothing was noted.

        Raises KeyError, TypeError or ValueError if the manifest makes no sense.
        """

    def to_json(self) -> dict[str, Any]:
        """Returns its part of a manifest."""

    def bring_back(self, fork: Fork) -> None:
        """Brings it back; raises AttemptFailed or InfrastructureError if that fails."""
