"""A Debian system of one's own under the name of a public image, for Dockerfiles where no registry is in reach."""

from __future__ import annotations

import re
from pathlib import Path

from tvsnap.images.build.bootstrap import bootstrap
from tvsnap.images.build.containers import ContainerTool
from tvsnap.images.build.steps import Steps
from tvsnap.images.descriptions.spec import DEFAULT_SUITE, DebianBase
from tvsnap.images.progress import BuildProgress
from tvsnap.model.errors import MachineLacks, UsageError

_REFERENCE = re.compile(r"[a-z0-9]+([._/:-]+[a-z0-9]+)*/?[a-z0-9._-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?")
_SUITE_IN_TAG = re.compile(r"(buster|bullseye|bookworm|trixie|forky|sid|focal|jammy|noble|plucky|questing)\b")


def full_reference(name: str) -> str:
    """An image's name with its tag.

    Raises:
        UsageError: it is none.
    """
    if not _REFERENCE.fullmatch(name):
        raise UsageError(f'"{name}" cannot be the name of a container image; one is debian:bookworm-slim')
    return name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest"


def suite_of(reference: str) -> str:
    """The suite that an image's tag names, as in debian:bookworm-slim; the usual one if it names none."""
    found = _SUITE_IN_TAG.search(reference.rpartition(":")[2])
    return found[1] if found else DEFAULT_SUITE


def make_base(
    tool: ContainerTool,
    reference: str,
    suite: str,
    packages: tuple[str, ...],
    scratch: Path,
    cache: Path,
    progress: BuildProgress,
) -> None:
    """Bootstraps and loads; see `ImageStore.make_base`.

    Args:
        scratch: a directory for the tree and temporary files, emptied by the caller.
        cache: where downloaded packages are kept.
    """
    root, work = scratch / "rootfs", scratch / "work"
    work.mkdir()
    steps = Steps(reference, 2, progress)
    with steps.step(f"bootstrap of {suite}"):
        remaining = bootstrap(DebianBase(suite), packages, root, work, cache / "apt" / suite, steps.output)
        if remaining:
            raise MachineLacks("packages in a base image need mmdebstrap: apt-get install mmdebstrap")
    with steps.step(f"into {tool.place}"):
        tool.load(root, reference, steps.output)
