"""Tenants: groups of clients that see nothing of each other, and share the server's sandboxes fairly.

A tenant is named in the token file. States of its rollouts are kept apart from those of others by the salt of their
roots, so that no call of one is answered from what another has recorded.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import HTTPConnection

from tvsnap.graph import Graph
from tvsnap.model.errors import NotFound, UsageError
from tvsnap.model.shares import Share
from tvsnap.plugins.client.wire.errors import Busy

SHORTEST_TOKEN, LONGEST_NAME = 16, 64
ACTIVE = 60.0
"""Seconds after a tenant's last request for which its share of the sandboxes is kept free."""
NUMBERS = ("weight", "rollouts", "sandboxes")
_PREFIX = "tenant "
_OPTION = re.compile(rf"({'|'.join(NUMBERS)})=0*([1-9][0-9]{{0,5}})|budget=0*([1-9][0-9]{{0,14}})([KMGT]?)", re.ASCII)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True, slots=True)
class Tenant:
    """A group of clients.

    Attributes:
        name: its name in the token file.
        weight: its part of sandboxes, processors and snapshots is this, divided by the weights of all tenants.
        rollouts: rollouts that it may have open at once; None for as many as the server takes.
        sandboxes: sandboxes that may be at work for it or held by it at once; None for as many as there are.
        budget: bytes of the budget for snapshots that are its part; None for what its weight makes of it.
    """

    name: str
    weight: int = 1
    rollouts: int | None = None
    sandboxes: int | None = None
    budget: int | None = None

    @property
    def prefix(self) -> str:
        """The beginning of the salts of its roots."""
        return f"{_PREFIX}{self.name}: "

    def owns(self, salt: str) -> bool:
        """Returns whether a root with a salt is its own."""
        return salt.startswith(self.prefix)

    @property
    def share(self) -> Share:
        """Its part of what the cache uses."""
        return Share(self.name, self.prefix, self.weight, self.budget)


def tenant_of(request: HTTPConnection) -> Tenant | None:
    """Returns the tenant that makes a request; None for who may see all."""
    tenant: Tenant | None = request.scope.get("tenant")
    return tenant


def own_salt(salt: str | None, tenant: Tenant | None) -> str | None:
    """Returns the salt of the roots of a tenant's rollouts.

    Args:
        salt: the client's salt.
        tenant: the tenant that asks.

    Raises:
        UsageError: who is no tenant gives a salt that is a tenant's.
    """
    if tenant is not None:
        return f"{tenant.prefix}{salt or ''}"
    if salt is not None and salt.startswith(_PREFIX):
        raise UsageError(f"a salt must not begin with {_PREFIX!r}, as those of tenants do")
    return salt


def check_owned(graph: Graph, tenant: Tenant | None, name: str) -> str:
    """Returns the hash of a state that a request names, or the name as it is for who may see all.

    Args:
        graph: the graph.
        tenant: the tenant that asks.
        name: a hash, or a prefix of one.

    Raises:
        NotFound: the tenant has no such state, or the prefix fits several.
    """
    if tenant is None:
        return name
    try:
        state = graph.resolve(name).hash
        if tenant.owns(graph.root_of(state).salt):
            return state
    except NotFound:
        pass
    raise NotFound(f"there is no state {name} of yours, or it is not the only one: give its whole hash")


class Shares:
    """The tenants' shares of sandboxes: how many each uses, and who may use a further one.

    It is used on one event loop.
    """

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._used: Counter[str] = Counter()
        self._latest: dict[str, float] = {}

    @property
    def used(self) -> int:
        """The number that all use together."""
        return self._used.total()

    def add(self, tenant: Tenant | None, count: int) -> None:
        """Takes note that a tenant uses so many more, or fewer."""
        self._used[_name(tenant)] += count

    def asked(self, tenant: Tenant | None) -> None:
        """Takes note that a tenant asks for sandboxes, granted or not: its share is kept free for a while."""
        self._latest[_name(tenant)] = time.monotonic()

    def check(self, tenant: Tenant | None, count: int, free: int, room: int) -> None:
        """Checks that a tenant may use further ones.

        A tenant may use more than its share if those who have asked for something lately leave theirs.

        Args:
            tenant: the tenant that asks; None for those who are no tenant, who together have the weight 1.
            count: the number of further ones.
            free: the number that nobody uses.
            room: the number of all.

        Raises:
            Busy: they are kept for others, or the tenant has as many as it may have.
        """
        if not self._tenants:
            return
        now, name = time.monotonic(), _name(tenant)
        used = self._used[name] + count
        if tenant is not None and tenant.sandboxes is not None and used > tenant.sandboxes:
            raise Busy(f"{name} uses {used - count} sandboxes, and may use {tenant.sandboxes} (token file): close some")
        if used <= self._share(name, room):
            return
        reserved = sum(
            max(0, self._share(other, room) - self._used[other])
            for other, latest in self._latest.items()
            if other != name and now - latest < ACTIVE
        )
        if count > free - reserved:
            raise Busy(
                f"{name or 'clients that are no tenant'} use {used - count} of {room} sandboxes, which is their share "
                "or more, and others use theirs"
            )

    def _share(self, name: str, room: int) -> int:
        weights = {other: tenant.weight for other, tenant in self._tenants.items()}
        return max(1, room * weights.get(name, 1) // (sum(weights.values()) + 1))


def check_possible(count: int, what: str, most: int, where: str) -> None:
    """Checks a number that was asked for against what there may be at most, because waiting does not help beyond.

    Args:
        count: the number that was asked for.
        what: the name of one.
        most: the number that there may be.
        where: the place of the setting.

    Raises:
        UsageError: more were asked for.
    """
    if count > most:
        plural = "sandboxes" if what == "sandbox" else f"{what}s"
        raise UsageError(f"{count} {plural} were asked for, and there may be {most} ({where}): ask for fewer")


def _name(tenant: Tenant | None) -> str:
    return "" if tenant is None else tenant.name


def read_tokens(path: Path) -> Mapping[str, Tenant | None]:
    """Returns the tokens of a file, and whose they are.

    A line is a token, or `TOKEN TENANT [weight=N] [rollouts=N] [sandboxes=N] [budget=SIZE]`. Who shows a token without
    a tenant may see all. Several tokens may be of one tenant; the first line that names it says what it may have. Empty
    lines and those that begin with # do not count.

    Args:
        path: the file, which nobody but its owner may read.

    Raises:
        UsageError: it cannot be read, others may read it, it has no token, or a line makes no sense.
    """
    try:
        mode = path.stat().st_mode
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token file {path} cannot be read: {error}") from None
    if mode & 0o077:
        raise UsageError(f"others may read the token file {path}: chmod 600 {path}")
    tokens: dict[str, Tenant | None] = {}
    tenants: dict[str, Tenant] = {}
    for number, line in enumerate(lines, 1):
        token, *rest = line.split() or [""]
        if not token or token.startswith("#"):
            continue
        where = f"line {number} of the token file {path}"
        if len(token) < SHORTEST_TOKEN or not token.isascii():
            raise UsageError(f"{where}: a token is at least {SHORTEST_TOKEN} characters of ASCII")
        if token in tokens:
            raise UsageError(f"{where}: the token is there already")
        tokens[token] = _tenant(rest, tenants, where) if rest else None
    if not tokens:
        raise UsageError(f"the token file {path} has no token; make one: openssl rand -hex 32 > {path}")
    return tokens


def _tenant(words: list[str], tenants: dict[str, Tenant], where: str) -> Tenant:
    name, *options = words
    if not (name.replace("-", "").replace("_", "").isalnum() and name.isascii() and len(name) <= LONGEST_NAME):
        raise UsageError(
            f"{where}: {name!r} is no name of a tenant: at most {LONGEST_NAME} letters, digits, - and _ (a token holds "
            "no spaces)"
        )
    chosen: dict[str, int] = {}
    for option in options:
        match = _OPTION.fullmatch(option)
        if match is None:
            raise UsageError(
                f"{where}: {option!r} makes no sense; there are {', '.join(f'{one}=N' for one in NUMBERS)} and "
                "budget=SIZE, as 500M or 2G"
            )
        key, number, size, unit = match.groups(default="")
        chosen[key or "budget"] = int(number) if key else int(size) << _UNITS[unit]
    if name in tenants and options:
        raise UsageError(f"{where}: what {name} may have is said by the first line that names it")
    return tenants.setdefault(name, Tenant(name, **chosen))
