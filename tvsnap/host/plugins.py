"""Extensions from other packages: found by their entry points, or named by reference, `package.module:attribute`.

tvsnap's own plug-ins (`tvsnap.plugins`) are found in the same way, by entry points of tvsnap's own distribution. Names
of the core take precedence over entry points. A reference imports the module that it names, so it is accepted only from
the user who runs tvsnap (an argument, an option, a variable of the process), never from a file that describes an image.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from tvsnap.model.errors import UsageError

Kind = Literal[
    "environment",
    "backend",
    "policy",
    "graph",
    "image loader",
    "image description",
    "image services",
    "container tool",
    "client",
]
GROUPS: Mapping[Kind, str] = {
    "environment": "tvsnap.environments",
    "backend": "tvsnap.backends",
    "policy": "tvsnap.policies",
    "graph": "tvsnap.graphs",
    "image loader": "tvsnap.image_loaders",
    "image description": "tvsnap.image_descriptions",
    "image services": "tvsnap.image_services",
    "container tool": "tvsnap.container_tools",
    "client": "tvsnap.clients",
}
"""The group of entry points of each kind."""


def names(kind: Kind, own: Iterable[str] = ()) -> list[str]:
    """Returns all names, including `own`, sorted."""
    return sorted({*own, *_installed(kind)})


def check_name(kind: Kind, name: str, own: Iterable[str] = ()) -> None:
    """Raises UsageError if a name does not exist; does not import anything, and accepts all references."""
    if ":" not in name and name not in own and name not in _installed(kind):
        # tvsnap's own distribution has some entry points; an installation that is older than these has none.
        lack = (
            "" if _installed("environment") else "; tvsnap's own entry points are missing: install it anew (make setup)"
        )
        raise UsageError(f'{kind} "{name}" not found; have: {", ".join(names(kind, own))}{lack}')


def find(kind: Kind, name: str, own: Iterable[str] = ()) -> Any:
    """Returns the object that a package adds under a name, or that a reference names; imports its module only now.

    `name` is not one of the core's, or a reference; `own` are the core's names, for the error.

    Raises:
        UsageError: there is none, or it cannot be imported.
    """
    check_name(kind, name, own)
    if ":" in name:
        return load(kind, name)
    entry = _installed(kind)[name]
    try:
        return entry.load()
    except Exception as error:  # the module of a package may raise anything when it is imported
        raise UsageError(f'{kind} "{name}" cannot be loaded from {entry.value}: {_words(error)}') from error


def load(kind: Kind, reference: str) -> Any:
    """Returns the object that `package.module:attribute` names.

    Raises:
        UsageError: there is no such object, or it cannot be imported.
    """
    module, _, attribute = reference.partition(":")
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except Exception as error:  # a module may raise anything when it is imported
        raise UsageError(
            f"{kind} {reference} cannot be loaded: {_words(error)}; it must be package.module:attribute"
        ) from error


@functools.cache
def _installed(kind: Kind) -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in _all_installed().select(group=GROUPS[kind])}


@functools.cache
def _all_installed() -> Any:  # the class differs between versions of Python
    """Returns the entry points of all packages; reading them takes some milliseconds, for one group as for all."""
    return entry_points()


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
