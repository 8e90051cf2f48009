"""When to snapshot a state: rules that a `Cache` asks once a new state is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tvsnap.engine.keeping.policy.balance import Balance
from tvsnap.engine.keeping.policy.costs import SHARE, Costs
from tvsnap.host import plugins
from tvsnap.model.arguments import check_provides

UNPROVABLE_WORTH = 10.0  # seconds that the checkpoint of a state may take that only a snapshot can ever keep
CALL_OVERHEAD = 0.001  # seconds that a replayed call costs beyond its own duration
RECORD_SHARE = 0.1  # of the time that calls take, which the cache may cost beyond what it saves


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What it takes to rebuild a state that has no snapshot.

    Attributes:
        from_root: the replay begins in a fresh sandbox, not in a fork of a snapshot.
        calls: how many calls to replay.
        replay_s: seconds that they took when they were executed.
        spent_s: seconds that this process has already spent on rebuilding this very state.
        proven: the calls are known to lead to the same state each time. If not, only a snapshot keeps the state:
            without one, nothing that follows from it is answered, and whoever comes next executes the calls anew.
        provable: executing the calls again can prove that. If not, as processes live that cannot be compared, whoever
            executes them again comes to a state that nobody else has, and shares nothing from there on.
        checkpoint_s: seconds that a checkpoint took just above; 0 if there was none. A sandbox with much in memory
            stays expensive.
        fork_s: seconds that a fork took just above; 0 if there was none.
    """

    from_root: bool
    calls: int
    replay_s: float
    spent_s: float = 0.0
    proven: bool = True
    provable: bool = True
    checkpoint_s: float = 0.0
    fork_s: float = 0.0


class Policy(Protocol):
    """The rule that decides which states get a snapshot; a protocol. Many threads may use one at once.

    It is also asked of states that there are not yet, to foresee whether they would be kept: an answer does nothing.

    A policy may have a method `should_record`, too, which is given the `Balance` of an image, and returns whether to
    record the next call in its sandboxes. A rollout whose call is not recorded goes on in a private branch, which costs
    what a rollout without the cache does. Where there is no such method, all is recorded.
    """

    @property
    def name(self) -> str: ...

    def should_checkpoint(self, rebuild: Rebuild, costs: Costs) -> bool:
        """Returns whether to take a snapshot of a state that has none.

        Args:
            rebuild: what it takes to rebuild the state without a snapshot of it.
            costs: how long checkpoints, forks and starts take on this machine.
        """
        ...


class Eager:
    """Snapshots every state: for debugging, and as a yardstick."""

    name = "eager"

    def should_checkpoint(self, rebuild: Rebuild, costs: Costs) -> bool:
        """See `Policy.should_checkpoint`."""
        return True


class Never:
    """Snapshots nothing: every state is rebuilt by replay."""

    name = "never"

    def should_checkpoint(self, rebuild: Rebuild, costs: Costs) -> bool:
        """See `Policy.should_checkpoint`."""
        return False


class BreakEven:
    """Snapshots a state once rebuilding it costs more time than a checkpoint and a fork of it.

    What rebuilding it has cost so far counts too, as in the ski-rental problem: so a state that is cheap to rebuild
    but rebuilt often costs at most twice what the best choice in hindsight would have.

    A state that is not known to be reproducible cannot be rebuilt: without a snapshot, the calls that led there are
    executed again by whoever comes next, which is what they cost without a cache. It is kept where the work since the
    last snapshot is worth it: where a checkpoint takes less than the share `SHARE` of that time. Beyond that, a second
    or so is spent at the start on keeping everything (`Costs.allowance_s`). So checkpoints of such states hardly take
    more than that share of what calls take. One that can never be proven is kept at once.

    Calls are recorded as long as what the cache costs (looks, forks) is brought back by what it answers, but for a
    tenth of what calls take. Whether it will be is tried in a twentieth of the time of all processors, so that where
    callers think, and nothing is lost by it, all is recorded.

    Of 91 recorded rollouts with 1,659 commands of terminal-bench, most of them short, some 170 states are then kept in
    the first pass instead of 780; some 790 commands are answered in the second one instead of 1,381, and as many as
    before in the third.
    """

    name = "break-even"

    def should_checkpoint(self, rebuild: Rebuild, costs: Costs) -> bool:
        """See `Policy.should_checkpoint`."""
        checkpoint_s = max(costs.checkpoint_s, rebuild.checkpoint_s)
        fork_s = max(costs.fork_s, rebuild.fork_s)
        if not (rebuild.proven or rebuild.provable):
            return checkpoint_s < max(UNPROVABLE_WORTH, SHARE * rebuild.replay_s)
        if not rebuild.proven:
            return checkpoint_s < max(costs.allowance_s, SHARE * rebuild.replay_s)
        begin_s = costs.start_s if rebuild.from_root else fork_s
        once_s = begin_s + rebuild.replay_s + rebuild.calls * CALL_OVERHEAD
        return max(once_s, rebuild.spent_s) > checkpoint_s + fork_s

    def should_record(self, balance: Balance) -> bool:
        """See `Policy`."""
        return balance.loss(RECORD_SHARE) <= 0 or balance.trial_s > 0


_POLICIES: Mapping[str, type[Eager] | type[Never] | type[BreakEven]] = {
    policy.name: policy for policy in (BreakEven, Eager, Never)
}


def policy(name: str) -> Policy:
    """Returns a policy by name: ours, or a package's with an entry point in `tvsnap.policies`.

    Args:
        name: the name, or `package.module:attribute`; of another package it names a policy, or a class of them.

    Raises:
        UsageError: if there is no such policy, or it is none.
    """
    found = _POLICIES.get(name) or plugins.find("policy", name, _POLICIES)
    made: Policy = found() if isinstance(found, type) else found
    return check_provides(made, "should_checkpoint", f"{name} must be a tvsnap.Policy")
