"""Recipes of sandboxes: the one place where sandboxes are made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

from tvsnap.engine.live_sandbox import Origin
from tvsnap.environments.base import Environment
from tvsnap.graph import Snapshot
from tvsnap.model.images import Image
from tvsnap.model.limits import GroupedLimits, Limits
from tvsnap.sandboxes.network import files as network_files
from tvsnap.sandboxes.network.settings import NetworkSettings
from tvsnap.sandboxes.protocol import Backend, Sandbox, Staged, Staging


@dataclass(frozen=True, slots=True)
class Recipe:
    """The ingredients of a sandbox.

    Attributes:
        image: its files, and its network policy.
        environment: defines its tools.
        lent: the network settings that the host provides to sandboxes with a network.
        snapshot: the snapshot to fork; None for a fresh sandbox.
        share: the name of the group that it shares processors with, and the group's part; None if there are no groups.
    """

    image: Image
    environment: Environment
    limits: Limits
    lent: NetworkSettings = field(default_factory=NetworkSettings)
    snapshot: Snapshot | None = None
    share: tuple[str, float] | None = None

    @property
    def granted(self) -> Limits:
        """The limits of its sandboxes, in the form that backends take."""
        if self.share is None:
            return self.limits
        group, part = self.share
        return GroupedLimits(**asdict(self.limits), group=group, part=part)

    @property
    def origin(self) -> Origin:
        """The origin of sandboxes of this recipe."""
        snapshot = "" if self.snapshot is None else self.snapshot.id
        return Origin(self.image.digest, self.granted, snapshot, self.image.network)

    def forked_from(self, snapshot: Snapshot | None) -> Recipe:
        """Returns the same recipe with another snapshot; None for a fresh sandbox."""
        return replace(self, snapshot=snapshot)

    def stage(self, backend: Backend) -> Staged | None:
        """Returns a new fork that is stopped; None if that is not possible. Raises the errors of `Staging.stage`."""
        if self.snapshot is None or not isinstance(backend, Staging):
            return None
        return backend.stage(self.snapshot.id, self.image, self.granted)

    def make(self, backend: Backend) -> Sandbox:
        """Returns a new sandbox; raises the errors of `Backend.start` and `Backend.fork`."""
        if self.snapshot is not None:
            return backend.fork(self.snapshot.id, self.image, self.granted)
        sandbox = backend.start(self.image, self.granted)
        try:
            if self.image.network.attached:
                network_files.prepare(sandbox, self.lent)
            self.environment.prepare(sandbox)
        except BaseException:
            sandbox.close()
            raise
        return sandbox
