"""The environments by name; an environment defines the meaning of tool calls."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from tvsnap.host import plugins
from tvsnap.model.arguments import check_provides
from tvsnap.model.errors import UsageError

if TYPE_CHECKING:
    from tvsnap.environments.base import Environment
    from tvsnap.model.images import Image

VARIABLE = "TVSNAP_ENVIRONMENTS"
"""The variable of a process that names more environments, as `package.module:attribute`, separated by commas."""


_OWN: Mapping[str, tuple[str, str]] = {
    "terminal": ("terminal", "TerminalEnvironment"),
}
"""The core's environments: the module, and the class in it."""


def environment(name: str) -> Environment:
    """Returns an environment; its module is imported only now.

    It is `terminal`, one that a package adds by an entry point of the group `tvsnap.environments`, as tvsnap itself
    adds `python` and those of databases, or one that the variable `TVSNAP_ENVIRONMENTS` names. `name` is the
    `environment` of an image.

    Raises:
        UsageError: there is no such environment, or it cannot be imported.
    """
    return _environment(name, os.environ.get(VARIABLE, ""))


def environment_of(image: Image) -> Environment:
    """Returns the environment of an image's sandboxes; raises the errors of `environment`."""
    return with_services(environment(image.environment), image)


def with_services(inner: Environment, image: Image) -> Environment:
    """Returns an environment for sandboxes of an image: unchanged, unless the image has several services."""
    if not image.services:
        return inner
    from tvsnap.environments.services import ServicesEnvironment

    return ServicesEnvironment(inner, image.services)


@cache
def _environment(name: str, references: str) -> Environment:
    if name in _OWN:
        module, attribute = _OWN[name]
        own: Environment = getattr(importlib.import_module(f"{__package__}.{module}"), attribute)()
        return own
    named = _named(references)
    if name in named:
        return named[name]
    if ":" in name:  # it comes from an image's description, which must not cause imports
        raise UsageError(f"environment {name}: a description names it as itself does; {VARIABLE} says where it is")
    return checked(plugins.find("environment", name, _OWN))


@cache
def _named(references: str) -> Mapping[str, Environment]:
    """Returns the environments that `TVSNAP_ENVIRONMENTS` names, by their own names."""
    texts = filter(None, (text.strip() for text in references.split(",")))
    environments = (plugins.load("environment", text) for text in texts)
    return {one.name: one for one in map(checked, environments)}


def checked(candidate: Any) -> Environment:
    """Returns an environment, given it or its class; raises UsageError if it does not implement the protocol."""
    instance: Environment = candidate() if isinstance(candidate, type) else candidate
    for method in ("tool", "prepare", "execute", "observe", "unchanged", "behaviour"):
        check_provides(instance, method, "an environment must be a tvsnap.Environment")
    return instance
