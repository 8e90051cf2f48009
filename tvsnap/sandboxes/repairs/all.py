"""The list of all repairs, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tvsnap.sandboxes.fixed_clock import StoppedClock
from tvsnap.sandboxes.repairs.directory_times import Directories
from tvsnap.sandboxes.repairs.processors import Affinities
from tvsnap.sandboxes.repairs.repair import Fork, Frozen, Repair
from tvsnap.sandboxes.repairs.settings import Settings
from tvsnap.sandboxes.repairs.sockets import Sockets
from tvsnap.sandboxes.repairs.watches import Watches

REPAIRS: tuple[type[Repair], ...] = (
    Directories,  # before watches, which would report that times are set
    Affinities,  # at any time, because nothing else depends on them
    Settings,  # the same
    Sockets,  # one repair, because its parts go before and after each other; before watches like the rest
    Watches,  # last, so that no other repair causes an event
)
"""The repairs; each is also noted in this order, while the processes are frozen."""

_NOTHING = {key: value for kind in REPAIRS for key, value in kind().to_json().items()}
"""The part of a manifest if there was nothing to note."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A snapshot's contents besides the sandbox's files and processes, or idle shell.

    Attributes:
        repairs: those that noted something, in the order of `REPAIRS`.
        clock: its clock, if its image sets one; it goes on last, because time counts from there.
    """

    repairs: tuple[Repair, ...] = ()
    clock: StoppedClock | None = None

    @classmethod
    def of(cls, frozen: Frozen, clock: StoppedClock | None) -> Noted:
        """Makes all notes of a sandbox; raises the errors of `Repair.note`. `clock` is its clock."""
        return cls(tuple(one for kind in REPAIRS if (one := kind.note(frozen))), clock)

    @classmethod
    def from_json(cls, manifest: Mapping[str, Any]) -> Noted:
        """Raises KeyError, TypeError or ValueError if the manifest has no such data."""
        return cls(
            tuple(one for kind in REPAIRS if (one := kind.from_json(manifest))),
            StoppedClock.from_json(manifest.get("clock")),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns its part of a manifest, which has the keys of all repairs."""
        manifest: dict[str, Any] = {**_NOTHING, "clock": asdict(self.clock) if self.clock else None}
        for one in self.repairs:
            manifest |= one.to_json()
        return manifest

    def bring_back(self, fork: Fork) -> None:
        """Brings back all but the clock; raises AttemptFailed or InfrastructureError if that fails."""
        for one in self.repairs:
            one.bring_back(fork)
