"""What packages add to tvsnap: found by their entry points, or named by where it is, `package.module:attribute`.

What tvsnap brings for databases (`tvsnap.sql`) and for Docker (`tvsnap.docker`) is found in the same way, by entry
points of tvsnap's own distribution. A name of the core comes first, then entry points. A reference imports what it
names, so it is taken only from whoever runs tvsnap (an argument, an option, a variable of the process), never from a
file that describes an image.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from tvsnap.model.errors import UsageError

Kind = Literal["environment", "backend", "policy", "image loader", "container tool"]
GROUPS: Mapping[Kind, str] = {
    "environment": "tvsnap.environments",
    "backend": "tvsnap.backends",
    "policy": "tvsnap.policies",
    "image loader": "tvsnap.image_loaders",
    "container tool": "tvsnap.container_tools",
}
"""The group of entry points of each kind of thing."""


def names(kind: Kind, own: Iterable[str] = ()) -> list[str]:
    """Returns the names that there are, `own` among them, in order."""
    return sorted({*own, *_installed(kind)})


def check_name(kind: Kind, name: str, own: Iterable[str] = ()) -> None:
    """Makes sure that a name or a reference may mean something, without importing that.

    Raises:
        UsageError: there is no such name.
    """
    if ":" not in name and name not in own and name not in _installed(kind):
        # tvsnap's own distribution has some; one that was installed before they came does not.
        lack = (
            "" if _installed("environment") else "; tvsnap's own entry points are missing: install it anew (make setup)"
        )
        raise UsageError(f'{kind} "{name}" not found; have: {", ".join(names(kind, own))}{lack}')


def find(kind: Kind, name: str, own: Iterable[str] = ()) -> Any:
    """Returns what a package adds under a name, or what a reference names; its module is imported only now.

    Args:
        kind: what it is.
        name: a name that is none of the core's, or `package.module:attribute`.
        own: the names that the core knows, for the error.

    Raises:
        UsageError: there is none, or it cannot be imported.
    """
    check_name(kind, name, own)
    if ":" in name:
        return load(kind, name)
    entry = _installed(kind)[name]
    try:
        return entry.load()
    except Exception as error:  # whatever a package does when it is imported
        raise UsageError(f'{kind} "{name}" cannot be loaded from {entry.value}: {_words(error)}') from error


def load(kind: Kind, reference: str) -> Any:
    """Returns what `package.module:attribute` names.

    Raises:
        UsageError: there is no such thing, or it cannot be imported.
    """
    module, _, attribute = reference.partition(":")
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except Exception as error:  # whatever a module does when it is imported
        raise UsageError(
            f"{kind} {reference} cannot be loaded: {_words(error)}; it must be package.module:attribute"
        ) from error


@functools.cache
def _installed(kind: Kind) -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in _all_installed().select(group=GROUPS[kind])}


@functools.cache
def _all_installed() -> Any:  # of another class with each version of Python
    """Returns the entry points of all packages; to read them takes some milliseconds, for one group as for all."""
    return entry_points()


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
