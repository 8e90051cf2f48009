"""Makes a Debian system under the name of a public image, for Dockerfiles on machines that reach no registry."""

from __future__ import annotations

import re
from pathlib import Path

from tvsnap.images.build.bootstrap import bootstrap
from tvsnap.images.build.containers import ContainerTool
from tvsnap.images.build.steps import Steps
from tvsnap.images.descriptions.spec import DEFAULT_SUITE, DebianBase
from tvsnap.images.progress import BuildProgress
from tvsnap.model.errors import MachineLacks

_VERSIONS = {
    "debian": {"10": "buster", "11": "bullseye", "12": "bookworm", "13": "trixie"},
    "ubuntu": {"20.04": "focal", "22.04": "jammy", "24.04": "noble", "25.04": "plucky", "25.10": "questing"},
}
"""Suites by the version numbers in the tags of public images."""
_SUITE_IN_TAG = re.compile(r"(buster|bullseye|bookworm|trixie|forky|sid|focal|jammy|noble|plucky|questing)\b")


def suite_of(reference: str) -> str:
    """Returns the suite in an image's tag, such as debian:bookworm-slim; the default if the tag names none."""
    name, _, tag = reference.rpartition(":")
    if match := _SUITE_IN_TAG.search(tag):
        return match[1]
    versions = _VERSIONS.get(name.rpartition("/")[2], {})
    return versions.get(re.split(r"[-.]", tag)[0]) or versions.get(tag.partition("-")[0]) or DEFAULT_SUITE


def make_base(
    tool: ContainerTool,
    reference: str,
    suite: str,
    packages: tuple[str, ...],
    scratch: Path,
    cache: Path,
    progress: BuildProgress,
) -> None:
    """Bootstraps and loads a system; see `ImageStore.make_base`.

    `scratch` is an empty directory for the tree and temporary files; `cache` keeps downloaded packages.
    """
    root, work = scratch / "rootfs", scratch / "work"
    work.mkdir()
    steps = Steps(reference, 2, progress)
    with steps.step(f"bootstrap of {suite}"):
        remaining = bootstrap(DebianBase(suite), packages, root, work, cache / "apt" / suite, steps.output)
        if remaining:
            raise MachineLacks("packages in a base image need mmdebstrap: apt-get install mmdebstrap")
    with steps.step(f"into {tool.place}"):
        tool.load(root, reference, steps.output, _what_it_is(root, suite, packages))


def _what_it_is(root: Path, suite: str, packages: tuple[str, ...]) -> str:
    """Describes the substitute for the public image of that name."""
    words = f"a minimal {suite}" + (f" with {' '.join(packages)}" if packages else "")
    if any(root.glob("usr/lib/python3*/EXTERNALLY-MANAGED")):
        words += "; its pip installs into virtual environments only, or with --break-system-packages"
    return words
