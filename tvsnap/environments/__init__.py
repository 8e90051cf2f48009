"""What tool calls mean: the environments by name."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tvsnap.errors import UsageError

if TYPE_CHECKING:
    from tvsnap.environments.base import Environment


def _terminal() -> Environment:
    from tvsnap.environments.terminal import TerminalEnvironment

    return TerminalEnvironment()


_FACTORIES = {"terminal": _terminal}


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
