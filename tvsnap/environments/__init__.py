"""What tool calls mean: the environments by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from tvsnap.host import plugins
from tvsnap.model.arguments import check_provides
from tvsnap.model.errors import UsageError

if TYPE_CHECKING:
    from tvsnap.environments.base import Environment
    from tvsnap.guest.sql.lexemes import SystemName

VARIABLE = "TVSNAP_ENVIRONMENTS"
"""The variable of a process that names more environments, as `package.module:attribute`, with commas between them."""


def _terminal() -> Environment:
    from tvsnap.environments.terminal import TerminalEnvironment

    return TerminalEnvironment()


def _python() -> Environment:
    from tvsnap.environments.python import PythonEnvironment

    return PythonEnvironment()


def _sql(system: SystemName) -> Environment:
    from tvsnap.environments.sql import SqlEnvironment

    return SqlEnvironment(system)


_FACTORIES: Mapping[str, Callable[[], Environment]] = {
    "terminal": _terminal,
    "python": _python,
    "sqlite": lambda: _sql("sqlite"),
    "postgres": lambda: _sql("postgres"),
    "mariadb": lambda: _sql("mariadb"),
}


def environment(name: str) -> Environment:
    """Returns an environment; its module is imported only now.

    It is one of those that tvsnap brings, one that a package adds by an entry point of the group
    `tvsnap.environments`, or one that the variable `TVSNAP_ENVIRONMENTS` names.

    Args:
        name: as an image's `environment` says.

    Raises:
        UsageError: if there is no such environment, or it cannot be imported.
    """
    return _environment(name, os.environ.get(VARIABLE, ""))


@cache
def _environment(name: str, references: str) -> Environment:
    named = {} if name in _FACTORIES else _named(references)
    if name in named:
        return named[name]
    if ":" in name:  # an image's description says it, and may not have anything imported
        raise UsageError(f"environment {name}: a description names it as itself does; {VARIABLE} says where it is")
    if name in _FACTORIES:
        return _FACTORIES[name]()
    found = plugins.find("environment", name, _FACTORIES)
    return checked(found() if isinstance(found, type) else found)


@cache
def _named(references: str) -> Mapping[str, Environment]:
    """Returns the environments that `TVSNAP_ENVIRONMENTS` names, by their own names."""
    texts = filter(None, (text.strip() for text in references.split(",")))
    found = (plugins.load("environment", text) for text in texts)
    made = [checked(one() if isinstance(one, type) else one) for one in found]
    return {one.name: one for one in made}


def checked(found: Environment) -> Environment:
    """Returns what fulfils the protocol of environments.

    Raises:
        UsageError: it does not.
    """
    for method in ("tool", "prepare", "execute", "observe", "unchanged", "behaviour"):
        check_provides(found, method, "an environment must be a tvsnap.Environment")
    return found
