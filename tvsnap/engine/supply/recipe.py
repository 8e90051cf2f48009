"""What a sandbox is made of: the one place where all of them are made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tvsnap.engine.live import Origin
from tvsnap.environments.base import Environment
from tvsnap.graph import Snapshot
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.sandboxes.network import files as network_files
from tvsnap.sandboxes.network.settings import NetworkSettings
from tvsnap.sandboxes.protocol import Backend, Sandbox, Staged, Staging


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a sandbox is made of.

    Attributes:
        image: its files, below what is written, and what it may reach.
        environment: what calls mean in it.
        limits: what it may use.
        lent: what the host lends to those that have a network.
        snapshot: what it is forked from; None if it is started afresh.
    """

    image: Image
    environment: Environment
    limits: Limits
    lent: NetworkSettings = field(default_factory=NetworkSettings)
    snapshot: Snapshot | None = None

    @property
    def origin(self) -> Origin:
        """How sandboxes made from this are known."""
        snapshot = "" if self.snapshot is None else self.snapshot.id
        return Origin(self.image.digest, self.limits, snapshot, self.image.network)

    def forked_from(self, snapshot: Snapshot | None) -> Recipe:
        """Returns the recipe of a fork of a snapshot, or (None) of a fresh sandbox, that is else like this."""
        return replace(self, snapshot=snapshot)

    def stage(self, backend: Backend) -> Staged | None:
        """Returns a new fork that stands still; None if there can be none. Raises what `Staging.stage` does."""
        if self.snapshot is None or not isinstance(backend, Staging):
            return None
        return backend.stage(self.snapshot.id, self.image, self.limits)

    def make(self, backend: Backend) -> Sandbox:
        """Returns a new sandbox; raises what `Backend.start` and `Backend.fork` do."""
        if self.snapshot is not None:
            return backend.fork(self.snapshot.id, self.image, self.limits)
        sandbox = backend.start(self.image, self.limits)
        try:
            if self.image.network.attached:
                network_files.prepare(sandbox, self.lent)
            self.environment.prepare(sandbox)
        except BaseException:
            sandbox.close()
            raise
        return sandbox
