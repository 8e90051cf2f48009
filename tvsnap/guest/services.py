"""Command lines for PID 1's program that run a program in a service's root directory; see native/init/roots.c."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvsnap.guest.protocol import INIT
from tvsnap.model.errors import UsageError
from tvsnap.model.images import Image
from tvsnap.model.services import ImageService

ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "TERM": "xterm",
}
"""Variables of every process in a sandbox, unless the image sets them."""


def binds(image: Image) -> dict[str, str]:
    """Returns the variable for PID 1's environment that lists the mounts of an image's services."""
    paths = [path for pair in image.services.mounts for path in pair]
    return {"TVSNAP_BINDS": "\n".join(paths)} if paths else {}


def find_service(image: Image, name: str | None) -> ImageService | None:
    """Returns a service of an image (None for the main one, or without a name); raises UsageError for unknown ones."""
    if name is None or name == image.services.main:
        return None
    if (service := image.services.named(name)) is None:
        raise UsageError(f'the image {image.name} has no service "{name}"; have: {", ".join(image.services.names)}')
    return service


def entering(
    service: ImageService,
    program: Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] = {},
    user: str | None = None,
) -> list[str]:
    """Returns the command line that runs a program in the root of a service; PID 1 must run it as root.

    The directory, the environment and the user are the service's, unless they are given.
    """
    return [INIT, "enter", *_inside(service, program, cwd, env, user)]


def beginning(service: ImageService) -> list[str]:
    """Returns the command line that starts a service in the background; PID 1 must run it as root."""
    return [INIT, "begin", service.log, service.end, *_inside(service, service.command, None, {}, None)]


def _inside(
    service: ImageService, program: Sequence[str], cwd: str | None, env: Mapping[str, str], user: str | None
) -> list[str]:
    variables = [f"{name}={value}" for name, value in {**ENVIRONMENT, **service.env, **env}.items()]
    where = service.workdir if cwd is None else cwd
    return [service.root or "/", user or service.user, where, str(len(variables)), *variables, *program]
