"""Tells roots of one image apart, in words: by limits, network, salt and the image's build."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .text import one_line, size

if TYPE_CHECKING:
    from tvsnap.graph import RootInfo

_BYTES = ("memory", "disk", "output")


class Root(NamedTuple):
    """The properties that distinguish a root; see `tvsnap.graph.RootInfo`."""

    hash: str
    image: str
    limits: str
    network: str
    salt: str
    digest: str = ""
    environment: str = ""


def told_apart(roots: Iterable[RootInfo]) -> dict[str, str]:
    """Returns the same as `distinctions`, also by image digest and environment."""
    return distinctions(
        Root(root.hash, root.image_name, root.limits, root.network, root.salt, root.image_digest, root.environment)
        for root in roots
    )


def distinctions(roots: Iterable[Root]) -> dict[str, str]:
    """Returns, by root, its differences from others of its image in words; empty if there are none."""
    of_image: dict[str, dict[str, Root]] = defaultdict(dict)
    for root in roots:
        of_image[root.image][root.hash] = root
    return {hash: words for group in of_image.values() for hash, words in _differences(group).items()}


def _differences(group: Mapping[str, Root]) -> dict[str, str]:
    limits = {hash: _read(root.limits) for hash, root in group.items()}
    names = sorted({name for limit in limits.values() for name in limit})
    differing = [name for name in names if len({json.dumps(limit.get(name)) for limit in limits.values()}) > 1]
    networks, salts, digests, environments = (
        len({getattr(root, what) for root in group.values()}) > 1
        for what in ("network", "salt", "digest", "environment")
    )
    words_by_root = {}
    for hash, root in group.items():
        words = [f"{name} {_shown(name, limits[hash].get(name))}" for name in differing]
        words += [f"network {one_line(root.network)}"] if networks else []
        words += [f"salt {one_line(root.salt)}" if root.salt else "no salt"] if salts else []
        words += [f"image {root.digest[:12]}"] if digests and root.digest else []
        words += [root.environment] if environments else []
        words_by_root[hash] = ", ".join(words)
    return words_by_root


def _read(limits: str) -> dict[str, Any]:
    try:
        value = json.loads(limits)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "unlimited"
    if isinstance(value, (int, float)) and any(part in name for part in _BYTES):
        return size(value)
    return one_line(str(value))
