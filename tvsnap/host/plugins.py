"""What other packages add to tvsnap: found by their entry points, or named by where it is, `package.module:attribute`.

A name of ours comes first, then entry points. A reference imports what it names, so it is taken only from whoever runs
tvsnap (an argument, an option, a variable of the process), never from a file that describes an image.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from tvsnap.model.errors import UsageError

Kind = Literal["environment", "backend", "policy"]
GROUPS: Mapping[Kind, str] = {
    "environment": "tvsnap.environments",
    "backend": "tvsnap.backends",
    "policy": "tvsnap.policies",
}
"""The group of entry points of each kind of thing."""


def names(kind: Kind, own: Mapping[str, object]) -> list[str]:
    """Returns the names that there are, `own` among them, in order."""
    return sorted({*own, *_installed(kind)})


def check_name(kind: Kind, name: str, own: Mapping[str, object]) -> None:
    """Makes sure that a name or a reference may mean something, without importing that.

    Raises:
        UsageError: there is no such name.
    """
    if ":" not in name and name not in own and name not in _installed(kind):
        raise UsageError(f'{kind} "{name}" not found; have: {", ".join(names(kind, own))}')


def find(kind: Kind, name: str, own: Mapping[str, object]) -> Any:
    """Returns what another package adds under a name, or what a reference names; its module is imported only now.

    Args:
        kind: what it is.
        name: a name that is none of tvsnap's own, or `package.module:attribute`.
        own: those of tvsnap itself, by name, for the error.

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
    return {entry.name: entry for entry in entry_points(group=GROUPS[kind])}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
