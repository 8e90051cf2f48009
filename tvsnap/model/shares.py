"""The shares of several owners in one cache: each has a part that the others cannot take from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tvsnap.model.arguments import check_whole
from tvsnap.model.errors import UsageError

OTHERS = ""
"""The owner of all rollouts that belong to no named owner; its weight is 1."""


@dataclass(frozen=True, slots=True)
class Share:
    """The part of one owner.

    Attributes:
        owner: its name.
        salts: the prefix of the salts of its rollouts' roots.
        weight: its part is this, divided by the weights of all owners.
        disk: bytes of the budget for snapshots that are its part; None for a part by weight of the bytes that no owner
            has in this way.

    Raises:
        UsageError: a number is out of its range.
    """

    owner: str
    salts: str
    weight: int = 1
    disk: int | None = None

    def __post_init__(self) -> None:
        check_whole(self.weight, "Share.weight", 1)
        if self.disk is not None:
            check_whole(self.disk, "Share.disk", 1)


class Shares:
    """The parts of several owners, and of all others (`OTHERS`). It does not change."""

    def __init__(self, shares: Iterable[Share] = ()) -> None:
        self._shares = tuple(shares)

    def __bool__(self) -> bool:
        """Returns whether there are any shares."""
        return bool(self._shares)

    def owner(self, salt: str) -> str:
        """Returns the owner of the rollouts below a root.

        Args:
            salt: that of the root.
        """
        return next((share.owner for share in self._shares if salt.startswith(share.salts)), OTHERS)

    def parts(self) -> Mapping[str, float]:
        """Returns the parts of all owners by weight, `OTHERS` included; together they are 1."""
        total = 1 + sum(share.weight for share in self._shares)
        return {OTHERS: 1 / total, **{share.owner: share.weight / total for share in self._shares}}

    def sizes(self, size: int) -> Mapping[str, int]:
        """Returns the parts of all owners of a number of bytes, `OTHERS` included."""
        named = {share.owner: share.disk for share in self._shares if share.disk is not None}
        weights = {OTHERS: 1, **{share.owner: share.weight for share in self._shares if share.disk is None}}
        rest = max(0, size - sum(named.values()))
        return {**named, **{owner: rest * weight // sum(weights.values()) for owner, weight in weights.items()}}

    def check(self, size: int | None) -> None:
        """Checks that the parts given in bytes fit into a budget for snapshots.

        Args:
            size: the budget's bytes; None if it has no limit.

        Raises:
            UsageError: they exceed it, or there is no limit.
        """
        named = [share for share in self._shares if share.disk is not None]
        total = sum(share.disk or 0 for share in named)
        if named and size is None:
            raise UsageError(
                f"{named[0].owner} has a budget of its own, a part of that of all snapshots, which has no limit: give "
                "one (--max-disk, Budget.disk)"
            )
        if size is not None and total > size:
            raise UsageError(
                f"the budgets of {', '.join(share.owner for share in named)} are {total} bytes together, and all "
                f"snapshots may take {size}: raise that (--max-disk, Budget.disk), or lower theirs"
            )
