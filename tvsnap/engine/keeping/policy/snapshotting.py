"""When to take a snapshot of a state: the rules that a `Cache` uses for each new state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tvsnap.engine.keeping.policy.balance import Balance
from tvsnap.engine.keeping.policy.costs import Costs
from tvsnap.host import plugins
from tvsnap.model.arguments import check_provides

UNPROVABLE_WORTH = 10.0  # seconds that a checkpoint may take if only a snapshot can ever keep the state
CALL_OVERHEAD = 0.001  # seconds that a replayed call costs beyond its own duration


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What it costs to rebuild a state that has no snapshot.

    Attributes:
        from_root: the replay begins in a fresh sandbox, not in a fork of a snapshot.
        calls: how many calls to replay.
        replay_s: seconds that they took when they were executed.
        spent_s: seconds that this process has already spent on rebuilding this state.
        proven: the calls are known to lead to the same state each time. If not, only a snapshot keeps the state:
            without one, nothing that follows from it is answered, and the next rollout that comes there executes the
            calls anew.
        provable: executing the calls again can prove that. If not, because of living processes that cannot be compared,
            a rollout that executes them again comes to a state of its own, and shares nothing from there on.
        checkpoint_s: seconds that the nearest checkpoint above took; 0 if there was none. Checkpoints of a sandbox with
            much memory stay expensive.
        fork_s: seconds that the nearest fork above took; 0 if there was none.
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

    It is also asked about hypothetical states, to predict whether they would be kept, so it must have no side effects.

    A policy may also have a method `should_record`, which gets the `Balance` of an image, and returns whether to record
    the next call in its sandboxes. A rollout whose call is not recorded goes on in a private branch, at the cost of a
    rollout without the cache. Without this method, all calls are recorded.
    """

    @property
    def name(self) -> str: ...

    def should_checkpoint(self, rebuild: Rebuild, costs: Costs) -> bool:
        """Returns whether to take a snapshot of a state that has none.

        Args:
            rebuild: what it costs to rebuild the state without a snapshot of it.
            costs: how long checkpoints, forks and starts take on this machine.
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


class RecordAll:
    """Takes a snapshot of a state once rebuilding it costs more time than a checkpoint and a fork of it
    (times `Tuning.break_even`).

    The time that was already spent on rebuilding it counts, too, as in the ski-rental problem: a state that is cheap to
    rebuild, but often rebuilt, costs at most twice as much as the best choice in hindsight.

    A state that is not known to be reproducible cannot be rebuilt: without a snapshot, the next rollout that comes
    there executes the calls again, which is what they cost without a cache. It is kept if a checkpoint takes less than
    the share `Tuning.unproven_share` of the time that the calls since the last snapshot took. In addition, about a
    second is spent at the start on keeping everything (`Costs.allowance_s`). So checkpoints of such states take hardly
    more than that share of the time of calls. A state that can never be proven is kept at once.

    All calls are recorded, whatever that costs: for people who look at what a few rollouts do.
    """

    name = "record-all"

    def should_checkpoint(self, rebuild: Rebuild, costs: Costs) -> bool:
        """See `Policy.should_checkpoint`."""
        tuning = costs.tuning
        checkpoint_s = max(costs.checkpoint_s, rebuild.checkpoint_s)
        fork_s = max(costs.fork_s, rebuild.fork_s)
        if not (rebuild.proven or rebuild.provable):
            return checkpoint_s < max(UNPROVABLE_WORTH, tuning.unproven_share * rebuild.replay_s)
        if not rebuild.proven:
            return checkpoint_s < max(costs.allowance_s, tuning.unproven_share * rebuild.replay_s)
        begin_s = costs.start_s if rebuild.from_root else fork_s
        once_s = begin_s + rebuild.replay_s + rebuild.calls * CALL_OVERHEAD
        return max(once_s, rebuild.spent_s) > tuning.break_even * (checkpoint_s + fork_s)


class BreakEven(RecordAll):
    """Takes snapshots as `RecordAll` does, and records calls where that pays.

    Calls are recorded as long as the cache costs (waiting, and the work of busy processors) no more than its answers
    save, plus a share of the time of rollouts (`Tuning.record_share`), and about a second at the start. So everything
    is recorded where callers think and nothing is lost by it.
    """

    name = "break-even"

    def should_record(self, balance: Balance) -> bool:
        """See `Policy`."""
        return balance.pays(balance.share)


_POLICIES: Mapping[str, type[Eager] | type[Never] | type[RecordAll]] = {
    policy.name: policy for policy in (BreakEven, RecordAll, Eager, Never)
}


def policy(name: str) -> Policy:
    """Returns a policy by name: ours, or one of a package with an entry point in `tvsnap.policies`.

    `name` may also be `package.module:attribute`, for a policy of another package, or a class of policies.

    Raises:
        UsageError: there is no such policy, or the object is no policy.
    """
    found = _POLICIES.get(name) or plugins.find("policy", name, _POLICIES)
    made: Policy = found() if isinstance(found, type) else found
    return check_provides(made, "should_checkpoint", f"{name} must be a tvsnap.Policy")
