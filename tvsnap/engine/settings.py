"""The settings with which a cache is opened."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypedDict

from tvsnap.engine.keeping.policy import Policy
from tvsnap.engine.keeping.policy import policy as policy_named
from tvsnap.engine.supply.recipes import ImageSource
from tvsnap.environments.base import Environment
from tvsnap.model.arguments import check_number, check_provides, check_seconds, check_type, check_whole
from tvsnap.model.errors import UsageError
from tvsnap.model.limits import Budget, Limits
from tvsnap.model.shares import Share, Shares
from tvsnap.sandboxes.network.settings import NetworkSettings
from tvsnap.sandboxes.protocol import Backend


class CacheArguments(TypedDict, total=False):
    """The named arguments of `Cache`, for functions that pass them on."""

    backend: str | Backend
    policy: str | Policy
    limits: Limits | None
    budget: Budget | None
    use_cache: bool
    same_ids: bool
    prefork: int | None
    audit: float
    images: ImageSource | None
    environments: Iterable[Environment]
    network_settings: NetworkSettings | None
    network_answers: float | None
    timeouts: Literal["private", "shared"]
    grade_executions: int
    shares: Iterable[Share]
    graph: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """The settings of a cache, checked; see `Cache` for the attributes."""

    backend: str | Backend
    policy: str | Policy
    limits: Limits | None
    budget: Budget
    use_cache: bool
    same_ids: bool
    prefork: int | None
    audit: float
    images: ImageSource | None
    environments: tuple[Environment, ...]
    network_settings: NetworkSettings
    network_answers: float | None
    timeouts: Literal["private", "shared"]
    grade_executions: int
    shares: tuple[Share, ...]
    graph: str | None

    def __post_init__(self) -> None:
        """Raises UsageError if a setting makes no sense."""
        self.snapshot_policy()
        if not isinstance(self.backend, str):
            check_provides(self.backend, "fork", "backend must be a backend's name, or one that is open")
        if self.images is not None:
            check_provides(self.images, "get", "images must be a source of images")
        for name in ("use_cache", "same_ids"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if self.timeouts not in ("private", "shared"):
            raise UsageError(f'timeouts must be "private" or "shared", not {self.timeouts!r}')
        check_whole(self.grade_executions, "grade_executions", 1)
        check_number(self.audit, "audit", 0, 1)
        if self.network_answers is not None:
            check_seconds(self.network_answers, "network_answers", least=0.0)
        if self.prefork is not None:
            check_whole(self.prefork, "prefork", 0)
        if self.limits is not None:
            check_type(self.limits, Limits, "limits")
        check_type(self.budget, Budget, "budget")
        self.parts().check(self.budget.disk)

    def snapshot_policy(self) -> Policy:
        """Returns the policy that chooses which states get snapshots."""
        if isinstance(self.policy, str):
            return policy_named(self.policy)
        return check_provides(self.policy, "should_checkpoint", "policy must be a policy's name, or a tvsnap.Policy")

    def parts(self) -> Shares:
        """Returns the parts that owners of rollouts have."""
        return Shares(check_type(share, Share, "shares") for share in self.shares)

    @property
    def shares_timeouts(self) -> bool:
        """Whether a call that timed out on a busy machine answers others."""
        return self.timeouts == "shared"
