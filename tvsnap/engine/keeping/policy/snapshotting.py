"""The policies that come with tvsnap, which decide for each new state whether to take a snapshot."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tvsnap.engine.keeping.policy.costs import Costs
from tvsnap.host import plugins
from tvsnap.model.arguments import check_provides

LIGHT = 4.0  # times the checkpoint of an idle shell that one of few processes and little memory is expected to take
LONG = 0.3  # seconds that the shorter of a sandbox's last two checkpoints may have taken
LONG_WHILE_SHORT = 1.0  # the same while processors are short: all takes longer then
UNPROVEN_SHARE = 0.15  # of the time of calls since the last snapshot: a checkpoint that takes less pays
FREE = 0.1  # seconds that a checkpoint may take while processors are idle, although agents do not think for as long
CALL_OVERHEAD = 0.001  # seconds that a replayed call costs beyond its own duration


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The costs of rebuilding a state that has no snapshot.

    Attributes:
        from_root: the replay begins in a fresh sandbox, not in a fork of a snapshot.
        calls: the number of calls to replay.
        replay_s: seconds that they took when they were executed.
        spent_s: seconds that this process has already spent on rebuilding this state.
        proven: the calls are known to lead to the same state each time. If not, only a snapshot keeps the state:
            without one, no call that follows is answered, and the next rollout executes the calls anew.
        provable: executing the calls again can prove that. If not, because of living processes that cannot be compared,
            a rollout that executes them again comes to a state of its own, and shares nothing from there on.
        checkpoint_s: seconds that the nearest checkpoint above took; 0 if there was none. Checkpoints of a sandbox with
            much memory stay expensive. If not provable, of the last two checkpoints of this sandbox the shorter one.
        fork_s: seconds that the nearest fork above took; 0 if there was none.
        weight: the time that a checkpoint is expected to take, divided by that of an idle shell's: many processes and
            much memory take longer.
    """

    from_root: bool
    calls: int
    replay_s: float
    spent_s: float = 0.0
    proven: bool = True
    provable: bool = True
    checkpoint_s: float = 0.0
    fork_s: float = 0.0
    weight: float = 1.0


class Policy(Protocol):
    """The rule that decides which states get a snapshot; a protocol. Many threads may use one at once.

    It is also asked about hypothetical states, to predict whether they would be kept, so it must have no side effects.
    """

    @property
    def name(self) -> str: ...

    def should_checkpoint(self, rebuild: Rebuild, costs: Costs) -> bool:
        """Returns whether to take a snapshot of a state that has none.

        Args:
            rebuild: the costs of rebuilding the state without a snapshot of it.
            costs: the durations of checkpoints, forks and starts on this machine.
        """
        ...


class Eager:
    """Takes a snapshot of every state: for debugging, and for comparison."""

    name = "eager"

    def should_checkpoint(self, rebuild: Rebuild, costs: Costs) -> bool:
        """See `Policy.should_checkpoint`."""
        return True


class Never:
    """Takes no snapshots: every state is rebuilt by replay."""

    name = "never"

    def should_checkpoint(self, rebuild: Rebuild, costs: Costs) -> bool:
        """See `Policy.should_checkpoint`."""
        return False


class Default:
    """Takes a snapshot of a state if that is free, or pays.

    - Of a state that can be rebuilt, once rebuilding it costs more time than a checkpoint and a fork of it. The time
      that was already spent on rebuilding it counts, too, as in the ski-rental problem: a state that is cheap to
      rebuild, but often rebuilt, costs at most twice as much as the best choice in hindsight.
    - Of a state that is not known to be reproducible, which nothing else keeps: if a checkpoint takes less than
      `UNPROVEN_SHARE` of the time of the calls since the last snapshot; or while processors are idle, if it takes no
      longer than agents think between calls (or `FREE`); or while they are short, as far as the time for which agents
      think has paid for it (`Costs.allowance_s`).
    - Of a state that can never be proven, at once, if a checkpoint takes about as long as that of an idle shell
      (`LIGHT`, `LONG`): whoever comes after shares nothing without it. Else if a checkpoint takes less time than agents
      think between calls, or than `UNPROVEN_SHARE` of the calls, so that nobody waits for it.
    """

    name = "default"

    def should_checkpoint(self, rebuild: Rebuild, costs: Costs) -> bool:
        """See `Policy.should_checkpoint`."""
        checkpoint_s = max(costs.checkpoint_s * rebuild.weight, rebuild.checkpoint_s)
        fork_s = max(costs.fork_s, rebuild.fork_s)
        if rebuild.proven:
            begin_s = costs.start_s if rebuild.from_root else fork_s
            once_s = begin_s + rebuild.replay_s + rebuild.calls * CALL_OVERHEAD
            return max(once_s, rebuild.spent_s) > checkpoint_s + fork_s
        if checkpoint_s < UNPROVEN_SHARE * rebuild.replay_s:
            return True
        if not rebuild.provable:
            most_s = LONG_WHILE_SHORT if costs.processors_short else LONG
            return (rebuild.weight <= LIGHT and rebuild.checkpoint_s <= most_s) or checkpoint_s < costs.pause_s
        return checkpoint_s < (costs.allowance_s if costs.processors_short else max(FREE, costs.pause_s))


_POLICIES: Mapping[str, type[Default] | type[Eager] | type[Never]] = {
    policy.name: policy for policy in (Default, Eager, Never)
}
FORMER_NAMES = ("break-even", "record-all")
"""Former names of the default policy."""


def policy(name: str) -> Policy:
    """Returns a policy by name: one of tvsnap's, or one of a package with an entry point in `tvsnap.policies`.

    `name` may also be `package.module:attribute`, for a policy of another package, or a class of policies.

    Raises:
        UsageError: there is no such policy, or the object is no policy.
    """
    if name in FORMER_NAMES:
        warnings.warn(f'the policy "{name}" is now called "{Default.name}", which records all calls', stacklevel=3)
        name = Default.name
    plugin = _POLICIES.get(name) or plugins.find("policy", name, _POLICIES)
    instance: Policy = plugin() if isinstance(plugin, type) else plugin
    return check_provides(instance, "should_checkpoint", f"{name} must be a tvsnap.Policy")
