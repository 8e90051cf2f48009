"""Names of container images."""

from __future__ import annotations

import re

from tvsnap.model.errors import UsageError

_REFERENCE = re.compile(r"[a-z0-9]+([._/:-]+[a-z0-9]+)*/?[a-z0-9._-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?")
_USUAL_REGISTRY = "docker.io"


def full_reference(name: str) -> str:
    """Returns an image's name with its tag; raises UsageError if it is no image's name."""
    if not _REFERENCE.fullmatch(name):
        raise UsageError(f'"{name}" cannot be the name of a container image; one is debian:bookworm-slim')
    return name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest"


def with_registry(name: str) -> str:
    """Returns an image's name with its registry as Docker does: `docker.io/library/debian` for `debian`."""
    first, slash, _ = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return name
    return f"{_USUAL_REGISTRY}/{name}" if slash else f"{_USUAL_REGISTRY}/library/{name}"
