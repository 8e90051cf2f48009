"""A Debian system of one's own under the name of a public image, for Dockerfiles where no registry is in reach."""

from __future__ import annotations

import re
from pathlib import Path

from tvsnap.images.build.bootstrap import bootstrap
from tvsnap.images.build.containers import ContainerTool
from tvsnap.images.build.steps import Steps
from tvsnap.images.descriptions.spec import DEFAULT_SUITE, DebianBase
from tvsnap.images.progress import BuildProgress
from tvsnap.model.errors import MachineLacks

_SUITE_IN_TAG = re.compile(r"(buster|bullseye|bookworm|trixie|forky|sid|focal|jammy|noble|plucky|questing)\b")


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
