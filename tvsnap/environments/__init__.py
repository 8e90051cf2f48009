"""What tool calls mean: the environments by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from tvsnap.model.errors import UsageError

if TYPE_CHECKING:
    from tvsnap.environments.base import Environment
    from tvsnap.environments.sql import SystemName


def _terminal() -> Environment:
    from tvsnap.environments.terminal import TerminalEnvironment

    return TerminalEnvironment()


def _sql(system: SystemName) -> Environment:
    from tvsnap.environments.sql import SqlEnvironment

    return SqlEnvironment(system)


_FACTORIES: Mapping[str, Callable[[], Environment]] = {
    "terminal": _terminal,
    "sqlite": lambda: _sql("sqlite"),
    "postgres": lambda: _sql("postgres"),
    "mariadb": lambda: _sql("mariadb"),
}


@cache
def environment(name: str) -> Environment:
    """Returns an environment; its module is imported only now.

    Args:
        name: as an image's `environment` says.

    Raises:
        UsageError: if there is no such environment.
    """
    factory = _FACTORIES.get(name)
    if factory is None:
        raise UsageError(f'environment "{name}" not found; have: {", ".join(sorted(_FACTORIES))}')
    return factory()
