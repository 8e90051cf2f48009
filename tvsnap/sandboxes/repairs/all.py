"""All that CRIU does not restore, in the order in which it is brought back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tvsnap.sandboxes.fixed import StoppedClock
from tvsnap.sandboxes.repairs.directory_times import Directories
from tvsnap.sandboxes.repairs.processors import Affinities
from tvsnap.sandboxes.repairs.repair import Fork, Frozen, Repair
from tvsnap.sandboxes.repairs.settings import Settings
from tvsnap.sandboxes.repairs.sockets import Sockets
from tvsnap.sandboxes.repairs.watches import Watches

REPAIRS: tuple[type[Repair], ...] = (
    Directories,  # before watches, which would tell that times are set
    Affinities,  # at any time, as nothing else depends on them
    Settings,  # the same
    Sockets,  # one repair, as its parts go before and after each other; before watches, as the rest
    Watches,  # last, so that no other repair causes an event
)
"""Each is noted in this order, too, while the processes are frozen."""

_NOTHING = {key: value for kind in REPAIRS for key, value in kind().to_json().items()}
"""What a manifest says if there was nothing to note."""


@dataclass(frozen=True, slots=True)
class Noted:
    """What a snapshot holds of a sandbox besides its files and its processes, or its idle shell.

    Attributes:
        repairs: what CRIU does not restore, as far as there was any, in the order of `REPAIRS`.
        clock: its clock, if its image sets one; it goes on after all else, since time counts from there.
    """

    repairs: tuple[Repair, ...] = ()
    clock: StoppedClock | None = None

    @classmethod
    def of(cls, frozen: Frozen, clock: StoppedClock | None) -> Noted:
        """Notes all of a sandbox; raises the errors of `Repair.note`. `clock` is its clock."""
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
