"""Has CRIU write only those pages of memory that are new since an earlier dump (see native/criu/pages.c).

CRIU finds the earlier pages in the directory `parent` of the new dump, to which they are linked, so that each dump is
complete however many others are deleted. Such a dump's parent is always a whole one: a fork reads from two at most.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tvsnap.sandboxes.sealing import Stamp

DIRECTORY = "parent"
"""Name of the earlier dump in the directory of the new one, for CRIU."""
ADDITION = "pages"
"""Entry of `binary.additions` of a CRIU that compares pages."""
WORTH_COMPARING = 1 << 20
"""Bytes of pages from which on they are compared: more than those of an idle shell."""
_MOST_NEW = 0.5
"""Once this part of the pages is new, the next dump is a whole one."""
MOST_COMPRESSED = 128 << 20
"""Bytes of pages up to which a dump is compressed: the kernel takes about 3 ms of a processor for each MiB."""
_IMAGE = re.compile(r"criu/(?P<lent>parent/)?(?P<name>pagemap-\d+\.img|(?P<pages>pages)-\d+\.img)")


def to_lend(stamps: Mapping[str, Stamp]) -> dict[str, str]:
    """Returns which files of a snapshot to link into the directory `parent` of the next dump of the same processes.

    Args:
        stamps: the snapshot's files, by path in the snapshot.

    Returns:
        Their paths by the names that they get; nothing if a whole dump is as cheap.
    """
    sizes = {"": 0, "parent/": 0}
    by_kind: dict[str, dict[str, str]] = {"": {}, "parent/": {}}
    for path, (_, size, *_) in stamps.items():
        if image := _IMAGE.fullmatch(path):
            kind = image["lent"] or ""
            by_kind[kind][image["name"]] = path
            if image["pages"]:
                sizes[kind] += size
    if by_kind["parent/"]:
        return by_kind["parent/"] if sizes[""] <= _MOST_NEW * sizes["parent/"] else {}
    return by_kind[""] if sizes[""] >= WORTH_COMPARING else {}


def size(stamps: Mapping[str, Stamp]) -> int:
    """Returns how many bytes of pages a snapshot has, those that are linked included.

    Args:
        stamps: the snapshot's files, by path in the snapshot.
    """
    images = ((_IMAGE.fullmatch(path), stamp) for path, stamp in stamps.items())
    return sum(stamp[1] for image, stamp in images if image and image["pages"])


def too_large_to_compress(images: Path) -> list[Path]:
    """Returns the files with pages in a new dump, if there are so many pages that compressing them is too dear.

    Args:
        images: the dump's directory.
    """
    with os.scandir(images) as entries:
        sizes = {entry.path: entry.stat().st_size for entry in entries if entry.name.startswith("pages-")}
    return [*map(Path, sizes)] if sum(sizes.values()) > MOST_COMPRESSED else []
