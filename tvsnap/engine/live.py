"""Live sandboxes as the pool knows them: where each stands, and what it was made from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tvsnap.model.limits import Limits
from tvsnap.model.network import NO_NETWORK, Network
from tvsnap.model.observations import Observation, SnapshotInfo
from tvsnap.sandboxes.protocol import Sandbox, Staged


class Origin(NamedTuple):
    """What a sandbox was made from: of two with equal origins, nobody can tell which is which.

    Attributes:
        image: its image's digest.
        limits: what it may use.
        snapshot: the id of the snapshot that it was forked from; empty if it was started afresh.
        network: what it may reach.
    """

    image: str
    limits: Limits
    snapshot: str = ""
    network: Network = NO_NETWORK


@dataclass(eq=False, slots=True)
class LiveSandbox:
    """A live sandbox, and what is known of it.

    Attributes:
        staged: what it will be once it begins; None where it has.
        state: the state that it stands at.
        observation: how it looked when it got there; None if nobody looked.
        expendable: its state can be reached again, so that it may be closed to make room while its rollout is idle.
        memory: bytes, when last weighed; 0 until then.
        since: when it came to its state, by time.monotonic(): it has been left to itself from then on.
        begins_alone: when it was made, nothing lived in it but the idle shell, and a service that starts with it.
        disturbed: a snapshot was taken since it was observed: even processes that sleep run a little for that.
    """

    _sandbox: Sandbox | None
    state: str
    observation: Observation | None = None
    expendable: bool = True
    memory: int = 0
    since: float = field(default_factory=time.monotonic)
    begins_alone: bool = False
    disturbed: bool = False
    staged: Staged | None = None

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, which has begun."""
        assert self._sandbox is not None
        return self._sandbox

    def begin(self) -> None:
        """Lets it run, where it does not.

        Raises:
            SnapshotUnusable, NotRestorable, ForkFailed: see `Staged.begin`.
        """
        if self.staged is not None:
            self._sandbox = self.staged.begin()
            self.staged = None
            self.since = time.monotonic()

    def weigh(self) -> None:
        """Notes how much memory it takes.

        Raises:
            InfrastructureError, OSError: it has ended.
        """
        self.memory = (self.staged or self.sandbox).memory()

    def close(self) -> None:
        """Ends it."""
        (self.staged or self.sandbox).close()

    @property
    def alone(self) -> bool:
        """Whether nothing lives in it but the idle shell, and a service; False where that is not known."""
        return self.begins_alone if self.observation is None else self.observation.alone

    def checkpoint(self) -> SnapshotInfo:
        """Snapshots it; see `Sandbox.checkpoint`. Whoever goes on with it has to look again, see `look_again`."""
        self.disturbed = self.observation is not None and not self.observation.alone
        return self.sandbox.checkpoint()

    def look_again(self, look: Callable[[Sandbox], Observation]) -> None:
        """Looks at it once more if a snapshot disturbed it: what that did is none of the next call's doing.

        Only where nothing runs by itself meanwhile, and nothing but processes differs. What happened by itself after
        the snapshot was taken may happen otherwise in forks of it: the next call has to find that, and lead elsewhere.

        Args:
            look: how the environment looks at a sandbox.

        Raises:
            InfrastructureError: the sandbox has ended.
        """
        before, self.disturbed = self.observation if self.disturbed else None, False
        if before is None:
            return
        found = look(self.sandbox)
        alike = (found.files, found.data, found.shell, found.service) == (
            before.files, before.data, before.shell, before.service
        )  # fmt: skip
        if alike and self.age() < before.quiet_s:
            self.observation = found

    def age(self) -> float:
        """Returns for how many seconds it has been left to itself in its state."""
        return time.monotonic() - self.since

    def let_run(self, seconds: float, pause: Callable[[float], None] = time.sleep) -> None:
        """Waits until it has been left to itself for so long.

        Args:
            seconds: how long.
            pause: waits for so many seconds, and may raise.
        """
        while (left := seconds - self.age()) > 0:
            pause(left)
