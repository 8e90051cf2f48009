"""The certificates that this host lends to a build, so that its steps trust a proxy here that decrypts TLS."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tvsnap.images.descriptions.dockerfile import instructions
from tvsnap.images.descriptions.spec import DockerfileBase
from tvsnap.images.rootfs import remove_entry, resolve_inside, write_file
from tvsnap.images.small_files import read_small_text
from tvsnap.model.errors import UsageError
from tvsnap.model.network import certificate_variables

VARIABLE = "TVSNAP_BUILD_CERTIFICATES"
"""The environment variable that names the file (PEM)."""
NAME = "certificates.pem"
"""The file's name in the source of a Dockerfile's COPY."""
CONTEXT = "tvsnap-certificates"
"""The name of the build context that holds it."""
PLACE = "/etc/tvsnap-build-certificates.pem"
"""The file's path in the steps."""


def certificates() -> bytes | None:
    """Returns the certificates to lend; None if there are none.

    Raises:
        UsageError: the file cannot be read.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"{VARIABLE}: {path} cannot be read ({error.strerror}): name a file of certificates (PEM), or unset it"
        ) from None


def step_variables() -> Mapping[str, str]:
    """Returns the environment variables by which a step's programs find the certificates."""
    return certificate_variables(PLACE) if os.environ.get(VARIABLE) else {}


def lend(root: Path) -> None:
    """Writes the certificates, if any are lent, into a tree with shifted owners."""
    lent = certificates()
    if lent is not None:
        write_file(root, PLACE, lent)


def take_back(root: Path) -> None:
    """Removes them from the tree."""
    if os.environ.get(VARIABLE):
        remove_entry(resolve_inside(root, PLACE))


def lending(base: DockerfileBase, source: str) -> DockerfileBase:
    """Returns a base with a Dockerfile that copies the certificates at the beginning of each stage.

    Arguments (ARG) have their path, because these are variables of the steps, and not of the image.

    Args:
        base: the base.
        source: the name of the build context or image that they are copied from.
    """
    lines = (read_small_text(base.path, "replace") if base.text is None else base.text).splitlines()
    added = [f"COPY --from={source} {NAME} {PLACE}"]
    added += [f"ARG {name}={value}" for name, value in certificate_variables(PLACE).items()]
    for stage in reversed([one for one in instructions(lines) if one.name == "FROM"]):
        lines[stage.end : stage.end] = added
    return replace(base, text="\n".join((*lines, "")))
