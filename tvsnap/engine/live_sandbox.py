"""Live sandboxes: the state of each, and its origin."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tvsnap.model.limits import Limits
from tvsnap.model.network import NO_NETWORK, Network
from tvsnap.model.observations import Observation, SnapshotInfo
from tvsnap.sandboxes.protocol import Sandbox, Staged

_BACK_TO_SLEEP, _PAUSE = 0.5, 0.002  # seconds: the longest that is waited for it, and between the first two looks


class Origin(NamedTuple):
    """The parts of which a sandbox was made. Two sandboxes with equal origins are interchangeable.

    Attributes:
        image: the image's digest.
        snapshot: the id of the snapshot that it was forked from; empty if it was started afresh.
        network: the addresses that it may reach.
    """

    image: str
    limits: Limits
    snapshot: str = ""
    network: Network = NO_NETWORK


@dataclass(eq=False, slots=True)
class LiveSandbox:
    """A live sandbox, its state, and its last observation.

    Attributes:
        staged: the prepared fork, until it begins to run; None afterwards.
        state: the state at which it stands.
        observation: its observation on arrival in its state; None if it was not observed.
        expendable: its state can be reached again, so that it may be closed to make room while its rollout is idle.
        memory: bytes, when last measured; 0 until then.
        since: the time of its arrival in its state, by time.monotonic(); nothing was done in it since.
        begins_alone: when it was made, only the idle shell lived in it, and a service that starts with it.
        disturbed: a snapshot was taken since it was observed; this makes even sleeping processes run a little.
        checkpoints_s: seconds that its last two checkpoints took.
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
    checkpoints_s: tuple[float, ...] = ()

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, once it has begun to run."""
        assert self._sandbox is not None
        return self._sandbox

    def begin(self) -> None:
        """Lets the sandbox run, if it does not yet; raises the errors of `Staged.begin`."""
        if self.staged is not None:
            self._sandbox = self.staged.begin()
            self.staged = None
            self.since = time.monotonic()

    def weigh(self) -> None:
        """Measures the sandbox's memory; raises InfrastructureError or OSError if it has ended."""
        self.memory = (self.staged or self.sandbox).memory()

    def close(self) -> None:
        """Ends the sandbox."""
        (self.staged or self.sandbox).close()

    @property
    def alone(self) -> bool:
        """Whether only the idle shell, and a service, live in it; False if that is not known."""
        return self.begins_alone if self.observation is None else self.observation.alone

    def checkpoint(self) -> SnapshotInfo:
        """Takes a snapshot, see `Sandbox.checkpoint`. Before the sandbox is used again, `look_again` must be called."""
        self.disturbed = self.observation is not None and not self.observation.alone
        return self.sandbox.checkpoint()

    def look_again(self, look: Callable[[Sandbox], Observation]) -> None:
        """Observes it once more if a snapshot disturbed it, so that the next call does not get the blame.

        The new observation is used only if nothing runs by itself meanwhile, and only processes differ. An event after
        the snapshot may happen differently in its forks: the next call has to detect it and lead to another state. On a
        busy machine, processes take a while until they sleep again.

        Raises:
            InfrastructureError: the sandbox has ended.
        """
        before, self.disturbed = self.observation if self.disturbed else None, False
        if before is None or self.age() >= before.quiet_s:
            return  # that saves a look at the memory of all processes
        observation, deadline, pause = look(self.sandbox), time.monotonic() + _BACK_TO_SLEEP, _PAUSE
        while observation.quiet_s == 0 and self.age() < before.quiet_s and time.monotonic() < deadline:
            time.sleep(pause)
            pause *= 2  # a look takes processor time
            observation = look(self.sandbox)
        alike = (observation.files, observation.data, observation.shell, observation.service) == (
            before.files, before.data, before.shell, before.service
        )  # fmt: skip
        if alike and self.age() < before.quiet_s:
            self.observation = observation

    def age(self) -> float:
        """Returns the seconds for which nothing has been done in it in its state."""
        return time.monotonic() - self.since

    def let_run(self, seconds: float, pause: Callable[[float], None] = time.sleep) -> None:
        """Waits until nothing was done in it for `seconds`; `pause` does the waiting, and may raise."""
        while (wait_s := seconds - self.age()) > 0:
            pause(wait_s)
